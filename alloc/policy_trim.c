/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Policy trim: when the free pages at the top of a heap are given back.
 * Off: as soon as there is one, as glibc did for per-thread heaps before 2015.
 * On: when they pass the threshold, twice the largest block freed to this heap;
 * or twice the most that this heap has given back and used again soon after.
 */
#include <time.h>

#include "alloc/heap.h"
#include "alloc/policy.h"
#include "alloc/probe.h"

#define TRIM_THRESHOLD_MIN_BYTES ((size_t)128 << 10)
#define TRIM_THRESHOLD_MAX_BYTES ((size_t)64 << 20)
/* How soon is soon, and how long it counts. */
#define TRIM_PERIOD_MS 10000

static uint64_t read_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static size_t within_bounds(size_t bytes)
{
	if (bytes < TRIM_THRESHOLD_MIN_BYTES)
		bytes = TRIM_THRESHOLD_MIN_BYTES;
	return bytes < TRIM_THRESHOLD_MAX_BYTES ? bytes : TRIM_THRESHOLD_MAX_BYTES;
}

/*
 * A computed threshold has to be passed, not only reached: two equal blocks,
 * freed in turn, would reach it each time. The clock is read only where it
 * makes a difference.
 */
static bool is_past_threshold(struct heap *heap, size_t free_bytes)
{
	size_t fixed = atm_tune(ATM_TUNE_TRIM_THRESHOLD);

	if (fixed)
		return free_bytes >= fixed;
	if (free_bytes <= within_bounds(2 * heap->largest_freed_bytes))
		return false;
	if (!heap->returned_bytes)
		return true;
	if (read_clock() - heap->returned_ms > TRIM_PERIOD_MS)
		heap->returned_bytes = 0;
	return free_bytes > within_bounds(2 * heap->returned_bytes);
}

bool atm_trim_is_worth(struct heap *heap, size_t free_bytes)
{
	return !(atm_policy() & POLICY_TRIM) || is_past_threshold(heap, free_bytes);
}

/* How much of the last release lies below the pages that were in use since; each release is looked at once. */
static void learn(struct heap *heap, struct segment *segment)
{
	uint32_t to = segment->released_to_page;
	uint64_t now;
	size_t bytes;

	if (to > segment->dirty_page)
		to = segment->dirty_page;
	bytes = (size_t)(to - segment->released_from_page) << atm_page_shift;
	segment->released_to_page = 0;
	if (bytes <= heap->returned_bytes)
		return;
	now = read_clock();
	if (now - segment->released_ms > TRIM_PERIOD_MS)
		return;
	heap->returned_bytes = bytes;
	heap->returned_ms = now;
}

/* Pages that go one release after the other, with none used in between, are one. */
static void note_release(struct segment *segment)
{
	if (!segment->released_to_page || segment->dirty_page != segment->released_from_page)
		segment->released_to_page = segment->dirty_page;
	segment->released_from_page = segment->top_page;
	segment->released_ms = read_clock();
}

void atm_trim_top(struct heap *heap, struct segment *segment)
{
	size_t free_bytes = (size_t)(segment->dirty_page - segment->top_page) << atm_page_shift;

	if (free_bytes == 0)
		return;
	if (atm_trim_is_worth(heap, free_bytes) && segment->released_to_page &&
	    segment->dirty_page != segment->released_from_page)
		learn(heap, segment);
	if (!atm_trim_is_worth(heap, free_bytes)) {
		ATM_DECIDED(heap, TRIM_AVOIDED, trim__avoided, segment, free_bytes);
		return;
	}
	ATM_DECIDED(heap, TRIM_TAKEN, trim__taken, segment, free_bytes);
	/* Locked pages cannot be given back: they then stay dirty, nothing else changes. */
	if (atm_os_release(atm_page_addr(segment, segment->top_page), free_bytes))
		return;
	note_release(segment);
	segment->dirty_page = segment->top_page;
}
