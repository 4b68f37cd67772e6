/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A compiler's pass stacks up large buffers and drops them again, the last one
 * first: one worker thread pushes all, then pops all, again and again. One page
 * of a buffer is written, with --touch all.
 *
 * Policy that matters: trim (with its tunable trim_threshold). Each pop leaves
 * a free top of 512 KiB more.
 *   trim off: one madvise.dontneed a pop (5000), and one fault a push;
 *   trim on:  the threshold is two buffers: one madvise.dontneed for three pops
 *             of the warm-up cycle; what went comes back in the next (48 faults),
 *             and stays: none;
 *   trim on, trim_threshold=64M: none after the warm-up cycle.
 * stack, realloc and commit must make no difference. More than 62 buffers pass
 * the end of a segment of 32 MiB; the heap keeps two empty ones, so that this
 * costs nothing more.
 */
#include "scenarios/scenario.h"

#include <stdlib.h>

static uint64_t cycles = 100, block_cnt = 50, block_bytes = 512 << 10, is_touching;
static void **blocks;

static void push_and_pop(unsigned worker)
{
	(void)worker;
	for (uint64_t i = 0; i < block_cnt; i++) {
		blocks[i] = scenario__malloc(block_bytes);
		scenario__touch(blocks[i], is_touching ? block_bytes : 1);
	}
	for (uint64_t i = block_cnt; i-- > 0;)
		free(blocks[i]);
}

static void measured(unsigned worker)
{
	for (uint64_t i = 0; i < cycles; i++)
		push_and_pop(worker);
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--cycles", &cycles, 1, UINT32_MAX},
		{SCENARIO_COUNT, "--blocks", &block_cnt, 1, 1 << 24},
		{SCENARIO_BYTES, "--size", &block_bytes, 1, 1ull << 32},
		{SCENARIO_FLAG, "--touch", &is_touching, 0, 0},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	const struct scenario_work work = {.warm_up = push_and_pop, .measured = measured};
	struct scenario_requests requests = {0};
	uint64_t elapsed_ns;

	scenario__parse(argc, argv, options);
	blocks = scenario__malloc(block_cnt * sizeof(*blocks));
	elapsed_ns = scenario__run_workers(1, &work);
	free(blocks);
	requests.malloc_cnt = requests.free_cnt = cycles * block_cnt;
	scenario__report(&requests, elapsed_ns, "cycles_per_s", (double)cycles * 1e9 / (double)elapsed_ns);
	return 0;
}
