/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The lock ledger: how long targets wait for kernel locks inside traced calls
 * and page faults. lock:contention_begin and _end fire in the waiting thread and
 * only when there is something to wait for. A mutex may fire twice before its
 * end, and a lock may be waited for inside the wait for another: only the first
 * counts.
 */
#ifndef ALLOCTRACE_BPF_LOCKS_BPF_H
#define ALLOCTRACE_BPF_LOCKS_BPF_H

LEDGER_MAP(lock_ledgers, struct at_lock_ledger);

static __always_inline __u8 lock_kind(__u64 lock, __u32 flags, struct task_struct *task)
{
	if (task->mm && lock == (__u64)&task->mm->mmap_lock)
		return flags & LCB_F_READ ? AT_LOCK_MMAP_READ : AT_LOCK_MMAP_WRITE;
	if (flags & LCB_F_MUTEX)
		return AT_LOCK_MUTEX;
	if (flags & LCB_F_SPIN)
		return AT_LOCK_SPIN;
	return flags & (LCB_F_READ | LCB_F_WRITE) ? AT_LOCK_SEM : AT_LOCK_OTHER;
}

static __always_inline int lock_begin(__u64 lock, __u32 flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u8 *target = target_of(task->tgid);
	struct at_slot *slot;

	if (!target || !*target)
		return 0;
	slot = slot_of(task, task->pid, 0);
	if (!slot || slot->wait_lock || !(slot->start_ns || slot->fault_ns))
		return 0;
	slot->wait_lock = lock;
	slot->wait_kind = lock_kind(lock, flags, task);
	slot->wait_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline void wait_add(struct at_wait *wait, __u64 ns)
{
	wait->cnt++;
	wait->sum_ns += ns;
	if (ns > wait->max_ns)
		wait->max_ns = ns;
}

/* A page fault may happen inside a call: then the wait is part of both. */
static __always_inline int lock_end(__u64 lock)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct at_slot *slot = slot_of(task, task->pid, 0);
	struct at_lock_ledger *ledger;
	struct at_row_ledger *row;
	__u32 phase, kind;
	__u64 ns;

	if (!slot || !lock || slot->wait_lock != lock)
		return 0;
	ns = at_duration_ns(slot->wait_ns, bpf_ktime_get_ns());
	slot->wait_lock = 0;
	if (slot->fault_ns)
		slot->fault_wait_ns += ns;
	if (slot->start_ns)
		slot->call_wait_ns += ns;
	phase = slot->fault_ns ? slot->fault_phase : slot->phase;
	ledger = bpf_map_lookup_elem(&lock_ledgers, &phase);
	row = row_ledger_of(slot);
	kind = slot->wait_kind;
	barrier_var(kind); /* one register for the test and both uses */
	if (kind >= AT_LOCK_CNT)
		return 0;
	if (ledger)
		wait_add(&ledger->kinds[kind], ns);
	if (row)
		wait_add(&row->locks[kind], ns);
	return 0;
}

/* What a call or a fault that is over has waited. A global function, see bpf/walk.bpf.h. */
__noinline int locks_settle(__u64 ns, __u32 phase, __u32 class)
{
	struct at_lock_ledger *ledger;

	if (!cfg_has_locks)
		return 0;
	ledger = bpf_map_lookup_elem(&lock_ledgers, &phase);
	if (ledger && class < AT_CLASS_CNT)
		wait_add(&ledger->classes[class], ns);
	return 0;
}

#endif
