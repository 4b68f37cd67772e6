/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A query of a database backend: the main thread allocates a few medium blocks
 * at the top of the heap, writes them, and frees them all, the last one first.
 * Then comes the next query.
 *
 * Policy that matters: trim (with its tunable trim_threshold). A block of
 * 100,000 bytes has 25 pages:
 *   trim off: a madvise.dontneed a block (400) and a fault a page (10,000);
 *   trim on:  a query's two blocks are just as much as the threshold, twice the
 *             largest block freed, and do not pass it: none. With --blocks 3 one
 *             madvise.dontneed in the warm-up; all pages come back in the first
 *             iteration (75 faults), and stay: none;
 *   trim on, trim_threshold=4M: none at all after the warm-up.
 * stack, realloc and commit must make no difference.
 *
 * The C library trims to its pad of 128 KiB at each free, and grows once: 3 brk
 * an iteration, 1 up and 2 down, and the 17 or so faults for what was beyond the
 * pad; with MALLOC_TRIM_THRESHOLD_=4194304 none at all.
 */
#include "scenarios/scenario.h"

#include <stdlib.h>

static uint64_t iterations = 200, block_cnt = 2, block_bytes = 100000;
static void **blocks;

static void query(void)
{
	for (uint64_t i = 0; i < block_cnt; i++)
		blocks[i] = scenario__malloc(block_bytes);
	for (uint64_t i = 0; i < block_cnt; i++)
		scenario__touch(blocks[i], block_bytes);
	for (uint64_t i = block_cnt; i-- > 0;)
		free(blocks[i]);
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--iterations", &iterations, 1, UINT32_MAX},
		{SCENARIO_COUNT, "--blocks", &block_cnt, 1, 1 << 20},
		{SCENARIO_BYTES, "--size", &block_bytes, 1, 1ull << 32},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	struct scenario_requests requests = {0};
	uint64_t begin_ns, elapsed_ns;

	scenario__parse(argc, argv, options);
	blocks = scenario__malloc(block_cnt * sizeof(*blocks));
	query();
	scenario__phase(SCENARIO_MEASURED);
	begin_ns = scenario__now_ns();
	for (uint64_t i = 0; i < iterations; i++)
		query();
	elapsed_ns = scenario__now_ns() - begin_ns;
	scenario__phase(SCENARIO_TEARDOWN);
	free(blocks);
	requests.malloc_cnt = requests.free_cnt = iterations * block_cnt;
	scenario__report(&requests, elapsed_ns, "iterations_per_s", (double)iterations * 1e9 / (double)elapsed_ns);
	return 0;
}
