/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which thread has which heap: made, adopted, left behind, shared at a
 * thread's very end; blocks handed over between heaps; fork.
 */
#include "alloc/heap.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>

#include "alloc/meta.h"
#include "alloc/policy.h"
#include "alloc/stack.h"

__thread struct heap *atm_heap __attribute__((tls_model("initial-exec")));
/* This thread has left its heap and ends: no heap for it any more. */
static __thread bool is_ending __attribute__((tls_model("initial-exec")));
static __thread uint8_t end_round_cnt __attribute__((tls_model("initial-exec")));
/* Frees of a thread without a heap: most that ask for nothing free little, and get none. */
#define LONE_FREE_MAX 64
static __thread uint8_t lone_free_cnt __attribute__((tls_model("initial-exec")));

uintptr_t atm_free_key;

static struct atm_lock heaps_lock; /* the two lists, and every idle heap */
static struct heap *all_heaps, *idle_heaps;
static uint32_t heap_cnt;
static struct atm_lock shared_lock; /* the heap below */
static struct heap *shared_heap;
static pthread_key_t end_key;
static bool has_end_key;

/* The first request of the process, long before its second thread. */
static void init_once(void)
{
	const void *random = (const void *)getauxval(AT_RANDOM); /* 16 bytes, aligned to nothing */

	if (LIKELY(atm_free_key))
		return;
	atm_os_init();
	if (random)
		memcpy(&atm_free_key, random, sizeof(atm_free_key));
	atm_free_key |= 1ull << 63; /* no value that a pointer has, and never 0 */
	atm_free_key &= ~15ull;     /* the marks' bits */
}

static struct heap *heap_new(void)
{
	struct heap *heap = atm_meta_alloc(sizeof(*heap) + atm_magazines_bytes());

	if (!heap)
		return NULL;
	for (unsigned class = 0; class < CLASS_CNT; class ++)
		heap->slabs[class] = &atm_empty_slab;
	atm_magazines_init(heap, heap + 1);
	atm_commit_close(heap);
	heap->cell = atm_control_cell(heap_cnt);
	if (!heap->cell) {
		/* More heaps at once than cells: this one's counts are lost, and counted as lost. */
		heap->cell = atm_meta_alloc(sizeof(*heap->cell));
		if (!heap->cell)
			return NULL;
		__atomic_fetch_add(&atmalloc_counters.uncounted_heap_cnt, 1, __ATOMIC_RELAXED);
	}
	heap_cnt++;
	heap->next_heap = all_heaps;
	__atomic_store_n(&all_heaps, heap, __ATOMIC_RELEASE);
	return heap;
}

static struct heap *heap_acquire(void)
{
	struct heap *heap;

	atm_lock_acquire(&heaps_lock);
	heap = idle_heaps;
	if (heap)
		idle_heaps = heap->next_idle;
	else
		heap = heap_new();
	atm_lock_release(&heaps_lock);
	return heap;
}

struct heap *atm_heap_get(void)
{
	struct heap *heap = atm_heap;

	if (LIKELY(heap) || is_ending)
		return heap;
	init_once();
	heap = heap_acquire();
	if (!heap)
		return NULL;
	atm_commit_open(heap);
	atm_heap = heap;
	/* May allocate: by now that works. */
	if (has_end_key)
		pthread_setspecific(end_key, heap);
	return heap;
}

struct heap *atm_heap_get_to_free(void)
{
	int saved_errno = errno;
	struct heap *heap = NULL;

	if (is_ending)
		return NULL;
	/* Whatever is not NULL: so that thread_end() says when it is too late for a heap. */
	if (!lone_free_cnt && has_end_key)
		pthread_setspecific(end_key, &lone_free_cnt);
	if (lone_free_cnt < LONE_FREE_MAX)
		lone_free_cnt++;
	else
		heap = atm_heap_get();
	errno = saved_errno; /* pthread_setspecific() may have asked for memory */
	return heap;
}

/*
 * Destructors of other keys may still allocate and free, in an order that
 * nobody promises: so this one asks to be called again until the last rounds.
 */
static void thread_end(void *arg)
{
	struct heap *heap = atm_heap;

	if (++end_round_cnt < 3 && pthread_setspecific(end_key, arg) == 0)
		return;
	is_ending = true;
	atm_heap = NULL;
	if (!heap)
		return;
	atm_heap_post_all(heap);
	atm_heap_collect(heap);
	atm_magazines_empty(heap);
	/* Nobody may come to reuse these: held memory must not outlive its thread. */
	atm_commit_close(heap);
	atm_realloc_release_all(heap);
	atm_lock_acquire(&heaps_lock);
	heap->next_idle = idle_heaps;
	idle_heaps = heap;
	atm_lock_release(&heaps_lock);
}

struct heap *atm_heap_lock_shared(void)
{
	atm_lock_acquire(&shared_lock);
	if (!shared_heap)
		shared_heap = heap_acquire();
	if (!shared_heap)
		atm_lock_release(&shared_lock);
	return shared_heap;
}

void atm_heap_unlock_shared(void)
{
	atm_lock_release(&shared_lock);
}

/* Puts a list, linked from `first` to `last`, on that of its heap. */
static void post_list(struct heap *owner, uintptr_t *first, uintptr_t *last)
{
	uintptr_t *head = atomic_load_explicit(&owner->remote, memory_order_relaxed);

	do
		last[0] = (uintptr_t)head;
	while (!atomic_compare_exchange_weak_explicit(&owner->remote, &head, first, memory_order_release,
						      memory_order_relaxed));
}

void atm_heap_free_remote(struct heap *owner, uintptr_t *block)
{
	uintptr_t mark = atm_mark(block) ^ MARK_POSTED;

	if (UNLIKELY(block[1] == mark))
		atm_misuse("double free", block);
	block[1] = mark; /* taken away when the owner collects it */
	post_list(owner, block, block);
}

void atm_heap_post(struct heap *heap, struct page_run *slab, uintptr_t *block)
{
	if (UNLIKELY(heap->outbox_cnt && heap->outbox[heap->outbox_cnt - 1] == block))
		atm_misuse("double free", block);
	block[0] = atm_mark(block);
	heap->outbox[heap->outbox_cnt++] = block;
	heap->outbox_bytes += slab->block_bytes;
	if (heap->outbox_cnt == OUTBOX_CNT || heap->outbox_bytes >= OUTBOX_BYTES)
		atm_heap_post_all(heap);
}

/* One list for each stretch of blocks that one heap owns. */
void atm_heap_post_all(struct heap *heap)
{
	struct heap *owner = NULL;
	uintptr_t *first = NULL, *last = NULL;

	for (uint32_t i = 0; i < heap->outbox_cnt; i++) {
		uintptr_t *block = heap->outbox[i];
		struct heap *its_owner = atm_segment_of(block)->heap;

		atm_small_check(block);
		block[1] = atm_mark(block) ^ MARK_POSTED;
		if (its_owner != owner) {
			if (owner)
				post_list(owner, first, last);
			owner = its_owner;
			last = block;
		} else {
			block[0] = (uintptr_t)first;
		}
		first = block;
	}
	if (owner)
		post_list(owner, first, last);
	heap->outbox_cnt = 0;
	heap->outbox_bytes = 0;
}

static size_t heap_trim(struct heap *heap, size_t pad_bytes);

void atm_heap_collect_all(struct heap *heap)
{
	uintptr_t *block, *next;

	if (UNLIKELY(atomic_load_explicit(&heap->is_trim_wanted, memory_order_relaxed))) {
		atomic_store_explicit(&heap->is_trim_wanted, false, memory_order_relaxed);
		heap_trim(heap, 0);
	}
	if (UNLIKELY(atomic_load_explicit(&heap->remote_large, memory_order_relaxed)))
		atm_commit_collect(heap);
	if (LIKELY(!atomic_load_explicit(&heap->remote, memory_order_relaxed)))
		return;
	for (block = atomic_exchange_explicit(&heap->remote, NULL, memory_order_acquire); block; block = next) {
		uintptr_t mark = atm_mark(block);

		if (UNLIKELY(block[1] != (mark ^ MARK_POSTED) || block[0] == mark))
			atm_small_misuse(block);
		next = (uintptr_t *)block[0];
		block[1] = 0;
		atm_free_posted(heap, block);
	}
}

/* What one heap can give back; the caller has it for itself. */
static size_t heap_trim(struct heap *heap, size_t pad_bytes)
{
	size_t page_cnt = 0;

	atm_heap_post_all(heap);
	atm_heap_collect(heap);
	atm_small_trim(heap);
	page_cnt += atm_run_trim(heap, pad_bytes);
	page_cnt += atm_commit_release_all(heap);
	page_cnt += atm_realloc_release_all(heap);
	return page_cnt;
}

size_t atm_heap_trim_all(size_t pad_bytes)
{
	struct heap *own = atm_heap_get();
	size_t page_cnt = own ? heap_trim(own, pad_bytes) : 0;

	atm_lock_acquire(&shared_lock);
	if (shared_heap)
		page_cnt += heap_trim(shared_heap, pad_bytes);
	atm_lock_release(&shared_lock);
	atm_lock_acquire(&heaps_lock);
	for (struct heap *heap = all_heaps; heap; heap = heap->next_heap)
		if (heap != own)
			atomic_store_explicit(
				&heap->is_trim_wanted, true,
				memory_order_relaxed); /* done by its own thread, when it next gets there */
	for (struct heap *heap = idle_heaps; heap; heap = heap->next_idle)
		page_cnt += heap_trim(heap, pad_bytes);
	atm_lock_release(&heaps_lock);
	return (page_cnt << atm_page_shift) + atm_stack_trim();
}

struct heap *atm_heap_first(void)
{
	return __atomic_load_n(&all_heaps, __ATOMIC_ACQUIRE);
}

void atm_heap_sums(struct heap_sums *sums)
{
	*sums = (struct heap_sums){0};
	atm_lock_acquire(&heaps_lock);
	sums->heap_cnt = heap_cnt;
	for (struct heap *heap = all_heaps; heap; heap = heap->next_heap) {
		sums->committed_page_cnt += __atomic_load_n(&heap->committed_page_cnt, __ATOMIC_RELAXED);
		sums->used_page_cnt += __atomic_load_n(&heap->used_page_cnt, __ATOMIC_RELAXED);
		sums->held_cnt += __atomic_load_n(&heap->held.cnt, __ATOMIC_RELAXED);
		sums->held_page_cnt += __atomic_load_n(&heap->held.page_cnt, __ATOMIC_RELAXED) +
				       atomic_load_explicit(&heap->remote_page_cnt, memory_order_relaxed);
	}
	atm_lock_release(&heaps_lock);
}

/* All locks of the library, in the order in which a thread may take them. */
static struct atm_lock *const locks[] = {&shared_lock,    &heaps_lock,     &atm_reclaim_lock,
					 &atm_stack_lock, &atm_large_lock, &atm_meta_lock};
#define LOCK_CNT (sizeof(locks) / sizeof(locks[0]))

/*
 * A signal handler that forks may have interrupted its own thread where that
 * has a lock, out of the order above: then others are not waited for for ever.
 */
static void fork_prepare(void)
{
	bool is_inside = false;

	for (size_t i = 0; i < LOCK_CNT; i++)
		is_inside |= atm_lock_is_own(locks[i]);
	for (size_t i = 0; i < LOCK_CNT; i++)
		atm_lock_fork_prepare(locks[i], is_inside);
}

static void fork_parent(void)
{
	for (size_t i = LOCK_CNT; i-- > 0;)
		atm_lock_fork_parent(locks[i]);
}

/*
 * Heaps of threads that do not exist here may have been caught in the middle
 * of a change: they stay as they are, blocks freed into them are never looked
 * at again. Idle heaps and the shared one were under their locks.
 */
static void fork_child(void)
{
	atm_stack_fork_child();
	atm_reclaim_fork_child();
	for (size_t i = 0; i < LOCK_CNT; i++)
		atm_lock_fork_child(locks[i]);
	for (struct heap *heap = all_heaps; heap; heap = heap->next_heap)
		if (heap != atm_heap)
			atm_commit_fork_orphan(heap);
	atm_commit_fork_child(atm_heap);
	atm_control_fork_child();
}

static void heap_start(void)
{
	init_once();
	has_end_key = pthread_key_create(&end_key, thread_end) == 0;
	if (has_end_key && atm_heap)
		pthread_setspecific(end_key, atm_heap);
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* Before other libraries' constructors, after libc's. */
__attribute__((constructor(101))) static void library_start(void)
{
	heap_start();
	atm_config_start();
	atm_control_start();
}
