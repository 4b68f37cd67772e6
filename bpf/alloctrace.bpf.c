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
#include "bpf/rss.bpf.h"
#include "bpf/stacks.bpf.h"

#include "bpf/commit.bpf.h"

#include "bpf/refault.bpf.h"

#include "bpf/ledgers.bpf.h"

#include "bpf/open.bpf.h"

#include "bpf/life.bpf.h"

#include "bpf/fault.bpf.h"
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

/* Tier 2: the functions of the memory syscalls themselves, of 64-bit and of 32-bit calls. */
#define SHELLS_FX(word, function, syscall)                                        \
	SEC("?fentry/__x64_sys_" function)                                        \
	int BPF_PROG(at_##word##_fe, struct pt_regs *regs)                        \
	{                                                                         \
		return syscall_enter_fx(regs, syscall);                           \
	}                                                                         \
	SEC("?fexit/__x64_sys_" function)                                         \
	int BPF_PROG(at_##word##_fx, struct pt_regs *regs, long ret)              \
	{                                                                         \
		return call_exit(regs, bpf_get_current_task_btf(), ret, syscall); \
	}
SHELLS_FX(mmap, "mmap", AT_SYS_MMAP)
SHELLS_FX(mprotect, "mprotect", AT_SYS_MPROTECT)
SHELLS_FX(munmap, "munmap", AT_SYS_MUNMAP)
SHELLS_FX(brk, "brk", AT_SYS_BRK)
SHELLS_FX(mremap, "mremap", AT_SYS_MREMAP)
SHELLS_FX(madvise, "madvise", AT_SYS_MADVISE)
SHELLS_FX(pkey, "pkey_mprotect", AT_SYS_PKEY_MPROTECT)
SHELLS_FX(advise, "process_madvise", AT_SYS_PROCESS_MADVISE)

#define SHELL_IA32(word, function, syscall)      \
	SEC("?fentry/__ia32_" function)          \
	int BPF_PROG(at_##word##_ia)             \
	{                                        \
		return compat_enter_fx(syscall); \
	}
SHELL_IA32(mmap, "compat_sys_ia32_mmap", AT_SYS_MMAP)
SHELL_IA32(mmap2, "sys_mmap_pgoff", AT_SYS_MMAP)
SHELL_IA32(mprotect, "sys_mprotect", AT_SYS_MPROTECT)
SHELL_IA32(munmap, "sys_munmap", AT_SYS_MUNMAP)
SHELL_IA32(brk, "sys_brk", AT_SYS_BRK)
SHELL_IA32(mremap, "sys_mremap", AT_SYS_MREMAP)
SHELL_IA32(madvise, "sys_madvise", AT_SYS_MADVISE)
SHELL_IA32(pkey, "sys_pkey_mprotect", AT_SYS_PKEY_MPROTECT)
SHELL_IA32(advise, "sys_process_madvise", AT_SYS_PROCESS_MADVISE)

#define SHELL_LAST(word, function, nr)           \
	SEC("?fentry/" function)                 \
	int BPF_PROG(at_##word##_fe)             \
	{                                        \
		return syscall_last_look_fx(nr); \
	}
SHELL_LAST(leave, "__x64_sys_exit_group", NR_EXIT_GROUP)
SHELL_LAST(exec, "__x64_sys_execve", NR_EXECVE)
SHELL_LAST(execat, "__x64_sys_execveat", NR_EXECVEAT)
SHELL_LAST(leave_ia, "__ia32_sys_exit_group", NR_IA32_EXIT_GROUP)

SEC("?fentry/handle_mm_fault")
int BPF_PROG(at_fault_fe, struct vm_area_struct *vma, unsigned long addr, unsigned int flags, struct pt_regs *regs)
{
	return fault_enter_fx(addr, flags, regs);
}

SEC("?fexit/handle_mm_fault")
int BPF_PROG(at_fault_fx, struct vm_area_struct *vma, unsigned long addr, unsigned int flags, struct pt_regs *regs,
	     unsigned int ret)
{
	return fault_exit_fx(addr, flags, regs, ret);
}

SEC("?fexit/__vm_enough_memory")
int BPF_PROG(at_charge_fx, struct mm_struct *mm, long pages, int cap, int ret)
{
	return commit_charged_fx(pages, ret);
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

SEC("?tp_btf/task_rename")
int BPF_PROG(at_rename_btf, struct task_struct *task, const char *comm)
{
	return open_rename(task, comm);
}

SEC("?tp_btf/cgroup_attach_task")
int BPF_PROG(at_move_btf, struct cgroup *group, const char *path, struct task_struct *task, bool is_whole)
{
	return open_move(task, is_whole);
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
int at_fault_begin(struct bpf_perf_event_data *ctx)
{
	return fault_begin(ctx->addr);
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
