/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The bodies of the page fault events.
 *
 * Tier 1: the kernel's software event PAGE_FAULTS fires when the handler
 * starts, PAGE_FAULTS_MIN or _MAJ when it has succeeded, both in the faulting
 * thread, for faults from kernel mode too. A fault that ends in a signal has no
 * end; the next one's start overwrites its own.
 *
 * Tier 2: handle_mm_fault() itself, so without the way to it: the exception and
 * the search for the VMA. What is a fault, and of which kind, is decided as
 * mm_account_fault() does, where the events of tier 1 fire.
 */
#ifndef ALLOCTRACE_BPF_FAULT_BPF_H
#define ALLOCTRACE_BPF_FAULT_BPF_H

static __always_inline int fault_begin(__u64 addr)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u8 *target = target_of(task->tgid);
	struct at_slot *slot;

	if (!target || !*target)
		return 0;
	slot = slot_of(task, task->pid, cfg_is_partial ? 0 : BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!slot || (cfg_is_partial && !slot->scope))
		return 0;
	slot->fault_phase = target_phase(target);
	ledgers_fault_begin(slot, task, addr);
	slot->fault_ns = bpf_ktime_get_ns();
	return 0;
}

/* A fault without a start is not counted here: user space sees it missing in the event's own count. */
static __always_inline int fault_end(enum at_class class, __u64 addr)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct at_slot *slot = slot_of(task, task->pid, 0);
	__u64 start_ns, end_ns;

	if (!slot || !slot->fault_ns)
		return 0;
	start_ns = slot->fault_ns;
	slot->fault_ns = 0;
	end_ns = bpf_ktime_get_ns();
	cell_add(slot->fault_phase, class, start_ns, end_ns, PAGE_BYTES, 0);
	if (cfg_has_rows)
		row_add(slot, class, at_duration_ns(start_ns, end_ns), PAGE_BYTES, 0);
	ledgers_fault_end(slot, class, addr, start_ns, end_ns);
	if (cfg_has_callchains)
		callchain_add(WALK_FAULT, slot->fault_phase, class, at_duration_ns(start_ns, end_ns), PAGE_BYTES);
	return 0;
}

/*
 * Not every call is a page fault of the program: those without registers come
 * from get_user_pages(). One that was tried before goes on: its start stands.
 */
static __always_inline int fault_enter_fx(__u64 addr, __u32 flags, const struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct at_slot *slot;

	if (!regs)
		return 0;
	if (flags & FAULT_FLAG_TRIED) {
		slot = slot_of(task, task->pid, 0);
		if (slot && slot->fault_ns)
			return 0;
	}
	return fault_begin(addr);
}

static __always_inline int fault_exit_fx(__u64 addr, __u32 flags, const struct pt_regs *regs, __u32 ret)
{
	if (!regs || ret & (VM_FAULT_ERROR | VM_FAULT_RETRY))
		return 0;
	return fault_end(ret & VM_FAULT_MAJOR || flags & FAULT_FLAG_TRIED ? AT_CLASS_FAULT_MAJOR : AT_CLASS_FAULT_MINOR,
			 addr);
}

#endif
