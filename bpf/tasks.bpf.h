/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * attach: passes over all threads that the user's pid namespace has, by the kernel's own
 * iterator. It runs in the process that reads it, so that process's namespace
 * is the user's.
 */
#ifndef ALLOCTRACE_BPF_TASKS_BPF_H
#define ALLOCTRACE_BPF_TASKS_BPF_H

static __always_inline void task_list(struct seq_file *seq, struct task_struct *task, __u32 level)
{
	struct task_struct *leader = task->group_leader;
	struct at_task found = {};

	found.process_start_ns = leader->start_boottime;
	found.start_ns = task->start_boottime;
	found.tgid = task->tgid;
	found.tid = task->pid;
	found.shown_tgid = shown_number(leader, level);
	found.shown_tid = shown_number(task, level);
	found.is_kernel = !!(task->flags & PF_KTHREAD);
	found.is_dead = task->exit_state != 0;
	found.cgroup_id = task->cgroups->dfl_cgrp->kn->id;
	bpf_probe_read_kernel(found.comm, sizeof(found.comm), task->comm);
	bpf_probe_read_kernel(found.process_comm, sizeof(found.process_comm), leader->comm);
	bpf_seq_write(seq, &found, sizeof(found));
}

/* AT_SCOPE_* that is wanted of a thread. */
static __always_inline __u32 task_scope(const struct task_struct *task)
{
	__u32 tgid = task->tgid, tid = task->pid;
	struct at_wanted *of_process = bpf_map_lookup_elem(&wanted, &tgid);
	struct at_wanted *of_thread = bpf_map_lookup_elem(&wanted, &tid);

	if (of_process && of_process->scope == AT_SCOPE_PROCESS &&
	    of_process->start_ns == task->group_leader->start_boottime)
		return AT_SCOPE_PROCESS;
	if (of_thread && of_thread->scope == AT_SCOPE_THREAD && of_thread->start_ns == task->start_boottime)
		return AT_SCOPE_THREAD;
	return AT_SCOPE_NONE;
}

static __always_inline void task_mark(struct at_attach *attach, struct task_struct *task)
{
	__u32 scope = task->exit_state ? AT_SCOPE_NONE : task_scope(task);
	struct at_slot *slot;

	if (!scope)
		return;
	slot = slot_of(task, task->pid, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!slot) {
		loss_count(AT_LOSS_SLOT_FULL);
		return;
	}
	if (row_find(slot, task, scope))
		attach->marked_cnt++;
}

static __always_inline int tasks_step(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct at_attach *attach = attach_of();
	struct at_slot *slot;
	struct at_row *row;

	if (!task || !attach)
		return 0;
	attach->self_tgid = bpf_get_current_pid_tgid() >> 32;
	attach->level = bpf_get_current_task_btf()->thread_pid->level;
	if (attach->pass == AT_PASS_LIST) {
		task_list(ctx->meta->seq, task, attach->level);
	} else if (cfg_has_rows && attach->pass == AT_PASS_MARK) {
		task_mark(attach, task);
	} else if (cfg_has_rows && attach->pass == AT_PASS_LOOK && !task->exit_state) {
		slot = slot_of(task, task->pid, 0);
		row = slot && slot->scope ? row_of(slot) : NULL;
		if (row && row->tid == (__u32)task->pid)
			row_look(row, task);
	}
	return 0;
}

#endif
