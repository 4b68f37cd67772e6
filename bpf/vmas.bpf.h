/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The VMA ledger: how many VMAs a process has, at the calls that can change it. */
#ifndef ALLOCTRACE_BPF_VMAS_BPF_H
#define ALLOCTRACE_BPF_VMAS_BPF_H

static __always_inline void vmas_exit(const struct at_slot *slot, const struct task_struct *task, __u32 class,
				      __u64 start_ns, __u64 end_ns)
{
	struct at_ledger *ledger = ledger_of(slot->phase);
	__u64 cnt = task->mm->map_count;

	if (!ledger || class >= AT_CLASS_CNT)
		return;
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
}

#endif
