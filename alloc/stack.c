/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Thread stacks. Interposes the thread functions of the C library, gives every
 * new thread a stack that policy stack has mapped, and keeps the stacks of
 * threads that are gone for reuse, up to tunable stack_cache. A caller's own
 * stack is left alone; so is every thread whose stack we cannot provide.
 *
 * A stack is reused only when the kernel has certainly left it: after a join
 * returned, or, of a detached thread, when its thread id exists no more.
 *
 * Must not allocate from the heap, nor keep anything inside the stacks.
 */
#include "alloc/stack.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <threads.h>
#include <unistd.h>

#include "alloc/lock.h"
#include "alloc/meta.h"
#include "alloc/os.h"
#include "alloc/policy.h"
#include "alloc/probe.h"
#include "alloc/stack_tree.h"
#include "alloc/syscall.h"

#define EXPORT __attribute__((visibility("default")))

/* What glibc demands of a stack beyond the static TLS (MINIMAL_REST_STACK). */
#define REST_BYTES 2048
/* Beyond what the C library needs: the helper calls nothing deep. */
#define HELPER_STACK_BYTES ((size_t)32 << 10)

struct stack_list {
	struct stack *oldest, *newest;
	size_t bytes;
};

/* What a caller's attributes come to, rounded as glibc rounds. */
struct shape {
	size_t stack_bytes; /* what pthread_attr_setstack is told */
	size_t guard_bytes;
	size_t map_bytes;
};

static struct atm_lock lock;
static struct stack *tree;
static struct stack_list cached;  /* no thread */
static struct stack_list leaving; /* of detached threads that ended, perhaps still in the kernel */
static struct stack *spare;       /* records without a stack, linked by `older` */
static bool has_orphans;          /* set in a forked child, while it has one thread */

/* The calling thread's stack; NULL on stacks that are not ours. */
static __thread struct stack *own_stack;

#define REAL_FUNCTIONS(X)       \
	X(pthread_create)       \
	X(pthread_join)         \
	X(pthread_tryjoin_np)   \
	X(pthread_timedjoin_np) \
	X(pthread_clockjoin_np) \
	X(pthread_detach)       \
	X(pthread_getattr_np)   \
	X(thrd_create)

static struct {
#define X(name) __typeof__(&(name)) name;
	REAL_FUNCTIONS(X)
#undef X
	size_t tls_bytes, tls_align;          /* static TLS, which the C library carves from a stack */
	_Atomic bool needs_exec;              /* stacks must be executable: not our business */
	_Atomic unsigned long long seen_adds; /* objects loaded, when that was looked at */
	_Atomic bool is_ready;
} real;

/* --- What the C library does --------------------------------------------- */

/* Whether an object asks for executable stacks; ends at once when none has been loaded since the last time. */
static int check_exec_stack(struct dl_phdr_info *info, size_t bytes, void *arg)
{
	const ElfW(Ehdr) *vdso = (const void *)getauxval(AT_SYSINFO_EHDR);
	unsigned long long *adds = arg;

	(void)bytes;
	if (info->dlpi_adds == *adds)
		return 1;
	if (vdso && info->dlpi_phdr == (const void *)((const char *)vdso + vdso->e_phoff))
		return 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type != PT_GNU_STACK)
			continue;
		if (!(info->dlpi_phdr[i].p_flags & PF_X))
			return 0;
		break;
	}
	/* Also the ABI's default for objects that do not say. */
	atomic_store_explicit(&real.needs_exec, true, memory_order_relaxed);
	return 0;
}

static int read_adds(struct dl_phdr_info *info, size_t bytes, void *arg)
{
	(void)bytes;
	*(unsigned long long *)arg = info->dlpi_adds;
	return 1;
}

/* Objects may be loaded at any time; once executable, the C library's stacks stay so. */
static bool needs_exec_stacks(void)
{
	unsigned long long adds = 0, seen = atomic_load_explicit(&real.seen_adds, memory_order_acquire);

	/* Read first: what is loaded meanwhile is looked at again next time. */
	dl_iterate_phdr(read_adds, &adds);
	if (adds != seen) {
		dl_iterate_phdr(check_exec_stack, &seen);
		atomic_store_explicit(&real.seen_adds, adds, memory_order_release);
	}
	return atomic_load_explicit(&real.needs_exec, memory_order_relaxed);
}

/* Idempotent: threads that come here at once find the same values. */
__attribute__((constructor)) static void resolve(void)
{
	void (*get_tls)(size_t *, size_t *);
	size_t tls_bytes = 0, tls_align = 64;
	void *symbol;

	if (atomic_load_explicit(&real.is_ready, memory_order_acquire))
		return;
	atm_os_init();
#define X(name)                           \
	symbol = dlsym(RTLD_NEXT, #name); \
	memcpy(&real.name, &symbol, sizeof(symbol));
	REAL_FUNCTIONS(X)
#undef X
	symbol = dlsym(RTLD_DEFAULT, "_dl_get_tls_static_info");
	memcpy(&get_tls, &symbol, sizeof(symbol));
	if (symbol)
		get_tls(&tls_bytes, &tls_align);
	real.tls_bytes = (tls_bytes + tls_align - 1) / tls_align * tls_align;
	real.tls_align = tls_align;
	atomic_store_explicit(&real.is_ready, true, memory_order_release);
}

/* --- All mapped stacks ------------------------------------------------------- */

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

/* All below: `lock` is held. */

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

static struct stack *take_cached(const struct shape *shape)
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

static void give_stack(struct stack *stack)
{
	atm_lock_acquire(&lock);
	cache_stack(stack);
	shrink_cache(atm_tune(ATM_TUNE_STACK_CACHE));
	atm_lock_release(&lock);
}

static struct stack *map_stack(struct stack *stack, const struct shape *shape)
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
	atm_lock_acquire(&lock);
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
	atm_lock_release(&lock);
	return stack;
}

/* A cached stack of exactly this shape, or a new one; NULL when there is no memory. */
static struct stack *take_stack(const struct shape *shape)
{
	struct stack *stack, *record = NULL;

	atm_lock_acquire(&lock);
	collect_gone();
	stack = take_cached(shape);
	shrink_cache(atm_tune(ATM_TUNE_STACK_CACHE));
	if (!stack && spare) {
		record = spare;
		spare = record->older;
	}
	atm_lock_release(&lock);
	if (!stack)
		return map_stack(record, shape);
	ATM_DECIDED_GLOBAL(STACK_REUSED, stack__reused, stack->base, stack->map_bytes);
	return stack;
}

size_t atm_stack_trim(void)
{
	size_t bytes;

	atm_lock_acquire(&lock);
	collect_gone();
	bytes = shrink_cache(0);
	atm_lock_release(&lock);
	return bytes;
}

size_t atm_stack_cached_bytes(void)
{
	size_t bytes;

	atm_lock_acquire(&lock);
	bytes = cached.bytes + leaving.bytes;
	atm_lock_release(&lock);
	return bytes;
}

/* --- Threads --------------------------------------------------------------- */

/* The one of end and detach that comes second puts the stack on `leaving`. */
static void mark_thread(struct stack *stack, unsigned mark, unsigned other)
{
	if (!(atomic_fetch_or_explicit(&stack->thread_state, mark, memory_order_acq_rel) & other))
		return;
	atm_lock_acquire(&lock);
	list_push(&leaving, stack);
	atm_lock_release(&lock);
}

static void end_thread(void *arg)
{
	mark_thread(arg, THREAD_ENDED, THREAD_DETACHED);
}

/* The cleanup handler sees every end: return, pthread_exit, cancellation. */
static void *run_thread(void *arg)
{
	struct stack *stack = arg;
	void *result;

	own_stack = stack;
	atomic_store_explicit(&stack->tid, (pid_t)atm_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0), memory_order_relaxed);
	pthread_cleanup_push(end_thread, stack);
	if (stack->is_c11)
		result = (void *)(uintptr_t)stack->start.c11(stack->arg);
	else
		result = stack->start.posix(stack->arg);
	pthread_cleanup_pop(1);
	return result;
}

/* After a successful detach, of which the C library alone knows whether it was right. */
static void detach_thread(pthread_t thread)
{
	struct stack *stack;

	atm_lock_acquire(&lock);
	stack = find(thread);
	if (stack && !stack->has_thread)
		stack = NULL;
	atm_lock_release(&lock);
	/* Nobody else gives the stack away before this mark is set. */
	if (stack)
		mark_thread(stack, THREAD_DETACHED, THREAD_ENDED);
}

/* After a successful join: the C library has waited for the kernel to leave the stack. */
static void join_thread(pthread_t thread)
{
	struct stack *stack;

	atm_lock_acquire(&lock);
	collect_gone();
	stack = find(thread);
	if (stack && stack->has_thread)
		cache_stack(stack);
	shrink_cache(atm_tune(ATM_TUNE_STACK_CACHE));
	atm_lock_release(&lock);
}

/*
 * Whether the thread is one that a fork left behind in the parent. With the C
 * library's own stacks joining it in the child returns at once; through a
 * descriptor in one of our stacks it would wait for ever.
 */
static bool is_orphan(pthread_t thread)
{
	struct stack *stack;
	bool result;

	if (!has_orphans)
		return false;
	atm_lock_acquire(&lock);
	stack = find(thread);
	result = stack && stack->is_orphan;
	atm_lock_release(&lock);
	return result;
}

/*
 * False: the stack is the caller's own, or the C library has to say what is
 * wrong with the request, so it has to be passed on as it is.
 */
static bool get_shape(const pthread_attr_t *attr, struct shape *shape)
{
	size_t stack_bytes, guard_bytes, page_mask = atm_page_bytes - 1;
	void *addr;

	/* Never set, the address of a stack's end is NULL; setstack sees to it that a set one is not. */
	if (needs_exec_stacks() || pthread_attr_getstack(attr, &addr, &stack_bytes) ||
	    (uintptr_t)addr + stack_bytes != 0)
		return false;
	if (pthread_attr_getstacksize(attr, &stack_bytes) || pthread_attr_getguardsize(attr, &guard_bytes))
		return false;
	stack_bytes &= ~(real.tls_align - 1);
	/* glibc compares whole pages. */
	if (stack_bytes < ((real.tls_bytes + REST_BYTES + page_mask) & ~page_mask))
		return false;
	if (guard_bytes > SIZE_MAX / 4 || stack_bytes > SIZE_MAX / 4)
		return false;
	shape->stack_bytes = stack_bytes;
	shape->guard_bytes = atm_page_round(guard_bytes);
	shape->map_bytes = shape->guard_bytes + atm_page_round(stack_bytes);
	return true;
}

/*
 * Starts the thread on a stack of ours; *err is what pthread_create returned.
 * False: that cannot be done and nothing has happened. attr is a bytewise copy
 * of the caller's, whose extension stays the caller's: it is never destroyed.
 */
static bool create_on_stack(pthread_t *thread, pthread_attr_t *attr, union start start, bool is_c11, void *arg,
			    int *err)
{
	struct stack *stack;
	struct shape shape;
	int detach_state = PTHREAD_CREATE_JOINABLE;

	if (!get_shape(attr, &shape))
		return false;
	stack = take_stack(&shape);
	if (!stack)
		return false;
	if (pthread_attr_setstack(attr, stack->base + shape.guard_bytes, shape.stack_bytes)) {
		give_stack(stack);
		return false;
	}
	pthread_attr_getdetachstate(attr, &detach_state);
	stack->start = start;
	stack->is_c11 = is_c11;
	stack->arg = arg;
	atomic_store_explicit(&stack->tid, 0, memory_order_relaxed);
	atomic_store_explicit(&stack->thread_state, detach_state == PTHREAD_CREATE_DETACHED ? THREAD_DETACHED : 0,
			      memory_order_relaxed);
	/* After success the record may be another thread's already. */
	*err = real.pthread_create(thread, attr, run_thread, stack);
	if (*err)
		give_stack(stack);
	return true;
}

static bool create(pthread_t *thread, const pthread_attr_t *attr, union start start, bool is_c11, void *arg, int *err)
{
	pthread_attr_t copy;
	bool is_done;

	resolve();
	if (attr) {
		memcpy(&copy, attr, sizeof(copy));
		return create_on_stack(thread, &copy, start, is_c11, arg, err);
	}
	if (pthread_getattr_default_np(&copy))
		return false;
	is_done = create_on_stack(thread, &copy, start, is_c11, arg, err);
	pthread_attr_destroy(&copy);
	return is_done;
}

/* --- Fork ------------------------------------------------------------------- */

void atm_stack_fork_prepare(void)
{
	atm_lock_fork_prepare(&lock);
}

void atm_stack_fork_parent(void)
{
	atm_lock_fork_parent(&lock);
}

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
	atm_lock_fork_child(&lock);
}

/* --- Exported --------------------------------------------------------------- */

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
	int err;

	if (create(thread, attr, (union start){.posix = start}, false, arg, &err))
		return err;
	return real.pthread_create(thread, attr, start, arg);
}

/* A join of any form: the real call, and then the stack is free. */
#define JOIN(thread, result, call)                \
	do {                                      \
		int err_;                         \
                                                  \
		resolve();                        \
		if (is_orphan(thread)) {          \
			if (result)               \
				*(result) = NULL; \
			return 0;                 \
		}                                 \
		err_ = (call);                    \
		if (err_ == 0)                    \
			join_thread(thread);      \
		return err_;                      \
	} while (0)

EXPORT int pthread_join(pthread_t thread, void **result)
{
	JOIN(thread, result, real.pthread_join(thread, result));
}

EXPORT int pthread_tryjoin_np(pthread_t thread, void **result)
{
	JOIN(thread, result, real.pthread_tryjoin_np(thread, result));
}

EXPORT int pthread_timedjoin_np(pthread_t thread, void **result, const struct timespec *until)
{
	JOIN(thread, result, real.pthread_timedjoin_np(thread, result, until));
}

EXPORT int pthread_clockjoin_np(pthread_t thread, void **result, clockid_t clock, const struct timespec *until)
{
	JOIN(thread, result, real.pthread_clockjoin_np(thread, result, clock, until));
}

EXPORT int pthread_detach(pthread_t thread)
{
	int err;

	resolve();
	if (is_orphan(thread))
		return 0;
	err = real.pthread_detach(thread);
	if (err == 0)
		detach_thread(thread);
	return err;
}

/* The C library knows no guard of a stack that it has not mapped. */
EXPORT int pthread_getattr_np(pthread_t thread, pthread_attr_t *attr)
{
	struct stack *stack;
	int err;

	resolve();
	err = real.pthread_getattr_np(thread, attr);
	if (err)
		return err;
	atm_lock_acquire(&lock);
	stack = find(thread);
	if (stack && stack->has_thread)
		pthread_attr_setguardsize(attr, stack->guard_bytes);
	atm_lock_release(&lock);
	return 0;
}

int atm_stack_start_helper(void *(*run)(void *))
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int saved_errno = errno, err;

	resolve();
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr,
				  (size_t)PTHREAD_STACK_MIN + atm_page_round(real.tls_bytes) + HELPER_STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = real.pthread_create(&thread, &attr, run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	errno = saved_errno;
	return err;
}

static int thrd_error_of(int err)
{
	switch (err) {
	case 0: return thrd_success;
	case ENOMEM: return thrd_nomem;
	case ETIMEDOUT: return thrd_timedout;
	case EBUSY: return thrd_busy;
	default: return thrd_error;
	}
}

EXPORT int thrd_create(thrd_t *thread, thrd_start_t start, void *arg)
{
	int err;

	if (create(thread, NULL, (union start){.c11 = start}, true, arg, &err))
		return thrd_error_of(err);
	return real.thrd_create(thread, start, arg);
}

EXPORT int thrd_join(thrd_t thread, int *result)
{
	void *value;
	int err = pthread_join(thread, &value);

	if (err == 0 && result)
		*result = (int)(uintptr_t)value;
	return thrd_error_of(err);
}

EXPORT int thrd_detach(thrd_t thread)
{
	return thrd_error_of(pthread_detach(thread));
}
