/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks that are mappings of their own, and the table that finds them by
 * address. What becomes of freed ones is decided in policy_commit.c, of cut
 * tails in policy_realloc.c. Lookups take no lock; records do.
 */
#include <errno.h>

#include "alloc/heap.h"
#include "alloc/meta.h"
#include "alloc/policy.h"
#include "alloc/probe.h"

/* Three levels over the 35 bits of a 4 KiB page number. */
#define LEAF_BITS 11
#define MID_BITS 12
#define ROOT_BITS 12
_Static_assert(LEAF_BITS + MID_BITS + ROOT_BITS + 12 == ADDRESS_BITS, "the table covers user space");

struct leaf {
	struct large *_Atomic entries[1 << LEAF_BITS];
};
struct mid {
	struct leaf *_Atomic leaves[1 << MID_BITS];
};

static struct mid *_Atomic root[1 << ROOT_BITS];
struct atm_lock atm_large_lock;    /* the records below, and growth of the table */
static struct large *free_records; /* linked by older */
static struct large *stuck;        /* mappings that could not be unmapped; linked by older */
static _Atomic uint64_t large_cnt, large_byte_cnt;

/*
 * Levels of the table for blocks that move: a move cannot be undone, so there
 * is one of each in hand for every move under way. Linked by their first word.
 */
static void *spare_mids, *spare_leaves;
static uint32_t spare_cnt, move_cnt;

static void spare_push(void **spares, void *level)
{
	*(void **)level = *spares;
	*spares = level;
}

static void *spare_pop(void **spares)
{
	void **level = *spares;

	*spares = *level;
	*level = NULL;
	return level;
}

enum growth { LOOK_UP, GROW, GROW_SURELY };

static void *level_new(size_t bytes, enum growth growth, void **spares)
{
	void *level = growth == LOOK_UP ? NULL : atm_meta_alloc(bytes);

	return level || growth != GROW_SURELY ? level : spare_pop(spares);
}

static struct large *_Atomic *table_entry(const void *p, enum growth growth)
{
	uintptr_t page = (uintptr_t)p >> 12;
	struct mid *_Atomic *mid_link = &root[page >> (LEAF_BITS + MID_BITS)];
	struct mid *mid = atomic_load_explicit(mid_link, memory_order_acquire);

	if (!mid) {
		mid = level_new(sizeof(*mid), growth, &spare_mids);
		if (!mid)
			return NULL;
		atomic_store_explicit(mid_link, mid, memory_order_release);
	}
	struct leaf *_Atomic *leaf_link = &mid->leaves[page >> LEAF_BITS & ((1 << MID_BITS) - 1)];
	struct leaf *leaf = atomic_load_explicit(leaf_link, memory_order_acquire);

	if (!leaf) {
		leaf = level_new(sizeof(*leaf), growth, &spare_leaves);
		if (!leaf)
			return NULL;
		atomic_store_explicit(leaf_link, leaf, memory_order_release);
	}
	return &leaf->entries[page & ((1 << LEAF_BITS) - 1)];
}

struct large *atm_large_find(const void *p)
{
	struct large *_Atomic *entry;
	struct large *large;

	if ((uintptr_t)p >> ADDRESS_BITS || (uintptr_t)p & (atm_page_bytes - 1))
		return NULL;
	entry = table_entry(p, LOOK_UP);
	large = entry ? atomic_load_explicit(entry, memory_order_acquire) : NULL;
	return large && large->addr == p ? large : NULL;
}

struct large *atm_large_adopt(void *addr, size_t bytes, enum large_state state)
{
	struct large *_Atomic *entry;
	struct large *large = NULL;

	if ((uintptr_t)addr >> ADDRESS_BITS)
		return NULL;
	atm_lock_acquire(&atm_large_lock);
	entry = table_entry(addr, GROW);
	if (!entry)
		goto out;
	large = free_records;
	if (large)
		free_records = large->older;
	else
		large = atm_meta_alloc(sizeof(*large));
	if (!large)
		goto out;
	large->addr = addr;
	large->map_bytes = bytes;
	large->is_zero = false;
	large->heap = NULL;
	atomic_store_explicit(&large->holder, NULL, memory_order_relaxed);
	large->newer = large->older = NULL;
	atomic_store_explicit(&large->state, state, memory_order_relaxed);
	atomic_store_explicit(entry, large, memory_order_release);
	atomic_fetch_add_explicit(&large_cnt, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&large_byte_cnt, bytes, memory_order_relaxed);
out:
	atm_lock_release(&atm_large_lock);
	return large;
}

void atm_large_forget(struct large *large)
{
	atm_lock_acquire(&atm_large_lock);
	atomic_store_explicit(table_entry(large->addr, LOOK_UP), NULL, memory_order_release);
	atomic_fetch_sub_explicit(&large_cnt, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(&large_byte_cnt, large->map_bytes, memory_order_relaxed);
	atomic_store_explicit(&large->state, LARGE_NONE, memory_order_relaxed);
	large->older = free_records;
	free_records = large;
	atm_lock_release(&atm_large_lock);
}

static void set_bytes(struct large *large, size_t bytes)
{
	atomic_fetch_add_explicit(&large_byte_cnt, bytes - large->map_bytes, memory_order_relaxed);
	large->map_bytes = bytes;
}

void atm_large_cut(struct large *large, size_t keep_bytes)
{
	set_bytes(large, keep_bytes);
}

void atm_large_extend(struct large *large, size_t more_bytes)
{
	set_bytes(large, large->map_bytes + more_bytes);
}

static const char *last_page(const struct large *large)
{
	return (const char *)large->addr + large->map_bytes - atm_page_bytes;
}

void atm_large_mark_end(struct large *large)
{
	struct large *_Atomic *entry;

	if (large->map_bytes == atm_page_bytes)
		return; /* leads there anyway */
	atm_lock_acquire(&atm_large_lock);
	entry = table_entry(last_page(large), GROW);
	if (entry)
		atomic_store_explicit(entry, large, memory_order_release);
	atm_lock_release(&atm_large_lock);
}

void atm_large_unmark_end(const struct large *large)
{
	struct large *_Atomic *entry;

	if (large->map_bytes == atm_page_bytes)
		return;
	entry = table_entry(last_page(large), LOOK_UP);
	if (entry)
		atomic_store_explicit(entry, NULL, memory_order_release);
}

struct large *atm_large_before(const void *addr)
{
	struct large *_Atomic *entry = table_entry((const char *)addr - atm_page_bytes, LOOK_UP);

	return entry ? atomic_load_explicit(entry, memory_order_acquire) : NULL;
}

/*
 * Forgotten first and unmapped then: once the kernel has the range back,
 * another thread may be given the same address. When the kernel refuses (the
 * map count is at its limit), the mapping waits in `stuck` for a request.
 */
void atm_large_unmap(struct large *large)
{
	void *addr = large->addr;
	size_t bytes = large->map_bytes;

	atm_large_forget(large);
	if (LIKELY(atm_os_unmap(addr, bytes) == 0))
		return;
	large = atm_large_adopt(addr, bytes, LARGE_HELD);
	if (!large)
		return; /* no memory for a record either: the range is lost, nothing else */
	atm_lock_acquire(&atm_large_lock);
	large->older = stuck;
	stuck = large;
	atm_lock_release(&atm_large_lock);
}

static struct large *take_stuck(size_t bytes)
{
	struct large *large;

	if (LIKELY(!__atomic_load_n(&stuck, __ATOMIC_RELAXED)))
		return NULL;
	atm_lock_acquire(&atm_large_lock);
	for (struct large **link = &stuck; (large = *link); link = &large->older)
		if (large->map_bytes >= bytes) {
			*link = large->older;
			atomic_store_explicit(&large->state, LARGE_USED, memory_order_relaxed);
			break;
		}
	atm_lock_release(&atm_large_lock);
	return large;
}

/* A new mapping of `bytes` at a multiple of `align`; more is mapped and cut where align asks for it. */
static struct large *map_new(size_t bytes, size_t align)
{
	size_t slack = align > atm_page_bytes ? align - atm_page_bytes : 0, all_bytes;
	struct large *large;
	char *at, *start;
	void *addr;

	if (__builtin_add_overflow(bytes, slack, &all_bytes) || atm_os_map(all_bytes, &addr))
		return NULL;
	at = addr;
	start = (char *)(((uintptr_t)at + align - 1) & ~(align - 1));
	if (slack) {
		/* A piece that cannot be cut stays in front of or behind the block, unused. */
		if (start > at)
			atm_os_unmap(at, (size_t)(start - at));
		if (at + all_bytes > start + bytes)
			atm_os_unmap(start + bytes, (size_t)(at + all_bytes - start) - bytes);
	}
	large = atm_large_adopt(start, bytes, LARGE_USED);
	if (!large) {
		atm_os_unmap(start, bytes);
		return NULL;
	}
	large->is_zero = true;
	return large;
}

struct large *atm_large_alloc(struct heap *heap, size_t bytes, size_t align)
{
	size_t map_bytes = atm_page_round(bytes);
	struct large *large = NULL;

	if (align < atm_page_bytes)
		align = atm_page_bytes;
	if (heap)
		large = atm_commit_take(heap, map_bytes, align);
	if (!large && align == atm_page_bytes)
		large = take_stuck(map_bytes);
	if (!large)
		large = map_new(map_bytes, align);
	if (UNLIKELY(!large && heap) && atm_commit_release_all(heap))
		large = map_new(map_bytes, align);
	if (LIKELY(large))
		large->heap = heap;
	return large;
}

void atm_large_free(struct heap *heap, struct large *large)
{
	bool is_tail = large->map_bytes < LARGE_MIN_BYTES;

	if (UNLIKELY(atomic_load_explicit(&large->state, memory_order_relaxed) != LARGE_USED))
		atm_misuse("double free", large->addr);
	/*
	 * Held by the heap that will ask again: a thread that only frees would
	 * fill its balance with what it never uses.
	 */
	if (LIKELY(heap && large->heap == heap && !is_tail))
		atm_commit_put(heap, large);
	else if (is_tail && heap)
		atm_realloc_put_tail(heap, large);
	else if (is_tail)
		atm_large_unmap(large);
	else
		atm_commit_put_remote(large);
}

/* To a mapping of at least `bytes`, or NULL: then nothing happens. Returns where the block is. */
static void *move_by_copy(struct heap *heap, struct large *large, struct large *target, size_t bytes)
{
	if (!target)
		return NULL;
	target->heap = heap;
	__builtin_memcpy(target->addr, large->addr, large->map_bytes < bytes ? large->map_bytes : bytes);
	target->is_zero = false;
	atm_large_free(heap, large);
	return target->addr;
}

/*
 * A move frees the old address at once, where another thread may then register
 * a mapping: so the record leaves the table before. False: no memory.
 */
static bool move_begin(struct large *large)
{
	bool is_ready = true;

	atm_lock_acquire(&atm_large_lock);
	if (move_cnt == spare_cnt) {
		struct mid *mid = atm_meta_alloc(sizeof(struct mid) + sizeof(struct leaf));

		is_ready = mid != NULL;
		if (is_ready) {
			spare_push(&spare_mids, mid);
			spare_push(&spare_leaves, mid + 1);
			spare_cnt++;
		}
	}
	if (is_ready) {
		move_cnt++;
		atomic_store_explicit(table_entry(large->addr, LOOK_UP), NULL, memory_order_release);
	}
	atm_lock_release(&atm_large_lock);
	return is_ready;
}

/* The record comes back, for the block where it is now. */
static void move_end(struct large *large, void *addr, size_t map_bytes)
{
	void *mids, *leaves;

	atm_lock_acquire(&atm_large_lock);
	mids = spare_mids;
	leaves = spare_leaves;
	large->addr = addr;
	set_bytes(large, map_bytes);
	atomic_store_explicit(table_entry(addr, GROW_SURELY), large, memory_order_release);
	move_cnt--;
	if (UNLIKELY(spare_mids != mids || spare_leaves != leaves))
		spare_cnt--;
	atm_lock_release(&atm_large_lock);
}

/* The block's pages move to another address, or more pages come behind it. */
static void *grow_by_remap(struct large *large, size_t map_bytes, bool may_move)
{
	size_t old_bytes = large->map_bytes;
	void *old_addr = large->addr, *addr;
	int err;

	if (!may_move) {
		if (atm_os_remap(old_addr, old_bytes, map_bytes, false, &addr))
			return NULL;
		set_bytes(large, map_bytes);
		return addr;
	}
	if (!move_begin(large))
		return NULL;
	err = atm_os_remap(old_addr, old_bytes, map_bytes, true, &addr);
	move_end(large, err ? old_addr : addr, err ? old_bytes : map_bytes);
	return err ? NULL : addr;
}

/*
 * A block that grows by this part of it or more is copied to held memory, when there is enough in one piece: new pages
 * would cost as much as the copy, and lie beside those that are held. What grows step by step is not copied each time.
 */
#define COPY_GROWTH_SHIFT 2

/* Where the block then is; NULL: out of memory, block unchanged. */
static void *grow(struct heap *heap, struct large *large, size_t bytes, size_t map_bytes)
{
	void *addr = large->addr, *moved;

	if (atm_realloc_absorb(heap, large, map_bytes))
		return addr;
	if (map_bytes - large->map_bytes >= large->map_bytes >> COPY_GROWTH_SHIFT) {
		moved = move_by_copy(heap, large, atm_commit_take(heap, map_bytes, atm_page_bytes), bytes);
		if (moved)
			return moved;
	}
	if (atm_tune(ATM_TUNE_GROW) == 0) {
		moved = grow_by_remap(large, map_bytes, true);
		if (moved)
			return moved;
	} else if (grow_by_remap(large, map_bytes, false)) {
		return addr;
	}
	return move_by_copy(heap, large, atm_large_alloc(heap, bytes, atm_page_bytes), bytes);
}

void *atm_large_resize(struct heap *heap, struct large *large, size_t bytes)
{
	size_t map_bytes = atm_page_round(bytes);
	void *addr = large->addr, *moved;

	large->is_zero = false;
	if (map_bytes == large->map_bytes)
		return addr;
	if (map_bytes < large->map_bytes) {
		atm_realloc_shrink(heap, large, bytes);
		return addr;
	}
	moved = grow(heap, large, bytes, map_bytes);
	if (moved == addr)
		ATM_DECIDED(heap, REALLOC_IN_PLACE, realloc__in_place, addr, map_bytes);
	else if (moved)
		ATM_DECIDED(heap, REALLOC_MOVED, realloc__moved, moved, map_bytes);
	return moved;
}

uint64_t atm_large_cnt(void)
{
	return atomic_load_explicit(&large_cnt, memory_order_relaxed);
}

uint64_t atm_large_bytes(void)
{
	return atomic_load_explicit(&large_byte_cnt, memory_order_relaxed);
}
