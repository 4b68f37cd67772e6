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

/* A held mapping may be larger than the request by this part of it. */
#define WASTE_SHIFT 2
/* How many held mappings a request looks at. */
#define LOOK_CNT 32

/* Pages that all heaps of the process have been allowed to hold. */
static _Atomic uint64_t quota_given_page_cnt;

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t batch_pages(uint32_t policy)
{
	uint64_t tuned = atm_tune(ATM_TUNE_COMMIT_BATCH);

	if (!(policy & POLICY_COMMIT))
		return atmalloc_control.commit_batch_fixed_pages;
	return tuned ? tuned : atmalloc_control.commit_batch_scaled_pages;
}

/* Raises the heap's quota to page_cnt, as far as the process's total allows. */
static bool quota_reserve(struct heap *heap, uint64_t page_cnt)
{
	uint64_t limit = batch_pages(POLICY_COMMIT) * atmalloc_control.cpu_cnt;
	uint64_t more = page_cnt - heap->quota_page_cnt;

	if (atomic_fetch_add_explicit(&quota_given_page_cnt, more, memory_order_relaxed) + more > limit) {
		atomic_fetch_sub_explicit(&quota_given_page_cnt, more, memory_order_relaxed);
		return false;
	}
	heap->quota_page_cnt = page_cnt;
	return true;
}

static void quota_return(struct heap *heap)
{
	uint64_t less = heap->quota_page_cnt - heap->held_page_cnt;

	heap->quota_page_cnt -= less;
	atomic_fetch_sub_explicit(&quota_given_page_cnt, less, memory_order_relaxed);
}

static uint64_t pages_of(const struct large *large)
{
	return large->map_bytes >> atm_page_shift;
}

static void list_remove(struct heap *heap, struct large *large)
{
	*(large->newer ? &large->newer->older : &heap->held_newest) = large->older;
	*(large->older ? &large->older->newer : &heap->held_oldest) = large->newer;
	heap->held_page_cnt -= pages_of(large);
}

static void list_add(struct heap *heap, struct large *large)
{
	large->newer = NULL;
	large->older = heap->held_newest;
	*(large->older ? &large->older->newer : &heap->held_oldest) = large;
	heap->held_newest = large;
	heap->held_page_cnt += pages_of(large);
}

static void release(struct heap *heap, struct large *large)
{
	list_remove(heap, large);
	heap->cell->decision_cnt[ATM_DECISION_COMMIT_RELEASED]++;
	atm_large_unmap(large);
}

/* Gives back what has not been used for commit_hold. */
static void release_expired(struct heap *heap)
{
	uint64_t now = now_ms(), hold_ms = atm_tune(ATM_TUNE_COMMIT_HOLD);

	if (now - heap->held_oldest->held_since_ms < hold_ms)
		return;
	while (heap->held_oldest && now - heap->held_oldest->held_since_ms >= hold_ms)
		release(heap, heap->held_oldest);
	quota_return(heap);
}

struct large *atm_commit_take(struct heap *heap, size_t bytes, size_t align)
{
	struct large *best = NULL, *large = heap->held_newest;

	for (int looked_at = 0; large && looked_at < LOOK_CNT; large = large->older, looked_at++) {
		if (large->map_bytes < bytes || large->map_bytes - bytes > bytes >> WASTE_SHIFT ||
		    (uintptr_t)large->addr & (align - 1))
			continue;
		if (!best || large->map_bytes < best->map_bytes)
			best = large;
		if (best->map_bytes == bytes)
			break;
	}
	if (best) {
		list_remove(heap, best);
		atomic_store_explicit(&best->state, LARGE_USED, memory_order_relaxed);
		heap->cell->decision_cnt[ATM_DECISION_COMMIT_REUSED]++;
	}
	if (heap->held_oldest)
		release_expired(heap);
	return best;
}

struct large *atm_commit_take_at(struct heap *heap, const void *addr, size_t bytes)
{
	struct large *large = heap->held_newest;

	for (int looked_at = 0; large && looked_at < LOOK_CNT; large = large->older, looked_at++)
		if (large->addr == addr && large->map_bytes >= bytes && large->map_bytes / 2 <= bytes) {
			list_remove(heap, large);
			return large;
		}
	return NULL;
}

void atm_commit_fork_child(const struct heap *heap)
{
	atomic_store_explicit(&quota_given_page_cnt, heap ? heap->quota_page_cnt : 0, memory_order_relaxed);
}

void atm_commit_put(struct heap *heap, struct large *large)
{
	uint64_t pages = pages_of(large), batch = batch_pages(atm_policy());

	while (heap->held_oldest && heap->held_page_cnt + (pages > batch ? 0 : pages) > batch)
		release(heap, heap->held_oldest);
	if (pages > batch ||
	    (heap->held_page_cnt + pages > heap->quota_page_cnt && !quota_reserve(heap, heap->held_page_cnt + pages))) {
		heap->cell->decision_cnt[ATM_DECISION_COMMIT_RELEASED]++;
		atm_large_unmap(large);
		return;
	}
	large->held_since_ms = now_ms();
	atomic_store_explicit(&large->state, LARGE_HELD, memory_order_relaxed);
	heap->cell->decision_cnt[ATM_DECISION_COMMIT_HELD]++;
	list_add(heap, large);
}

size_t atm_commit_release_all(struct heap *heap)
{
	size_t pages = heap->held_page_cnt;

	while (heap->held_oldest)
		release(heap, heap->held_oldest);
	quota_return(heap);
	return pages;
}
