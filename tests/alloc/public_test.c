/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * atmalloc.h from C: settings are set and read back, wrong ones change nothing,
 * counters count what this program does. From C++: tests/install_test.sh.
 */
#include "alloc/atmalloc.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Bound when the allocator is preloaded. */
#pragma weak atmalloc_set_policy
#pragma weak atmalloc_get_policy
#pragma weak atmalloc_set_tune
#pragma weak atmalloc_get_tune
#pragma weak atmalloc_counter_name
#pragma weak atmalloc_read_counters
#pragma weak atmalloc_get_counter

#define MIB ((size_t)1 << 20)

static uint64_t counter(const char *name)
{
	uint64_t value = 0;

	assert_int_equal(atmalloc_get_counter(name, &value), 0);
	return value;
}

static void expect_policy(const char *text)
{
	char buf[64];

	assert_int_equal(atmalloc_get_policy(buf, sizeof(buf)), strlen(text));
	assert_string_equal(buf, text);
}

static void policies(void **state)
{
	char buf[6];

	(void)state;
	errno = 4711;
	assert_int_equal(atmalloc_set_policy("none"), 0);
	expect_policy("none");
	assert_int_equal(atmalloc_set_policy("-trim"), 0);
	expect_policy("stack,realloc,commit");
	assert_int_equal(atmalloc_set_policy("trim,"), -EINVAL);
	assert_int_equal(atmalloc_set_policy(""), -EINVAL);
	assert_int_equal(atmalloc_set_policy("+trim,tirm"), -EINVAL);
	expect_policy("stack,realloc,commit");
	assert_int_equal(atmalloc_get_policy(buf, sizeof(buf)), strlen("stack,realloc,commit"));
	assert_string_equal(buf, "stack");
	assert_int_equal(atmalloc_get_policy(NULL, 0), strlen("stack,realloc,commit"));
	assert_int_equal(atmalloc_set_policy("all"), 0);
	assert_int_equal(errno, 4711);
}

static void tunables(void **state)
{
	uint64_t value = 1;

	(void)state;
	errno = 4711;
	assert_int_equal(atmalloc_get_tune("commit_hold", &value), 0);
	assert_int_equal(value, 10000);
	assert_int_equal(atmalloc_set_tune("trim_threshold=3M,grow=copy,commit_batch=77"), 0);
	assert_int_equal(atmalloc_get_tune("trim_threshold", &value), 0);
	assert_int_equal(value, 3 * MIB);
	assert_int_equal(atmalloc_get_tune("grow", &value), 0);
	assert_int_equal(value, 1);
	/* All or nothing. */
	assert_int_equal(atmalloc_set_tune("commit_batch=78,commit_bach=1"), -EINVAL);
	assert_int_equal(atmalloc_set_tune("commit_batch=1X"), -EINVAL);
	assert_int_equal(atmalloc_get_tune("commit_batch", &value), 0);
	assert_int_equal(value, 77);
	assert_int_equal(atmalloc_get_tune("commit_bach", &value), -EINVAL);
	assert_int_equal(value, 77);
	assert_int_equal(atmalloc_set_tune("trim_threshold=0,grow=mremap,commit_batch=0"), 0);
	assert_int_equal(errno, 4711);
}

static void counter_names(void **state)
{
	uint64_t values[256], last = 4711;
	size_t cnt = atmalloc_read_counters(NULL, 0);

	(void)state;
	assert_in_range(cnt, 30, 256);
	for (size_t i = 0; i < cnt; i++) {
		assert_non_null(atmalloc_counter_name(i));
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(atmalloc_counter_name(i), atmalloc_counter_name(j));
	}
	assert_null(atmalloc_counter_name(cnt));
	assert_null(atmalloc_counter_name(SIZE_MAX));
	values[cnt - 1] = last;
	assert_int_equal(atmalloc_read_counters(values, cnt - 1), cnt);
	assert_int_equal(values[cnt - 1], last); /* no more than asked for */
	assert_int_equal(atmalloc_get_counter("malloc.65", values), -EINVAL);
}

static void requests(void **state)
{
	uint64_t malloc_before = counter("malloc.256"), free_before = counter("free.256"),
		 realloc_before = counter("realloc.inf");
	void *volatile p;

	(void)state;
	for (int i = 0; i < 4099; i++) {
		p = malloc(200);
		free(p);
	}
	p = NULL;
	for (int i = 0; i < 7; i++)
		p = realloc(p, (size_t)(i + 2) << 20);
	free(p);
	assert_int_equal(counter("malloc.256") - malloc_before, 4099);
	assert_int_equal(counter("free.256") - free_before, 4099);
	assert_int_equal(counter("realloc.inf") - realloc_before, 7);
}

static void *free_it(void *p)
{
	free(p);
	return NULL;
}

static void free_elsewhere(void *p)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, free_it, p), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/* One mapping of 32 MiB serves 20 and, with what is left of it, 10; free again, the two are one. */
static void held_mappings_are_cut_and_joined(void **state)
{
	char *all, *a, *b;
	uint64_t calls;

	(void)state;
	malloc_trim(0);
	assert_int_equal(counter("held.now_bytes"), 0);
	all = malloc(32 * MIB);
	free(all);
	assert_int_equal(counter("held.now_bytes"), 32 * MIB);
	calls = counter("call.mmap.anon") + counter("call.munmap");
	a = malloc(20 * MIB);
	assert_ptr_equal(a, all);
	assert_int_equal(counter("held.now_bytes"), 12 * MIB);
	b = malloc(10 * MIB);
	assert_ptr_equal(b, all + 20 * MIB);
	assert_int_equal(malloc_usable_size(a), 20 * MIB);
	free(a);
	free(b);
	assert_int_equal(counter("held.now_bytes"), 32 * MIB);
	assert_ptr_equal(malloc(32 * MIB), all);
	assert_int_equal(counter("held.now_bytes"), 0);
	/* Grown into: what is behind it is held. */
	free(all);
	a = malloc(8 * MIB);
	assert_ptr_equal(realloc(a, 24 * MIB), a);
	assert_int_equal(counter("held.now_bytes"), 8 * MIB);
	free(a);
	assert_int_equal(counter("call.mmap.anon") + counter("call.munmap"), calls);
	assert_int_equal(malloc_trim(0), 1);
	assert_int_equal(counter("held.now_bytes"), 0);
}

/* A block that another thread freed serves this heap's next request, up to the batch. */
static void frees_elsewhere_come_back(void **state)
{
	void *blocks[5];
	uint64_t held, released;

	(void)state;
	malloc_trim(0);
	blocks[0] = malloc(8 * MIB);
	free_elsewhere(blocks[0]);
	assert_int_equal(counter("held.now_bytes"), 8 * MIB);
	assert_ptr_equal(malloc(8 * MIB), blocks[0]);
	free(blocks[0]);
	malloc_trim(0);
	/* This thread asks for nothing any more: its heap is given no more than its batch of 16 MiB. */
	for (int i = 0; i < 5; i++)
		blocks[i] = malloc(8 * MIB);
	assert_int_equal(atmalloc_set_tune("commit_batch=4096"), 0);
	held = counter("held.now_bytes");
	released = counter("commit.released");
	for (int i = 0; i < 5; i++)
		free_elsewhere(blocks[i]);
	assert_int_equal(counter("held.now_bytes") - held, 16 * MIB);
	assert_int_equal(counter("commit.released") - released, 3);
	assert_int_equal(atmalloc_set_tune("commit_batch=0"), 0);
	malloc_trim(0);
	assert_int_equal(counter("held.now_bytes"), 0);
}

static void *allocate_8m(void *arg)
{
	*(void **)arg = malloc(8 * MIB);
	return NULL;
}

/* Nobody would take what comes back to the heap of a thread that has ended. */
static void frees_of_ended_threads_go(void **state)
{
	pthread_t thread;
	void *p;

	(void)state;
	malloc_trim(0);
	assert_int_equal(pthread_create(&thread, NULL, allocate_8m, &p), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(counter("held.now_bytes"), 0);
	free(p);
	assert_int_equal(counter("held.now_bytes"), 0);
}

/* A forked child counts from zero, and what it inherits of held memory serves it. */
static void forked_child(void **state)
{
	void *p = malloc(4 * MIB);
	int status;
	pid_t pid;

	(void)state;
	free(p);
	pid = fork();
	if (pid == 0) {
		uint64_t value;
		int bad = atmalloc_get_counter("malloc.inf", &value) || value != 0;

		bad |= malloc(4 * MIB) != p;
		bad |= atmalloc_get_counter("malloc.inf", &value) || value != 1;
		_exit(bad);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static int setup(void **state)
{
	(void)state;
	return &atmalloc_get_counter ? atmalloc_set_tune("check=full") : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(policies),
		cmocka_unit_test(tunables),
		cmocka_unit_test(counter_names),
		cmocka_unit_test(requests),
		cmocka_unit_test(held_mappings_are_cut_and_joined),
		cmocka_unit_test(frees_elsewhere_come_back),
		cmocka_unit_test(frees_of_ended_threads_go),
		cmocka_unit_test(forked_child),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
