/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads: interposes the thread functions of the C library, and gives every
 * new thread a stack of stack.c. A caller's own stack is left alone; so is
 * every thread whose stack we cannot provide.
 *
 * Must not allocate from the heap.
 */
#include "alloc/thread.h"

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

#include "alloc/os.h"
#include "alloc/stack.h"

#define EXPORT __attribute__((visibility("default")))

/* What glibc demands of a stack beyond the static TLS (MINIMAL_REST_STACK). */
#define REST_BYTES 2048
/* Beyond what the C library needs: the helper calls nothing deep. */
#define HELPER_STACK_BYTES ((size_t)32 << 10)

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

/* --- Creation --------------------------------------------------------------- */

static void end_thread(void *arg)
{
	atm_stack_ended(arg);
}

/* The cleanup handler sees every end: return, pthread_exit, cancellation. */
static void *run_thread(void *arg)
{
	struct stack *stack = arg;
	void *result;

	atm_stack_enter(stack);
	pthread_cleanup_push(end_thread, stack);
	if (stack->is_c11)
		result = (void *)(uintptr_t)stack->start.c11(stack->arg);
	else
		result = stack->start.posix(stack->arg);
	pthread_cleanup_pop(1);
	return result;
}

/*
 * False: the stack is the caller's own, or the C library has to say what is
 * wrong with the request, so it has to be passed on as it is.
 */
static bool get_shape(const pthread_attr_t *attr, struct stack_shape *shape)
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
	struct stack_shape shape;
	int detach_state = PTHREAD_CREATE_JOINABLE;

	if (!get_shape(attr, &shape))
		return false;
	stack = atm_stack_take(&shape);
	if (!stack)
		return false;
	if (pthread_attr_setstack(attr, stack->base + shape.guard_bytes, shape.stack_bytes)) {
		atm_stack_give(stack);
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
		atm_stack_give(stack);
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

/* --- Exported --------------------------------------------------------------- */

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
	int err;

	if (create(thread, attr, (union start){.posix = start}, false, arg, &err))
		return err;
	return real.pthread_create(thread, attr, start, arg);
}

/* A join of any form: the real call, and then the stack is free. */
#define JOIN(thread, result, call)                 \
	do {                                       \
		int err_;                          \
                                                   \
		resolve();                         \
		if (atm_stack_is_orphan(thread)) { \
			if (result)                \
				*(result) = NULL;  \
			return 0;                  \
		}                                  \
		err_ = (call);                     \
		if (err_ == 0)                     \
			atm_stack_joined(thread);  \
		return err_;                       \
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
	if (atm_stack_is_orphan(thread))
		return 0;
	err = real.pthread_detach(thread);
	if (err == 0)
		atm_stack_detached(thread);
	return err;
}

/* The C library knows no guard of a stack that it has not mapped. */
EXPORT int pthread_getattr_np(pthread_t thread, pthread_attr_t *attr)
{
	size_t guard_bytes;
	int err;

	resolve();
	err = real.pthread_getattr_np(thread, attr);
	if (err)
		return err;
	guard_bytes = atm_stack_guard_bytes(thread);
	if (guard_bytes)
		pthread_attr_setguardsize(attr, guard_bytes);
	return 0;
}

int atm_thread_start_helper(void *(*run)(void *))
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
