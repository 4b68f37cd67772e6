/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Policy realloc: what becomes of the tail when a large block shrinks.
 * Off: it goes into the page cache, where the next page-sized request takes
 * it, as OpenBSD's malloc did before 2020. On: a small shrink changes nothing,
 * any other tail is unmapped at once and never cached.
 */
#include <string.h>

#include "alloc/heap.h"
#include "alloc/policy.h"
#include "alloc/probe.h"

static size_t tail_pages(const struct large *tail)
{
	return tail->map_bytes >> atm_page_shift;
}

static void tail_remove(struct heap *heap, uint32_t i)
{
	heap->tail_page_cnt -= (uint32_t)tail_pages(heap->tails[i]);
	heap->tail_cnt--;
	memmove(&heap->tails[i], &heap->tails[i + 1], (heap->tail_cnt - i) * sizeof(heap->tails[0]));
}

/* The newest is taken first; the oldest make room. */
static void tail_add(struct heap *heap, struct large *tail)
{
	while (heap->tail_page_cnt + tail_pages(tail) > PAGE_CACHE_PAGES) {
		struct large *oldest = heap->tails[0];

		tail_remove(heap, 0);
		atm_large_unmap(oldest);
	}
	atomic_store_explicit(&tail->state, LARGE_CACHED, memory_order_relaxed);
	heap->tails[heap->tail_cnt++] = tail;
	heap->tail_page_cnt += (uint32_t)tail_pages(tail);
}

static bool unmap_tail(struct heap *heap, struct large *large, size_t keep_bytes)
{
	if (atm_os_unmap((char *)large->addr + keep_bytes, large->map_bytes - keep_bytes))
		return false; /* the map count is at its limit: the block stays as it was */
	atm_large_cut(large, keep_bytes);
	if (heap)
		ATM_DECIDED(heap, REALLOC_UNMAPPED, realloc__unmapped, large->addr, keep_bytes);
	return true;
}

/* The tail becomes a mapping with a record of its own, in the page cache or, when too large for it, freed as such. */
static bool cache_tail(struct heap *heap, struct large *large, size_t keep_bytes)
{
	size_t bytes = large->map_bytes - keep_bytes;
	struct large *tail = atm_large_adopt((char *)large->addr + keep_bytes, bytes, LARGE_USED);

	if (!tail)
		return false;
	atm_large_cut(large, keep_bytes);
	tail->heap = heap;
	ATM_DECIDED(heap, REALLOC_CACHED, realloc__cached, tail->addr, bytes);
	if (bytes >> atm_page_shift <= PAGE_CACHE_PAGES)
		tail_add(heap, tail);
	else
		atm_commit_put(heap, tail);
	return true;
}

void atm_realloc_shrink(struct heap *heap, struct large *large, size_t bytes)
{
	size_t keep_bytes = atm_page_round(bytes), old_bytes = large->map_bytes;

	if (!(atm_policy() & POLICY_REALLOC) && heap) {
		cache_tail(heap, large, keep_bytes);
		return;
	}
	if (bytes > old_bytes / 2 && old_bytes - keep_bytes <= atm_tune(ATM_TUNE_REALLOC_KEEP)) {
		if (heap)
			ATM_DECIDED(heap, REALLOC_KEPT, realloc__kept, large->addr, old_bytes);
		return;
	}
	unmap_tail(heap, large, keep_bytes);
}

bool atm_realloc_absorb(struct heap *heap, struct large *large, size_t bytes)
{
	char *end = (char *)large->addr + large->map_bytes;
	size_t more_bytes = bytes - large->map_bytes;
	struct large *tail = NULL;

	for (uint32_t i = 0; i < heap->tail_cnt && !tail; i++)
		if (heap->tails[i]->addr == end && heap->tails[i]->map_bytes >= more_bytes) {
			tail = heap->tails[i];
			tail_remove(heap, i);
		}
	if (!tail)
		tail = atm_commit_take_at(heap, end, more_bytes, atm_tune(ATM_TUNE_GROW) == 1);
	if (!tail)
		return false;
	more_bytes = tail->map_bytes;
	atm_large_forget(tail);
	atm_large_extend(large, more_bytes);
	return true;
}

struct large *atm_realloc_take_tail(struct heap *heap, uint32_t page_cnt)
{
	size_t bytes = (size_t)page_cnt << atm_page_shift;

	for (uint32_t i = heap->tail_cnt; i-- > 0;) {
		struct large *tail = heap->tails[i], *rest;

		if (tail->map_bytes < bytes)
			continue;
		tail_remove(heap, i);
		if (tail->map_bytes > bytes) {
			rest = atm_large_adopt((char *)tail->addr + bytes, tail->map_bytes - bytes, LARGE_CACHED);
			if (rest) {
				atm_large_cut(tail, bytes);
				tail_add(heap, rest);
			}
		}
		atomic_store_explicit(&tail->state, LARGE_USED, memory_order_relaxed);
		return tail;
	}
	return NULL;
}

void atm_realloc_put_tail(struct heap *heap, struct large *large)
{
	if (atm_policy() & POLICY_REALLOC || tail_pages(large) > PAGE_CACHE_PAGES)
		atm_large_unmap(large);
	else
		tail_add(heap, large);
}

size_t atm_realloc_release_all(struct heap *heap)
{
	size_t pages = heap->tail_page_cnt;

	while (heap->tail_cnt) {
		struct large *tail = heap->tails[heap->tail_cnt - 1];

		tail_remove(heap, heap->tail_cnt - 1);
		atm_large_unmap(tail);
	}
	return pages;
}
