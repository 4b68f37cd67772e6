/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Edges that programs met in the field: a million empty blocks (B44), blocks
 * that no memory is there for (B40, B53), honest usable sizes (B46), counts
 * that threads share (B38), handlers at exit beside fork and exec (B77).
 */
#include "tests/alloc/preload.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define EMPTY_CNT 1000003

/* B44: each malloc(0) is a block of its own. */
static void a_million_empty_blocks(void **state)
{
	uint32_t **blocks = malloc(EMPTY_CNT * sizeof(*blocks));

	(void)state;
	assert_non_null(blocks);
	for (uint32_t i = 0; i < EMPTY_CNT; i++) {
		blocks[i] = malloc(0);
		assert_non_null(blocks[i]);
		if (malloc_usable_size(blocks[i]) < sizeof(uint32_t))
			fail_msg("no room to tell block %u from others", i);
		*blocks[i] = i;
	}
	for (uint32_t i = 0; i < EMPTY_CNT; i++) {
		if (*blocks[i] != i)
			fail_msg("block %u is also block %u", i, *blocks[i]);
		free(blocks[i]);
	}
	free(blocks);
}

/* B46: a block's usable size is the same for its whole life, whatever becomes of its neighbours. */
static void usable_size_is_constant(void **state)
{
	static unsigned char *blocks[900];
	static size_t usable_bytes[900];

	(void)state;
	for (size_t i = 0; i < 900; i++) {
		blocks[i] = malloc(i * 79 + 1);
		usable_bytes[i] = malloc_usable_size(blocks[i]);
	}
	for (size_t i = 0; i < 900; i += 2)
		free(blocks[i]);
	malloc_trim(0);
	for (size_t i = 1; i < 900; i += 2) {
		assert_int_equal(malloc_usable_size(blocks[i]), usable_bytes[i]);
		memset(blocks[i], 1, usable_bytes[i]);
		free(blocks[i]);
	}
}

/* B53: a block larger than memory can be had exactly when the kernel gives a mapping of that size. */
static void blocks_larger_than_memory(void **state)
{
	size_t ram_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
	const size_t sizes[] = {ram_bytes / 2, ram_bytes * 2, (size_t)1 << 40, (size_t)1 << 46};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		void *mapping = mmap(NULL, sizes[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *p;
		bool is_given = mapping != MAP_FAILED;

		if (is_given)
			munmap(mapping, sizes[i]);
		errno = 0;
		p = malloc(sizes[i]);
		assert_int_equal(p != NULL, is_given);
		assert_int_equal(errno, is_given ? 0 : ENOMEM);
		free(p);
	}
	malloc_trim(0);
}

/* B40: a request that failed has left nothing in the books. */
static void fail_often(void *arg)
{
	struct rlimit limit = {256 << 20, 256 << 20};
	struct mallinfo2 before = mallinfo2(), after;
	uint64_t failed_cnt;

	(void)arg;
	CHILD_CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	failed_cnt = preload.counters->live.error_cnt[ATM_KIND_MMAP_ANON];
	for (int i = 0; i < 101; i++) {
		errno = 0;
		CHILD_CHECK(malloc((size_t)1 << 30) == NULL && errno == ENOMEM);
	}
	CHILD_CHECK(preload.counters->live.error_cnt[ATM_KIND_MMAP_ANON] >= failed_cnt + 101);
	for (int i = 0; i < 7; i++)
		CHILD_CHECK(malloc(2 << 20));
	after = mallinfo2();
	CHILD_CHECK(after.hblks == before.hblks + 7);
	CHILD_CHECK(after.hblkhd == before.hblkhd + 7 * ((size_t)2 << 20));
}

static void failed_requests_are_not_in_the_books(void **state)
{
	(void)state;
	malloc_trim(0);
	assert_int_equal(child__run(fail_often, NULL), 0);
}

static void *return_arg(void *arg)
{
	return arg;
}

#define COUNTER_THREADS 8
#define COUNTER_REQUESTS 20011

static void *request(void *arg)
{
	for (int i = 0; i < COUNTER_REQUESTS; i++)
		free(malloc((size_t)(i % 5000)));
	return arg;
}

/* B38: no request of any thread is lost. The child makes no other in between, but for the threads themselves. */
static void count_requests(void *arg)
{
	pthread_t threads[COUNTER_THREADS];
	uint64_t malloc_cnt[2], free_cnt[2];

	(void)arg;
	for (int round = 0; round < 2; round++) {
		uint64_t malloc_before = preload__requests(offsetof(struct atm_requests, malloc_cnt));
		uint64_t free_before = preload__requests(offsetof(struct atm_requests, free_cnt));

		for (int i = 0; i < COUNTER_THREADS; i++)
			/* The first round's threads only begin and end: what that costs is taken off. */
			CHILD_CHECK(pthread_create(&threads[i], NULL, round ? request : return_arg, NULL) == 0);
		for (int i = 0; i < COUNTER_THREADS; i++)
			CHILD_CHECK(pthread_join(threads[i], NULL) == 0);
		malloc_cnt[round] = preload__requests(offsetof(struct atm_requests, malloc_cnt)) - malloc_before;
		free_cnt[round] = preload__requests(offsetof(struct atm_requests, free_cnt)) - free_before;
	}
	CHILD_CHECK(malloc_cnt[1] - malloc_cnt[0] == (uint64_t)COUNTER_THREADS * COUNTER_REQUESTS);
	CHILD_CHECK(free_cnt[1] - free_cnt[0] == (uint64_t)COUNTER_THREADS * COUNTER_REQUESTS);
}

static void threads_lose_no_count(void **state)
{
	(void)state;
	assert_int_equal(child__run(count_requests, NULL), 0);
}

/*
 * Requests on both sides of each band's edge: of the edge itself 3 mallocs, 5 of one byte more, so
 * that a band has 3 of its own upper edge and 5 from above the one below; as many frees; and a realloc each.
 */
static void count_bands(void *arg)
{
	static const size_t edges[ATM_BAND_CNT - 1] = {64, 256, 1024, 4096, 16384, 131072, 1048576};
	static const size_t offsets[] = {offsetof(struct atm_requests, malloc_cnt),
					 offsetof(struct atm_requests, free_cnt),
					 offsetof(struct atm_requests, realloc_cnt)};
	uint64_t before[3][ATM_BAND_CNT];

	(void)arg;
	for (int kind = 0; kind < 3; kind++)
		for (int band = 0; band < ATM_BAND_CNT; band++)
			before[kind][band] = preload__band(offsets[kind], band);
	for (int i = 0; i < ATM_BAND_CNT - 1; i++)
		for (int k = 0; k < 8; k++) {
			void *block = malloc(edges[i] + (k >= 3));

			CHILD_CHECK(block);
			if (k == 0)
				block = realloc(block, edges[i]);
			if (k == 3)
				block = realloc(block, edges[i] + 1);
			free(block);
		}
	for (int band = 0; band < ATM_BAND_CNT; band++) {
		uint64_t of_edge = band<ATM_BAND_CNT - 1, of_above = band> 0;

		for (int kind = 0; kind < 3; kind++) {
			uint64_t wanted = kind == 2 ? of_edge + of_above : 3 * of_edge + 5 * of_above;

			CHILD_CHECK(preload__band(offsets[kind], band) - before[kind][band] == wanted);
		}
	}
}

static void requests_are_counted_by_size(void **state)
{
	(void)state;
	assert_int_equal(child__run(count_bands, NULL), 0);
}

static atomic_bool is_over;

static void do_nothing(void) {}

static void *register_handlers(void *arg)
{
	while (!atomic_load(&is_over))
		for (int i = 0; i < 64 && !atomic_load(&is_over); i++)
			if (atexit(do_nothing))
				return "atexit failed";
	return arg;
}

static void *fork_and_exec(void *arg)
{
	for (int i = 0; i < 50; i++) {
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			execl("/bin/true", "true", (char *)NULL);
			_exit(127);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			return "a child failed";
	}
	return arg;
}

/* B77: two threads fork and exec while a third makes libc allocate for its list of handlers. */
static void register_while_forking(void *arg)
{
	pthread_t threads[3];
	void *failure;

	(void)arg;
	CHILD_CHECK(pthread_create(&threads[0], NULL, register_handlers, NULL) == 0);
	for (int i = 1; i < 3; i++)
		CHILD_CHECK(pthread_create(&threads[i], NULL, fork_and_exec, NULL) == 0);
	for (int i = 2; i >= 0; i--) {
		CHILD_CHECK(pthread_join(threads[i], &failure) == 0 && !failure);
		if (i == 1)
			atomic_store(&is_over, true);
	}
}

static void handlers_at_exit_beside_fork(void **state)
{
	(void)state;
	assert_int_equal(child__run(register_while_forking, NULL), 0);
}

static void *kept[300];

static void allocate_late(void)
{
	for (size_t i = 0; i < 300; i++) {
		free(kept[i]);
		kept[i] = calloc(1, i * 20011);
		if (!kept[i])
			_exit(98);
	}
}

__attribute__((destructor)) static void allocate_last(void)
{
	if (kept[0])
		allocate_late();
}

static void end_by_exit(void *arg)
{
	pthread_t thread;

	CHILD_CHECK(atexit(allocate_late) == 0);
	CHILD_CHECK(pthread_create(&thread, NULL, request, arg) == 0);
	CHILD_CHECK(pthread_join(thread, NULL) == 0);
	for (size_t i = 0; i < 300; i++)
		kept[i] = malloc(i * 7919);
	exit(0); /* runs the handler, then the destructor */
}

/* B37: malloc and free in handlers and destructors, after the library's own end. */
static void requests_after_main(void **state)
{
	(void)state;
	assert_int_equal(child__run(end_by_exit, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_million_empty_blocks),       cmocka_unit_test(usable_size_is_constant),
		cmocka_unit_test(blocks_larger_than_memory),    cmocka_unit_test(failed_requests_are_not_in_the_books),
		cmocka_unit_test(threads_lose_no_count),        cmocka_unit_test(requests_are_counted_by_size),
		cmocka_unit_test(handlers_at_exit_beside_fork), cmocka_unit_test(requests_after_main),
	};

	return cmocka_run_group_tests(tests, preload__find, NULL);
}
