/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Invariants as code: `--tune check=full`, and the tests, walk a heap and end
 * the process at the first thing that does not hold. Reads only.
 */
#include "alloc/heap.h"
#include "alloc/policy.h"

#define HOLDS(condition, p)                                   \
	do {                                                  \
		if (UNLIKELY(!(condition)))                   \
			atm_misuse("broken: " #condition, p); \
	} while (0)

static void check_slab(struct heap *heap, struct page_run *slab)
{
	char *start = atm_run_addr(slab);
	size_t slab_bytes = (size_t)slab->page_cnt << atm_page_shift;
	uint32_t free_cnt = 0, carved_cnt = slab->carved_bytes / slab->block_bytes;

	HOLDS(slab->class < CLASS_CNT && slab->block_bytes == atm_class_bytes(slab->class), slab);
	HOLDS(slab->owner == heap, slab);
	HOLDS(slab->all_bytes % slab->block_bytes == 0 && slab->all_bytes <= slab_bytes, slab);
	HOLDS(slab->carved_bytes % slab->block_bytes == 0 && slab->carved_bytes <= slab->all_bytes, slab);
	for (char *block = (char *)slab->free; block; block = *(char **)block, free_cnt++) {
		HOLDS(block >= start && block < start + slab_bytes, slab);
		HOLDS((size_t)(block - start) % slab->block_bytes == 0, block);
		HOLDS(free_cnt < carved_cnt, slab); /* else the list has a cycle */
		HOLDS(((uintptr_t *)block)[1] == (atm_mark(block) ^ MARK_LISTED), block);
	}
	HOLDS(free_cnt + slab->used_cnt == carved_cnt, slab);
	HOLDS(!slab->is_listed || slab != heap->slabs[slab->class], slab);
}

/* Every page below the top lies in exactly one run; returns the free runs. */
static uint32_t check_segment(struct heap *heap, struct segment *segment, uint32_t *used_pages)
{
	uint32_t free_cnt = 0, kind_before = RUN_NONE, page = segment->first_page;

	HOLDS(segment->heap == heap && atm_is_in_segment(segment), segment);
	HOLDS(segment->first_page <= segment->top_page && segment->top_page <= segment->dirty_page, segment);
	HOLDS(segment->dirty_page <= segment->committed_page && segment->committed_page <= segment->page_cnt, segment);
	HOLDS(!segment->released_to_page || (segment->released_from_page <= segment->dirty_page &&
					     segment->released_from_page < segment->released_to_page),
	      segment);
	while (page < segment->top_page) {
		struct page_run *run = &segment->runs[page];

		HOLDS(run->page_cnt > 0 && run->page_cnt <= segment->top_page - page, run);
		HOLDS(segment->head[page] == page && segment->head[page + run->page_cnt - 1] == page, run);
		HOLDS(run->kind >= RUN_FREE && run->kind <= RUN_CACHED, run);
		HOLDS(run->kind != RUN_FREE || kind_before != RUN_FREE, run);
		HOLDS(run->kind == RUN_SLAB || !run->owner, run);
		if (run->kind == RUN_SLAB)
			check_slab(heap, run);
		if (run->kind == RUN_SLAB || run->kind == RUN_USED)
			*used_pages += run->page_cnt;
		free_cnt += run->kind == RUN_FREE;
		kind_before = run->kind;
		page += run->page_cnt;
	}
	HOLDS(kind_before != RUN_FREE, segment); /* it would have lowered the top */
	return free_cnt;
}

static void check_held(struct heap *heap)
{
	const struct held_set *held = &heap->held;
	uint64_t pages = held->last ? held->last->map_bytes >> atm_page_shift : 0;
	uint32_t listed_cnt = 0;

	HOLDS(!held->last || (held->last->state == LARGE_HELD && !held->last->holder), held->last);
	for (struct large *large = held->newest; large; large = large->older, listed_cnt++) {
		char *end = (char *)large->addr + large->map_bytes;
		struct large *behind = atm_large_find(end);
		/* Its end is not marked where there was no memory for the table: what comes behind is not joined then.
		 */
		struct large *marked = atm_large_before(end);

		HOLDS(large->state == LARGE_HELD && large->holder == heap && large->heap == heap, large);
		HOLDS(atm_large_find(large->addr) == large && (!marked || marked == large), large);
		HOLDS(!marked || !behind || behind->holder != heap, large);
		HOLDS(!large->older || large->older->held_since_ms <= large->held_since_ms, large);
		HOLDS(large->older ? large->older->newer == large : held->oldest == large, large);
		pages += large->map_bytes >> atm_page_shift;
	}
	HOLDS(held->cnt == listed_cnt + (held->last != NULL), heap);
	for (unsigned bin = 0; bin < HELD_BIN_CNT; bin++) {
		HOLDS(!held->bins[bin] == !(held->bin_map[bin / 64] >> (bin % 64) & 1), heap);
		for (struct large *large = held->bins[bin]; large; large = large->bin_next)
			listed_cnt--;
	}
	HOLDS(listed_cnt == 0, heap);
	HOLDS(pages == held->page_cnt && pages <= heap->quota_page_cnt, heap);
}

static void check_lists(struct heap *heap, uint32_t free_cnt)
{
	uint32_t listed_cnt = 0, quick_pages = 0, tail_pages = 0;

	for (unsigned bin = 0; bin < BIN_CNT; bin++) {
		HOLDS(!heap->bins[bin] == !(heap->bin_map[bin / 64] >> (bin % 64) & 1), heap);
		for (struct page_run *run = heap->bins[bin]; run; run = run->next, listed_cnt++)
			HOLDS(run->kind == RUN_FREE, run);
	}
	HOLDS(listed_cnt == free_cnt, heap);
	for (uint32_t i = 1; i <= QUICK_PAGES_MAX; i++)
		for (struct page_run *run = heap->quick[i]; run; run = run->next, quick_pages += i)
			HOLDS(run->kind == RUN_CACHED && run->page_cnt == i, run);
	HOLDS(quick_pages == heap->quick_page_cnt && quick_pages <= PAGE_CACHE_PAGES, heap);
	atm_held_enter(heap);
	check_held(heap);
	atm_held_leave(heap);
	for (uint32_t i = 0; i < heap->tail_cnt; i++) {
		HOLDS(heap->tails[i]->state == LARGE_CACHED, heap->tails[i]);
		tail_pages += (uint32_t)(heap->tails[i]->map_bytes >> atm_page_shift);
	}
	HOLDS(tail_pages == heap->tail_page_cnt && tail_pages <= PAGE_CACHE_PAGES, heap);
}

static void check_magazines(struct heap *heap)
{
	for (unsigned class = 0; class < CLASS_CNT; class ++) {
		struct magazine *magazine = &heap->magazines[class];

		HOLDS(!*magazine->bottom && magazine->top >= magazine->bottom && magazine->top <= magazine->end,
		      magazine);
		HOLDS(magazine->end - magazine->bottom <= (ptrdiff_t)magazine->max_cnt, magazine);
		for (uintptr_t **slot = magazine->bottom + 1; slot <= magazine->top; slot++) {
			struct segment *segment = atm_segment_of(*slot);
			struct page_run *slab = &segment->runs[segment->head[atm_page_of(segment, *slot)]];

			HOLDS(slab->owner == heap && slab->class == class, *slot);
			atm_small_check_address(segment, slab, *slot);
			atm_small_check(*slot);
		}
	}
}

void atm_check_heap(struct heap *heap)
{
	uint32_t free_cnt = 0, used_pages = 0;

	for (struct segment *segment = heap->segments; segment; segment = segment->next)
		free_cnt += check_segment(heap, segment, &used_pages);
	HOLDS(used_pages == heap->used_page_cnt, heap);
	check_magazines(heap);
	check_lists(heap, free_cnt);
	for (unsigned class = 0; class < CLASS_CNT; class ++)
		for (struct page_run *slab = heap->partial[class]; slab; slab = slab->next)
			HOLDS(slab->kind == RUN_SLAB && slab->is_listed && slab->class == class, slab);
}

void atm_check_now_and_then(struct heap *heap)
{
	if ((++heap->slow_cnt & 15) == 0)
		atm_check_heap(heap);
}
