/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The kernel types and constants that the programs use, and of each type only
 * the fields that are read. libbpf relocates the fields to those of the running
 * kernel, so no header of the build machine's kernel is needed.
 */
#ifndef ALLOCTRACE_BPF_KERNEL_H
#define ALLOCTRACE_BPF_KERNEL_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef _Bool bool;

enum { false = 0, true = 1 };

/* Kernel ABI (linux/bpf.h), which never changes. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_STACK = 23,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1 << 0,
};

/* x86-64 syscall ABI (sys/mman.h, asm/thread_info.h, linux/mm.h, linux/mm_types.h). */
enum {
	PAGE_BYTES = 4096,
	MAX_ERRNO = 4095,
	TS_COMPAT = 0x2, /* the current syscall came in by the 32-bit entry */
	PROT_READ = 0x1,
	PROT_WRITE = 0x2,
	PROT_EXEC = 0x4,
	PROT_ANY = PROT_READ | PROT_WRITE | PROT_EXEC,
	VM_ANY = PROT_ANY, /* VM_READ, VM_WRITE, VM_EXEC have the same bits */
	VM_EXEC = PROT_EXEC,
	VM_ACCOUNT = 0x100000, /* the VMA's pages are charged to the commit account */
	MAP_PRIVATE = 0x2,
	MAP_TYPE = 0xf,
	MAP_FIXED = 0x10,
	MAP_ANONYMOUS = 0x20,
	MAP_GROWSDOWN = 0x100,
	MAP_NORESERVE = 0x4000,
	MAP_STACK = 0x20000,
	MAP_HUGETLB = 0x40000,
	MAP_FIXED_NOREPLACE = 0x100000,
	MREMAP_FIXED = 2,
	MREMAP_DONTUNMAP = 4,
	MADV_DONTNEED = 4,
	MADV_FREE = 8,
	MADV_HUGEPAGE = 14,
	MADV_NOHUGEPAGE = 15,
	MADV_POPULATE_READ = 22,
	MADV_POPULATE_WRITE = 23,
	MMF_DUMPABLE_MASK = 3,
	SUID_DUMP_USER = 1,
	PF_KTHREAD = 0x200000,
	MM_FILEPAGES = 0,
	MM_ANONPAGES = 1,
	MM_SHMEMPAGES = 3,
	/* Of handle_mm_fault() (linux/mm_types.h); VM_FAULT_ERROR is the kernel's mask. */
	FAULT_FLAG_TRIED = 0x20,
	VM_FAULT_MAJOR = 0x4,
	VM_FAULT_RETRY = 0x400,
	VM_FAULT_ERROR = 0x873,
	ENOENT = 2,
	ENOMEM = 12,
	EEXIST = 17,
};

/* Kernel internals that have been as they are since they are there (linux/sched.h; trace/events/lock.h, 5.19). */
enum {
	PF_EXITING = 0x4,
	LCB_F_SPIN = 1 << 0,
	LCB_F_READ = 1 << 1,
	LCB_F_WRITE = 1 << 2,
	LCB_F_MUTEX = 1 << 5,
};

/* Context of the programs on perf events (linux/bpf_perf_event.h). */
struct bpf_perf_event_data {
	__u64 regs[21];
	__u64 sample_period;
	__u64 addr;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
	unsigned long bp, bx, r10, r9, r8, ax, dx, si, di, orig_ax, ip, sp;
};

struct thread_info {
	__u32 status;
};

typedef struct {
	int counter;
} atomic_t;

struct rw_semaphore {
	int unread;
};

struct mm_struct {
	struct rw_semaphore mmap_lock;
	unsigned long brk, start_brk, flags;
	unsigned long total_vm, data_vm, stack_vm; /* pages */
	int map_count;
};

/* mm_struct since its flags are a bitmap (6.18); the suffix is not part of the name. */
struct mm_flags {
	unsigned long __mm_flags[1];
};
struct mm_struct___bitmap {
	struct mm_flags flags;
};

/* The pages that are resident, by MM_*: since 6.2, and before, when threads kept a part of it. */
typedef struct {
	__s64 counter;
} atomic64_t;
struct percpu_counter {
	__s64 count;
	__s32 *counters;
};
struct mm_struct___percpu {
	struct percpu_counter rss_stat[4];
};
struct mm_rss_stat {
	atomic64_t count[4];
};
struct mm_struct___atomic {
	struct mm_rss_stat rss_stat;
};
struct task_rss_stat {
	int count[4];
};
struct task_struct___rss {
	struct task_rss_stat rss_stat;
};

/* A map with a value a CPU: where its values are, as an address that stands for all CPUs. */
struct bpf_array {
	void *pptrs[1];
};

struct super_block {
	__u32 s_dev;
};

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
};

struct vm_area_struct {
	unsigned long vm_start, vm_end, vm_flags, vm_pgoff;
	struct file *vm_file;
};

struct signal_struct {
	atomic_t live; /* threads */
};

struct sched_entity {
	__u64 sum_exec_runtime; /* ns */
};

/* A process number in each of the namespaces that see it, the first one's first. */
struct pid_namespace;
struct upid {
	int nr;
	struct pid_namespace *ns;
};
struct pid {
	unsigned int level; /* of its own namespace */
	struct upid numbers[1];
};

struct kernfs_node {
	__u64 id;
};
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};
struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};
struct css_set {
	struct cgroup *dfl_cgrp; /* of version 2 */
};

struct thread_struct {
	unsigned long fsbase;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	struct sched_entity se;
	struct thread_struct thread;
	struct mm_struct *mm;
	int exit_state;
	struct task_struct *real_parent, *group_leader;
	struct pid *thread_pid;
	__u64 utime, stime, start_boottime; /* ns */
	char comm[16];
	struct signal_struct *signal;
	struct css_set *cgroups;
	int pid, tgid;
};

/* The context of a program that iterates over tasks. */
struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
};
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* kfuncs since 6.7 (4ac454682158): only where cfg_has_vma_iter. */
struct bpf_iter_task_vma {
	__u64 __opaque[1];
} __attribute__((aligned(8)));

#define KFUNC extern __attribute__((section(".ksyms"), weak))

KFUNC int bpf_iter_task_vma_new(struct bpf_iter_task_vma *it, struct task_struct *task, __u64 addr);
KFUNC struct vm_area_struct *bpf_iter_task_vma_next(struct bpf_iter_task_vma *it);
KFUNC void bpf_iter_task_vma_destroy(struct bpf_iter_task_vma *it);

#endif
