/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Raw system calls: they neither touch errno nor pass through symbols that
 * another preload may have interposed. Return value: the kernel's, so -errno
 * on failure.
 */
#ifndef ALLOCTRACE_ALLOC_SYSCALL_H
#define ALLOCTRACE_ALLOC_SYSCALL_H

#include <sys/syscall.h>

#ifndef __x86_64__
#error "libatmalloc is written for x86-64"
#endif

static inline long atm_syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

#endif
