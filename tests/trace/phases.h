/* SPDX-License-Identifier: BSD-2-Clause */
/* What the programs that make known calls in a phase share. */
#ifndef ALLOCTRACE_TESTS_TRACE_PHASES_H
#define ALLOCTRACE_TESTS_TRACE_PHASES_H

#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The exit status: whether a call did not do what the program needs. */
static atomic_int failed;

/* Notes it; no call of the C library in between. */
static inline void expect(int is_ok)
{
	if (!is_ok)
		failed = 1;
}

/* Begins a phase: 1 is the measured one, 2 what follows it. */
static inline void mark(int phase)
{
	syscall(SYS_madvise, 0, 0, 0x41540000 | phase);
}

#endif
