/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Where the ledgers hang on calls, page faults and the lives of processes. No ledger's own logic here. */
#ifndef ALLOCTRACE_BPF_LEDGERS_BPF_H
#define ALLOCTRACE_BPF_LEDGERS_BPF_H

/* On entry, after the slot has phase and syscall, before its clock is read. mm: of the task. */
static __always_inline void ledgers_enter(const struct pt_regs *regs, struct task_struct *task,
					  const struct mm_struct *mm, struct at_slot *slot)
{
	if (cfg_has_commit)
		commit_enter(regs, mm, slot);
	if (cfg_has_vmas)
		slot->vma_cnt = mm->map_count;
	if (cfg_has_stacks)
		stacks_enter(regs, task, slot);
	if (cfg_has_refaults)
		refault_enter(regs, task->tgid, mm, slot);
}

static __always_inline void ledgers_exit(const struct pt_regs *regs, long ret, struct at_slot *slot, __u32 class,
					 __u64 start_ns, __u64 end_ns)
{
	struct finished call = {regs->di, regs->si, regs->dx, regs->r10, ret};
	__u64 ns = at_duration_ns(start_ns, end_ns), wait_ns;

	if (cfg_has_vmas)
		vmas_exit(slot, class, start_ns, end_ns);
	if (cfg_has_locks && slot->call_wait_ns) {
		wait_ns = slot->call_wait_ns;
		slot->call_wait_ns = 0;
		locks_settle(wait_ns, slot->phase, class);
	}
	if (cfg_has_commit && slot->syscall != AT_SYS_MADVISE && slot->syscall != AT_SYS_PROCESS_MADVISE)
		commit_settle(slot, &call);
	if (cfg_has_stacks && class == AT_CLASS_MADVISE_HUGEPAGE && !huge_is_asked)
		huge_is_asked = 1;
	if (cfg_has_stacks && slot->is_stack)
		stacks_settle(slot, &call, ns);
	if (cfg_has_refaults)
		refault_settle(slot, &call, ns);
}

/* A fault that ended in a signal has left its waits behind. */
static __always_inline void ledgers_fault_begin(struct at_slot *slot, const struct task_struct *task, __u64 addr)
{
	if (cfg_has_locks)
		slot->fault_wait_ns = 0;
	if (cfg_has_stacks)
		stacks_fault_begin(slot, task, addr);
}

/* addr: the address that was touched. */
static __always_inline void ledgers_fault_end(struct at_slot *slot, __u32 class, __u64 addr, __u64 start_ns,
					      __u64 end_ns)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 ns = at_duration_ns(start_ns, end_ns);

	if (cfg_has_locks && slot->fault_wait_ns)
		locks_settle(slot->fault_wait_ns, slot->fault_phase, class);
	if (cfg_has_stacks)
		stacks_fault(slot, task, addr, ns);
	if (cfg_has_refaults)
		refault_fault(slot, task, addr, ns, end_ns);
}

static __always_inline void ledgers_fork(struct task_struct *parent, struct task_struct *child)
{
	if (cfg_has_commit)
		commit_fork(parent, child);
	if (cfg_has_stacks)
		stacks_fork(parent, child);
}

static __always_inline void ledgers_die(struct task_struct *task)
{
	if (cfg_has_commit)
		commit_die(task);
	if ((cfg_has_stacks || cfg_has_refaults) && !task->signal->live.counter)
		places_end(task->tgid);
}

/* Before the new program has its row. */
static __always_inline void ledgers_leave(struct task_struct *task, __u32 old_tid)
{
	if (cfg_has_commit)
		commit_leave(task, old_tid);
}

static __always_inline void ledgers_exec(struct task_struct *task)
{
	if (cfg_has_commit)
		commit_exec(task);
	if (cfg_has_stacks || cfg_has_refaults)
		places_end(task->tgid);
}

#endif
