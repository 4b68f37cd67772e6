/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requests of a server: each connection's thread holds a table of small
 * blocks of random sizes and replaces random ones; then it ends, and a new
 * thread takes over the table with the blocks that the old one allocated, and
 * frees them.
 *
 * Policy that matters: stack, where stacks are not kept (--tune stack_cache=0):
 *   stack off: one mmap.stack and one mprotect.guard a new thread (32);
 *   stack on:  one mmap.stack and one mprotect.commit a new thread.
 * By default every new thread gets the stack of one that has ended, and there is
 * no mmap.stack at all. realloc and commit must make no difference; trim hardly
 * any, as a table is full of random sizes. Whatever the policies, the 640,000
 * replacements cost next to no calls: heaps grow to the size of the tables,
 * about 256 KiB each, and stay there.
 */
#include "scenarios/scenario.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

static uint64_t connections = 4, block_cnt = 1000, operations = 20000, handovers = 8, min_bytes = 10, max_bytes = 500;

struct table {
	_Alignas(64) uint64_t random;
	void **blocks;
};
static struct table *tables;
static pthread_barrier_t all_serving;

static void *serve(void *arg)
{
	struct table *table = arg;

	for (uint64_t i = 0; i < operations; i++) {
		void **slot = &table->blocks[scenario__random(&table->random) % block_cnt];
		uint64_t bytes = min_bytes + scenario__random(&table->random) % (max_bytes - min_bytes + 1);

		free(*slot);
		*slot = scenario__malloc(bytes);
		*(volatile char *)*slot = 1;
	}
	return NULL;
}

/* Waits for the other connections, so that no two of them use one stack in turn. */
static void *serve_beside_all(void *arg)
{
	pthread_barrier_wait(&all_serving);
	return serve(arg);
}

static void serve_in_thread(unsigned worker, void *(*start)(void *))
{
	pthread_t thread;
	int err = pthread_create(&thread, NULL, start, &tables[worker]);

	if (err)
		scenario__fail("pthread_create", err);
	pthread_join(thread, NULL);
}

/* Leaves a stack for each connection. */
static void warm_up(unsigned worker)
{
	serve_in_thread(worker, serve_beside_all);
}

static void measured(unsigned worker)
{
	for (uint64_t i = 0; i < handovers; i++)
		serve_in_thread(worker, serve);
}

static void tear_down(unsigned worker)
{
	for (uint64_t i = 0; i < block_cnt; i++)
		free(tables[worker].blocks[i]);
}

static void prepare(void)
{
	int err = pthread_barrier_init(&all_serving, NULL, (unsigned)connections);

	if (err)
		scenario__fail("pthread_barrier_init", err);
	tables = aligned_alloc(_Alignof(struct table), connections * sizeof(*tables));
	if (!tables)
		scenario__fail("aligned_alloc", errno);
	for (uint64_t i = 0; i < connections; i++) {
		tables[i].random = i + 1;
		tables[i].blocks = calloc(block_cnt, sizeof(void *));
		if (!tables[i].blocks)
			scenario__fail("calloc", errno);
	}
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--connections", &connections, 1, 4096},
		{SCENARIO_COUNT, "--blocks", &block_cnt, 1, 1 << 24},
		{SCENARIO_COUNT, "--operations", &operations, 1, UINT32_MAX}, /* a thread */
		{SCENARIO_COUNT, "--handovers", &handovers, 1, UINT32_MAX},
		{SCENARIO_BYTES, "--min-size", &min_bytes, 1, 1ull << 32},
		{SCENARIO_BYTES, "--max-size", &max_bytes, 1, 1ull << 32},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	const struct scenario_work work = {.warm_up = warm_up, .measured = measured, .tear_down = tear_down};
	struct scenario_requests requests = {0};
	uint64_t elapsed_ns;

	scenario__parse(argc, argv, options);
	if (max_bytes < min_bytes)
		max_bytes = min_bytes;
	prepare();
	elapsed_ns = scenario__run_workers((unsigned)connections, &work);
	for (uint64_t i = 0; i < connections; i++)
		free(tables[i].blocks);
	free(tables);
	pthread_barrier_destroy(&all_serving);
	requests.thread_cnt = connections * handovers;
	requests.malloc_cnt = requests.free_cnt = requests.thread_cnt * operations;
	scenario__report(&requests, elapsed_ns, "operations_per_s",
			 (double)requests.malloc_cnt * 1e9 / (double)elapsed_ns);
	return 0;
}
