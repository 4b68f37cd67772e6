/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * attach: which threads are known, and the row of each. A thread becomes known
 * by a pass over all threads (bpf/tasks.bpf.h), at its birth, or at its first
 * call; it gets a row then, and another with each program that it starts. Rows
 * are a breakdown: where there is none left, the totals do not suffer.
 */
#ifndef ALLOCTRACE_BPF_ROWS_BPF_H
#define ALLOCTRACE_BPF_ROWS_BPF_H

static __always_inline struct at_attach *attach_of(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&attach_state, &key);
}

/* NULL when the thread has none. */
static __always_inline struct at_row *row_of(const struct at_slot *slot)
{
	__u32 number = slot->row - 1;

	return slot->row ? bpf_map_lookup_elem(&rows, &number) : NULL;
}

/* The same of a task; for the ledgers, which are without rows where there is no attach. */
static __always_inline struct at_row *row_of_task(struct task_struct *task)
{
	struct at_slot *slot = cfg_has_rows ? slot_of(task, task->pid, 0) : NULL;

	return slot ? row_of(slot) : NULL;
}

static __always_inline struct at_row_ledger *row_ledger_of(const struct at_slot *slot)
{
	struct at_row *row = cfg_has_rows ? row_of(slot) : NULL;

	return row ? &row->ledger : NULL;
}

/* The number of a task in the user's pid namespace, whose level is given; 0 = not visible there. */
static __always_inline __u32 shown_number(const struct task_struct *task, __u32 level)
{
	const struct pid *pid = task->thread_pid;
	__u32 number = 0;

	if (!pid || pid->level < level)
		return 0;
	bpf_probe_read_kernel(&number, sizeof(number), (const char *)&pid->numbers + level * sizeof(struct upid));
	return number;
}

/* The number that user space has for it: another one than the kernel's where alloctrace is in a pid namespace of its
 * own. */
static __always_inline __u32 user_number(const struct task_struct *task, __u32 number)
{
	struct at_attach *attach = cfg_is_shown ? attach_of() : NULL;

	return attach ? shown_number(task, attach->level) : number;
}

static __always_inline void cpu_look(struct at_cpu *cpu, const struct task_struct *task)
{
	cpu->user_ns = task->utime;
	cpu->sys_ns = task->stime;
	cpu->total_ns = task->se.sum_exec_runtime;
}

static __always_inline void row_look(struct at_row *row, const struct task_struct *task)
{
	cpu_look(&row->last, task);
	bpf_probe_read_kernel(row->comm, sizeof(row->comm), task->comm);
}

/* The number of a row that nobody has; cfg_row_cnt when all are taken. */
static __always_inline __u32 row_take(struct at_attach *attach)
{
	__u32 number;

	if (!bpf_map_pop_elem(&free_rows, &number))
		return number;
	if (attach->row_next >= cfg_row_cnt)
		return cfg_row_cnt;
	return __sync_fetch_and_add(&attach->row_next, 1);
}

/* Gives a known thread its row. */
static __always_inline void row_begin(struct at_slot *slot, const struct task_struct *task)
{
	struct at_attach *attach = attach_of();
	struct at_row *row;
	__u32 number;

	if (!attach)
		return;
	number = row_take(attach);
	row = bpf_map_lookup_elem(&rows, &number);
	if (!row) {
		slot->row = AT_ROW_FULL;
		__sync_fetch_and_add(&attach->row_full_cnt, 1);
		return;
	}
	row->start_ns = task->group_leader->start_boottime;
	row->tgid = task->tgid;
	row->tid = task->pid;
	row->shown_tgid = shown_number(task->group_leader, attach->level);
	row->shown_tid = shown_number(task, attach->level);
	row->exec_cnt = slot->exec_cnt;
	cpu_look(&row->first, task);
	row_look(row, task);
	row->end_ns = 0;
	row->begin_ns = bpf_ktime_get_ns();
	slot->row = number + 1;
}

static __always_inline void row_end(struct at_slot *slot, const struct task_struct *task)
{
	struct at_row *row = row_of(slot);

	if (!row)
		return;
	row_look(row, task);
	row->end_ns = bpf_ktime_get_ns();
}

/* True for the one who makes it known: a pass and the thread itself may meet. */
static __always_inline bool slot_claim(struct at_slot *slot, __u32 scope)
{
	return !slot->scope && __sync_val_compare_and_swap(&slot->scope, AT_SCOPE_NONE, scope) == AT_SCOPE_NONE;
}

/* Makes a thread known that ran already. True for the one who did. */
static __always_inline bool row_find(struct at_slot *slot, const struct task_struct *task, __u32 scope)
{
	struct at_row *row;

	if (!slot_claim(slot, scope))
		return false;
	slot->is_fresh = 1;
	row_begin(slot, task);
	row = row_of(slot);
	if (row)
		row->is_found = 1;
	return true;
}

/* A global function, see bpf/walk.bpf.h: of a thread that no pass has met. */
__noinline int row_unknown(struct at_slot *slot)
{
	if (slot && slot_claim(slot, AT_SCOPE_PROCESS))
		row_begin(slot, bpf_get_current_task_btf());
	return 0;
}

static __always_inline void row_enter(struct at_slot *slot)
{
	if (!slot->scope)
		row_unknown(slot);
	slot->is_fresh = 0;
}

/* Whether the call that ends now, and whose entry was not seen, was running when attach began. */
static __always_inline bool row_was_inside(struct at_slot *slot)
{
	bool is_fresh = !slot || !slot->scope || slot->is_fresh;

	if (slot)
		row_enter(slot);
	return is_fresh;
}

/* Adds one event. An error adds no bytes. */
static __always_inline void row_add(const struct at_slot *slot, __u32 class, __u64 ns, __u64 bytes, __u32 err)
{
	struct at_row *row = row_of(slot);

	if (!row)
		return;
	/* Linux 6.1 would not know of a copy in memory that it is as small as the one that is compared. */
	barrier_var(class);
	if (class >= AT_CLASS_CNT)
		return;
	row->classes[class].call_cnt++;
	row->classes[class].sum_ns += ns;
	if (err)
		row->classes[class].error_cnt++;
	else
		row->classes[class].bytes += bytes;
}

/* What a new thread or process inherits. In an array, the slot may be left from an earlier thread of that number. */
static __always_inline void row_fork(struct task_struct *parent, struct task_struct *child)
{
	bool is_thread = parent->tgid == child->tgid;
	__u8 *from = target_of(parent->tgid), *to = target_of(child->tgid);
	struct at_slot *mother = slot_of(parent, parent->pid, 0), *born;
	__u32 scope = mother ? mother->scope : AT_SCOPE_NONE, exec_cnt = mother ? mother->exec_cnt : 0;
	__u8 byte = from ? *from & ~TARGET_UNKEPT : 0;
	struct at_attach *attach = attach_of();

	if (!attach || attach->is_over)
		return;
	if (!scope && byte && !cfg_is_partial)
		scope = AT_SCOPE_PROCESS;
	if (!cfg_is_following && (!is_thread || scope == AT_SCOPE_THREAD))
		scope = AT_SCOPE_NONE;
	else if (!is_thread && scope)
		scope = AT_SCOPE_PROCESS;
	if (!is_thread && to)
		*to = scope ? (byte ? byte : AT_PHASE_STARTUP + 1) : 0;
	if (scope && !to)
		loss_count(AT_LOSS_FORK_FULL);
	born = slot_of(child, child->pid, scope ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	if (!born)
		return;
	born->start_ns = 0;
	born->fault_ns = 0;
	born->scope = scope;
	born->row = 0;
	born->exec_cnt = is_thread ? exec_cnt : 0;
	born->is_fresh = 0;
	if (scope)
		row_begin(born, child);
}

/* The slot stays known: an exiting thread takes page faults after this. */
static __always_inline void row_die(const struct task_struct *task)
{
	struct at_slot *slot = slot_of(bpf_get_current_task_btf(), task->pid, 0);

	if (slot && slot->scope)
		row_end(slot, task);
}

/*
 * A new program, a new row. The thread that calls execve takes over the number of the
 * process; in an array it has left its old slot behind.
 */
static __always_inline void row_exec(struct task_struct *task, __u32 old_tid)
{
	struct at_slot *slot = slot_of(task, task->pid, 0);
	struct at_slot *old = slot;

	if (!cfg_is_storage && old_tid != task->pid)
		old = slot_of(task, old_tid, 0);
	if (!slot || !old || !old->scope)
		return;
	row_end(old, task);
	slot->scope = old->scope;
	slot->exec_cnt = old->exec_cnt + 1;
	slot->is_fresh = 0;
	if (old != slot) {
		old->scope = AT_SCOPE_NONE;
		old->row = 0;
	}
	slot->row = 0;
	row_begin(slot, task);
}

#endif
