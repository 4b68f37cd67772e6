/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stacks that policy stack has mapped: which thread has which, and those of
 * threads that are gone, kept for reuse up to tunable stack_cache.
 *
 * A stack is reused only when the kernel has certainly left it: after a join
 * returned, or, of a detached thread, when its thread id exists no more.
 *
 * Must not allocate from the heap, nor keep anything inside the stacks.
 */
#include "alloc/stack.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "alloc/meta.h"
#include "alloc/os.h"
#include "alloc/policy.h"
#include "alloc/probe.h"
#include "alloc/syscall.h"

struct stack_list {
	struct stack *oldest, *newest;
	size_t bytes;
};

struct atm_lock atm_stack_lock;
static struct stack *tree;
static struct stack_list cached;  /* no thread */
static struct stack_list leaving; /* of detached threads that ended, perhaps still in the kernel */
static struct stack *spare;       /* records without a stack, linked by `older` */
static bool has_orphans;          /* set in a forked child, while it has one thread */

/* The calling thread's stack; NULL on stacks that are not ours. */
static __thread struct stack *own_stack;

/* The stack that holds the thread's descriptor; NULL when it is not ours. */
static struct stack *find(pthread_t thread)
{
	return atm_stack_tree_find(tree, (uintptr_t)thread);
}

/* --- Stacks without a thread ---------------------------------------------- */

static void list_push(struct stack_list *list, struct stack *stack)
{
	stack->older = list->newest;
	stack->newer = NULL;
	*(list->newest ? &list->newest->newer : &list->oldest) = stack;
	list->newest = stack;
	list->bytes += stack->map_bytes;
}

static void list_remove(struct stack_list *list, const struct stack *stack)
{
	*(stack->older ? &stack->older->newer : &list->oldest) = stack->newer;
	*(stack->newer ? &stack->newer->older : &list->newest) = stack->older;
	list->bytes -= stack->map_bytes;
}

/* All below: atm_stack_lock is held. */

static void cache_stack(struct stack *stack)
{
	stack->has_thread = false;
	list_push(&cached, stack);
}

/* Whether the kernel has left the thread's stack: a thread leaves its memory before its id is freed. */
static bool is_gone(const struct stack *stack)
{
	pid_t tid = atomic_load_explicit(&stack->tid, memory_order_relaxed);

	return atm_syscall(SYS_tgkill, getpid(), tid, 0, 0, 0, 0) == -ESRCH;
}

static void collect_gone(void)
{
	struct stack *next;

	for (struct stack *stack = leaving.oldest; stack; stack = next) {
		next = stack->newer;
		if (!is_gone(stack))
			continue;
		list_remove(&leaving, stack);
		cache_stack(stack);
	}
}

/* Unmaps the oldest until no more than `limit_bytes` are cached; returns the bytes unmapped. */
static size_t shrink_cache(size_t limit_bytes)
{
	size_t unmapped_bytes = 0;

	while (cached.bytes > limit_bytes) {
		struct stack *stack = cached.oldest;

		/* At the kernel's limit of mappings it can say no: kept for reuse then. */
		if (atm_os_unmap(stack->base, stack->map_bytes))
			break;
		list_remove(&cached, stack);
		atm_stack_tree_remove(&tree, stack);
		unmapped_bytes += stack->map_bytes;
		stack->older = spare;
		spare = stack;
	}
	return unmapped_bytes;
}

static struct stack *take_cached(const struct stack_shape *shape)
{
	struct stack *stack = cached.newest;

	while (stack && (stack->map_bytes != shape->map_bytes || stack->guard_bytes != shape->guard_bytes))
		stack = stack->older;
	if (!stack)
		return NULL;
	list_remove(&cached, stack);
	stack->has_thread = true;
	stack->is_orphan = false;
	return stack;
}

/* --- From here on the lock is taken where it is needed -------------------- */

void atm_stack_give(struct stack *stack)
{
	atm_lock_acquire(&atm_stack_lock);
	cache_stack(stack);
	shrink_cache(atm_tune(ATM_TUNE_STACK_CACHE));
	atm_lock_release(&atm_stack_lock);
}

static struct stack *map_stack(struct stack *stack, const struct stack_shape *shape)
{
	void *base;
	int err;

	if (!stack)
		stack = atm_meta_alloc(sizeof(*stack));
	if (!stack)
		return NULL;
	err = atm_stack_map(shape->map_bytes, shape->guard_bytes, &base);
	/* What the cache holds may be what is missing. */
	if (err && atm_stack_trim())
		err = atm_stack_map(shape->map_bytes, shape->guard_bytes, &base);
	atm_lock_acquire(&atm_stack_lock);
	if (err) {
		stack->older = spare;
		spare = stack;
		stack = NULL;
	} else {
		stack->base = base;
		stack->map_bytes = shape->map_bytes;
		stack->guard_bytes = shape->guard_bytes;
		stack->has_thread = true;
		stack->is_orphan = false;
		atm_stack_tree_insert(&tree, stack);
	}
	atm_lock_release(&atm_stack_lock);
	return stack;
}

/* A cached stack of exactly this shape, or a new one; NULL when there is no memory. */
struct stack *atm_stack_take(const struct stack_shape *shape)
{
	struct stack *stack, *record = NULL;

	atm_lock_acquire(&atm_stack_lock);
	collect_gone();
	stack = take_cached(shape);
	shrink_cache(atm_tune(ATM_TUNE_STACK_CACHE));
	if (!stack && spare) {
		record = spare;
		spare = record->older;
	}
	atm_lock_release(&atm_stack_lock);
	if (!stack)
		return map_stack(record, shape);
	ATM_DECIDED_GLOBAL(STACK_REUSED, stack__reused, stack->base, stack->map_bytes);
	return stack;
}

size_t atm_stack_trim(void)
{
	size_t bytes;

	atm_lock_acquire(&atm_stack_lock);
	collect_gone();
	bytes = shrink_cache(0);
	atm_lock_release(&atm_stack_lock);
	return bytes;
}

size_t atm_stack_cached_bytes(void)
{
	size_t bytes;

	atm_lock_acquire(&atm_stack_lock);
	bytes = cached.bytes + leaving.bytes;
	atm_lock_release(&atm_stack_lock);
	return bytes;
}

/* --- Stacks with a thread -------------------------------------------------- */

void atm_stack_enter(struct stack *stack)
{
	own_stack = stack;
	atomic_store_explicit(&stack->tid, (pid_t)atm_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0), memory_order_relaxed);
}

/* The one of end and detach that comes second puts the stack on `leaving`. */
static void mark_thread(struct stack *stack, unsigned mark, unsigned other)
{
	if (!(atomic_fetch_or_explicit(&stack->thread_state, mark, memory_order_acq_rel) & other))
		return;
	atm_lock_acquire(&atm_stack_lock);
	list_push(&leaving, stack);
	atm_lock_release(&atm_stack_lock);
}

void atm_stack_ended(struct stack *stack)
{
	mark_thread(stack, THREAD_ENDED, THREAD_DETACHED);
}

void atm_stack_detached(pthread_t thread)
{
	struct stack *stack;

	atm_lock_acquire(&atm_stack_lock);
	stack = find(thread);
	if (stack && !stack->has_thread)
		stack = NULL;
	atm_lock_release(&atm_stack_lock);
	/* Nobody else gives the stack away before this mark is set. */
	if (stack)
		mark_thread(stack, THREAD_DETACHED, THREAD_ENDED);
}

void atm_stack_joined(pthread_t thread)
{
	struct stack *stack;

	atm_lock_acquire(&atm_stack_lock);
	collect_gone();
	stack = find(thread);
	if (stack && stack->has_thread)
		cache_stack(stack);
	shrink_cache(atm_tune(ATM_TUNE_STACK_CACHE));
	atm_lock_release(&atm_stack_lock);
}

bool atm_stack_is_orphan(pthread_t thread)
{
	struct stack *stack;
	bool result;

	if (!has_orphans)
		return false;
	atm_lock_acquire(&atm_stack_lock);
	stack = find(thread);
	result = stack && stack->is_orphan;
	atm_lock_release(&atm_stack_lock);
	return result;
}

size_t atm_stack_guard_bytes(pthread_t thread)
{
	struct stack *stack;
	size_t bytes;

	atm_lock_acquire(&atm_stack_lock);
	stack = find(thread);
	bytes = stack && stack->has_thread ? stack->guard_bytes : 0;
	atm_lock_release(&atm_stack_lock);
	return bytes;
}

/* --- Fork ------------------------------------------------------------------- */

static void orphan_all(struct stack *at)
{
	for (; at; at = at->right) {
		orphan_all(at->left);
		if (!at->has_thread || at == own_stack)
			continue;
		at->is_orphan = has_orphans = true;
		cache_stack(at);
	}
}

/* The cache may pass its limit here; it is brought back at the next use, so that fork stays cheap. */
void atm_stack_fork_child(void)
{
	if (own_stack)
		atomic_store_explicit(&own_stack->tid, (pid_t)atm_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0),
				      memory_order_relaxed);
	leaving = (struct stack_list){0};
	orphan_all(tree);
}
