/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The VMA ledger: how many VMAs a process has, at the calls that can change it. */
#ifndef ALLOCTRACE_BPF_VMAS_BPF_H
#define ALLOCTRACE_BPF_VMAS_BPF_H

static __always_inline void vmas_exit_row(struct at_row_ledger *row, __u64 before, __u64 cnt, __u64 start_ns,
					  __u64 end_ns)
{
	if (!row->vma_first_ns || start_ns < row->vma_first_ns) {
		row->vma_first_ns = start_ns;
		row->vma_first = before;
	}
	row->vma_last_ns = end_ns;
	row->vma_last = cnt;
	if (before > row->vma_peak)
		row->vma_peak = before;
	if (cnt > row->vma_peak)
		row->vma_peak = cnt;
}

/* A global function, see bpf/walk.bpf.h. */
__noinline int vmas_exit(const struct at_slot *slot, __u32 class, __u64 start_ns, __u64 end_ns)
{
	__u64 cnt = bpf_get_current_task_btf()->mm->map_count;
	struct at_row_ledger *row;
	struct at_ledger *ledger;

	if (!slot || class >= AT_CLASS_CNT || !cfg_has_vmas)
		return 0;
	ledger = ledger_of(slot->phase);
	if (!ledger)
		return 0;
	/* Of calls at once the one that began first need not end first. */
	if (!ledger->vma_first_ns || start_ns < ledger->vma_first_ns) {
		ledger->vma_first_ns = start_ns;
		ledger->vma_first = slot->vma_cnt;
	}
	if (end_ns >= ledger->vma_last_ns) {
		ledger->vma_last_ns = end_ns;
		ledger->vma_last = cnt;
	}
	if (slot->vma_cnt > ledger->vma_peak)
		ledger->vma_peak = slot->vma_cnt;
	if (cnt > ledger->vma_peak)
		ledger->vma_peak = cnt;
	ledger->vma_growth[class] += cnt - slot->vma_cnt;
	row = row_ledger_of(slot);
	if (row)
		vmas_exit_row(row, slot->vma_cnt, cnt, start_ns, end_ns);
	return 0;
}

#endif
