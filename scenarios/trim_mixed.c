/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One worker thread allocates buffers of 0 to 57 pages in turn; every second
 * one is freed at once, the others are kept and freed at the end, the last one
 * first, so that the heap's top grows free step by step.
 *
 * Policy that matters: trim.
 *   trim off: nearly one madvise.dontneed a free;
 *   trim on:  at least 6.7 times fewer, for the same requests.
 * stack, realloc and commit must make no difference: every buffer is below
 * 1 MiB.
 */
#include "scenarios/scenario.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t blocks = 1024, sizes = 58;
static size_t page_bytes;
static void **kept;

static void *allocate(uint64_t pages)
{
	void *block = malloc(pages * page_bytes);

	/* malloc(0) may be NULL by the standard. */
	if (!block && pages)
		scenario__fail("malloc", errno);
	scenario__use(block);
	return block;
}

static void warm_up(unsigned worker)
{
	(void)worker;
	free(allocate(1));
}

static void measured(unsigned worker)
{
	(void)worker;
	for (uint64_t i = 0; i < blocks; i++) {
		void *block = allocate(i % sizes);

		if (i % 2)
			free(block);
		else
			kept[i / 2] = block;
	}
	for (uint64_t i = (blocks + 1) / 2; i-- > 0;)
		free(kept[i]);
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--blocks", &blocks, 1, 1 << 24},
		{SCENARIO_COUNT, "--sizes", &sizes, 1, 1 << 16},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	const struct scenario_work work = {.warm_up = warm_up, .measured = measured};
	struct scenario_requests requests = {0};
	uint64_t elapsed_ns;

	scenario__parse(argc, argv, options);
	page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	kept = calloc((blocks + 1) / 2, sizeof(*kept));
	if (!kept)
		scenario__fail("calloc", errno);
	elapsed_ns = scenario__run_workers(1, &work);
	free(kept);
	requests.malloc_cnt = requests.free_cnt = blocks;
	scenario__report(&requests, elapsed_ns, "blocks_per_s", (double)blocks * 1e9 / (double)elapsed_ns);
	return 0;
}
