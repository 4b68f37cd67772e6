/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rounds of many small blocks: allocate and fill all, then free all, in the order
 * in which they came or, with --last-first, the other way round. An allocator
 * that returns memory at once faults it in again in every round, 4 times what
 * one that retains it has.
 *
 * Policy that matters: trim (with its tunable trim_threshold), for blocks of
 * whole pages that are freed --last-first. With --size 8K --blocks 2000:
 *   trim off: one madvise.dontneed a block (8000) and a fault a page in every
 *             round (16,000);
 *   trim on:  the threshold of 128 KiB, 16 blocks, is passed with the 17th: a
 *             madvise.dontneed for each of these in the first round (117); what
 *             went comes back in the second (3978 faults), and stays from then on;
 *   trim on, trim_threshold=64M: no madvise, faults in the first round only
 *             (4000).
 * By default blocks of 4500 bytes lie in slabs of 12 blocks of 5120 bytes each,
 * and what is freed first to last goes back when the last block does: about
 * 4 x 3125 faults with trim off, 2 x 3125 with it on; with trim_threshold=64M 3125
 * in all. stack, realloc and commit must make no difference.
 *
 * The C library, for which a block is 4512 bytes: 4 x 2754 faults, and with
 * MALLOC_TRIM_THRESHOLD_=1073741824 2754 in all.
 */
#include "scenarios/scenario.h"

#include <stdlib.h>
#include <string.h>

static uint64_t rounds = 4, block_cnt = 2500, block_bytes = 4500, is_last_first;
static void **blocks;

static void allocate_and_free(uint64_t cnt)
{
	for (uint64_t i = 0; i < cnt; i++) {
		blocks[i] = scenario__malloc(block_bytes);
		memset(blocks[i], 1, block_bytes);
		scenario__use(blocks[i]);
	}
	for (uint64_t i = 0; i < cnt; i++)
		free(blocks[is_last_first ? cnt - 1 - i : i]);
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--rounds", &rounds, 1, UINT32_MAX},
		{SCENARIO_COUNT, "--blocks", &block_cnt, 1, 1 << 28},
		{SCENARIO_BYTES, "--size", &block_bytes, 1, 1ull << 32},
		{SCENARIO_FLAG, "--last-first", &is_last_first, 0, 0},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	struct scenario_requests requests = {0};
	uint64_t begin_ns, elapsed_ns;

	scenario__parse(argc, argv, options);
	blocks = scenario__malloc(block_cnt * sizeof(*blocks));
	scenario__touch(blocks, block_cnt * sizeof(*blocks));
	allocate_and_free(1);
	scenario__phase(SCENARIO_MEASURED);
	begin_ns = scenario__now_ns();
	for (uint64_t i = 0; i < rounds; i++)
		allocate_and_free(block_cnt);
	elapsed_ns = scenario__now_ns() - begin_ns;
	scenario__phase(SCENARIO_TEARDOWN);
	free(blocks);
	requests.malloc_cnt = requests.free_cnt = rounds * block_cnt;
	scenario__report(&requests, elapsed_ns, "blocks_per_s", (double)requests.malloc_cnt * 1e9 / (double)elapsed_ns);
	return 0;
}
