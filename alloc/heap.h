/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The structures of the allocator and who may call whom:
 *
 *   api.c -> small.c -> run.c -> os.c
 *         -> large.c ----------> os.c
 *         -> heap.c (which thread has which heap, frees from other threads)
 *
 * A heap is used by one thread at a time, without a lock; the exceptions say
 * so. A dead thread's heap is adopted whole by a later thread.
 */
#ifndef ALLOCTRACE_ALLOC_HEAP_H
#define ALLOCTRACE_ALLOC_HEAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/control.h"
#include "alloc/lock.h"
#include "alloc/os.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Size classes: 16-byte steps to 128, then four to a doubling. */
#define CLASS_CNT 36
#define SMALL_MAX_BYTES ((size_t)16384)
/* From here on a block is a mapping of its own. */
#define LARGE_MIN_BYTES ((size_t)1 << 20)

/* Counts against RLIMIT_AS and, after mlockall, against RLIMIT_MEMLOCK: not larger than it has to be. */
#define SEGMENT_SHIFT 25
#define SEGMENT_BYTES ((size_t)1 << SEGMENT_SHIFT)
#define SEGMENT_PAGES_MAX (SEGMENT_BYTES >> 12)
#define ADDRESS_BITS 47

/* What a run of pages is; RUN_NONE marks pages that no run starts at. */
enum run_kind { RUN_NONE, RUN_FREE, RUN_USED, RUN_SLAB, RUN_CACHED };

/*
 * A run of pages: free, a block of its own, or a slab of equal blocks. Lives in
 * the segment's array at the index of the run's first page. One cache line.
 */
struct page_run {
	_Alignas(64) uint8_t kind;
	uint8_t class;  /* slab: size class */
	bool is_listed; /* slab: in the heap's partial list */
	uint32_t page_cnt;
	uint32_t block_bytes;         /* slab */
	uint32_t block_recip;         /* slab: ceil(2^32 / block_bytes) */
	uint32_t all_bytes;           /* slab: of the blocks that fit */
	uint32_t carved_bytes;        /* slab: of the blocks ever given out */
	uint32_t used_cnt;            /* slab: blocks in use or in a magazine */
	uintptr_t *free;              /* slab: LIFO list through the blocks' first word */
	struct heap *owner;           /* slab: its heap; others: NULL */
	struct page_run *next, *prev; /* free bin, page cache or partial list */
};

/*
 * A segment: an aligned reservation. Pages [0, first) hold this record,
 * [first, top) are partitioned into runs, [top, dirty) are free and may hold
 * old contents, [dirty, committed) are free and read zero, the rest is PROT_NONE.
 */
struct segment {
	struct heap *heap; /* never changes */
	struct segment *next;
	uint32_t page_cnt, first_page, top_page, dirty_page, committed_page;
	uint32_t meta_page_cnt; /* committed pages of this record */
	/* Policy trim: what was released last, as long as it is not known how much of it came back; to is 0: none. */
	uint32_t released_from_page, released_to_page;
	uint64_t released_ms;
	uint16_t head[SEGMENT_PAGES_MAX];    /* page -> first page of its run */
	_Alignas(64) struct page_run runs[]; /* page_cnt of them, committed as the top advances */
};

/* Runs of up to this many pages are kept whole for a while after their free. */
#define QUICK_PAGES_MAX 16
/* All of a heap's page cache together, as OpenBSD's default. */
#define PAGE_CACHE_PAGES 64
#define BIN_CNT 71

enum large_state { LARGE_NONE, LARGE_USED, LARGE_HELD, LARGE_CACHED };

/* A mapping of its own. HELD: free, kept by a heap (policy commit). CACHED: a tail in a page cache (policy realloc). */
struct large {
	void *addr;
	size_t map_bytes;
	_Atomic uint32_t state;
	bool is_zero;      /* never handed out since it was mapped */
	struct heap *heap; /* that asked for it, and holds it when it is free; NULL: none */
	/* In that heap's held set, where only this heap writes it; NULL: in none. */
	struct heap *_Atomic holder;
	uint64_t held_since_ms;
	struct large *newer, *older;       /* held set, by age; older alone: lists of other owners */
	struct large *bin_next, *bin_prev; /* held set, by length */
};

/* Bins of held mappings by length in pages: four to a doubling. */
#define HELD_BIN_CNT 144

/*
 * What a heap holds of freed mappings: by age, by length, and, as the first and
 * the last page of each lead to its record, by address. Neighbours are one.
 * The one that was freed last is kept apart and whole, for the next request of
 * its size.
 */
struct held_set {
	struct large *last;
	struct large *newest, *oldest; /* the others */
	struct large *bins[HELD_BIN_CNT];
	uint64_t bin_map[(HELD_BIN_CNT + 63) / 64];
	uint64_t page_cnt, cnt; /* all of it; read by other threads */
};

/*
 * A magazine: free blocks of one class, taken and put at its top, so that what
 * was freed last is handed out first, while it is still in the CPU's cache.
 * Its room follows use: see small.c.
 */
struct magazine {
	uintptr_t **top; /* the block put in last, or the NULL below the first one */
	uintptr_t **end; /* the top when there is no room */
	uintptr_t **bottom;
	uint32_t max_cnt;
	bool is_spilt; /* blocks went back to slabs since the last refill */
};

/* Blocks of other heaps' slabs wait here until there are some of them. */
#define OUTBOX_CNT 32
#define OUTBOX_BYTES ((size_t)32 << 10)

struct heap {
	struct magazine magazines[CLASS_CNT];
	struct atm_cell *cell; /* what this heap counts */

	uintptr_t *outbox[OUTBOX_CNT];
	uint32_t outbox_cnt;
	size_t outbox_bytes;

	struct page_run *slabs[CLASS_CNT];           /* that a refill takes from first; never NULL: atm_empty_slab */
	struct page_run *partial[CLASS_CNT];         /* slabs with free blocks, but slabs[] */
	struct page_run *bins[BIN_CNT];              /* free runs by length */
	uint64_t bin_map[2];                         /* bit: bin is not empty */
	struct page_run *quick[QUICK_PAGES_MAX + 1]; /* page cache, runs, by length */
	uint32_t quick_page_cnt;
	struct segment *segments, *current;
	size_t largest_freed_bytes; /* policy trim: of runs freed to this heap */
	size_t returned_bytes;      /* policy trim: the most that was released and soon used again; 0: forgotten */
	uint64_t returned_ms;       /* policy trim: when that was seen */

	struct held_set held;
	uint64_t quota_page_cnt;               /* policy commit: what it may hold, of the process's total */
	uint64_t clock_ms;                     /* policy commit: as last read */
	uint32_t put_cnt;                      /* policy commit: mappings freed */
	struct large *tails[PAGE_CACHE_PAGES]; /* page cache, cut tails, oldest first */
	uint32_t tail_cnt, tail_page_cnt;

	uint64_t committed_page_cnt, used_page_cnt; /* for mallinfo2; read by other threads */
	struct heap *next_heap;                     /* all heaps; under the heaps lock */
	struct heap *next_idle;                     /* heaps without a thread; under the heaps lock */
	uint32_t slow_cnt;                          /* check=full walks at some of the slow operations */
	atomic_bool is_trim_wanted;                 /* set by another thread's malloc_trim */
	bool is_at_held;                            /* whoever has the heap uses the held set; see reclaim.c */
	bool is_reclaimed;                          /* the library's own thread does, or wants to */

	_Alignas(64) _Atomic(uintptr_t *) remote; /* blocks that other threads freed */
	/* Mappings that other threads freed, linked by older; ATM_REMOTE_CLOSED while no thread has this heap. */
	struct large *_Atomic remote_large;
	_Atomic uint64_t remote_page_cnt; /* of these */
};

#define ATM_REMOTE_CLOSED ((struct large *)1)

extern __thread struct heap *atm_heap; /* NULL: this thread has none (yet, or any more) */
extern uint64_t atm_segment_map[(1ull << (ADDRESS_BITS - SEGMENT_SHIFT)) / 64];
extern const uint8_t atm_small_class[65]; /* (size + 15) / 16, to 1024 bytes */
extern uintptr_t atm_free_key;            /* random; see atm_mark */

/* Whether a segment begins at the multiple of SEGMENT_BYTES below p. A short one ends before the next. */
static inline bool atm_is_in_slot(const void *p)
{
	uintptr_t index = (uintptr_t)p >> SEGMENT_SHIFT;

	return LIKELY(index < 1ull << (ADDRESS_BITS - SEGMENT_SHIFT)) &&
	       (__atomic_load_n(&atm_segment_map[index / 64], __ATOMIC_RELAXED) >> (index % 64) & 1);
}

static inline struct segment *atm_segment_of(const void *p)
{
	return (struct segment *)((uintptr_t)p & ~(SEGMENT_BYTES - 1));
}

static inline uint32_t atm_page_of(const struct segment *segment, const void *p)
{
	return (uint32_t)(((uintptr_t)p - (uintptr_t)segment) >> atm_page_shift);
}

static inline bool atm_is_in_segment(const void *p)
{
	const struct segment *segment = atm_segment_of(p);

	return atm_is_in_slot(p) && LIKELY(atm_page_of(segment, p) < segment->page_cnt);
}

static inline void *atm_page_addr(const struct segment *segment, uint32_t page)
{
	return (char *)segment + ((size_t)page << atm_page_shift);
}

static inline uint32_t atm_run_page(const struct segment *segment, const struct page_run *run)
{
	return (uint32_t)(run - segment->runs);
}

static inline void *atm_run_addr(struct page_run *run)
{
	struct segment *segment = atm_segment_of(run);

	return atm_page_addr(segment, atm_run_page(segment, run));
}

/* Size class of 1 .. SMALL_MAX_BYTES; 0 is served as 1. */
static inline unsigned atm_class_of(size_t bytes)
{
	if (LIKELY(bytes <= 1024))
		return atm_small_class[(bytes + 15) / 16];
	unsigned bit = 63 - (unsigned)__builtin_clzl(bytes - 1);

	return 8 + (bit - 7) * 4 + (unsigned)((bytes - 1) >> (bit - 2) & 3);
}

static inline size_t atm_class_bytes(unsigned class)
{
	return class < 8 ? (class + 1) * 16 : (size_t)((class & 3) + 5) << ((class >> 2) + 3);
}

/* Band of a class: the bands' edges are classes. */
extern const uint8_t atm_class_band[CLASS_CNT];

/* Band of a size, see ATM_BANDS. */
static inline unsigned atm_band_of(size_t bytes)
{
	if (LIKELY(bytes <= 4096))
		return (bytes > 64) + (bytes > 256) + (bytes > 1024);
	return 4u + (bytes > 16384) + (bytes > 131072) + (bytes > 1048576);
}

/* ---- misuse.c: the end of the process, in one line ---- */

_Noreturn __attribute__((cold)) void atm_misuse(const char *what, const void *p);
void atm_warn(const char *what, const char *detail, size_t detail_bytes);

/* ---- heap.c: which thread has which heap ---- */

/* This thread's heap, made or adopted when it has none. NULL: out of memory, or the thread's end is near (then use the
 * shared heap). */
struct heap *atm_heap_get(void);
/*
 * The same for a thread without a heap that frees, and NULL for its first frees: one that only frees is to hand
 * blocks over by the batch, too. Keeps errno.
 */
struct heap *atm_heap_get_to_free(void);
/* The heap of threads that have torn theirs down, locked; NULL when out of memory. */
struct heap *atm_heap_lock_shared(void);
void atm_heap_unlock_shared(void);
/* Hands a block to the heap of its slab. */
void atm_heap_free_remote(struct heap *owner, uintptr_t *block);
/* Frees what other threads have handed over, and trims where one of them asks for it. */
void atm_heap_collect_all(struct heap *heap);

/* Whether there is something of the kind. */
static inline bool atm_heap_has_mail(struct heap *heap)
{
	return UNLIKELY(((uintptr_t)atomic_load_explicit(&heap->remote, memory_order_relaxed) |
			 (uintptr_t)atomic_load_explicit(&heap->remote_large, memory_order_relaxed) |
			 atomic_load_explicit(&heap->is_trim_wanted, memory_order_relaxed)) != 0);
}

static inline void atm_heap_collect(struct heap *heap)
{
	if (atm_heap_has_mail(heap))
		atm_heap_collect_all(heap);
}
/* Gives back what the calling thread may touch; returns bytes given back or so. */
size_t atm_heap_trim_all(size_t pad_bytes);
/* Sums over all heaps; racy by nature, safe. */
/* All heaps, linked by next_heap; there are never fewer. */
struct heap *atm_heap_first(void);

struct heap_sums {
	uint64_t heap_cnt, committed_page_cnt, used_page_cnt;
	uint64_t held_page_cnt, held_cnt; /* pages: with what other threads have handed over */
};
void atm_heap_sums(struct heap_sums *sums);

/* Puts a block of another heap's slab into the outbox, or hands all of it over. */
void atm_heap_post(struct heap *heap, struct page_run *slab, uintptr_t *block);
void atm_heap_post_all(struct heap *heap);

/* ---- api.c ---- */

/* Frees a block of this heap that another thread has handed over; aborts on misuse. */
void atm_free_posted(struct heap *heap, uintptr_t *block);

/* ---- small.c: slabs and magazines ---- */

/*
 * A slab's block that is not in use has its own address, made unguessable, in
 * it. In a magazine or an outbox: in the first word, which is all that free()
 * writes; it reads nothing of the block, which may be far from the CPU. In a
 * slab's list or on its way to its heap: in the second word, with one of the
 * bits below, and the first is the link. Whoever takes a block out of either
 * looks at both words and wipes them, so that a block freed twice, or written
 * to after its free, ends the process before it could be handed out twice.
 */
enum { MARK_LISTED = 1, MARK_POSTED = 2 };

static inline uintptr_t atm_mark(const void *block)
{
	return atm_free_key ^ (uintptr_t)block;
}

extern struct page_run atm_empty_slab;
/* Where the new heap's magazines are; their blocks follow it. */
size_t atm_magazines_bytes(void);
void atm_magazines_init(struct heap *heap, void *slots);
/* A block of the class when its magazine is empty; NULL when out of memory. */
void *atm_small_alloc_slow(struct heap *heap, unsigned class);
/* Frees a block whose magazine has no room, or that is the one freed last. */
void atm_small_free_slow(struct heap *heap, unsigned class, uintptr_t *block);
/* Frees a block that other threads have handed over. */
void atm_small_free_posted(struct heap *heap, struct page_run *slab, uintptr_t *block);
/* Ends the process: a block that is not in use is not as its free has left it. */
_Noreturn __attribute__((cold)) void atm_small_misuse(const uintptr_t *block);

/* In a slab's list, or on its way to its heap. */
static inline bool atm_small_is_marked(const uintptr_t *block)
{
	return (block[1] ^ atm_mark(block)) - MARK_LISTED <= MARK_POSTED - MARK_LISTED;
}

/* For blocks that are in a magazine or an outbox, of which the first word may have been overwritten since. */
static inline void atm_small_check(const uintptr_t *block)
{
	if (UNLIKELY(block[0] != atm_mark(block) || atm_small_is_marked(block)))
		atm_small_misuse(block);
}

/* A block of the class from its magazine; NULL: it is empty. */
static inline void *atm_magazine_take(struct heap *heap, unsigned class)
{
	struct magazine *magazine = &heap->magazines[class];
	uintptr_t **top = magazine->top, *block = *top;

	if (UNLIKELY(!block))
		return NULL;
	atm_small_check(block);
	magazine->top = top - 1;
	block[0] = 0;
	return block;
}

/* Aborts when there is no block at this offset from the slab's start. */
static inline void atm_small_check_offset(const struct page_run *slab, uint32_t offset, const void *p)
{
	/* A multiple of block_bytes, exactly, for all offsets in a slab: n * ceil(2^32 / d) mod 2^32 < ceil(2^32 / d).
	 */
	if (UNLIKELY(offset * slab->block_recip >= slab->block_recip || offset >= slab->carved_bytes))
		atm_misuse("not the start of a block", p);
}

static inline void atm_small_check_address(const struct segment *segment, const struct page_run *slab, const void *p)
{
	uint32_t start = (uint32_t)(slab - segment->runs) << atm_page_shift;

	atm_small_check_offset(slab, (uint32_t)((const char *)p - (const char *)segment) - start, p);
}

/* Frees a block of one of this heap's slabs. */
static inline void atm_small_free(struct heap *heap, unsigned class, void *p)
{
	struct magazine *magazine = &heap->magazines[class];
	uintptr_t **top = magazine->top, *block = p;

	if (UNLIKELY(top == magazine->end || *top == block)) {
		atm_small_free_slow(heap, class, block);
		return;
	}
	top[1] = block;
	magazine->top = top + 1;
	block[0] = atm_mark(block);
}

/* Empties the magazines into the slabs. */
void atm_magazines_empty(struct heap *heap);
/* Gives every unused slab back to the runs. */
void atm_small_trim(struct heap *heap);

/* ---- segment.c ---- */

/* A new segment of the heap with room for page_cnt pages. NULL: out of memory. */
struct segment *atm_segment_new(struct heap *heap, uint32_t page_cnt);
/* Gives an empty segment back, unless the heap does well to keep it. */
void atm_segment_drop(struct heap *heap, struct segment *segment);
/* Makes the pages below up_to_page, which are not all, usable; -ENOMEM when the kernel refuses. */
int atm_segment_commit(struct heap *heap, struct segment *segment, uint32_t up_to_page);

static inline bool atm_segment_is_empty(const struct segment *segment)
{
	return segment->top_page == segment->first_page;
}

/* ---- run.c: page runs ---- */

/* Sets *dirty_bytes to how many bytes from the start may be non-zero. NULL: out of memory. */
struct page_run *atm_run_alloc(struct heap *heap, uint32_t page_cnt, enum run_kind kind, size_t *dirty_bytes);
/* The same with the first page at a multiple of `align` (a power of two >= a page). */
struct page_run *atm_run_alloc_aligned(struct heap *heap, uint32_t page_cnt, size_t align);
/* Frees a RUN_USED or RUN_SLAB run; may keep it in the page cache. */
void atm_run_free(struct heap *heap, struct page_run *run);
/* Whether this run alone, at the top, keeps free pages below it from being released. */
bool atm_run_is_lid(struct heap *heap, const struct page_run *run);
/* Resizes in place; false when that cannot be done. */
bool atm_run_resize(struct heap *heap, struct page_run *run, uint32_t page_cnt);
/* Gives back every free page of the heap; returns pages given back. */
size_t atm_run_trim(struct heap *heap, size_t pad_bytes);

/* ---- large.c: mappings of their own ---- */

extern struct atm_lock atm_large_lock;
struct large *atm_large_find(const void *p);
/* heap may be NULL (nothing is then reused). NULL: out of memory. */
struct large *atm_large_alloc(struct heap *heap, size_t bytes, size_t align);
/* Aborts when `large` is not in use. heap may be NULL. */
void atm_large_free(struct heap *heap, struct large *large);
/* New size in place or moved, for this heap; returns the block's address or NULL (block unchanged). */
void *atm_large_resize(struct heap *heap, struct large *large, size_t bytes);
/* Maps nothing new: registers [addr, addr+bytes), cut from another mapping. NULL: out of memory. */
struct large *atm_large_adopt(void *addr, size_t bytes, enum large_state state);
/* Unmaps and forgets; when the kernel refuses, the mapping is kept for a later request. */
void atm_large_unmap(struct large *large);
/* Forgets a mapping that has become part of another. */
void atm_large_forget(struct large *large);
/* The record's length after its tail has gone (to another record, or to the kernel), or more has come behind it. */
void atm_large_cut(struct large *large, size_t keep_bytes);
void atm_large_extend(struct large *large, size_t more_bytes);
/*
 * Lets the last page lead to the record too, for the mapping behind it, or ends
 * that. Without memory for it nothing happens.
 */
void atm_large_mark_end(struct large *large);
void atm_large_unmark_end(const struct large *large);
/* The record that the page before addr leads to, whosever it is; NULL: none. */
struct large *atm_large_before(const void *addr);
uint64_t atm_large_cnt(void);
uint64_t atm_large_bytes(void);

/* ---- policy_trim.c ---- */

/* Whether the policy in force releases a free top of this length (> 0). */
bool atm_trim_is_worth(struct heap *heap, size_t free_bytes);
/* Decides, after the top has sunk, whether its free part is released. */
void atm_trim_top(struct heap *heap, struct segment *segment);

/* ---- held.c: the set of a heap's held mappings; nothing here is decided ---- */

/* Puts a free mapping of this heap into the set. */
void atm_held_add(struct heap *heap, struct large *large);
/* Takes one out; with `bytes`, cut to these when that saves more than a sixteenth: the rest stays in the set. */
void atm_held_remove(struct heap *heap, struct large *large);
void atm_held_take(struct heap *heap, struct large *large, size_t bytes);
/* The one that was freed longest ago; NULL: none. */
struct large *atm_held_oldest(const struct heap *heap);
/* One of at least `bytes` at a multiple of align, the smallest as far as a short look tells; or NULL. */
struct large *atm_held_find(struct heap *heap, size_t bytes, size_t align);
/* The one that begins at addr; or NULL. */
struct large *atm_held_at(struct heap *heap, const void *addr);

/* ---- policy_commit.c ---- */

/* ---- reclaim.c: the library's own thread, where tunable commit_reclaim asks for it ---- */

extern struct atm_lock atm_reclaim_lock;
/* Starts it, unless it runs. Not while at a held set; may allocate. */
void atm_reclaim_start(void);
/* Waits until it has left the heaps' held sets. */
void atm_reclaim_wait(struct heap *heap);
void atm_reclaim_fork_child(void);

/* Around every use of a heap's held set. Not recursive. */
static inline void atm_held_enter(struct heap *heap)
{
	for (;;) {
		__atomic_store_n(&heap->is_at_held, true, __ATOMIC_RELAXED);
		atomic_signal_fence(memory_order_seq_cst); /* the thread's membarrier does the rest */
		if (LIKELY(!__atomic_load_n(&heap->is_reclaimed, __ATOMIC_ACQUIRE)))
			return;
		atm_reclaim_wait(heap);
	}
}

static inline void atm_held_leave(struct heap *heap)
{
	__atomic_store_n(&heap->is_at_held, false, __ATOMIC_RELEASE);
}

/*
 * The mapping that the heap freed last, when it holds nothing else and that one
 * is of the size wanted, else NULL: what atm_commit_take would do, in short.
 */
static inline struct large *atm_commit_take_last(struct heap *heap, size_t bytes)
{
	struct large *last;

	atm_held_enter(heap);
	last = heap->held.last;
	if (LIKELY(last && heap->held.cnt == 1 && last->map_bytes - bytes < atm_page_bytes)) {
		heap->held.last = NULL;
		heap->held.page_cnt = heap->held.cnt = 0;
		atomic_store_explicit(&last->state, LARGE_USED, memory_order_relaxed);
	} else {
		last = NULL;
	}
	atm_held_leave(heap);
	return last;
}

/* A mapping of the heap's held set that fits; or NULL. */
struct large *atm_commit_take(struct heap *heap, size_t bytes, size_t align);
/* What becomes of a mapping that its heap has freed: held, or unmapped. */
void atm_commit_put(struct heap *heap, struct large *large);
/* The same for one that another thread has freed: handed to the heap that asked for it, or unmapped. */
void atm_commit_put_remote(struct large *large);
/* Takes what atm_commit_put_remote has handed over. */
void atm_commit_collect(struct heap *heap);
/* A thread has the heap from here on, or has it no more: then all that it holds goes. */
void atm_commit_open(struct heap *heap);
void atm_commit_close(struct heap *heap);
/*
 * At least `bytes` of held memory that begin at addr, as a mapping of its own
 * with a record; or NULL. With makes_room, a shorter one is given back, so that
 * the kernel can put its range to use.
 */
struct large *atm_commit_take_at(struct heap *heap, const void *addr, size_t bytes, bool makes_room);
/*
 * A heap whose thread does not exist in the child. Its quota has gone with the
 * thread, and what it holds stays for reclaim.c; but a set that the thread was
 * at may be in the middle of a change: then its mappings are never looked at again.
 */
void atm_commit_fork_orphan(struct heap *heap);
/* For the heap that the child has, which may be NULL. */
void atm_commit_fork_child(struct heap *heap);
/* Releases everything that the heap holds; returns pages. */
size_t atm_commit_release_all(struct heap *heap);
/* What reclaim.c does with a heap, at whose held set nobody else is. */
void atm_commit_reclaim(struct heap *heap);

/* ---- policy_realloc.c ---- */

/* What a shrink of a large block does. */
void atm_realloc_shrink(struct heap *heap, struct large *large, size_t bytes);
/* Takes back the pages behind `large` if this heap has them; true when the block now has `bytes`. */
bool atm_realloc_absorb(struct heap *heap, struct large *large, size_t bytes);
/* A cached tail of exactly or more than page_cnt pages, as a block in use; or NULL. */
struct large *atm_realloc_take_tail(struct heap *heap, uint32_t page_cnt);
/* What becomes of a freed block that was a tail. */
void atm_realloc_put_tail(struct heap *heap, struct large *large);
size_t atm_realloc_release_all(struct heap *heap);

/* ---- control.c ---- */

void atm_control_start(void);
void atm_control_fork_child(void);
struct atm_cell *atm_control_cell(uint32_t heap_index);
/* All that is counted so far. */
void atm_control_sum(struct atm_sums *sums);

/* ---- config.c ---- */

void atm_config_start(void);

/* ---- check.c ---- */

/* Walks the heap's invariants and aborts on the first that does not hold. */
void atm_check_heap(struct heap *heap);

#endif
