/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A small mutex on a futex: works before libc is set up, in a forked child
 * (reset), and never allocates. Not recursive, not for signal handlers.
 */
#ifndef ALLOCTRACE_ALLOC_LOCK_H
#define ALLOCTRACE_ALLOC_LOCK_H

#include <linux/futex.h>
#include <stdatomic.h>

#include "alloc/syscall.h"

/* 0 free, 1 held, 2 held and somebody may sleep. Zero-initialised is free. */
struct atm_lock {
	_Atomic int word;
};

static inline void atm_lock_acquire(struct atm_lock *lock)
{
	int expected = 0;

	if (atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire,
						    memory_order_relaxed))
		return;
	while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
		atm_syscall(SYS_futex, (long)&lock->word, FUTEX_WAIT_PRIVATE, 2, 0, 0, 0);
}

static inline void atm_lock_release(struct atm_lock *lock)
{
	if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
		atm_syscall(SYS_futex, (long)&lock->word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

/* In a forked child only: the holder, if any, does not exist here. */
static inline void atm_lock_reset(struct atm_lock *lock)
{
	atomic_store_explicit(&lock->word, 0, memory_order_relaxed);
}

#endif
