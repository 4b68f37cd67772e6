/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What differs between ABIs and between kernels.
 *
 * 32-bit syscalls: ia32 numbers mean other calls than x86-64's (12 is chdir,
 * 45 is brk), so which table a number belongs to is asked of the thread, not
 * of the process: a 64-bit process can make 32-bit calls with int 0x80. Calls
 * of the x32 ABI, which distributions leave switched off, have numbers of
 * their own beyond all these and are not seen.
 */
#ifndef ALLOCTRACE_BPF_COMPAT_BPF_H
#define ALLOCTRACE_BPF_COMPAT_BPF_H

/* Of the calls that end an address space. */
enum {
	NR_EXECVE = 59,
	NR_EXIT_GROUP = 231,
	NR_EXECVEAT = 322,
	NR_IA32_EXECVE = 11,
	NR_IA32_EXIT_GROUP = 252,
	NR_IA32_EXECVEAT = 358
};

/* Both ABIs' numbers of memory syscalls are below: seven words of 64. */
enum { NR_WORD_CNT = 7 };

#define NR_BIT(nr, word) ((nr) / 64 == (word) ? 1ull << (nr) % 64 : 0)

/* The x86-64 numbers of one word; a constant where the word is one. */
static __always_inline __u64 x64_bits(__u32 word)
{
#define X(id, name, nr, ia32, ia32_2) | NR_BIT(nr, word)
	return 0 AT_SYSCALLS(X);
#undef X
}

static __always_inline __u64 ia32_bits(__u32 word)
{
#define X(id, name, nr, ia32, ia32_2) | NR_BIT(ia32, word) | (ia32_2 ? NR_BIT(ia32_2, word) : 0)
	return 0 AT_SYSCALLS(X);
#undef X
}

/*
 * The test that every syscall of every process pays for: no memory is touched,
 * the masks are in the instructions.
 */
static __always_inline bool is_memory_nr(__u64 nr, bool has_ia32)
{
#pragma unroll
	for (__u32 word = 0; word < NR_WORD_CNT; word++)
		if (nr / 64 == word)
			return (x64_bits(word) | (has_ia32 ? ia32_bits(word) : 0)) >> nr % 64 & 1;
	return false;
}

/* AT_SYS_* of an x86-64 number. */
static __always_inline __u32 syscall_of_x64(__u64 nr)
{
#define X(id, name, x64, ia32, ia32_2) \
	if (nr == (x64))               \
		return AT_SYS_##id;
	AT_SYSCALLS(X)
#undef X
	return AT_SYS_INVALID;
}

static __always_inline __u32 syscall_of_ia32(__u64 nr)
{
#define X(id, name, x64, ia32, ia32_2)                         \
	if (nr == (ia32) || ((ia32_2) != 0 && nr == (ia32_2))) \
		return AT_SYS_##id;
	AT_SYSCALLS(X)
#undef X
	return AT_SYS_INVALID;
}

/*
 * The kernel sets the bit on the way in and clears it after the exit
 * tracepoint (arch/x86/entry/common.c), so it answers for both.
 */
static __always_inline bool is_compat(const struct task_struct *task)
{
	return task->thread_info.status & TS_COMPAT;
}

/*
 * What makes loading slow. A pointer that is read from a kernel structure, as task->mm, costs the verifier up to four
 * searches through the kernel's type information, 0.3 ms each, wherever its way comes past: so it is read once, before
 * the ways part. And what comes after a choice is verified once for each value that is known of a variable:
 * FORGET takes away what is known. any: a variable of which nothing is.
 */
#define FORGET(var, any)               \
	do {                           \
		__u64 same = (any);    \
		barrier_var(same);     \
		(var) += same - (any); \
	} while (0)

/* Whether the kernel lets others inspect the process (get_dumpable() == SUID_DUMP_USER). */
static __always_inline bool is_dumpable(const struct task_struct *task)
{
	const struct mm_struct___bitmap *bitmap = (const void *)task->mm;
	unsigned long flags;

	if (bpf_core_field_exists(bitmap->flags.__mm_flags))
		flags = BPF_CORE_READ(bitmap, flags.__mm_flags[0]);
	else
		flags = BPF_CORE_READ(task, mm, flags);
	return (flags & MMF_DUMPABLE_MASK) == SUID_DUMP_USER;
}

/* Counts the memory syscalls of the 32-bit ABI; they are not decoded. */
static __always_inline void compat_count(__u64 nr)
{
	__u32 syscall = syscall_of_ia32(nr);

	if (syscall)
		counter_add(&compats, syscall, 1);
}

#endif
