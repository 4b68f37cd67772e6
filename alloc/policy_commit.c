/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Policy commit: how many pages of freed large mappings a heap may hold, its
 * local balance. Off: the kernel's batch of 2.6.37, max(32, 2 x CPUs) pages.
 * On: RAM / (20 x CPUs), so that CPUs full balances are 5 % of RAM; a quota
 * keeps the process at that, however many heaps it has.
 */
#include <time.h>

#include "alloc/heap.h"
#include "alloc/policy.h"
#include "alloc/probe.h"

/*
 * The clock is read at every so many frees at least. A mapping freed in between
 * counts as held since the last reading, and so may go that much too early.
 */
#define CLOCK_EVERY_CNT 16

/* Pages that all heaps of the process have been allowed to hold, and those on their way to a heap. */
static _Atomic uint64_t quota_given_page_cnt;

static uint64_t read_clock(struct heap *heap)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	heap->clock_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
	return heap->clock_ms;
}

static uint64_t batch_pages(uint32_t policy)
{
	uint64_t tuned = atm_tune(ATM_TUNE_COMMIT_BATCH);

	if (!(policy & POLICY_COMMIT))
		return atmalloc_control.commit_batch_fixed_pages;
	return tuned ? tuned : atmalloc_control.commit_batch_scaled_pages;
}

static bool quota_take(uint64_t page_cnt)
{
	uint64_t limit = batch_pages(POLICY_COMMIT) * atmalloc_control.cpu_cnt;

	if (atomic_fetch_add_explicit(&quota_given_page_cnt, page_cnt, memory_order_relaxed) + page_cnt <= limit)
		return true;
	atomic_fetch_sub_explicit(&quota_given_page_cnt, page_cnt, memory_order_relaxed);
	return false;
}

static void quota_give(uint64_t page_cnt)
{
	atomic_fetch_sub_explicit(&quota_given_page_cnt, page_cnt, memory_order_relaxed);
}

/* Raises the heap's quota to page_cnt, as far as the process's total allows. */
static bool quota_raise(struct heap *heap, uint64_t page_cnt)
{
	if (!quota_take(page_cnt - heap->quota_page_cnt))
		return false;
	heap->quota_page_cnt = page_cnt;
	return true;
}

static void quota_return(struct heap *heap)
{
	uint64_t less = heap->quota_page_cnt - heap->held.page_cnt;

	heap->quota_page_cnt -= less;
	quota_give(less);
}

static uint64_t pages_of(const struct large *large)
{
	return large->map_bytes >> atm_page_shift;
}

static void unmap(struct heap *heap, struct large *large)
{
	ATM_DECIDED(heap, COMMIT_RELEASED, commit__released, large->addr, large->map_bytes);
	atm_large_unmap(large);
}

static void release(struct heap *heap, struct large *large)
{
	atm_held_remove(heap, large);
	unmap(heap, large);
}

/* Gives back what has not been used for commit_hold. */
static void release_expired(struct heap *heap)
{
	uint64_t now = read_clock(heap), hold_ms = atm_tune(ATM_TUNE_COMMIT_HOLD);
	struct large *oldest = atm_held_oldest(heap);

	if (now - oldest->held_since_ms < hold_ms)
		return;
	for (; oldest && now - oldest->held_since_ms >= hold_ms; oldest = atm_held_oldest(heap))
		release(heap, oldest);
	quota_return(heap);
}

struct large *atm_commit_take(struct heap *heap, size_t bytes, size_t align)
{
	struct large *large;

	if (heap->held.page_cnt == 0)
		return NULL;
	atm_held_enter(heap);
	large = atm_held_find(heap, bytes, align);
	if (LIKELY(large)) {
		atm_held_take(heap, large, bytes);
		atomic_store_explicit(&large->state, LARGE_USED, memory_order_relaxed);
		ATM_DECIDED(heap, COMMIT_REUSED, commit__reused, large->addr, bytes);
	}
	if (heap->held.page_cnt)
		release_expired(heap);
	atm_held_leave(heap);
	return large;
}

struct large *atm_commit_take_at(struct heap *heap, const void *addr, size_t bytes, bool makes_room)
{
	struct large *large;

	if (heap->held.page_cnt == 0)
		return NULL;
	atm_held_enter(heap);
	large = atm_held_at(heap, addr);
	if (large && large->map_bytes >= bytes) {
		atm_held_take(heap, large, bytes);
		ATM_DECIDED(heap, COMMIT_REUSED, commit__reused, large->addr, bytes);
	} else if (large) {
		if (makes_room)
			release(heap, large);
		large = NULL;
	}
	atm_held_leave(heap);
	return large;
}

/* A mapping of its own heap, free. */
static void hold(struct heap *heap, struct large *large, uint64_t since_ms)
{
	large->held_since_ms = since_ms;
	atomic_store_explicit(&large->state, LARGE_HELD, memory_order_relaxed);
	ATM_DECIDED(heap, COMMIT_HELD, commit__held, large->addr, large->map_bytes);
	atm_held_add(heap, large);
}

/* Makes room for `pages` more in the batch; false when they are more than that. */
static bool make_room(struct heap *heap, uint64_t pages)
{
	uint64_t batch = batch_pages(atm_policy());

	while (heap->held.page_cnt && heap->held.page_cnt + (pages > batch ? 0 : pages) > batch)
		release(heap, atm_held_oldest(heap));
	return pages <= batch;
}

void atm_commit_put(struct heap *heap, struct large *large)
{
	uint64_t pages = pages_of(large);
	bool is_held;

	atm_held_enter(heap);
	is_held =
		(heap->held.page_cnt + pages <= batch_pages(atm_policy()) || make_room(heap, pages)) &&
		(heap->held.page_cnt + pages <= heap->quota_page_cnt || quota_raise(heap, heap->held.page_cnt + pages));
	if (LIKELY(is_held))
		hold(heap, large, heap->put_cnt++ % CLOCK_EVERY_CNT ? heap->clock_ms : read_clock(heap));
	else
		unmap(heap, large);
	atm_held_leave(heap);
	/* The shared heap's user has locks, and perhaps no life for another request. */
	if (UNLIKELY(is_held && atm_tune(ATM_TUNE_COMMIT_RECLAIM)) && heap == atm_heap)
		atm_reclaim_start();
}

/*
 * The balance that the owner would have with it is looked at here already, so
 * that a thread which asks for nothing more does not pile up what others free.
 */
void atm_commit_put_remote(struct large *large)
{
	struct heap *owner = large->heap;
	uint64_t pages = pages_of(large), batch = batch_pages(atm_policy()), before;
	struct large *head;

	if (!owner || pages > batch || !quota_take(pages))
		goto unmap;
	head = atomic_load_explicit(&owner->remote_large, memory_order_relaxed);
	before = atomic_fetch_add_explicit(&owner->remote_page_cnt, pages, memory_order_relaxed);
	if (before + pages + __atomic_load_n(&owner->held.page_cnt, __ATOMIC_RELAXED) > batch)
		head = ATM_REMOTE_CLOSED;
	else
		atomic_store_explicit(&large->state, LARGE_HELD, memory_order_relaxed);
	do {
		if (head == ATM_REMOTE_CLOSED) {
			atomic_fetch_sub_explicit(&owner->remote_page_cnt, pages, memory_order_relaxed);
			quota_give(pages);
			goto unmap;
		}
		large->older = head;
	} while (!atomic_compare_exchange_weak_explicit(&owner->remote_large, &head, large, memory_order_release,
							memory_order_relaxed));
	return;
unmap:
	ATM_DECIDED_GLOBAL(COMMIT_RELEASED, commit__released, large->addr, large->map_bytes);
	atm_large_unmap(large);
}

/* Takes the list, which is not closed, and leaves `left` in its place. */
static struct large *take_remote(struct heap *heap, struct large *left)
{
	struct large *large = atomic_exchange_explicit(&heap->remote_large, left, memory_order_acquire);

	return large == ATM_REMOTE_CLOSED ? NULL : large;
}

static void collect(struct heap *heap)
{
	struct large *large, *next;
	uint64_t now;

	if (atomic_load_explicit(&heap->remote_large, memory_order_relaxed) == ATM_REMOTE_CLOSED)
		return;
	now = read_clock(heap);
	for (large = take_remote(heap, NULL); large; large = next) {
		uint64_t pages = pages_of(large);

		next = large->older;
		atomic_fetch_sub_explicit(&heap->remote_page_cnt, pages, memory_order_relaxed);
		if (!make_room(heap, pages)) {
			quota_give(pages);
			unmap(heap, large);
			continue;
		}
		/* It brings its quota along, unless there is some to spare. */
		if (heap->held.page_cnt + pages > heap->quota_page_cnt)
			heap->quota_page_cnt += pages;
		else
			quota_give(pages);
		hold(heap, large, now);
	}
}

void atm_commit_collect(struct heap *heap)
{
	atm_held_enter(heap);
	collect(heap);
	atm_held_leave(heap);
}

void atm_commit_reclaim(struct heap *heap)
{
	collect(heap);
	if (heap->held.page_cnt)
		release_expired(heap);
}

void atm_commit_open(struct heap *heap)
{
	atomic_store_explicit(&heap->remote_large, NULL, memory_order_release);
}

void atm_commit_close(struct heap *heap)
{
	struct large *next;

	/* From here on nothing comes in. */
	for (struct large *large = take_remote(heap, ATM_REMOTE_CLOSED); large; large = next) {
		next = large->older;
		atomic_fetch_sub_explicit(&heap->remote_page_cnt, pages_of(large), memory_order_relaxed);
		quota_give(pages_of(large));
		atm_held_enter(heap); /* the decision counters are the set's, too */
		unmap(heap, large);
		atm_held_leave(heap);
	}
	atm_commit_release_all(heap);
}

void atm_commit_fork_child(struct heap *heap)
{
	uint64_t page_cnt = 0;

	if (heap) {
		struct large *remote = atomic_load_explicit(&heap->remote_large, memory_order_relaxed);

		for (; remote && remote != ATM_REMOTE_CLOSED; remote = remote->older)
			page_cnt += pages_of(remote);
		/* Another thread may have been about to add to them. */
		atomic_store_explicit(&heap->remote_page_cnt, page_cnt, memory_order_relaxed);
		page_cnt += heap->quota_page_cnt;
	}
	atomic_store_explicit(&quota_given_page_cnt, page_cnt, memory_order_relaxed);
}

void atm_commit_fork_orphan(struct heap *heap)
{
	atomic_store_explicit(&heap->remote_large, ATM_REMOTE_CLOSED, memory_order_relaxed);
	heap->quota_page_cnt = 0;
	if (!heap->is_at_held)
		return;
	heap->held = (struct held_set){0};
	heap->is_at_held = false;
}

size_t atm_commit_release_all(struct heap *heap)
{
	size_t pages;

	atm_held_enter(heap);
	pages = heap->held.page_cnt;
	while (heap->held.page_cnt)
		release(heap, atm_held_oldest(heap));
	quota_return(heap);
	atm_held_leave(heap);
	return pages;
}
