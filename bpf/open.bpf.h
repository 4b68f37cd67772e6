/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * attach --name and --cgroup: processes that are not there yet. One is caught when
 * it executes a program of a wanted name or takes that name, or executes or is forked in a wanted
 * control group, or is moved into it.
 */
#ifndef ALLOCTRACE_BPF_OPEN_BPF_H
#define ALLOCTRACE_BPF_OPEN_BPF_H

static __always_inline bool is_open_name(const struct task_struct *task)
{
	char name[AT_COMM_BYTES] = {};

	bpf_probe_read_kernel_str(name, sizeof(name), task->comm);
	return bpf_map_lookup_elem(&open_names, name) != NULL;
}

static __always_inline bool is_open_cgroup(__u64 id)
{
	return bpf_map_lookup_elem(&open_cgroups, &id) != NULL;
}

/* One that is wanted is above the current process, or its own; level 0 is the root of all. */
static __always_inline bool is_current_below(void)
{
	for (int level = 0; level < OPEN_LEVEL_MAX; level++) {
		__u64 id = bpf_get_current_ancestor_cgroup_id(level);

		if (!id)
			return false;
		if (is_open_cgroup(id))
			return true;
	}
	return false;
}

/* The process becomes a target, its only thread known. */
static __always_inline bool open_claim(struct task_struct *task, __u8 *target)
{
	struct at_slot *slot = slot_of(task, task->pid, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!slot) {
		loss_count(AT_LOSS_SLOT_FULL);
		return false;
	}
	slot->start_ns = 0;
	slot->fault_ns = 0;
	slot->row = 0;
	slot->exec_cnt = 0;
	slot->is_fresh = 0;
	slot->scope = AT_SCOPE_PROCESS;
	row_begin(slot, task);
	phases_seen[AT_PHASE_STARTUP] = 1;
	*target = AT_PHASE_STARTUP + 1;
	return true;
}

static __always_inline bool is_below(const struct cgroup *group)
{
	for (int level = 0; level < OPEN_LEVEL_MAX && group; level++) {
		const struct cgroup_subsys_state *parent = group->self.parent;

		if (is_open_cgroup(group->kn->id))
			return true;
		group = parent ? parent->cgroup : NULL;
	}
	return false;
}

/* A process that ran already becomes a target. Its other threads become known by the next pass, or their next call. */
static __always_inline void open_find(struct task_struct *leader, __u8 *target)
{
	struct at_slot *slot = slot_of(leader, leader->pid, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!slot) {
		loss_count(AT_LOSS_SLOT_FULL);
		return;
	}
	if (!row_find(slot, leader, AT_SCOPE_PROCESS))
		return;
	phases_seen[AT_PHASE_STARTUP] = 1;
	*target = AT_PHASE_STARTUP + 1;
	if (cfg_has_callchains)
		callchain_exec(leader);
}

/* Where the process could be caught; NULL: it is a target, or nobody is to be. */
static __always_inline __u8 *open_target(const struct task_struct *task)
{
	struct at_attach *attach = cfg_is_open ? attach_of() : NULL;
	__u8 *target;

	if (!attach || !attach->is_open || attach->is_over)
		return NULL;
	target = target_of(task->tgid);
	return target && !*target ? target : NULL;
}

/* After row_fork. True when the child was caught. */
static __always_inline bool open_fork(const struct task_struct *parent, struct task_struct *child)
{
	__u8 *target = parent->tgid != child->tgid ? open_target(child) : NULL;

	if (!target || !(is_current_below() || is_open_cgroup(child->cgroups->dfl_cgrp->kn->id)))
		return false;
	return open_claim(child, target);
}

/* True when the process was caught. It has one thread. */
static __always_inline bool open_exec(struct task_struct *task)
{
	__u8 *target = open_target(task);

	if (!target || !(is_open_name(task) || is_current_below()))
		return false;
	return open_claim(task, target);
}

/* The name of a process is that of its first thread. exec comes here too, before the new program is there. */
static __always_inline int open_rename(struct task_struct *task, const char *comm)
{
	const struct pt_regs *regs = (const struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	__u8 *target = task->pid == task->tgid ? open_target(task) : NULL;
	unsigned long call = regs->orig_ax;
	char name[AT_COMM_BYTES] = {};

	if (!target || call == NR_EXECVE || call == NR_EXECVEAT || call == NR_IA32_EXECVE || call == NR_IA32_EXECVEAT)
		return 0;
	bpf_probe_read_kernel_str(name, sizeof(name), comm);
	if (bpf_map_lookup_elem(&open_names, name))
		open_find(task, target);
	return 0;
}

/* is_whole: all of its threads are moved. */
static __always_inline int open_move(struct task_struct *task, bool is_whole)
{
	__u8 *target = is_whole || task->pid == task->tgid ? open_target(task) : NULL;

	if (target && is_below(task->cgroups->dfl_cgrp))
		open_find(task->group_leader, target);
	return 0;
}

#endif
