/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Segments: reserve, commit as the top advances, give back. Owns struct
 * segment; every function works on a heap that the caller has for itself.
 */
#include "alloc/heap.h"
#include "alloc/policy.h"
#include "alloc/probe.h"

uint64_t atm_segment_map[(1ull << (ADDRESS_BITS - SEGMENT_SHIFT)) / 64];

/* Commit steps of the data part: a quarter of what the heap has committed, within these. */
#define COMMIT_STEP_MIN_BYTES ((size_t)256 << 10)
#define COMMIT_STEP_MAX_BYTES ((size_t)8 << 20)
/* Runs of the record are committed for this many pages of data at a time. */
#define META_STEP_RUNS 2048

static void segment_map_set(const struct segment *segment, bool is_in)
{
	uintptr_t index = (uintptr_t)segment >> SEGMENT_SHIFT;
	uint64_t bit = 1ull << (index % 64);

	if (is_in)
		__atomic_fetch_or(&atm_segment_map[index / 64], bit, __ATOMIC_RELAXED);
	else
		__atomic_fetch_and(&atm_segment_map[index / 64], ~bit, __ATOMIC_RELAXED);
}

/* ---- reserving ---- */

/*
 * Reserves `bytes` at a multiple of SEGMENT_BYTES. Segments are placed below
 * each other, starting below the library's own mapping, so that in most cases
 * the hint is free and one call does it; the kernel's own choice is the start
 * of the next guess when it is not.
 */
static int reserve_aligned(size_t bytes, void **addr)
{
	static uintptr_t next_hint;
	uintptr_t hint = __atomic_load_n(&next_hint, __ATOMIC_RELAXED);
	void *at;
	int err;

	if (!hint)
		hint = ((uintptr_t)&atmalloc_control & ~(SEGMENT_BYTES - 1)) - SEGMENT_BYTES;
	for (int tries = 0; tries < 8; tries++) {
		err = atm_os_reserve((void *)hint, bytes, &at);
		if (err)
			return err;
		if (((uintptr_t)at & (SEGMENT_BYTES - 1)) == 0) {
			__atomic_store_n(&next_hint, (uintptr_t)at - SEGMENT_BYTES, __ATOMIC_RELAXED);
			*addr = at;
			return 0;
		}
		hint = ((uintptr_t)at & ~(SEGMENT_BYTES - 1)) - (size_t)tries * SEGMENT_BYTES;
		err = atm_os_unmap(at, bytes);
		if (err)
			return err;
	}
	/* Scattered address space: take more and cut both ends. */
	err = atm_os_reserve(NULL, bytes + SEGMENT_BYTES, &at);
	if (err)
		return err;
	uintptr_t start = ((uintptr_t)at + SEGMENT_BYTES - 1) & ~(SEGMENT_BYTES - 1);
	uintptr_t end = (uintptr_t)at + bytes + SEGMENT_BYTES;

	if (start > (uintptr_t)at)
		atm_os_unmap(at, start - (uintptr_t)at);
	if (end > start + bytes)
		atm_os_unmap((void *)(start + bytes), end - start - bytes);
	*addr = (void *)start;
	return 0;
}

static size_t meta_bytes(uint32_t run_cnt)
{
	return atm_page_round(offsetof(struct segment, runs) + run_cnt * sizeof(struct page_run));
}

/*
 * A new segment with room for page_cnt pages. Where address space is short
 * (RLIMIT_AS, locked memory) the reservation is made as small as it may be.
 */
struct segment *atm_segment_new(struct heap *heap, uint32_t page_cnt)
{
	struct segment *segment;
	size_t bytes;
	void *at;

	for (bytes = SEGMENT_BYTES;; bytes /= 4) {
		uint32_t all_pages = (uint32_t)(bytes >> atm_page_shift);
		size_t data_bytes = bytes - meta_bytes(all_pages);

		if (bytes < SEGMENT_BYTES >> 6 || data_bytes >> atm_page_shift < page_cnt)
			return NULL;
		if (reserve_aligned(bytes, &at) == 0)
			break;
	}
	uint32_t all_pages = (uint32_t)(bytes >> atm_page_shift);
	size_t record_bytes = meta_bytes(all_pages < META_STEP_RUNS ? all_pages : META_STEP_RUNS);

	segment = at;
	if (atm_os_commit(segment, record_bytes)) {
		atm_os_unmap(segment, bytes);
		return NULL;
	}
	segment->heap = heap;
	segment->page_cnt = all_pages;
	segment->meta_page_cnt = (uint32_t)(record_bytes >> atm_page_shift);
	segment->first_page = (uint32_t)(meta_bytes(all_pages) >> atm_page_shift);
	segment->top_page = segment->dirty_page = segment->committed_page = segment->first_page;
	segment->next = heap->segments;
	heap->segments = heap->current = segment;
	segment_map_set(segment, true);
	return segment;
}

/*
 * Gives an empty segment back when the heap has two more: one would not do for
 * a heap that breathes across the end of a segment.
 */
void atm_segment_drop(struct heap *heap, struct segment *segment)
{
	struct segment **link = &heap->segments, *other = NULL;
	unsigned empty_cnt = 0;

	for (struct segment *at = heap->segments; at; at = at->next)
		if (at != segment && atm_segment_is_empty(at)) {
			other = at;
			empty_cnt++;
		}
	if (empty_cnt < 2)
		return;
	while (*link && *link != segment)
		link = &(*link)->next;
	uint32_t committed = segment->committed_page - segment->first_page;
	struct segment *next = segment->next;

	segment_map_set(segment, false);
	if (atm_os_unmap(segment, (size_t)segment->page_cnt << atm_page_shift)) {
		segment_map_set(segment, true);
		return;
	}
	*link = next;
	heap->committed_page_cnt -= committed;
	if (heap->current == segment)
		heap->current = other;
}

/* ---- committing ---- */

static int commit_meta(struct segment *segment, uint32_t up_to_page)
{
	size_t have = (size_t)segment->meta_page_cnt << atm_page_shift;
	uint32_t run_cnt = up_to_page + META_STEP_RUNS;
	size_t want;
	int err;

	if (LIKELY(offsetof(struct segment, runs) + up_to_page * sizeof(struct page_run) <= have))
		return 0;
	want = meta_bytes(run_cnt < segment->page_cnt ? run_cnt : segment->page_cnt);
	err = atm_os_commit((char *)segment + have, want - have);
	if (!err)
		segment->meta_page_cnt = (uint32_t)(want >> atm_page_shift);
	return err;
}

/* The records first: pages that are committed have theirs. */
static int commit_to(struct segment *segment, uint32_t page)
{
	uint32_t have = segment->committed_page;
	int err = commit_meta(segment, page);

	return err ? err : atm_os_commit(atm_page_addr(segment, have), (size_t)(page - have) << atm_page_shift);
}

/* Makes the pages below up_to_page, which are not, usable; -ENOMEM when the kernel refuses. */
int atm_segment_commit(struct heap *heap, struct segment *segment, uint32_t up_to_page)
{
	uint32_t have = segment->committed_page, step, want;
	int err;

	step = (uint32_t)(heap->committed_page_cnt / 4);
	if (step < COMMIT_STEP_MIN_BYTES >> atm_page_shift)
		step = (uint32_t)(COMMIT_STEP_MIN_BYTES >> atm_page_shift);
	if (step > COMMIT_STEP_MAX_BYTES >> atm_page_shift)
		step = (uint32_t)(COMMIT_STEP_MAX_BYTES >> atm_page_shift);
	want = have + step > up_to_page ? have + step : up_to_page;
	if (want > segment->page_cnt)
		want = segment->page_cnt;
	err = commit_to(segment, want);
	if (err && want > up_to_page) {
		want = up_to_page;
		err = commit_to(segment, want);
	}
	if (err)
		return err;
	ATM_DECIDED(heap, HEAP_GROWN, heap__grown, atm_page_addr(segment, have),
		    (size_t)(want - have) << atm_page_shift);
	segment->committed_page = want;
	heap->committed_page_cnt += want - have;
	return 0;
}
