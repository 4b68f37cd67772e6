/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The exported malloc family: thin shells that find the heap, count the
 * request and set errno; and the paths from a size or an address to the
 * module that serves it. Nothing here makes a syscall, and nothing but the
 * failure paths writes errno.
 */
#include <errno.h>
#include <malloc.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/heap.h"
#include "alloc/policy.h"
#include "alloc/probe.h"

#define EXPORT __attribute__((visibility("default")))

/* C23, not in every libc's headers yet. */
void free_sized(void *p, size_t bytes);
void free_aligned_sized(void *p, size_t align, size_t bytes);

/* ---- allocation ---- */

static bool is_whole_pages(size_t bytes)
{
	return (bytes & (atm_page_bytes - 1)) == 0;
}

static uint32_t pages_of(size_t bytes)
{
	return (uint32_t)((bytes + atm_page_bytes - 1) >> atm_page_shift);
}

/* A block that is a mapping of its own: where a heap cannot grow, also one below LARGE_MIN_BYTES. */
static void *alloc_large(struct heap *heap, size_t bytes, size_t align, size_t *dirty_bytes)
{
	struct large *large;

	if (UNLIKELY(bytes > PTRDIFF_MAX))
		return NULL;
	atm_heap_collect(heap);
	if (LIKELY(align == atm_page_bytes)) {
		large = atm_commit_take_last(heap, bytes);
		if (LIKELY(large)) {
			ATM_DECIDED(heap, COMMIT_REUSED, commit__reused, large->addr, bytes);
			*dirty_bytes = large->map_bytes;
			return large->addr;
		}
	}
	large = atm_large_alloc(heap, bytes, align);
	if (UNLIKELY(!large))
		return NULL;
	*dirty_bytes = large->is_zero ? 0 : large->map_bytes;
	large->is_zero = false;
	return large->addr;
}

/* A block of whole pages below LARGE_MIN_BYTES; see atm_run_alloc for dirty_bytes. */
static void *alloc_pages(struct heap *heap, size_t bytes, size_t *dirty_bytes)
{
	uint32_t page_cnt = pages_of(bytes);
	struct page_run *run;

	atm_heap_collect(heap);
	atm_check_sometimes(heap);
	if (UNLIKELY(heap->tail_cnt) && page_cnt <= PAGE_CACHE_PAGES) {
		struct large *tail = atm_realloc_take_tail(heap, page_cnt);

		if (tail) {
			ATM_DECIDED(heap, CACHE_HIT, cache__hit, tail->addr, bytes);
			*dirty_bytes = tail->map_bytes;
			return tail->addr;
		}
	}
	run = atm_run_alloc(heap, page_cnt, RUN_USED, dirty_bytes);
	return LIKELY(run) ? atm_run_addr(run) : alloc_large(heap, bytes, atm_page_bytes, dirty_bytes);
}

/* Everything that no slab has a block ready for. */
static __attribute__((noinline)) void *alloc_slow(struct heap *heap, size_t bytes, size_t *dirty_bytes)
{
	if (bytes <= SMALL_MAX_BYTES) {
		unsigned class = atm_class_of(bytes);
		size_t class_bytes = atm_class_bytes(class);
		void *block;

		*dirty_bytes = class_bytes;
		if (is_whole_pages(class_bytes))
			return alloc_pages(heap, class_bytes, dirty_bytes);
		block = atm_small_alloc_slow(heap, class);
		return LIKELY(block) ? block : alloc_large(heap, class_bytes, atm_page_bytes, dirty_bytes);
	}
	if (bytes < LARGE_MIN_BYTES)
		return alloc_pages(heap, bytes, dirty_bytes);
	return alloc_large(heap, bytes, atm_page_bytes, dirty_bytes);
}

/* The block's first *dirty_bytes may be non-zero (set on the slow path only). */
static inline void *alloc(struct heap *heap, size_t bytes, size_t *dirty_bytes)
{
	void *block = NULL;

	if (LIKELY(bytes <= SMALL_MAX_BYTES))
		block = atm_magazine_take(heap, atm_class_of(bytes));
	return LIKELY(block) ? block : alloc_slow(heap, bytes, dirty_bytes);
}

/* Smallest class from `bytes` on whose blocks all lie at multiples of align (< a page). */
static size_t aligned_class_bytes(size_t bytes, size_t align)
{
	unsigned class = atm_class_of(bytes > align ? bytes : align);

	while (atm_class_bytes(class) & (align - 1))
		class ++;
	return atm_class_bytes(class);
}

static void *alloc_aligned(struct heap *heap, size_t bytes, size_t align, size_t *dirty_bytes)
{
	struct page_run *run;

	if (align <= 16)
		return alloc(heap, bytes, dirty_bytes);
	if (UNLIKELY(align > PTRDIFF_MAX || bytes > PTRDIFF_MAX - align))
		return NULL;
	if (align < atm_page_bytes && bytes <= SMALL_MAX_BYTES)
		return alloc(heap, aligned_class_bytes(bytes, align), dirty_bytes);
	if (bytes + align > LARGE_MIN_BYTES)
		return alloc_large(heap, bytes ? bytes : 1, align, dirty_bytes);
	if (align <= atm_page_bytes)
		return alloc_pages(heap, bytes ? bytes : 1, dirty_bytes);
	atm_heap_collect(heap);
	run = atm_run_alloc_aligned(heap, pages_of(bytes ? bytes : 1), align);
	return LIKELY(run) ? atm_run_addr(run) : alloc_large(heap, bytes ? bytes : 1, align, dirty_bytes);
}

/* ---- from an address to what it is ---- */

/* The run that p lies in; aborts when p is in no block of this segment. */
static inline struct page_run *run_of(const struct segment *segment, void *p)
{
	uint32_t page = atm_page_of(segment, p);
	struct page_run *run;

	if (UNLIKELY(page < segment->first_page || page >= segment->top_page))
		/* Free pages above the top were once in use. */
		atm_misuse(page >= segment->top_page && page < segment->committed_page ? "double free"
										       : "not an allocated block",
			   p);
	run = (struct page_run *)&segment->runs[segment->head[page]];
	if (UNLIKELY(page - segment->head[page] >= run->page_cnt))
		atm_misuse("not an allocated block", p);
	return run;
}

static void check_run(struct page_run *run, void *p)
{
	if (run->kind == RUN_FREE || run->kind == RUN_CACHED)
		atm_misuse("double free", p);
	if (run->kind != RUN_USED || p != atm_run_addr(run))
		atm_misuse("not the start of a block", p);
}

static __attribute__((noinline)) void free_run(struct heap *heap, struct page_run *run, void *p)
{
	check_run(run, p);
	atm_run_free(heap, run);
	atm_check_sometimes(heap);
}

void atm_free_posted(struct heap *heap, uintptr_t *block)
{
	struct page_run *run = run_of(atm_segment_of(block), block);

	if (LIKELY(run->kind == RUN_SLAB))
		atm_small_free_posted(heap, run, block);
	else
		free_run(heap, run, block);
}

static struct large *large_or_abort(const void *p)
{
	struct large *large = atm_large_find(p);

	if (UNLIKELY(!large))
		atm_misuse("not an allocated block", p);
	if (UNLIKELY(atomic_load_explicit(&large->state, memory_order_relaxed) != LARGE_USED))
		atm_misuse("use after free", p);
	return large;
}

/* Usable size; aborts for a pointer that is no block. Works from any thread for a block in use. */
static size_t usable_bytes(void *p)
{
	struct segment *segment = atm_segment_of(p);
	struct page_run *run;

	if (!atm_is_in_segment(p))
		return large_or_abort(p)->map_bytes;
	run = run_of(segment, p);
	if (run->kind == RUN_SLAB) {
		atm_small_check_address(segment, run, p);
		if (UNLIKELY(*(uintptr_t *)p == atm_mark(p) || atm_small_is_marked(p)))
			atm_misuse("use after free", p);
		return run->block_bytes;
	}
	if (run->kind != RUN_USED)
		atm_misuse("use after free", p);
	if (UNLIKELY(p != atm_run_addr(run)))
		atm_misuse("not the start of a block", p);
	return (size_t)run->page_cnt << atm_page_shift;
}

/* A block in a segment of another heap. A block in use keeps its run, so that its kind can be read from here. */
static void free_foreign(struct heap *heap, const struct segment *segment, struct page_run *run, void *p)
{
	if (run->kind == RUN_SLAB) {
		atm_small_check_address(segment, run, p);
		if (LIKELY(heap)) {
			atm_heap_post(heap, run, p);
			return;
		}
	} else {
		check_run(run, p);
	}
	atm_heap_free_remote(segment->heap, p);
}

/* Frees from any thread; heap may be NULL. Returns the block's size for counting. */
static size_t free_any(struct heap *heap, void *p)
{
	struct segment *segment;
	struct page_run *run;
	struct large *large;
	size_t bytes;

	if (UNLIKELY(!atm_is_in_segment(p))) {
		large = atm_large_find(p);
		if (!large)
			atm_misuse("not an allocated block", p);
		bytes = large->map_bytes;
		atm_large_free(heap, large);
		return bytes;
	}
	segment = atm_segment_of(p);
	run = run_of(segment, p);
	bytes = run->kind == RUN_SLAB ? run->block_bytes : (size_t)run->page_cnt << atm_page_shift;
	if (UNLIKELY(segment->heap != heap)) {
		free_foreign(heap, segment, run, p);
	} else if (LIKELY(run->kind == RUN_SLAB)) {
		atm_small_check_address(segment, run, p);
		atm_small_free(heap, run->class, p);
	} else {
		free_run(heap, run, p);
	}
	return bytes;
}

/* ---- realloc ---- */

/* True when the block at p serves `bytes` where it is, after a resize if need be. */
static bool resize_in_place(struct heap *heap, void *p, size_t bytes, size_t old_bytes)
{
	struct segment *segment = atm_segment_of(p);
	struct page_run *run = run_of(segment, p);

	if (run->kind == RUN_SLAB)
		return bytes <= old_bytes && (bytes > old_bytes / 2 || old_bytes <= 64);
	if (bytes <= SMALL_MAX_BYTES && bytes <= old_bytes / 2)
		return false;
	if (bytes >= LARGE_MIN_BYTES)
		return false;
	if (pages_of(bytes) == run->page_cnt)
		return true;
	return segment->heap == heap ? atm_run_resize(heap, run, pages_of(bytes)) : bytes <= old_bytes;
}

static void *realloc_block(struct heap *heap, void *p, size_t bytes)
{
	size_t old_bytes = usable_bytes(p), dirty_bytes;
	void *q;

	if (UNLIKELY(bytes > PTRDIFF_MAX))
		return NULL;
	if (!atm_is_in_segment(p)) {
		if (bytes > SMALL_MAX_BYTES)
			return atm_large_resize(heap, large_or_abort(p), bytes);
	} else if (resize_in_place(heap, p, bytes, old_bytes)) {
		return p;
	}
	q = alloc(heap, bytes, &dirty_bytes);
	if (!q)
		return bytes <= old_bytes ? p : NULL; /* programs do not expect a shrink to fail */
	memcpy(q, p, old_bytes < bytes ? old_bytes : bytes);
	free_any(heap, p);
	return q;
}

/* ---- shells ---- */

/*
 * This thread's heap, or at the thread's very end the shared one, locked.
 * NULL: no memory for a heap.
 */
static inline struct heap *heap_enter(bool *is_shared)
{
	struct heap *heap = atm_heap;

	*is_shared = false;
	if (LIKELY(heap))
		return heap;
	heap = atm_heap_get();
	if (heap)
		return heap;
	heap = atm_heap_lock_shared();
	*is_shared = heap != NULL;
	return heap;
}

static inline void heap_leave(bool is_shared)
{
	if (UNLIKELY(is_shared))
		atm_heap_unlock_shared();
}

static inline void *no_memory(void)
{
	errno = ENOMEM;
	return NULL;
}

static __attribute__((noinline)) void *malloc_slow(size_t bytes)
{
	bool is_shared;
	struct heap *heap = heap_enter(&is_shared);
	size_t dirty_bytes;
	void *p = NULL;

	if (LIKELY(heap)) {
		p = alloc(heap, bytes, &dirty_bytes);
		heap->cell->requests.malloc_cnt[atm_band_of(bytes)]++;
		heap_leave(is_shared);
	}
	return LIKELY(p) ? p : no_memory();
}

/* What most calls need, in a form that the compiler turns into a leaf; the rest is alloc()'s. */
EXPORT void *malloc(size_t bytes)
{
	struct heap *heap = atm_heap;

	if (LIKELY(heap && bytes <= SMALL_MAX_BYTES)) {
		unsigned class = atm_class_of(bytes);
		void *block = atm_magazine_take(heap, class);

		if (LIKELY(block)) {
			heap->cell->requests.malloc_cnt[atm_class_band[class]]++;
			return block;
		}
	}
	return malloc_slow(bytes);
}

static __attribute__((noinline)) void free_slow(struct heap *heap, void *p)
{
	struct segment *segment = atm_segment_of(p);
	unsigned band;

	if (!p)
		return;
	if (UNLIKELY(!heap))
		heap = atm_heap_get_to_free();
	if (LIKELY(atm_is_in_segment(p) && segment->heap == heap)) {
		struct page_run *run = &segment->runs[segment->head[atm_page_of(segment, p)]];

		/* A record of this kind lies at the first page of its run only. */
		if (LIKELY(run->kind == RUN_USED && p == atm_run_addr(run))) {
			heap->cell->requests.free_cnt[atm_band_of((size_t)run->page_cnt << atm_page_shift)]++;
			atm_run_free(heap, run);
			atm_check_sometimes(heap);
			return;
		}
	}
	band = atm_band_of(free_any(heap, p));
	if (LIKELY(heap))
		heap->cell->requests.free_cnt[band]++;
	else
		__atomic_fetch_add(&atmalloc_counters.live.requests.free_cnt[band], 1, __ATOMIC_RELAXED);
}

/* The same for a block of one of this heap's slabs. */
EXPORT void free(void *p)
{
	struct segment *segment = atm_segment_of(p);
	struct heap *heap = atm_heap;

	if (LIKELY(heap && atm_is_in_slot(p))) {
		uint32_t offset = (uint32_t)((uintptr_t)p & (SEGMENT_BYTES - 1)), start;
		struct page_run *run;

		start = segment->head[offset >> atm_page_shift];
		run = &segment->runs[start];
		/*
		 * Pages that no slab lies in lead to a record of another kind, or to none: those have no owner.
		 * So do addresses behind a short segment, where a mapping may lie.
		 */
		if (LIKELY(run->owner == heap)) {
			unsigned class = run->class;

			atm_small_check_offset(run, offset - (start << atm_page_shift), p);
			heap->cell->requests.free_cnt[atm_class_band[class]]++;
			atm_small_free(heap, class, p);
			return;
		}
	}
	free_slow(heap, p);
}

EXPORT void *calloc(size_t cnt, size_t each_bytes)
{
	size_t bytes, dirty_bytes = SIZE_MAX;
	bool is_shared;
	struct heap *heap;
	void *p = NULL;

	if (UNLIKELY(__builtin_mul_overflow(cnt, each_bytes, &bytes)))
		return no_memory();
	heap = heap_enter(&is_shared);
	if (LIKELY(heap)) {
		p = alloc(heap, bytes, &dirty_bytes);
		heap->cell->requests.malloc_cnt[atm_band_of(bytes)]++;
		heap_leave(is_shared);
	}
	if (UNLIKELY(!p))
		return no_memory();
	return memset(p, 0, bytes < dirty_bytes ? bytes : dirty_bytes);
}

EXPORT void *realloc(void *p, size_t bytes)
{
	bool is_shared;
	struct heap *heap;
	size_t dirty_bytes;
	void *q = NULL;

	if (p && bytes == 0) {
		free(p);
		return NULL;
	}
	heap = heap_enter(&is_shared);
	if (LIKELY(heap)) {
		q = p ? realloc_block(heap, p, bytes) : alloc(heap, bytes, &dirty_bytes);
		heap->cell->requests.realloc_cnt[atm_band_of(bytes)]++;
		heap_leave(is_shared);
	}
	return LIKELY(q) ? q : no_memory();
}

EXPORT void *reallocarray(void *p, size_t cnt, size_t each_bytes)
{
	size_t bytes;

	if (UNLIKELY(__builtin_mul_overflow(cnt, each_bytes, &bytes)))
		return no_memory();
	return realloc(p, bytes);
}

/* align: a power of two. errno is the caller's business. */
static void *aligned(size_t align, size_t bytes)
{
	bool is_shared;
	struct heap *heap = heap_enter(&is_shared);
	size_t dirty_bytes;
	void *p = NULL;

	if (LIKELY(heap)) {
		p = alloc_aligned(heap, bytes, align, &dirty_bytes);
		heap->cell->requests.malloc_cnt[atm_band_of(bytes)]++;
		heap_leave(is_shared);
	}
	return p;
}

/* As glibc: an alignment that is no power of two is rounded up to one. */
EXPORT void *memalign(size_t align, size_t bytes)
{
	void *p;

	if (UNLIKELY(align > (SIZE_MAX >> 1) + 1)) {
		errno = EINVAL;
		return NULL;
	}
	if (align < 2)
		align = 1;
	else if (align & (align - 1))
		align = (size_t)1 << (64 - __builtin_clzl(align));
	p = aligned(align, bytes);
	return LIKELY(p) ? p : no_memory();
}

/* C17, and glibc since 2.38, refuse what is no power of two; glibc before that rounds it up. */
EXPORT void *aligned_alloc(size_t align, size_t bytes)
{
	if (UNLIKELY(align == 0 || align & (align - 1))) {
		errno = EINVAL;
		return NULL;
	}
	return memalign(align, bytes);
}

EXPORT int posix_memalign(void **out, size_t align, size_t bytes)
{
	void *p;

	if (align % sizeof(void *) || align == 0 || align & (align - 1))
		return EINVAL;
	p = aligned(align, bytes);
	if (!p) {
		errno = ENOMEM; /* as glibc, whose callers look at it */
		return ENOMEM;
	}
	*out = p;
	return 0;
}

EXPORT void *valloc(size_t bytes)
{
	atm_heap_get(); /* knows the page size from here on */
	return memalign(atm_page_bytes, bytes);
}

EXPORT void *pvalloc(size_t bytes)
{
	atm_heap_get();
	if (bytes > SIZE_MAX - atm_page_bytes)
		return no_memory();
	return memalign(atm_page_bytes, atm_page_round(bytes));
}

EXPORT size_t malloc_usable_size(void *p)
{
	return p ? usable_bytes(p) : 0;
}

/* Of the caller's size only that is known to be wrong which the block cannot have served. */
EXPORT void free_sized(void *p, size_t bytes)
{
	if (UNLIKELY(p && usable_bytes(p) < bytes))
		atm_misuse("free_sized with a size that is not the block's", p);
	free(p);
}

EXPORT void free_aligned_sized(void *p, size_t align, size_t bytes)
{
	if (UNLIKELY(align && (uintptr_t)p & (align - 1)))
		atm_misuse("free_aligned_sized with an alignment that is not the block's", p);
	free_sized(p, bytes);
}
