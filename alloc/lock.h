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
#include <time.h>

#include "alloc/syscall.h"

/* Zero-initialised is free. */
struct atm_lock {
	_Atomic uint32_t word; /* 0: free; else the holder, and LOCK_WAITED */
	uint32_t kept_cnt;     /* forks under way in signal handlers of the holder, which has it already */
};

/* Somebody may sleep. */
#define ATM_LOCK_WAITED 1u
/* How often, a millisecond apart, a fork within a lock tries to have another one. */
#define ATM_LOCK_TRIES 100

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

/* Only for the calling thread's own question, to which nobody else can change the answer. */
static inline bool atm_lock_is_own(struct atm_lock *lock)
{
	return (atomic_load_explicit(&lock->word, memory_order_relaxed) & ~ATM_LOCK_WAITED) == atm_lock_self();
}

/* Gives up after a while: who has it may be waiting for a lock that the calling thread has. */
static inline void atm_lock_acquire_or_leave(struct atm_lock *lock)
{
	const struct timespec pause = {.tv_nsec = 1000000};

	for (int tries = 0; tries < ATM_LOCK_TRIES; tries++) {
		uint32_t word = 0;

		if (atomic_compare_exchange_strong_explicit(&lock->word, &word, atm_lock_self(), memory_order_acquire,
							    memory_order_relaxed))
			return;
		atm_syscall(SYS_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
	}
}

/*
 * Around fork. A signal handler that forks may have interrupted its own thread
 * where that has the lock: then it stays with it, here and in the child. One
 * that could not be had stays what it is: in the child nobody gets it any more.
 */
static inline void atm_lock_fork_prepare(struct atm_lock *lock, bool is_inside)
{
	if (atm_lock_is_own(lock))
		lock->kept_cnt++;
	else if (is_inside)
		atm_lock_acquire_or_leave(lock);
	else
		atm_lock_acquire(lock);
}

static inline void atm_lock_fork_parent(struct atm_lock *lock)
{
	if (!atm_lock_is_own(lock))
		return;
	if (lock->kept_cnt)
		lock->kept_cnt--;
	else
		atm_lock_release(lock);
}

/* Who waits does not exist here. */
static inline void atm_lock_fork_child(struct atm_lock *lock)
{
	if (!atm_lock_is_own(lock))
		return;
	atomic_store_explicit(&lock->word, lock->kept_cnt ? atm_lock_self() : 0, memory_order_relaxed);
	if (lock->kept_cnt)
		lock->kept_cnt--;
}

#endif
