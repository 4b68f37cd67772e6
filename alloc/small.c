/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slabs: runs of pages cut into equal blocks of one size class, with a LIFO
 * free list. Sizes that are whole pages get a run of their own instead: the
 * page cache serves those as fast and splits them freely.
 */
#include "alloc/heap.h"
#include "alloc/policy.h"

/* A slab has at least this many bytes, and at least this many blocks. */
#define SLAB_MIN_BYTES ((size_t)64 << 10)
#define SLAB_MIN_BLOCKS 8

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

static struct page_run *slab_new(struct heap *heap, unsigned class)
{
	size_t block_bytes = atm_class_bytes(class), dirty_bytes;
	size_t bytes = block_bytes * SLAB_MIN_BLOCKS;
	struct page_run *slab;

	if (bytes < SLAB_MIN_BYTES)
		bytes = SLAB_MIN_BYTES;
	bytes = atm_page_round(bytes);
	slab = atm_run_alloc(heap, (uint32_t)(bytes >> atm_page_shift), RUN_SLAB, &dirty_bytes);
	if (!slab)
		return NULL;
	slab->class = (uint8_t) class;
	slab->is_listed = false;
	slab->block_bytes = (uint32_t)block_bytes;
	slab->block_recip = (uint32_t)((((uint64_t)1 << 32) + block_bytes - 1) / block_bytes);
	slab->block_cnt = (uint16_t)(bytes / block_bytes);
	slab->carved_cnt = slab->used_cnt = 0;
	slab->free = NULL;
	return slab;
}

/*
 * Puts the next page's worth of never used blocks, at least one, on the empty
 * free list, lowest first. The slab has such blocks.
 */
static void slab_carve(struct page_run *slab)
{
	unsigned cnt = (unsigned)(atm_page_bytes / slab->block_bytes), left = slab->block_cnt - slab->carved_cnt;
	char *block = (char *)atm_run_addr(slab) + (size_t)slab->carved_cnt * slab->block_bytes;

	if (cnt == 0)
		cnt = 1;
	if (cnt > left)
		cnt = left;
	slab->carved_cnt = (uint16_t)(slab->carved_cnt + cnt);
	slab->free = block;
	for (; cnt > 1; cnt--, block += slab->block_bytes)
		*(void **)block = block + slab->block_bytes;
	*(void **)block = NULL;
}

static void *take(struct page_run *slab)
{
	void **block = slab->free;

	slab->free = *block;
	slab->used_cnt++;
	block[1] = NULL; /* the mark of a free block */
	return block;
}

void *atm_small_alloc_slow(struct heap *heap, unsigned class)
{
	struct page_run *slab;

	atm_heap_collect(heap);
	atm_check_sometimes(heap);
	slab = heap->slabs[class];
	if (slab->free)
		return take(slab);
	if (slab->carved_cnt == slab->block_cnt) {
		/* Full: the heap forgets it until a block of it is freed. */
		slab = heap->partial[class];
		if (slab)
			partial_remove(heap, slab);
		else
			slab = slab_new(heap, class);
		if (!slab)
			return NULL;
		heap->slabs[class] = slab;
	}
	if (!slab->free)
		slab_carve(slab);
	return take(slab);
}

void atm_small_freed_slow(struct heap *heap, struct page_run *slab)
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

void atm_small_trim(struct heap *heap)
{
	for (unsigned class = 0; class < CLASS_CNT; class ++) {
		struct page_run *slab = heap->slabs[class];

		if (slab == &atm_empty_slab || slab->used_cnt)
			continue;
		heap->slabs[class] = &atm_empty_slab;
		atm_run_free(heap, slab);
	}
}
