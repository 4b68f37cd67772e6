/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A small mutex on a futex: works before libc is set up, in a forked child
 * (reset), and never allocates. Not recursive. Signal handlers must not take
 * it, but for fork in one: that knows a lock which its own thread holds.
 */
#ifndef ALLOCTRACE_ALLOC_LOCK_H
#define ALLOCTRACE_ALLOC_LOCK_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "alloc/syscall.h"

/* Zero-initialised is free. */
struct atm_lock {
	_Atomic uint32_t word; /* 0: free; else the holder, and LOCK_WAITED */
	bool is_kept;          /* during a fork by a signal handler of the holder: it holds it already */
};

/* Somebody may sleep. */
#define ATM_LOCK_WAITED 1u

/* A number of the calling thread, as its errno has an address of its own. */
static inline uint32_t atm_lock_self(void)
{
	return (uint32_t)((uintptr_t)&errno >> 2) << 1 | 2;
}

static inline void atm_lock_acquire(struct atm_lock *lock)
{
	uint32_t self = atm_lock_self(), word = 0;

	if (atomic_compare_exchange_strong_explicit(&lock->word, &word, self, memory_order_acquire,
						    memory_order_relaxed))
		return;
	for (;;) {
		if (word == 0) {
			/* Others may sleep: who knows. */
			if (atomic_compare_exchange_weak_explicit(&lock->word, &word, self | ATM_LOCK_WAITED,
								  memory_order_acquire, memory_order_relaxed))
				return;
		} else if (word & ATM_LOCK_WAITED ||
			   atomic_compare_exchange_weak_explicit(&lock->word, &word, word | ATM_LOCK_WAITED,
								 memory_order_relaxed, memory_order_relaxed)) {
			atm_syscall(SYS_futex, (long)&lock->word, FUTEX_WAIT_PRIVATE, word | ATM_LOCK_WAITED, 0, 0, 0);
			word = atomic_load_explicit(&lock->word, memory_order_relaxed);
		}
	}
}

static inline void atm_lock_release(struct atm_lock *lock)
{
	if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) & ATM_LOCK_WAITED)
		atm_syscall(SYS_futex, (long)&lock->word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

/*
 * Around fork. A signal handler that forks may have interrupted its own thread
 * where that holds the lock: then it stays with it, here and in the child.
 */
static inline void atm_lock_fork_prepare(struct atm_lock *lock)
{
	uint32_t word = atomic_load_explicit(&lock->word, memory_order_relaxed);

	if ((word & ~ATM_LOCK_WAITED) == atm_lock_self())
		lock->is_kept = true;
	else
		atm_lock_acquire(lock);
}

static inline void atm_lock_fork_parent(struct atm_lock *lock)
{
	if (lock->is_kept)
		lock->is_kept = false;
	else
		atm_lock_release(lock);
}

/* Who waits does not exist here. */
static inline void atm_lock_fork_child(struct atm_lock *lock)
{
	atomic_store_explicit(&lock->word, lock->is_kept ? atm_lock_self() : 0, memory_order_relaxed);
	lock->is_kept = false;
}

#endif
