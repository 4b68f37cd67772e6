/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The VMA ledger: how many VMAs a process has, at the calls that can change it. */
#ifndef ALLOCTRACE_BPF_VMAS_BPF_H
#define ALLOCTRACE_BPF_VMAS_BPF_H

/* A global function, see bpf/walk.bpf.h. */
__noinline int vmas_exit(const struct at_slot *slot, __u32 class, __u64 start_ns, __u64 end_ns)
{
	__u64 cnt = bpf_get_current_task_btf()->mm->map_count;
	struct at_ledger *ledger;

	if (!slot || class >= AT_CLASS_CNT || !cfg_has_vmas)
		return 0;
	ledger = ledger_of(slot->phase);
	if (!ledger)
		return 0;
	if (!ledger->vma_first_ns) {
		ledger->vma_first_ns = start_ns;
		ledger->vma_first = slot->vma_cnt;
		ledger->vma_peak = slot->vma_cnt;
	}
	if (end_ns >= ledger->vma_last_ns) {
		ledger->vma_last_ns = end_ns;
		ledger->vma_last = cnt;
	}
	if (cnt > ledger->vma_peak)
		ledger->vma_peak = cnt;
	ledger->vma_growth[class] += cnt - slot->vma_cnt;
	return 0;
}

#endif
