/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints what the thread functions answer: return codes, and what a thread is
 * told about its stack. stack_test runs it with and without the library and
 * compares the texts, so only what must be equal is printed.
 *
 * stack_answers_tls.c is the same program with a large static TLS.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#ifndef TLS_BYTES
#define TLS_BYTES 16
#endif

static __thread volatile char tls[TLS_BYTES];
static pthread_barrier_t gate;

/* Of one thread, by itself. */
struct answer {
	size_t stack_bytes, guard_bytes;
	int err, detach_state, has_local, is_tls_zero, is_usable;
};

/* Writes to the stack below the caller, in up to 2048 places, down to its lowest byte. */
__attribute__((noinline)) static int touch_down_to(char *lowest)
{
	volatile char local;
	volatile char *at = &local;
	size_t step = (size_t)(at - lowest) / 2048 + 4096;

	/* Below the frame there is nothing of ours; leave it a red zone and a signal frame's worth. */
	for (at -= 512; at > lowest + step; at -= step)
		*at = 1;
	*(volatile char *)lowest = 1;
	return 1;
}

static void *examine_stack(void *arg)
{
	struct answer *answer = arg;
	pthread_attr_t attr;
	char local, *base;

	answer->is_tls_zero = 1;
	for (size_t i = 0; i < TLS_BYTES; i++)
		answer->is_tls_zero &= tls[i] == 0;
	for (size_t i = 0; i < TLS_BYTES; i++)
		tls[i] = 1;
	answer->err = pthread_getattr_np(pthread_self(), &attr);
	if (answer->err)
		return NULL;
	pthread_attr_getstack(&attr, (void **)&base, &answer->stack_bytes);
	pthread_attr_getguardsize(&attr, &answer->guard_bytes);
	pthread_attr_getdetachstate(&attr, &answer->detach_state);
	pthread_attr_destroy(&attr);
	answer->has_local = &local > base && &local < base + answer->stack_bytes;
	/* The C library takes the TLS and up to 4 KiB of its own from the stack; the rest is the thread's. */
	answer->is_usable =
		(size_t)(&local - base) + TLS_BYTES + 4096 + 1024 >= answer->stack_bytes && touch_down_to(base);
	return NULL;
}

static void print_answer(const struct answer *answer)
{
	printf(" getattr=%d size=%zu guard=%zu detach=%d local=%d tls=%d usable=%d", answer->err, answer->stack_bytes,
	       answer->guard_bytes, answer->detach_state, answer->has_local, answer->is_tls_zero, answer->is_usable);
}

static void try_size(size_t stack_bytes, size_t guard_bytes)
{
	struct answer answer = {0};
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	pthread_attr_init(&attr);
	printf("stack %zu guard %zu:", stack_bytes, guard_bytes);
	printf(" setstacksize=%d", pthread_attr_setstacksize(&attr, stack_bytes));
	printf(" setguardsize=%d", pthread_attr_setguardsize(&attr, guard_bytes));
	err = pthread_create(&thread, &attr, examine_stack, &answer);
	printf(" create=%d", err);
	if (!err) {
		printf(" join=%d", pthread_join(thread, NULL));
		print_answer(&answer);
	}
	printf("\n");
	pthread_attr_destroy(&attr);
}

static void try_sizes(void)
{
	static const size_t sizes[] = {0,     1,     16383, 16384,  16385,   16447,   16448,   20000,
				       20480, 65536, 86016, 262144, 1 << 20, 2 << 20, 8 << 20, (8 << 20) + 100};
	static const size_t guards[] = {0, 1, 4095, 4096, 4097, 65536, 1 << 20};

	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
		for (size_t g = 0; g < sizeof(guards) / sizeof(*guards); g++)
			try_size(sizes[s], guards[g]);
	/* Around the smallest size that the TLS leaves possible. */
	for (size_t bytes = TLS_BYTES; bytes < TLS_BYTES + 16384; bytes += 448)
		try_size(bytes, 4096);
	try_size(65536, SIZE_MAX);
	try_size(65536, SIZE_MAX - 4095);
	try_size(65536, SIZE_MAX / 2);
	try_size(SIZE_MAX, 0);
	try_size(SIZE_MAX / 2, 4096);
	try_size(1ull << 46, 4096);
}

/* The stack that a thread gets without attributes, which follows ulimit -s. */
static void try_default(void)
{
	struct answer answer = {0};
	pthread_attr_t attr;
	pthread_t thread;
	size_t bytes;

	pthread_attr_init(&attr);
	pthread_attr_getstacksize(&attr, &bytes);
	printf("default: size=%zu", bytes);
	printf(" create=%d", pthread_create(&thread, NULL, examine_stack, &answer));
	printf(" join=%d", pthread_join(thread, NULL));
	print_answer(&answer);
	answer = (struct answer){0};
	printf(" again=%d", pthread_create(&thread, &attr, examine_stack, &answer));
	printf(" join=%d", pthread_join(thread, NULL));
	print_answer(&answer);
	printf("\n");
}

static void *wait_at_gate(void *arg)
{
	pthread_barrier_wait(&gate);
	return arg;
}

static void *sleep_forever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void *detach_self(void *arg)
{
	*(int *)arg = pthread_detach(pthread_self());
	pthread_barrier_wait(&gate);
	return NULL;
}

static void *exit_deep(void *arg)
{
	pthread_exit(arg);
}

static void try_joins(void)
{
	struct timespec soon;
	pthread_t thread;
	void *result = NULL;
	int err = -1;

	printf("joins: self=%d", pthread_join(pthread_self(), NULL));
	pthread_create(&thread, NULL, wait_at_gate, &err);
	printf(" try=%d", pthread_tryjoin_np(thread, &result));
	clock_gettime(CLOCK_REALTIME, &soon);
	printf(" timed=%d", pthread_timedjoin_np(thread, &result, &soon));
	clock_gettime(CLOCK_MONOTONIC, &soon);
	printf(" clock=%d", pthread_clockjoin_np(thread, &result, CLOCK_MONOTONIC, &soon));
	pthread_barrier_wait(&gate);
	printf(" join=%d", pthread_join(thread, &result));
	printf(" result=%d", result == &err);

	pthread_create(&thread, NULL, wait_at_gate, NULL);
	printf(" detach=%d", pthread_detach(thread));
	printf(" detach again=%d", pthread_detach(thread));
	printf(" join detached=%d", pthread_join(thread, NULL));
	pthread_barrier_wait(&gate);

	pthread_create(&thread, NULL, detach_self, &err);
	pthread_barrier_wait(&gate);
	printf(" detach self=%d", err);

	pthread_create(&thread, NULL, sleep_forever, NULL);
	printf(" cancel=%d", pthread_cancel(thread));
	printf(" join=%d", pthread_join(thread, &result));
	printf(" cancelled=%d", result == PTHREAD_CANCELED);
	pthread_create(&thread, NULL, exit_deep, &err);
	printf(" join=%d", pthread_join(thread, &result));
	printf(" exit value=%d\n", result == &err);
}

static int c11_return(void *arg)
{
	return *(int *)arg;
}

static int c11_exit(void *arg)
{
	thrd_exit(*(int *)arg);
}

static int c11_wait(void *arg)
{
	wait_at_gate(arg);
	return 0;
}

static void try_c11(void)
{
	int in = -77, out = 0;
	thrd_t thread;

	printf("c11: create=%d", thrd_create(&thread, c11_return, &in));
	printf(" join=%d", thrd_join(thread, &out));
	printf(" result=%d", out);
	in = INT_MIN;
	printf(" create=%d", thrd_create(&thread, c11_exit, &in));
	printf(" join=%d", thrd_join(thread, &out));
	printf(" result=%d", out == INT_MIN);
	printf(" create=%d", thrd_create(&thread, c11_wait, NULL));
	printf(" detach=%d", thrd_detach(thread));
	printf(" again=%d", thrd_detach(thread));
	pthread_barrier_wait(&gate);
	printf(" create=%d", thrd_create(&thread, c11_return, &in));
	printf(" join=%d\n", thrd_join(thread, NULL));
}

static void try_own_stack(size_t stack_bytes, int detach_state)
{
	static struct answer answer;
	char *own = mmap(NULL, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_t attr;
	pthread_t thread;
	void *addr;
	size_t bytes;
	int err;

	if (own == MAP_FAILED)
		abort();
	answer = (struct answer){0};
	pthread_attr_init(&attr);
	printf("own stack %zu: set=%d", stack_bytes, pthread_attr_setstack(&attr, own, stack_bytes));
	pthread_attr_setguardsize(&attr, 65536);
	pthread_attr_setdetachstate(&attr, detach_state);
	err = pthread_create(&thread, &attr, detach_state == PTHREAD_CREATE_DETACHED ? wait_at_gate : examine_stack,
			     &answer);
	printf(" create=%d", err);
	if (!err && detach_state == PTHREAD_CREATE_DETACHED)
		pthread_barrier_wait(&gate);
	else if (!err)
		printf(" join=%d", pthread_join(thread, NULL));
	print_answer(&answer);
	/* The caller's attributes are as they were. */
	pthread_attr_getstack(&attr, &addr, &bytes);
	printf(" kept=%d\n", addr == own && bytes == stack_bytes);
	pthread_attr_destroy(&attr);
}

/* Attributes are the caller's: used twice, unchanged, scheduling errors passed on. */
static void try_attributes(void)
{
	struct answer answer = {0};
	pthread_attr_t attr, before;
	cpu_set_t cpus;
	pthread_t thread;

	pthread_attr_init(&attr);
	sched_getaffinity(0, sizeof(cpus), &cpus);
	pthread_attr_setaffinity_np(&attr, sizeof(cpus), &cpus);
	memcpy(&before, &attr, sizeof(attr));
	for (int i = 0; i < 3; i++) {
		printf("attributes: create=%d", pthread_create(&thread, &attr, examine_stack, &answer));
		printf(" join=%d same=%d\n", pthread_join(thread, NULL), memcmp(&before, &attr, sizeof(attr)) == 0);
	}
	CPU_ZERO(&cpus);
	CPU_SET(1023, &cpus);
	pthread_attr_setaffinity_np(&attr, sizeof(cpus), &cpus);
	printf("impossible affinity: create=%d\n", pthread_create(&thread, &attr, examine_stack, &answer));
	pthread_attr_destroy(&attr);
}

/* In a child with little of a resource. */
static void try_limit(const char *name, __rlimit_resource_t resource, rlim_t limit, int lock_flags, size_t stack_bytes)
{
	struct rlimit rlimit = {limit, limit};
	struct answer answer = {0};
	pthread_attr_t attr;
	pthread_t thread;
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		pthread_attr_init(&attr);
		pthread_attr_setstacksize(&attr, stack_bytes);
		if (setrlimit(resource, &rlimit)) {
			printf("%s: the limit cannot be set\n", name);
			fflush(stdout);
			_exit(0);
		}
		printf("%s: setuid=%d", name, setuid(65534));
		if (lock_flags)
			printf(" mlockall=%d", mlockall(lock_flags));
		for (int i = 0; i < 3; i++) {
			int err = pthread_create(&thread, &attr, examine_stack, &answer);

			printf(" create=%d", err);
			if (err == 0)
				printf(" join=%d getattr=%d", pthread_join(thread, NULL), answer.err);
		}
		printf("\n");
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, &status, 0);
	printf("%s: status %x\n", name, status);
}

/* As a nested function's trampoline is: works only where stacks are executable. */
static void *run_code_on_stack(void *arg)
{
	/* mov $42, %eax; ret */
	volatile unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3};
	int (*function)(void);
	volatile unsigned char *at = code;

	memcpy(&function, &at, sizeof(function));
	*(int *)arg = function();
	return NULL;
}

static void try_code_on_stack(void)
{
	pthread_t thread;
	int result = 0;

	printf("code on a stack: create=%d", pthread_create(&thread, NULL, run_code_on_stack, &result));
	printf(" join=%d", pthread_join(thread, NULL));
	printf(" result=%d\n", result);
}

int main(int argc, char **argv)
{
	pthread_barrier_init(&gate, NULL, 2);
	/* Modes for a fresh process: what earlier threads leave mapped would count. */
	if (argc > 1 && strcmp(argv[1], "--default") == 0) {
		try_default();
		return 0;
	}
	if (argc > 1 && strncmp(argv[1], "--code", 6) == 0) {
		/* --code=LIBRARY: one that is loaded after the first thread. */
		if (argv[1][6] == '=') {
			try_default();
			if (!dlopen(argv[1] + 7, RTLD_NOW))
				printf("%s\n", dlerror());
		}
		try_code_on_stack();
		return 0;
	}
	if (argc > 1 && strcmp(argv[1], "--locked") == 0) {
		/* kB as in the field report (hardened_malloc#128); the hard limit may be lower. */
		try_limit("locked memory", RLIMIT_MEMLOCK, 64000 << 10, MCL_CURRENT | MCL_FUTURE, 1 << 20);
		try_limit("memory locked from now on", RLIMIT_MEMLOCK, 8000 << 10, MCL_FUTURE, 1 << 20);
		try_limit("too much locked memory", RLIMIT_MEMLOCK, 8000 << 10, MCL_FUTURE, 8 << 20);
		return 0;
	}
	try_sizes();
	try_default();
	try_joins();
	try_c11();
	try_own_stack(1 << 20, PTHREAD_CREATE_JOINABLE);
	try_own_stack(1 << 20, PTHREAD_CREATE_DETACHED);
	try_own_stack(16384, PTHREAD_CREATE_JOINABLE);
	try_attributes();
	if (geteuid() == 0) {
		try_limit("little address space", RLIMIT_AS, 1 << 30, 0, 2ul << 30);
		try_limit("no more threads", RLIMIT_NPROC, 0, 0, 1 << 20);
	}
	return 0;
}
