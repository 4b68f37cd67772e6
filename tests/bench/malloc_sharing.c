/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * False sharing: one thread allocates small blocks and gives one to each
 * worker, which frees it, allocates another, and writes that often. An
 * allocator that hands the freed block's cache line to its neighbour's owner
 * makes the workers fight over lines.
 */
#include "scenarios/scenario.h"

#include <stdlib.h>

static uint64_t threads = 2, rounds = 100000, writes = 1000, block_bytes = 8;
static char **given;

static void work(unsigned worker)
{
	free(given[worker]);
	for (uint64_t i = 0; i < rounds; i++) {
		volatile char *block = scenario__malloc(block_bytes);

		for (uint64_t j = 0; j < writes; j++)
			block[j % block_bytes]++;
		free((void *)block);
	}
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--threads", &threads, 1, 4096},
		{SCENARIO_COUNT, "--rounds", &rounds, 1, UINT32_MAX},
		{SCENARIO_COUNT, "--writes", &writes, 1, UINT32_MAX},
		{SCENARIO_BYTES, "--size", &block_bytes, 1, 1 << 20},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	const struct scenario_work job = {.measured = work};

	scenario__parse(argc, argv, options);
	given = scenario__malloc(threads * sizeof(*given));
	for (uint64_t i = 0; i < threads; i++)
		given[i] = scenario__malloc(block_bytes);
	scenario__run_workers((unsigned)threads, &job);
	free(given);
	return 0;
}
