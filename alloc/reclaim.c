/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tunable commit_reclaim=thread: a thread of the library's own that gives back
 * what policy commit holds and nobody has used for commit_hold, also while the
 * process makes no requests. It exists only while something is held.
 *
 * A heap's held set has one user at a time. The owner marks by plain stores that
 * it is at it, as it must stay cheap; the thread asks for the set, makes every
 * CPU see that (membarrier), and goes on only where no mark is set.
 */
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <time.h>

#include "alloc/heap.h"
#include "alloc/policy.h"
#include "alloc/syscall.h"
#include "alloc/thread.h"

#define SLEEP_MIN_MS 10
#define SLEEP_MAX_MS 10000

enum { THREAD_NONE, THREAD_RUNS, THREAD_REFUSED };

struct atm_lock atm_reclaim_lock; /* held while the thread is at the heaps' sets */
static _Atomic int thread_state;

void atm_reclaim_wait(struct heap *heap)
{
	__atomic_store_n(&heap->is_at_held, false, __ATOMIC_RELEASE);
	atm_lock_acquire(&atm_reclaim_lock);
	atm_lock_release(&atm_reclaim_lock);
}

static bool barrier(int command)
{
	return atm_syscall(SYS_membarrier, command, 0, 0, 0, 0, 0) == 0;
}

/* Returns the pages that are still held, by any heap. */
static uint64_t reclaim_all(void)
{
	uint64_t page_cnt = 0;

	atm_lock_acquire(&atm_reclaim_lock);
	for (struct heap *heap = atm_heap_first(); heap; heap = heap->next_heap) {
		__atomic_store_n(&heap->is_reclaimed, true, __ATOMIC_RELAXED);
		if (barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) && !__atomic_load_n(&heap->is_at_held, __ATOMIC_ACQUIRE))
			atm_commit_reclaim(heap);
		page_cnt += __atomic_load_n(&heap->held.page_cnt, __ATOMIC_RELAXED);
		__atomic_store_n(&heap->is_reclaimed, false, __ATOMIC_RELEASE);
	}
	atm_lock_release(&atm_reclaim_lock);
	return page_cnt;
}

static void sleep_part_of_hold(void)
{
	uint64_t ms = atm_tune(ATM_TUNE_COMMIT_HOLD) / 2;
	struct timespec time;

	if (ms < SLEEP_MIN_MS)
		ms = SLEEP_MIN_MS;
	if (ms > SLEEP_MAX_MS)
		ms = SLEEP_MAX_MS;
	time = (struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
	atm_syscall(SYS_nanosleep, (long)&time, 0, 0, 0, 0, 0);
}

/* Whether there is more to do after all: an owner that has seen the thread run starts no other. */
static bool is_wanted_again(void)
{
	int none = THREAD_NONE;

	atomic_store_explicit(&thread_state, THREAD_NONE, memory_order_relaxed);
	barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
	for (struct heap *heap = atm_heap_first(); heap; heap = heap->next_heap)
		if (__atomic_load_n(&heap->held.page_cnt, __ATOMIC_RELAXED))
			return atomic_compare_exchange_strong_explicit(&thread_state, &none, THREAD_RUNS,
								       memory_order_relaxed, memory_order_relaxed);
	return false;
}

static void *run(void *arg)
{
	if (!barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)) {
		atomic_store_explicit(&thread_state, THREAD_REFUSED, memory_order_relaxed);
		return arg;
	}
	do
		do
			sleep_part_of_hold();
		while (reclaim_all());
	while (is_wanted_again());
	return arg;
}

void atm_reclaim_start(void)
{
	int none = THREAD_NONE;

	if (!atomic_compare_exchange_strong_explicit(&thread_state, &none, THREAD_RUNS, memory_order_relaxed,
						     memory_order_relaxed))
		return;
	if (atm_thread_start_helper(run))
		atomic_store_explicit(&thread_state, THREAD_REFUSED, memory_order_relaxed);
}

/* The thread stayed in the parent; the next mapping that is held starts one here. */
void atm_reclaim_fork_child(void)
{
	if (atomic_load_explicit(&thread_state, memory_order_relaxed) == THREAD_RUNS)
		atomic_store_explicit(&thread_state, THREAD_NONE, memory_order_relaxed);
}
