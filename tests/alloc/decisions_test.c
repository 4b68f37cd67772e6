/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Decisions that depend on what came before: trim keeps what it has given back
 * and soon got back, for a time; a large block grows into held memory. Counts
 * by the library's own counters, time by a clock of this program's.
 */
#include "tests/alloc/preload.h"

#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

#include "alloc/atmalloc.h"

#pragma weak atmalloc_get_counter

#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)

static time_t later_s;

/* Found before the C library's, by the allocator as well. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
	int ret = (int)syscall(SYS_clock_gettime, clock, now);

	now->tv_sec += later_s;
	return ret;
}

static uint64_t counter(const char *name)
{
	uint64_t value = 0;

	CHILD_CHECK(atmalloc_get_counter(name, &value) == 0);
	return value;
}

static void *run_alone(void *work)
{
	(*(void (**)(void))work)();
	return NULL;
}

static void in_a_thread(void *work)
{
	pthread_t thread;

	CHILD_CHECK(pthread_create(&thread, NULL, run_alone, work) == 0);
	CHILD_CHECK(pthread_join(thread, NULL) == 0);
}

/* In a child, and in a thread that has a heap of its own there, in which nothing else lies. */
static int run(void (*work)(void))
{
	return child__run(in_a_thread, &work);
}

/* ---- trim ---- */

/* Blocks of 25 pages, freed from the top; two are no more than the threshold. Returns how often a free top was
 * released. */
static uint64_t burst(int block_cnt)
{
	void *blocks[40];
	uint64_t before = counter("trim.taken");

	for (int i = 0; i < block_cnt; i++)
		blocks[i] = malloc(25 * PAGE);
	for (int i = block_cnt; i-- > 0;)
		free(blocks[i]);
	return counter("trim.taken") - before;
}

static void trim_what_comes_back(void)
{
	CHILD_CHECK(burst(2) == 0);
	CHILD_CHECK(burst(3) == 1);
	for (int i = 0; i < 7; i++)
		CHILD_CHECK(burst(3) == 0);
	/* Twice what came back is kept: 6 blocks. The top passes that once with 11, but never with 6. */
	CHILD_CHECK(burst(6) == 0);
	CHILD_CHECK(burst(11) == 1);
	/* The 7 blocks that went came back: 14 are kept. */
	CHILD_CHECK(burst(14) == 0);
	/* For 10 s; then it is seen once more. */
	later_s += 9;
	CHILD_CHECK(burst(14) == 0);
	later_s += 2;
	CHILD_CHECK(burst(14) == 4);
	CHILD_CHECK(burst(14) == 0);
}

/* Contiguous releases are one: what they gave back together is what comes back. */
static void trim_in_steps(void)
{
	CHILD_CHECK(burst(31) == 10);
	CHILD_CHECK(burst(40) == 0);
}

static void trim_what_comes_back_late(void)
{
	CHILD_CHECK(burst(3) == 1);
	for (int i = 0; i < 3; i++) {
		later_s += 11;
		CHILD_CHECK(burst(3) == 1);
	}
	CHILD_CHECK(burst(3) == 0);
}

/* malloc_trim takes what lies below the last release as well: then nothing can be learnt from that. */
static void trim_by_the_program(void)
{
	CHILD_CHECK(burst(3) == 1);
	CHILD_CHECK(burst(3) == 0);
	CHILD_CHECK(burst(11) == 1); /* 4 blocks are left free below */
	CHILD_CHECK(malloc_trim(0) == 1);
	CHILD_CHECK(preload.set_tune("check=full") == 0);
	for (int i = 0; i < 20; i++)
		CHILD_CHECK(burst(3) == 0);
	CHILD_CHECK(burst(7) == 1);
}

static void trim_without_learning(void)
{
	CHILD_CHECK(burst(3) == 1);
	CHILD_CHECK(burst(3) == 0);
	CHILD_CHECK(preload.set_tune("trim_threshold=307200") == 0);
	for (int i = 0; i < 5; i++)
		CHILD_CHECK(burst(3) == 1);
	CHILD_CHECK(preload.set_policy("-trim") == 0);
	for (int i = 0; i < 5; i++)
		CHILD_CHECK(burst(3) == 3);
}

static void trim_keeps_what_soon_comes_back(void **state)
{
	(void)state;
	assert_int_equal(run(trim_what_comes_back), 0);
	assert_int_equal(run(trim_in_steps), 0);
	assert_int_equal(run(trim_what_comes_back_late), 0);
	assert_int_equal(run(trim_by_the_program), 0);
	assert_int_equal(run(trim_without_learning), 0);
}

/* ---- growth of large blocks ---- */

static uint64_t mappings(void)
{
	return preload__calls(ATM_KIND_MMAP_ANON) + preload__calls(ATM_KIND_MREMAP_GROW) +
	       preload__calls(ATM_KIND_MREMAP_MOVE);
}

static void grow_into_what_is_held(void)
{
	unsigned char *held = malloc(7 * MIB), *lid = malloc(MIB), *block = malloc(4 * MIB);
	uint64_t before, reused = counter("commit.reused");

	CHILD_CHECK(held && lid && block);
	memset(block, 7, 4 * MIB);
	block[4 * MIB - 1] = 9;
	free(held);
	before = mappings();
	/* Not by less than a quarter: then it would be copied at each step of many. */
	block = realloc(block, 4 * MIB + 255 * PAGE);
	CHILD_CHECK(mappings() == before + 1 && counter("commit.reused") == reused);
	block = realloc(block, 7 * MIB);
	CHILD_CHECK(mappings() == before + 1 && counter("commit.reused") == reused + 1);
	CHILD_CHECK(block[0] == 7 && block[3 * MIB] == 7 && block[4 * MIB - 1] == 9);
	/* What it left is held. */
	held = malloc(4 * MIB + 255 * PAGE);
	CHILD_CHECK(mappings() == before + 1);
	/* Nothing is: new pages then. */
	block = realloc(block, 12 * MIB);
	CHILD_CHECK(mappings() == before + 2 && block[4 * MIB - 1] == 9);
	free(block);
	free(held);
	free(lid);
}

static void a_block_grows_into_what_is_held(void **state)
{
	(void)state;
	assert_int_equal(run(grow_into_what_is_held), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trim_keeps_what_soon_comes_back),
		cmocka_unit_test(a_block_grows_into_what_is_held),
	};

	return cmocka_run_group_tests(tests, preload__find, NULL);
}
