/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The programs: shells that name a hook and call the body. No logic here. */
#include "bpf/kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/callchain.h"
#include "bpf/event.h"

#include "bpf/maps.bpf.h"

#include "bpf/compat.bpf.h"
#include "bpf/rows.bpf.h"
#include "bpf/target.bpf.h"
#include "bpf/vmas.bpf.h"
#include "bpf/walk.bpf.h"

#include "bpf/unwind.bpf.h"

#include "bpf/callchain.bpf.h"

#include "bpf/locks.bpf.h"
#include "bpf/places.bpf.h"
#include "bpf/stacks.bpf.h"

#include "bpf/commit.bpf.h"

#include "bpf/refault.bpf.h"

#include "bpf/ledgers.bpf.h"

#include "bpf/life.bpf.h"

#include "bpf/fault.bpf.h"
#include "bpf/rss.bpf.h"
#include "bpf/syscall.bpf.h"
#include "bpf/tasks.bpf.h"

SEC("?tp_btf/sys_enter")
int BPF_PROG(at_enter_btf, struct pt_regs *regs, long nr)
{
	return syscall_enter(regs, nr);
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(at_exit_btf, struct pt_regs *regs, long ret)
{
	return syscall_exit(regs, ret);
}

/* Of the tracepoints of single syscalls; user space attaches each program to several. */
SEC("?tracepoint")
int at_enter_tp(void *ctx)
{
	return syscall_enter_one();
}

SEC("?tracepoint")
int at_exit_tp(void *ctx)
{
	return syscall_exit_one();
}

SEC("?tracepoint")
int at_last_tp(void *ctx)
{
	return syscall_last_look();
}

SEC("?iter/task")
int at_tasks(struct bpf_iter__task *ctx)
{
	return tasks_step(ctx);
}

SEC("?tp_btf/sched_process_fork")
int BPF_PROG(at_fork_btf, struct task_struct *parent, struct task_struct *child)
{
	return life_fork(parent, child);
}

SEC("?tp_btf/sched_process_exit")
int BPF_PROG(at_die_btf, struct task_struct *task)
{
	return life_exit(task);
}

SEC("?tp_btf/sched_process_exec")
int BPF_PROG(at_exec_btf, struct task_struct *task, int old_tid)
{
	return life_exec(task, old_tid);
}

SEC("?tp_btf/contention_begin")
int BPF_PROG(at_wait_btf, void *lock, unsigned int flags)
{
	return lock_begin((__u64)lock, flags);
}

SEC("?tp_btf/contention_end")
int BPF_PROG(at_got_btf, void *lock, int ret)
{
	return lock_end((__u64)lock);
}

SEC("?perf_event")
int at_fault_begin(void *ctx)
{
	return fault_begin();
}

SEC("?perf_event")
int at_fault_minor(struct bpf_perf_event_data *ctx)
{
	return fault_end(AT_CLASS_FAULT_MINOR, ctx->addr);
}

SEC("?perf_event")
int at_fault_major(struct bpf_perf_event_data *ctx)
{
	return fault_end(AT_CLASS_FAULT_MAJOR, ctx->addr);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
