/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The set of a heap's held mappings: free, mapped, waiting for a request of
 * that heap. Owns struct held_set. Decides nothing, unmaps nothing; the caller
 * has the heap for itself.
 */
#include "alloc/heap.h"

/* How many mappings of one bin a request looks at. */
#define LOOK_CNT 32
/* A mapping that is longer than asked for by this part of it stays whole. */
#define WASTE_SHIFT 4

static uint64_t pages_of(const struct large *large)
{
	return large->map_bytes >> atm_page_shift;
}

/* Of at least one page: exact to 4 pages, then four bins to a doubling. */
static unsigned bin_of(uint64_t page_cnt)
{
	unsigned bit = 63 - (unsigned)__builtin_clzll(page_cnt);
	unsigned bin = bit < 2 ? (unsigned)page_cnt : bit * 4 - 4 + (unsigned)(page_cnt >> (bit - 2) & 3);

	return bin < HELD_BIN_CNT ? bin : HELD_BIN_CNT - 1;
}

static void bin_add(struct held_set *held, struct large *large)
{
	unsigned bin = bin_of(pages_of(large));

	large->bin_prev = NULL;
	large->bin_next = held->bins[bin];
	if (large->bin_next)
		large->bin_next->bin_prev = large;
	held->bins[bin] = large;
	held->bin_map[bin / 64] |= 1ull << (bin % 64);
}

static void bin_remove(struct held_set *held, const struct large *large)
{
	unsigned bin = bin_of(pages_of(large));

	if (large->bin_next)
		large->bin_next->bin_prev = large->bin_prev;
	*(large->bin_prev ? &large->bin_prev->bin_next : &held->bins[bin]) = large->bin_next;
	if (!held->bins[bin])
		held->bin_map[bin / 64] &= ~(1ull << (bin % 64));
}

/* First non-empty bin at or above `bin`; HELD_BIN_CNT when there is none. */
static unsigned bin_next(const struct held_set *held, unsigned bin)
{
	for (; bin < HELD_BIN_CNT; bin = (bin / 64 + 1) * 64) {
		uint64_t map = held->bin_map[bin / 64] >> (bin % 64);

		if (map)
			return bin + (unsigned)__builtin_ctzll(map);
	}
	return HELD_BIN_CNT;
}

/* `older` is the one that the new one stands before in the order of age; NULL: it is the oldest. */
static void link_in(struct heap *heap, struct large *large, struct large *older)
{
	struct held_set *held = &heap->held;

	large->older = older;
	large->newer = older ? older->newer : held->oldest;
	*(large->newer ? &large->newer->older : &held->newest) = large;
	*(older ? &older->newer : &held->oldest) = large;
	bin_add(held, large);
	atm_large_mark_end(large);
	atomic_store_explicit(&large->holder, heap, memory_order_relaxed);
}

static void link_out(struct heap *heap, struct large *large)
{
	struct held_set *held = &heap->held;

	*(large->newer ? &large->newer->older : &held->newest) = large->older;
	*(large->older ? &large->older->newer : &held->oldest) = large->newer;
	bin_remove(held, large);
	atm_large_unmark_end(large);
	atomic_store_explicit(&large->holder, NULL, memory_order_relaxed);
}

/* Whether this heap has the mapping in its lists: then nobody else touches the record. */
static bool is_ours(const struct heap *heap, struct large *large)
{
	return large && atomic_load_explicit(&large->holder, memory_order_relaxed) == heap;
}

/* Into the lists, as one with what lies before and behind it: as new as the newest part. */
static void add_to_lists(struct heap *heap, struct large *large)
{
	struct large *before = atm_large_before(large->addr);
	struct large *behind = atm_large_find((char *)large->addr + large->map_bytes);

	if (is_ours(heap, behind)) {
		size_t bytes = behind->map_bytes;

		link_out(heap, behind);
		atm_large_forget(behind);
		heap->held.cnt--;
		atm_large_extend(large, bytes);
	}
	if (is_ours(heap, before)) {
		size_t bytes = large->map_bytes;

		link_out(heap, before);
		before->held_since_ms = large->held_since_ms;
		atm_large_forget(large);
		heap->held.cnt--;
		atm_large_extend(before, bytes);
		large = before;
	}
	link_in(heap, large, heap->held.newest);
}

/* Makes a whole set of the mapping that is kept apart and the lists. */
static void join_last(struct heap *heap)
{
	struct large *last = heap->held.last;

	heap->held.last = NULL;
	if (last)
		add_to_lists(heap, last);
}

void atm_held_add(struct heap *heap, struct large *large)
{
	if (UNLIKELY(heap->held.last))
		join_last(heap);
	heap->held.last = large;
	heap->held.page_cnt += pages_of(large);
	heap->held.cnt++;
}

void atm_held_remove(struct heap *heap, struct large *large)
{
	heap->held.page_cnt -= pages_of(large);
	heap->held.cnt--;
	if (LIKELY(large == heap->held.last))
		heap->held.last = NULL;
	else
		link_out(heap, large);
}

struct large *atm_held_oldest(const struct heap *heap)
{
	return heap->held.oldest ? heap->held.oldest : heap->held.last;
}

static bool is_fit(const struct large *large, size_t bytes, size_t align)
{
	return large->map_bytes >= bytes && !((uintptr_t)large->addr & (align - 1));
}

struct large *atm_held_find(struct heap *heap, size_t bytes, size_t align)
{
	struct held_set *held = &heap->held;

	if (held->last) {
		if (LIKELY(is_fit(held->last, bytes, align) && held->last->map_bytes - bytes <= bytes >> WASTE_SHIFT))
			return held->last;
		join_last(heap);
	}
	for (unsigned bin = bin_next(held, bin_of(bytes >> atm_page_shift)); bin < HELD_BIN_CNT;
	     bin = bin_next(held, bin + 1)) {
		struct large *best = NULL, *large = held->bins[bin];

		for (int looked_at = 0; large && looked_at < LOOK_CNT; large = large->bin_next, looked_at++)
			if (is_fit(large, bytes, align) && (!best || large->map_bytes < best->map_bytes))
				best = large;
		if (best)
			return best;
	}
	return NULL;
}

struct large *atm_held_at(struct heap *heap, const void *addr)
{
	struct large *large;

	join_last(heap);
	large = atm_large_find(addr);
	return is_ours(heap, large) ? large : NULL;
}

void atm_held_take(struct heap *heap, struct large *large, size_t bytes)
{
	size_t rest_bytes = large->map_bytes - bytes;
	struct large *rest, *older = large == heap->held.last ? heap->held.newest : large->older;

	atm_held_remove(heap, large);
	if (LIKELY(rest_bytes <= bytes >> WASTE_SHIFT))
		return;
	rest = atm_large_adopt((char *)large->addr + bytes, rest_bytes, LARGE_HELD);
	if (!rest)
		return; /* no memory for a record: the block is longer than it need be */
	atm_large_cut(large, bytes);
	rest->heap = heap;
	rest->held_since_ms = large->held_since_ms;
	link_in(heap, rest, older);
	heap->held.page_cnt += pages_of(rest);
	heap->held.cnt++;
}
