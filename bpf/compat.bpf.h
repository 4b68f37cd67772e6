/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What differs between ABIs and between kernels.
 *
 * 32-bit syscalls: ia32 numbers mean other calls than x86-64's (12 is chdir,
 * 45 is brk), so which table a number belongs to is asked of the thread, not
 * of the process: a 64-bit process can make 32-bit calls with int 0x80. Calls
 * of the x32 ABI, which distributions leave switched off, have numbers beyond
 * AT_NR_CNT and are not seen.
 */
#ifndef ALLOCTRACE_BPF_COMPAT_BPF_H
#define ALLOCTRACE_BPF_COMPAT_BPF_H

#define AT_SYS_OF_X64(entry) ((entry)&15)
#define AT_SYS_OF_IA32(entry) ((entry) >> 4)

/*
 * The kernel sets the bit on the way in and clears it after the exit
 * tracepoint (arch/x86/entry/common.c), so it answers for both.
 */
static __always_inline bool is_compat(const struct task_struct *task)
{
	return task->thread_info.status & TS_COMPAT;
}

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
static __always_inline void compat_count(__u8 entry)
{
	if (AT_SYS_OF_IA32(entry))
		counter_add(&compats, AT_SYS_OF_IA32(entry), 1);
}

#endif
