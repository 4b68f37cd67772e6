/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The life of a process: as a target, in the rows of attach, in the ledgers, and for callchains. */
#ifndef ALLOCTRACE_BPF_LIFE_BPF_H
#define ALLOCTRACE_BPF_LIFE_BPF_H

static __always_inline int life_fork(struct task_struct *parent, struct task_struct *child)
{
	bool is_caught;

	if (cfg_has_rows)
		row_fork(parent, child);
	else
		target_fork(parent, child);
	is_caught = cfg_has_rows && open_fork(parent, child);
	ledgers_fork(parent, child);
	/* Of a parent that is no target nothing is known. */
	if (cfg_has_callchains && is_caught)
		callchain_exec(child);
	else if (cfg_has_callchains)
		callchain_fork(parent, child);
	return 0;
}

static __always_inline int life_exit(struct task_struct *task)
{
	target_exit(task);
	if (cfg_has_rows)
		row_die(task);
	ledgers_die(task);
	if (cfg_has_callchains)
		callchain_exit(task);
	return 0;
}

static __always_inline int life_exec(struct task_struct *task, __u32 old_tid)
{
	ledgers_leave(task, old_tid);
	if (cfg_has_rows && !open_exec(task))
		row_exec(task, old_tid);
	target_exec(task);
	ledgers_exec(task);
	if (cfg_has_callchains)
		callchain_exec(task);
	return 0;
}

#endif
