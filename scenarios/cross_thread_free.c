/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One thread allocates and writes a batch of blocks, another frees it; then the
 * next batch. An allocator must not let the one's memory grow because the other
 * has it.
 *
 * Policy that matters: trim, as the blocks come back to the heap that they are
 * from, at the next request of its thread, the last one freed first.
 *   trim off: a slab of 64 KiB at the top that has become empty is released: at
 *             most one madvise.dontneed a round for 1000 blocks of 256 bytes,
 *             which have 4 slabs, and 16 faults for each;
 *   trim on:  none, as 64 KiB are below the threshold.
 * With --size 64K --blocks 60, where each block is pages of its own:
 *   trim off: one madvise.dontneed a block (6000), and 16 faults;
 *   trim on:  one for three blocks, the first to pass twice the largest one, in
 *             the first round (20); their pages come back in the next, and stay;
 *   trim on, trim_threshold=64M: none.
 * With --size 1M blocks are mappings: one mmap and one munmap a block with commit
 * off; none with it on, as they go back to the heap that asked for them. stack and
 * realloc must make no difference. No heap commits more memory (mprotect.commit)
 * after the warm-up.
 */
#include "scenarios/scenario.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

static uint64_t rounds = 100, block_cnt = 1000, block_bytes = 256;
static void **blocks;
static pthread_barrier_t turn;

/* Worker 0 allocates, worker 1 frees. */
static void pass_batch(unsigned worker)
{
	if (worker == 0)
		for (uint64_t i = 0; i < block_cnt; i++) {
			blocks[i] = scenario__malloc(block_bytes);
			scenario__touch(blocks[i], block_bytes);
		}
	pthread_barrier_wait(&turn);
	if (worker == 1)
		for (uint64_t i = 0; i < block_cnt; i++)
			free(blocks[i]);
	pthread_barrier_wait(&turn);
}

static void warm_up(unsigned worker)
{
	/* The thread that only frees has a heap, too. */
	free(scenario__malloc(64));
	pass_batch(worker);
}

static void measured(unsigned worker)
{
	for (uint64_t i = 0; i < rounds; i++)
		pass_batch(worker);
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--rounds", &rounds, 1, UINT32_MAX},
		{SCENARIO_COUNT, "--blocks", &block_cnt, 1, 1 << 28},
		{SCENARIO_BYTES, "--size", &block_bytes, 1, 1ull << 32},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	const struct scenario_work work = {.warm_up = warm_up, .measured = measured};
	struct scenario_requests requests = {0};
	uint64_t elapsed_ns;
	int err;

	scenario__parse(argc, argv, options);
	blocks = scenario__malloc(block_cnt * sizeof(*blocks));
	err = pthread_barrier_init(&turn, NULL, 2);
	if (err)
		scenario__fail("pthread_barrier_init", err);
	elapsed_ns = scenario__run_workers(2, &work);
	pthread_barrier_destroy(&turn);
	free(blocks);
	requests.malloc_cnt = requests.free_cnt = rounds * block_cnt;
	scenario__report(&requests, elapsed_ns, "blocks_per_s", (double)requests.malloc_cnt * 1e9 / (double)elapsed_ns);
	return 0;
}
