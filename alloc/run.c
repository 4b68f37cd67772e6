/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The page runs in segments: split, coalesce, cache. Owns struct page_run;
 * every function works on a heap that the caller has for itself.
 */
#include <errno.h>
#include <string.h>

#include "alloc/heap.h"
#include "alloc/policy.h"
#include "alloc/probe.h"

/* ---- free bins: exact lengths to 63 pages, then one a power of two ---- */

static unsigned bin_of(uint32_t page_cnt)
{
	return page_cnt < 64 ? page_cnt - 1 : 63 - 6 + (31 - (unsigned)__builtin_clz(page_cnt));
}

static void bin_add(struct heap *heap, struct page_run *run)
{
	unsigned bin = bin_of(run->page_cnt);

	run->prev = NULL;
	run->next = heap->bins[bin];
	if (run->next)
		run->next->prev = run;
	heap->bins[bin] = run;
	heap->bin_map[bin / 64] |= 1ull << (bin % 64);
}

static void bin_remove(struct heap *heap, struct page_run *run)
{
	unsigned bin = bin_of(run->page_cnt);

	if (run->next)
		run->next->prev = run->prev;
	if (run->prev) {
		run->prev->next = run->next;
		return;
	}
	heap->bins[bin] = run->next;
	if (!run->next)
		heap->bin_map[bin / 64] &= ~(1ull << (bin % 64));
}

/* First non-empty bin at or above `bin`; BIN_CNT when there is none. */
static unsigned bin_next(const struct heap *heap, unsigned bin)
{
	for (unsigned word = bin / 64, shift = bin % 64; word < 2; word++, shift = 0) {
		uint64_t map = heap->bin_map[word] >> shift << shift;

		if (map)
			return word * 64 + (unsigned)__builtin_ctzll(map);
	}
	return BIN_CNT;
}

/* The smallest free run of at least page_cnt pages, as far as a short look tells. */
static struct page_run *bin_find(const struct heap *heap, uint32_t page_cnt)
{
	for (unsigned bin = bin_next(heap, bin_of(page_cnt)); bin < BIN_CNT; bin = bin_next(heap, bin + 1)) {
		struct page_run *best = NULL;
		unsigned looked_at = 0;

		for (struct page_run *run = heap->bins[bin]; run && looked_at < 32; run = run->next, looked_at++)
			if (run->page_cnt >= page_cnt && (!best || run->page_cnt < best->page_cnt))
				best = run;
		if (best)
			return best;
	}
	return NULL;
}

/* ---- runs ---- */

/*
 * Writes the record of a run and the way to it: from all pages of a slab, else
 * from both ends. What inner pages say then is old, and leads to a record that
 * is free, or of a run that they do not lie in: misuse is seen all the same.
 */
static void run_init(struct segment *segment, uint32_t page, uint32_t page_cnt, enum run_kind kind)
{
	struct page_run *run = &segment->runs[page];

	run->kind = (uint8_t)kind;
	run->owner = NULL; /* a slab's is set when the rest of it is */
	run->page_cnt = page_cnt;
	segment->head[page] = segment->head[page + page_cnt - 1] = (uint16_t)page;
	if (kind == RUN_SLAB)
		for (uint32_t i = page + 1; i + 1 < page + page_cnt; i++)
			segment->head[i] = (uint16_t)page;
}

static void free_part(struct heap *heap, struct segment *segment, uint32_t page, uint32_t page_cnt)
{
	run_init(segment, page, page_cnt, RUN_FREE);
	bin_add(heap, &segment->runs[page]);
}

static struct page_run *alloc_from_bins(struct heap *heap, uint32_t page_cnt, enum run_kind kind)
{
	struct page_run *run = bin_find(heap, page_cnt);
	struct segment *segment;
	uint32_t page, rest;

	if (!run)
		return NULL;
	bin_remove(heap, run);
	segment = atm_segment_of(run);
	page = atm_run_page(segment, run);
	rest = run->page_cnt - page_cnt;
	if (rest)
		free_part(heap, segment, page + page_cnt, rest);
	run_init(segment, page, page_cnt, kind);
	return run;
}

static struct page_run *alloc_from_top(struct heap *heap, struct segment *segment, uint32_t page_cnt,
				       enum run_kind kind, size_t *dirty_bytes)
{
	uint32_t page = segment->top_page, end = page + page_cnt, dirty = segment->dirty_page;

	if (UNLIKELY(segment->page_cnt - page < page_cnt) ||
	    (UNLIKELY(end > segment->committed_page) && atm_segment_commit(heap, segment, end)))
		return NULL;
	*dirty_bytes = (size_t)((dirty < end ? dirty : end) - page) << atm_page_shift;
	segment->top_page = end;
	if (dirty < end)
		segment->dirty_page = end;
	run_init(segment, page, page_cnt, kind);
	return &segment->runs[page];
}

static struct page_run *alloc_from_any_top(struct heap *heap, uint32_t page_cnt, enum run_kind kind,
					   size_t *dirty_bytes)
{
	struct page_run *run;

	if (heap->current) {
		run = alloc_from_top(heap, heap->current, page_cnt, kind, dirty_bytes);
		if (LIKELY(run))
			return run;
	}
	for (struct segment *segment = heap->segments; segment; segment = segment->next) {
		run = alloc_from_top(heap, segment, page_cnt, kind, dirty_bytes);
		if (run) {
			heap->current = segment;
			return run;
		}
	}
	return NULL;
}

static struct page_run *alloc_from_new(struct heap *heap, uint32_t page_cnt, enum run_kind kind, size_t *dirty_bytes)
{
	struct segment *segment = atm_segment_new(heap, page_cnt);

	return segment ? alloc_from_top(heap, segment, page_cnt, kind, dirty_bytes) : NULL;
}

static void quick_flush(struct heap *heap);

struct page_run *atm_run_alloc(struct heap *heap, uint32_t page_cnt, enum run_kind kind, size_t *dirty_bytes)
{
	struct page_run *run;

	*dirty_bytes = (size_t)page_cnt << atm_page_shift;
	if (page_cnt <= QUICK_PAGES_MAX && (run = heap->quick[page_cnt])) {
		struct segment *segment = atm_segment_of(run);

		heap->quick[page_cnt] = run->next;
		heap->quick_page_cnt -= page_cnt;
		run_init(segment, atm_run_page(segment, run), page_cnt, kind);
		ATM_DECIDED(heap, CACHE_HIT, cache__hit, atm_run_addr(run), *dirty_bytes);
		goto out;
	}
	if (page_cnt <= QUICK_PAGES_MAX)
		ATM_DECIDED(heap, CACHE_MISS, cache__miss, NULL, *dirty_bytes);
	run = alloc_from_bins(heap, page_cnt, kind);
	if (!run)
		run = alloc_from_any_top(heap, page_cnt, kind, dirty_bytes);
	if (UNLIKELY(!run))
		run = alloc_from_new(heap, page_cnt, kind, dirty_bytes);
	/* What policy commit holds may be what is missing. */
	if (UNLIKELY(!run) && atm_commit_release_all(heap)) {
		run = alloc_from_any_top(heap, page_cnt, kind, dirty_bytes);
		if (!run)
			run = alloc_from_new(heap, page_cnt, kind, dirty_bytes);
	}
	if (UNLIKELY(!run && heap->quick_page_cnt)) {
		quick_flush(heap);
		*dirty_bytes = (size_t)page_cnt << atm_page_shift;
		run = alloc_from_bins(heap, page_cnt, kind);
	}
	if (UNLIKELY(!run))
		return NULL;
out:
	heap->used_page_cnt += page_cnt;
	return run;
}

/*
 * Free memory that nobody uses may lie on top of a free run all the same: runs
 * in the page cache, and the one slab a class that is kept though empty.
 */
static bool is_idle_run(const struct heap *heap, const struct page_run *run)
{
	return run->kind == RUN_CACHED ||
	       (run->kind == RUN_SLAB && run->used_cnt == 0 && heap->slabs[run->class] == run);
}

/* Takes an idle run out of where it is kept; the caller frees its pages. */
static void idle_run_take(struct heap *heap, struct page_run *run)
{
	struct page_run **link;

	if (run->kind == RUN_SLAB) {
		heap->slabs[run->class] = &atm_empty_slab;
		heap->used_page_cnt -= run->page_cnt;
	} else {
		for (link = &heap->quick[run->page_cnt]; *link != run; link = &(*link)->next)
			;
		*link = run->next;
		heap->quick_page_cnt -= run->page_cnt;
	}
	run->kind = RUN_FREE;
	run->owner = NULL;
}

/*
 * The end of the free pages [page, end) with the idle runs behind them, when
 * these reach up to the top and the whole is worth a release; else `end`.
 */
static uint32_t take_idle_above(struct heap *heap, struct segment *segment, uint32_t page, uint32_t end)
{
	uint32_t top = segment->top_page, at = end;

	if (!atm_trim_is_worth(heap, (size_t)(end - page) << atm_page_shift))
		return end;
	while (at < top && is_idle_run(heap, &segment->runs[at]))
		at += segment->runs[at].page_cnt;
	if (at < top)
		return end;
	for (at = end; at < top; at += segment->runs[at].page_cnt)
		idle_run_take(heap, &segment->runs[at]);
	return top;
}

/*
 * The first page of the free run that is worth a release and has nothing but
 * idle runs between it and `page`; `page` when there is none.
 */
static uint32_t free_run_below(struct heap *heap, const struct segment *segment, uint32_t page)
{
	for (uint32_t at = page; at > segment->first_page;) {
		const struct page_run *run;

		at = segment->head[at - 1];
		run = &segment->runs[at];
		if (run->kind == RUN_FREE)
			return atm_trim_is_worth(heap, (size_t)run->page_cnt << atm_page_shift) ? at : page;
		if (!is_idle_run(heap, run))
			break;
	}
	return page;
}

/* The top has sunk to `page`: takes what free_run_below finds, and returns its first page. */
static uint32_t take_idle_below(struct heap *heap, struct segment *segment, uint32_t page)
{
	uint32_t start = free_run_below(heap, segment, page);

	if (start == page)
		return page;
	bin_remove(heap, &segment->runs[start]);
	for (uint32_t at = start + segment->runs[start].page_cnt; at < page; at += segment->runs[at].page_cnt)
		idle_run_take(heap, &segment->runs[at]);
	return start;
}

/* Frees the run for good: coalesces, lowers the top, lets `trim` decide. */
static void run_coalesce(struct heap *heap, struct segment *segment, uint32_t page, uint32_t page_cnt)
{
	uint32_t end = page + page_cnt;

	if (page > segment->first_page) {
		uint32_t before = segment->head[page - 1];

		if (segment->runs[before].kind == RUN_FREE) {
			bin_remove(heap, &segment->runs[before]);
			page = before;
		}
	}
	if (end < segment->top_page && segment->runs[end].kind == RUN_FREE) {
		bin_remove(heap, &segment->runs[end]);
		end += segment->runs[end].page_cnt;
	}
	if (end < segment->top_page)
		end = take_idle_above(heap, segment, page, end);
	if (end < segment->top_page) {
		free_part(heap, segment, page, end - page);
		return;
	}
	segment->top_page = take_idle_below(heap, segment, page);
	atm_trim_top(heap, segment);
	if (UNLIKELY(atm_segment_is_empty(segment)))
		atm_segment_drop(heap, segment);
}

bool atm_run_is_lid(struct heap *heap, const struct page_run *run)
{
	const struct segment *segment = atm_segment_of(run);
	uint32_t page = atm_run_page(segment, run);

	return UNLIKELY(page + run->page_cnt == segment->top_page) && free_run_below(heap, segment, page) != page;
}

/* Moves the whole page cache (its runs) to the free bins. */
static void quick_flush(struct heap *heap)
{
	for (uint32_t i = 1; i <= QUICK_PAGES_MAX; i++)
		while (heap->quick[i]) { /* coalescing may take further ones out */
			struct page_run *run = heap->quick[i];
			struct segment *segment = atm_segment_of(run);

			idle_run_take(heap, run);
			run_coalesce(heap, segment, atm_run_page(segment, run), i);
		}
}

void atm_run_free(struct heap *heap, struct page_run *run)
{
	struct segment *segment = atm_segment_of(run);
	uint32_t page = atm_run_page(segment, run), page_cnt = run->page_cnt;
	size_t bytes = (size_t)page_cnt << atm_page_shift;

	heap->used_page_cnt -= page_cnt;
	if (run->kind == RUN_USED && bytes > heap->largest_freed_bytes)
		heap->largest_freed_bytes = bytes;
	run->owner = NULL;
	/* A run at the top only lowers it, which is as cheap as the page cache. */
	if (page_cnt <= QUICK_PAGES_MAX && page + page_cnt < segment->top_page) {
		if (heap->quick_page_cnt + page_cnt > PAGE_CACHE_PAGES)
			quick_flush(heap);
		run->kind = RUN_CACHED;
		run->next = heap->quick[page_cnt];
		heap->quick[page_cnt] = run;
		heap->quick_page_cnt += page_cnt;
		return;
	}
	run->kind = RUN_FREE;
	run_coalesce(heap, segment, page, page_cnt);
}

struct page_run *atm_run_alloc_aligned(struct heap *heap, uint32_t page_cnt, size_t align)
{
	uint32_t align_pages = (uint32_t)(align >> atm_page_shift);
	uint32_t all_pages = page_cnt + align_pages - 1;
	size_t dirty_bytes;
	struct page_run *run = atm_run_alloc(heap, all_pages, RUN_USED, &dirty_bytes);
	struct segment *segment;
	uint32_t page, before, behind;

	if (!run)
		return NULL;
	segment = atm_segment_of(run);
	page = atm_run_page(segment, run);
	before = -page & (align_pages - 1);
	behind = all_pages - before - page_cnt;
	/* The middle first: the ends are told apart from it when they coalesce. */
	run_init(segment, page + before, page_cnt, RUN_USED);
	if (before) {
		run_init(segment, page, before, RUN_FREE);
		run_coalesce(heap, segment, page, before);
	}
	if (behind) {
		run_init(segment, page + before + page_cnt, behind, RUN_FREE);
		run_coalesce(heap, segment, page + before + page_cnt, behind);
	}
	heap->used_page_cnt -= before + behind;
	return &segment->runs[page + before];
}

static bool run_grow(struct heap *heap, struct segment *segment, struct page_run *run, uint32_t page_cnt)
{
	uint32_t page = atm_run_page(segment, run), end = page + run->page_cnt, more = page_cnt - run->page_cnt;
	struct page_run *behind = &segment->runs[end];

	if (end == segment->top_page) {
		if (segment->page_cnt - end < more ||
		    (end + more > segment->committed_page && atm_segment_commit(heap, segment, end + more)))
			return false;
		segment->top_page = end + more;
		if (segment->dirty_page < segment->top_page)
			segment->dirty_page = segment->top_page;
	} else {
		if (behind->kind != RUN_FREE || behind->page_cnt < more)
			return false;
		bin_remove(heap, behind);
		if (behind->page_cnt > more)
			free_part(heap, segment, end + more, behind->page_cnt - more);
	}
	run_init(segment, page, page_cnt, (enum run_kind)run->kind);
	heap->used_page_cnt += more;
	return true;
}

bool atm_run_resize(struct heap *heap, struct page_run *run, uint32_t page_cnt)
{
	struct segment *segment = atm_segment_of(run);
	uint32_t page = atm_run_page(segment, run), old_cnt = run->page_cnt;

	if (page_cnt > old_cnt)
		return run_grow(heap, segment, run, page_cnt);
	if (page_cnt < old_cnt) {
		run_init(segment, page, page_cnt, (enum run_kind)run->kind);
		run_init(segment, page + page_cnt, old_cnt - page_cnt, RUN_FREE);
		heap->used_page_cnt -= old_cnt - page_cnt;
		run_coalesce(heap, segment, page + page_cnt, old_cnt - page_cnt);
	}
	return true;
}

size_t atm_run_trim(struct heap *heap, size_t pad_bytes)
{
	size_t page_cnt = 0;

	quick_flush(heap);
	for (unsigned bin = bin_next(heap, 0); bin < BIN_CNT; bin = bin_next(heap, bin + 1))
		for (struct page_run *run = heap->bins[bin]; run; run = run->next)
			if (atm_os_release(atm_run_addr(run), (size_t)run->page_cnt << atm_page_shift) == 0)
				page_cnt += run->page_cnt;
	for (struct segment *segment = heap->segments; segment; segment = segment->next) {
		uint32_t keep = segment->top_page + (uint32_t)(pad_bytes >> atm_page_shift);

		if (segment->dirty_page > keep &&
		    atm_os_release(atm_page_addr(segment, keep), (size_t)(segment->dirty_page - keep)
									 << atm_page_shift) == 0) {
			page_cnt += segment->dirty_page - keep;
			segment->dirty_page = keep;
			segment->released_to_page = 0; /* not what the heap has decided */
		}
	}
	return page_cnt;
}
