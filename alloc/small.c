/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slabs: runs of pages cut into equal blocks of one size class, with a LIFO
 * free list; and the magazines, which take blocks from them and give them back
 * by the batch. Sizes that are whole pages get a run of their own instead: the
 * page cache splits those freely.
 */
#include <string.h>

#include "alloc/heap.h"
#include "alloc/policy.h"

/* A slab has at least this many bytes, and at least this many blocks. */
#define SLAB_MIN_BYTES ((size_t)64 << 10)
#define SLAB_MIN_BLOCKS 8

/*
 * Room of a magazine: none before the first request, and twice as much with each
 * refill. When it has been filled up twice without one, there is none again:
 * blocks are no longer reused then, and what a magazine holds would only keep
 * slabs, and what is free below them, from being given back.
 */
#define MAGAZINE_BYTES ((size_t)64 << 10)
#define MAGAZINE_MAX_CNT 128
#define MAGAZINE_LEAST_CNT 8
/* How far ahead the blocks that go back are fetched into the CPU's cache. */
#define PREFETCH_CNT 4

/* Stands in for "no slab": nothing to take, and never written. */
struct page_run atm_empty_slab = {.kind = RUN_SLAB};

/* Two classes to a line would save nothing: the table is one cache line and a byte. */
#define C4(n) n, n, n, n
#define C8(n) C4(n), C4(n)
const uint8_t atm_small_class[65] = {
	0,      0,      1,      2,      3,  4,  5,  6,  7, /* to 128 */
	8,      8,      9,      9,      10, 10, 11, 11,    /* to 256 */
	C4(12), C4(13), C4(14), C4(15),                    /* to 512 */
	C8(16), C8(17), C8(18), C8(19),                    /* to 1024 */
};

const uint8_t atm_class_band[CLASS_CNT] = {
	C4(0), C8(1), C8(2), C8(3), C8(4), /* to 64, 256, 1024, 4096, 16384 bytes */
};

static void partial_add(struct heap *heap, struct page_run *slab)
{
	slab->prev = NULL;
	slab->next = heap->partial[slab->class];
	if (slab->next)
		slab->next->prev = slab;
	heap->partial[slab->class] = slab;
	slab->is_listed = true;
}

static void partial_remove(struct heap *heap, struct page_run *slab)
{
	if (slab->next)
		slab->next->prev = slab->prev;
	*(slab->prev ? &slab->prev->next : &heap->partial[slab->class]) = slab->next;
	slab->is_listed = false;
}

/* Where memory is short, as small as it may be: a request must not fail while a longer one would be served. */
static struct page_run *slab_new(struct heap *heap, unsigned class)
{
	size_t block_bytes = atm_class_bytes(class), dirty_bytes;
	size_t bytes = block_bytes * SLAB_MIN_BLOCKS;
	struct page_run *slab;

	if (bytes < SLAB_MIN_BYTES)
		bytes = SLAB_MIN_BYTES;
	for (bytes = atm_page_round(bytes);; bytes = atm_page_round(bytes / 2)) {
		slab = atm_run_alloc(heap, (uint32_t)(bytes >> atm_page_shift), RUN_SLAB, &dirty_bytes);
		if (LIKELY(slab))
			break;
		if (bytes == atm_page_bytes || bytes / 2 < block_bytes)
			return NULL;
	}
	slab->class = (uint8_t) class;
	slab->is_listed = false;
	slab->block_bytes = (uint32_t)block_bytes;
	slab->block_recip = (uint32_t)((((uint64_t)1 << 32) + block_bytes - 1) / block_bytes);
	slab->all_bytes = (uint32_t)(bytes / block_bytes * block_bytes);
	slab->carved_bytes = slab->used_cnt = 0;
	slab->free = NULL;
	slab->owner = heap;
	return slab;
}

/* ---- from slabs to a magazine ---- */

static uint32_t max_cnt_of(unsigned class)
{
	size_t cnt = MAGAZINE_BYTES / atm_class_bytes(class);

	return cnt < MAGAZINE_MAX_CNT ? (uint32_t)cnt : MAGAZINE_MAX_CNT;
}

size_t atm_magazines_bytes(void)
{
	size_t cnt = 0;

	for (unsigned class = 0; class < CLASS_CNT; class ++)
		cnt += max_cnt_of(class) + 1;
	return cnt * sizeof(uintptr_t *);
}

static uint32_t room_of(const struct magazine *magazine)
{
	return (uint32_t)(magazine->end - magazine->bottom);
}

static void raise_room(struct magazine *magazine)
{
	uint32_t cnt = magazine->end == magazine->bottom ? MAGAZINE_LEAST_CNT : 2 * room_of(magazine);

	magazine->end = magazine->bottom + (cnt < magazine->max_cnt ? cnt : magazine->max_cnt);
}

void atm_magazines_init(struct heap *heap, void *slots)
{
	uintptr_t **slot = slots;

	for (unsigned class = 0; class < CLASS_CNT; class ++) {
		struct magazine *magazine = &heap->magazines[class];

		magazine->top = magazine->bottom = magazine->end = slot;
		magazine->max_cnt = max_cnt_of(class);
		slot += magazine->max_cnt + 1;
	}
}

/* Blocks of the slab's list, to `cnt` of them. */
static void take_listed(struct magazine *magazine, struct page_run *slab, uint32_t cnt)
{
	for (; cnt && slab->free; cnt--) {
		uintptr_t *block = slab->free, mark = atm_mark(block);

		if (UNLIKELY(block[1] != (mark ^ MARK_LISTED) || block[0] == mark))
			atm_small_misuse(block);
		slab->free = (uintptr_t *)block[0];
		slab->used_cnt++;
		block[0] = mark;
		block[1] = 0;
		*++magazine->top = block;
	}
}

/* Blocks of a slab that has such, never used so far: a page's worth, but at least one. The lowest comes to lie on top.
 */
static void take_new(struct magazine *magazine, struct page_run *slab, uint32_t cnt)
{
	uint32_t page_cnt = (uint32_t)(atm_page_bytes / slab->block_bytes);
	uint32_t left_cnt = (slab->all_bytes - slab->carved_bytes) / slab->block_bytes;
	char *at = (char *)atm_run_addr(slab) + slab->carved_bytes;

	if (cnt > page_cnt)
		cnt = page_cnt ? page_cnt : 1;
	if (cnt > left_cnt)
		cnt = left_cnt;
	slab->carved_bytes += cnt * slab->block_bytes;
	slab->used_cnt += cnt;
	magazine->top += cnt;
	for (uint32_t i = 0; i < cnt; i++, at += slab->block_bytes) {
		uintptr_t *block = (uintptr_t *)at;

		block[0] = atm_mark(block);
		block[1] = 0; /* an old mark, of when another slab lay here */
		magazine->top[-(ptrdiff_t)i] = block;
	}
}

/* At least one block for an empty magazine; false: out of memory. */
static bool refill(struct heap *heap, unsigned class)
{
	struct magazine *magazine = &heap->magazines[class];
	struct page_run *slab = heap->slabs[class];
	uint32_t cnt;

	magazine->is_spilt = false;
	raise_room(magazine);
	cnt = room_of(magazine) / 2;
	for (;;) {
		uint32_t got_cnt;

		take_listed(magazine, slab, cnt - (uint32_t)(magazine->top - magazine->bottom));
		got_cnt = (uint32_t)(magazine->top - magazine->bottom);
		if (got_cnt == cnt)
			return true;
		if (got_cnt == 0 && slab->carved_bytes < slab->all_bytes) {
			take_new(magazine, slab, cnt);
			return true;
		}
		if (slab->carved_bytes < slab->all_bytes)
			return true;
		/* Full: the heap forgets it until a block of it is freed. */
		slab = heap->partial[class];
		if (slab)
			partial_remove(heap, slab);
		else if (got_cnt)
			return true;
		else
			slab = slab_new(heap, class);
		if (!slab)
			return false;
		heap->slabs[class] = slab;
	}
}

void *atm_small_alloc_slow(struct heap *heap, unsigned class)
{
	void *block;

	atm_heap_collect(heap);
	atm_check_sometimes(heap);
	block = atm_magazine_take(heap, class);
	if (block)
		return block;
	return refill(heap, class) ? atm_magazine_take(heap, class) : NULL;
}

/* ---- from a magazine to slabs ---- */

/* After a free that left the slab empty, or not full any more. */
static void freed(struct heap *heap, struct page_run *slab)
{
	if (slab == heap->slabs[slab->class]) {
		/* One slab a class is kept, even when empty, but not as a lid on memory that could go. */
		if (slab->used_cnt || !atm_run_is_lid(heap, slab))
			return;
		heap->slabs[slab->class] = &atm_empty_slab;
	}
	if (slab->used_cnt == 0) {
		if (slab->is_listed)
			partial_remove(heap, slab);
		atm_run_free(heap, slab);
	} else if (!slab->is_listed) {
		partial_add(heap, slab);
	}
}

static struct page_run *slab_of(const uintptr_t *block)
{
	struct segment *segment = atm_segment_of(block);

	return &segment->runs[segment->head[atm_page_of(segment, block)]];
}

/* Into the list of its slab. */
static void put(struct heap *heap, struct page_run *slab, uintptr_t *block)
{
	uintptr_t *head = slab->free;

	block[0] = (uintptr_t)head;
	block[1] = atm_mark(block) ^ MARK_LISTED;
	slab->free = block;
	slab->used_cnt--;
	if (UNLIKELY(!head || slab->used_cnt == 0))
		freed(heap, slab);
}

/* Takes the lowest blocks out, those freed longest ago. */
static void spill(struct heap *heap, struct magazine *magazine, uint32_t cnt)
{
	uint32_t all_cnt = (uint32_t)(magazine->top - magazine->bottom), left_cnt = all_cnt - cnt;
	uintptr_t **slots = magazine->bottom + 1;

	for (uint32_t i = 0; i < cnt; i++) {
		uintptr_t *block = slots[i];

		if (i + PREFETCH_CNT < cnt)
			__builtin_prefetch(slots[i + PREFETCH_CNT], 1);
		atm_small_check(block);
		put(heap, slab_of(block), block);
	}
	memmove(slots, slots + cnt, left_cnt * sizeof(*slots));
	magazine->top = magazine->bottom + left_cnt;
}

void atm_small_free_slow(struct heap *heap, unsigned class, uintptr_t *block)
{
	struct magazine *magazine = &heap->magazines[class];
	uint32_t cnt = (uint32_t)(magazine->top - magazine->bottom);

	if (UNLIKELY(*magazine->top == block))
		atm_misuse("double free", block);
	if (!magazine->is_spilt && cnt) {
		spill(heap, magazine, (cnt + 1) / 2);
		magazine->is_spilt = true;
		*++magazine->top = block;
		block[0] = atm_mark(block);
		return;
	}
	spill(heap, magazine, cnt);
	magazine->end = magazine->bottom;
	if (UNLIKELY(atm_small_is_marked(block)))
		atm_misuse("double free", block);
	put(heap, slab_of(block), block);
}

/* The line of the block has come to this CPU already: so it is one for the magazine. */
void atm_small_free_posted(struct heap *heap, struct page_run *slab, uintptr_t *block)
{
	struct magazine *magazine = &heap->magazines[slab->class];

	if (magazine->top == magazine->end) {
		put(heap, slab, block);
		return;
	}
	block[0] = atm_mark(block);
	*++magazine->top = block;
}

void atm_small_misuse(const uintptr_t *block)
{
	bool is_free = block[0] == atm_mark(block) || atm_small_is_marked(block);

	atm_misuse(is_free ? "double free" : "double free, or written to after its free", block);
}

void atm_magazines_empty(struct heap *heap)
{
	for (unsigned class = 0; class < CLASS_CNT; class ++) {
		struct magazine *magazine = &heap->magazines[class];

		spill(heap, magazine, (uint32_t)(magazine->top - magazine->bottom));
		magazine->end = magazine->bottom;
	}
}

void atm_small_trim(struct heap *heap)
{
	atm_magazines_empty(heap);
	for (unsigned class = 0; class < CLASS_CNT; class ++) {
		struct page_run *slab = heap->slabs[class];

		if (slab == &atm_empty_slab || slab->used_cnt)
			continue;
		heap->slabs[class] = &atm_empty_slab;
		atm_run_free(heap, slab);
	}
}
