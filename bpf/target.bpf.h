/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Who is traced, and in which phase: the life of target bytes and slots. */
#ifndef ALLOCTRACE_BPF_TARGET_BPF_H
#define ALLOCTRACE_BPF_TARGET_BPF_H

static __always_inline void phase_switch(__u8 *target, __u32 phase)
{
	struct at_ledger *ledger;

	if (phase >= AT_PHASE_CNT)
		return;
	*target = (*target & TARGET_UNKEPT) | (phase + 1);
	phases_seen[phase] = 1;
	if (!cfg_has_commit)
		return;
	/* The phase begins with what is there. */
	ledger = ledger_of(phase);
	if (ledger && commit_level > ledger->peak_pages)
		ledger->peak_pages = commit_level;
}

/*
 * A new process starts in its parent's phase. The byte is written for every
 * new process: it may be left from an earlier one with the same number. It
 * is not cleared at exit because an exiting thread still takes page faults after
 * the exit event (robust futexes, clear_child_tid).
 */
static __always_inline int target_fork(const struct task_struct *parent, const struct task_struct *child)
{
	__u32 parent_tgid = parent->tgid, child_tgid = child->tgid;
	__u8 *from, *to;
	__u8 byte;

	if (parent_tgid == child_tgid) /* a thread */
		return 0;
	from = target_of(parent_tgid);
	byte = from && cfg_is_following ? *from & ~TARGET_UNKEPT : 0;
	to = target_of(child_tgid);
	if (to)
		*to = byte;
	else if (byte)
		loss_count(AT_LOSS_FORK_FULL);
	return 0;
}

/*
 * A thread that dies inside a call leaves a start time which must not meet a
 * later thread of the same number. Of the thread that calls execve in a group
 * nothing is left behind: it takes over the leader's number outside any traced call.
 */
static __always_inline int target_exit(struct task_struct *task)
{
	__u32 tid = task->pid;
	__u8 *target = target_of(task->tgid);
	struct at_slot *slot;

	if (!target || !*target)
		return 0;
	slot = slot_of(bpf_get_current_task_btf(), tid, 0);
	if (!slot)
		return 0;
	if (slot->start_ns) {
		loss_count(AT_LOSS_NEVER_RETURNED);
		flight_count(slot->syscall, -1);
	}
	slot->start_ns = 0;
	slot->fault_ns = 0;
	slot->wait_lock = 0;
	slot->call_wait_ns = 0;
	return 0;
}

/*
 * exec takes the page fault events off a process that others may not inspect:
 * one that runs a set-user-ID or an unreadable program (begin_new_exec()).
 */
static __always_inline int target_exec(const struct task_struct *task)
{
	__u8 *target = target_of(task->tgid);

	if (cfg_has_faults && target && *target && !is_dumpable(task))
		loss_count(AT_LOSS_FAULT_HIDDEN);
	return 0;
}

#endif
