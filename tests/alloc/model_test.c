/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random operations on the whole malloc family against a shadow model: every
 * block's alignment, usable size, zeroing and contents, in threads that hand
 * blocks to each other, with policies, tunables, trims and forks in between and
 * the invariant walkers on. ATM_SEED=N replays a seed, ATM_OPS=N sets the
 * operations a thread (default 12,000).
 */
#include "tests/alloc/preload.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#define THREAD_CNT 4
#define BLOCK_CNT 400
#define SHARED_CNT 64

struct block {
	unsigned char *p;
	size_t bytes; /* asked for */
	unsigned char stamp;
};

struct worker {
	pthread_t thread;
	uint64_t random;
	unsigned op_cnt;
	struct block blocks[BLOCK_CNT];
};

static struct block *_Atomic shared[SHARED_CNT];
static struct worker workers[THREAD_CNT];
static uint64_t seed;

static uint64_t next_random(struct worker *worker)
{
	/* xorshift64: Marsaglia, "Xorshift RNGs", 2003. */
	worker->random ^= worker->random << 13;
	worker->random ^= worker->random >> 7;
	worker->random ^= worker->random << 17;
	return worker->random;
}

static uint64_t below(struct worker *worker, uint64_t limit)
{
	return (next_random(worker) >> 16) % limit;
}

#define CHECK(condition, block)                                                                                    \
	do {                                                                                                       \
		if (!(condition)) {                                                                                \
			fprintf(stderr, "seed %llu: %s:%d: %s: block %p of %zu bytes\n", (unsigned long long)seed, \
				__FILE__, __LINE__, #condition, (block)->p, (block)->bytes);                       \
			abort();                                                                                   \
		}                                                                                                  \
	} while (0)

/* Sizes of every kind of block, the edges of the kinds more often. */
static size_t random_size(struct worker *worker)
{
	static const size_t edges[] = {0,     1,      8,       16,      17,      64,      128,     129,    1024,
				       1025,  2048,   3584,    4095,    4096,    4097,    8192,    16384,  16385,
				       65536, 131072, 1048575, 1048576, 1048577, 4194304, 4190208, 8388608};

	switch (below(worker, 16)) {
	case 0: return edges[below(worker, sizeof(edges) / sizeof(*edges))];
	case 1: return below(worker, 3 << 20);
	case 2: return below(worker, 300000);
	case 3: return below(worker, 30) * 4096;
	case 4:
	case 5: return below(worker, 20000);
	default: return below(worker, 1200);
	}
}

/* Bytes that are stamped and checked: all of a small block, one in 512 of a large one, and the last. */
static size_t step_of(size_t bytes)
{
	return bytes <= 2048 ? 1 : 511;
}

static void stamp(struct worker *worker, struct block *block)
{
	block->stamp = (unsigned char)next_random(worker);
	for (size_t i = 0; i < block->bytes; i += step_of(block->bytes))
		block->p[i] = (unsigned char)(block->stamp + i);
	if (block->bytes)
		block->p[block->bytes - 1] = block->stamp;
}

static void check_stamp(const struct block *block, size_t bytes)
{
	for (size_t i = 0; i + 1 < bytes; i += step_of(block->bytes))
		CHECK(block->p[i] == (unsigned char)(block->stamp + i), block);
	if (bytes && bytes == block->bytes)
		CHECK(block->p[bytes - 1] == block->stamp, block);
}

static void check_new(const struct block *block, size_t align)
{
	CHECK(block->p, block);
	CHECK(((uintptr_t)block->p & (align - 1)) == 0, block);
	CHECK(malloc_usable_size(block->p) >= block->bytes, block);
}

static void allocate(struct worker *worker, struct block *block)
{
	size_t align = 16;
	void *p = NULL;

	block->bytes = random_size(worker);
	switch (below(worker, 8)) {
	case 0:
		block->p = calloc(block->bytes, 1);
		check_new(block, 16);
		for (size_t i = 0; i < block->bytes; i++)
			CHECK(block->p[i] == 0, block);
		break;
	case 1:
		align = (size_t)16 << below(worker, 12);
		CHECK(posix_memalign(&p, align, block->bytes) == 0, block);
		block->p = p;
		break;
	case 2:
		align = (size_t)1 << below(worker, 22);
		block->p = memalign(align, block->bytes);
		break;
	default: block->p = malloc(block->bytes);
	}
	check_new(block, align);
	stamp(worker, block);
}

static void release(struct block *block)
{
	check_stamp(block, block->bytes);
	errno = 4711;
	free(block->p);
	CHECK(errno == 4711, block);
	block->p = NULL;
}

static void resize(struct worker *worker, struct block *block)
{
	size_t bytes = random_size(worker), kept;

	if (below(worker, 3) == 0)
		bytes = block->bytes - block->bytes / (2 + below(worker, 64));
	if (bytes == 0)
		bytes = 1;
	check_stamp(block, block->bytes);
	kept = bytes < block->bytes ? bytes : block->bytes;
	block->p = realloc(block->p, bytes);
	CHECK(block->p, block);
	check_stamp(block, kept < block->bytes ? kept : block->bytes);
	block->bytes = bytes;
	check_new(block, 16);
	stamp(worker, block);
}

/* Leaves one of our blocks to whoever comes by, and takes what is there. */
static void exchange(struct worker *worker, struct block *block)
{
	struct block *given = malloc(sizeof(*given)), *taken;

	CHECK(given, block);
	*given = *block;
	block->p = NULL;
	taken = atomic_exchange(&shared[below(worker, SHARED_CNT)], given);
	if (taken) {
		*block = *taken;
		free(taken);
		check_stamp(block, block->bytes);
	}
}

static void change_settings(struct worker *worker)
{
	static const char *const tunes[] = {"grow=copy",
					    "grow=mremap",
					    "realloc_keep=0",
					    "realloc_keep=256K",
					    "trim_threshold=0",
					    "trim_threshold=8K",
					    "commit_batch=0",
					    "commit_batch=600",
					    "commit_hold=0",
					    "commit_hold=10000",
					    "stack_cache=0",
					    "stack_cache=40M",
					    "commit_reclaim=thread",
					    "commit_reclaim=request"};
	static const char *const policies[] = {"all",     "none",   "+trim",   "-trim",      "-realloc",
					       "-commit", "commit", "realloc", "trim,commit"};

	if (below(worker, 2))
		assert_int_equal(preload.set_policy(policies[below(worker, sizeof(policies) / sizeof(*policies))]), 0);
	else
		assert_int_equal(preload.set_tune(tunes[below(worker, sizeof(tunes) / sizeof(*tunes))]), 0);
}

static void operate(struct worker *worker, unsigned op_cnt);

/* The child goes on with its copy of this thread's blocks. */
static void fork_and_operate(struct worker *worker)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		alarm(60);
		operate(worker, 300);
		for (unsigned i = 0; i < BLOCK_CNT; i++)
			if (worker->blocks[i].p)
				release(&worker->blocks[i]);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void operate(struct worker *worker, unsigned op_cnt)
{
	for (unsigned op = 0; op < op_cnt; op++) {
		struct block *block = &worker->blocks[below(worker, BLOCK_CNT)];
		uint64_t dice = below(worker, 1000);

		if (!block->p)
			allocate(worker, block);
		else if (dice < 500)
			release(block);
		else if (dice < 800)
			resize(worker, block);
		else if (dice < 980)
			exchange(worker, block);
		else if (dice < 998)
			change_settings(worker);
		else
			malloc_trim(below(worker, 2) * 65536);
	}
}

static void *work(void *arg)
{
	struct worker *worker = arg;

	for (unsigned part = 0; part < 20; part++) {
		operate(worker, worker->op_cnt / 20);
		if (part % 5 == 2)
			fork_and_operate(worker);
	}
	for (unsigned i = 0; i < BLOCK_CNT; i++)
		if (worker->blocks[i].p)
			release(&worker->blocks[i]);
	return NULL;
}

static void run_model(void **state)
{
	const char *ops = getenv("ATM_OPS");

	(void)state;
	for (unsigned i = 0; i < THREAD_CNT; i++) {
		workers[i].random = seed * 0x9e3779b97f4a7c15ull + i + 1;
		workers[i].op_cnt = ops ? (unsigned)atoi(ops) : 12000;
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < THREAD_CNT; i++)
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
	for (unsigned i = 0; i < SHARED_CNT; i++) {
		struct block *block = atomic_exchange(&shared[i], NULL);

		if (block)
			release(block);
		free(block);
	}
	preload.set_policy("all");
	malloc_trim(0);
}

static int setup(void **state)
{
	const char *given = getenv("ATM_SEED");

	if (preload__find(state) || preload.set_tune("check=full"))
		return -1;
	seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 1000 + (uint64_t)getpid() % 1000;
	fprintf(stderr, "# ATM_SEED=%llu\n", (unsigned long long)seed);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(run_model)};

	return cmocka_run_group_tests(tests, setup, NULL);
}
