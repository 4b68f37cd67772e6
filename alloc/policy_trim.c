/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Policy trim: when the free pages at the top of a heap are given back.
 * Off: as soon as there is one, as glibc did for per-thread heaps before 2015.
 * On: when they pass the threshold, twice the largest block freed to this heap.
 */
#include "alloc/heap.h"
#include "alloc/policy.h"
#include "alloc/probe.h"

#define TRIM_THRESHOLD_MIN_BYTES ((size_t)128 << 10)
#define TRIM_THRESHOLD_MAX_BYTES ((size_t)64 << 20)

/*
 * From where on a free top is released. A computed threshold has to be passed,
 * not only reached: two equal blocks, freed in turn, would reach it each time.
 */
static size_t threshold_bytes(const struct heap *heap)
{
	size_t fixed = atm_tune(ATM_TUNE_TRIM_THRESHOLD), bytes = 2 * heap->largest_freed_bytes;

	if (fixed)
		return fixed;
	if (bytes < TRIM_THRESHOLD_MIN_BYTES)
		bytes = TRIM_THRESHOLD_MIN_BYTES;
	return (bytes < TRIM_THRESHOLD_MAX_BYTES ? bytes : TRIM_THRESHOLD_MAX_BYTES) + atm_page_bytes;
}

bool atm_trim_is_worth(const struct heap *heap, size_t free_bytes)
{
	return !(atm_policy() & POLICY_TRIM) || free_bytes >= threshold_bytes(heap);
}

void atm_trim_top(struct heap *heap, struct segment *segment)
{
	size_t free_bytes = (size_t)(segment->dirty_page - segment->top_page) << atm_page_shift;

	if (free_bytes == 0)
		return;
	if (!atm_trim_is_worth(heap, free_bytes)) {
		ATM_DECIDED(heap, TRIM_AVOIDED, trim__avoided, segment, free_bytes);
		return;
	}
	ATM_DECIDED(heap, TRIM_TAKEN, trim__taken, segment, free_bytes);
	/* Locked pages cannot be given back: they then stay dirty, nothing else changes. */
	if (atm_os_release(atm_page_addr(segment, segment->top_page), free_bytes) == 0)
		segment->dirty_page = segment->top_page;
}
