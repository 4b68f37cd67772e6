/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One worker thread allocates and frees the same medium buffer again and again.
 *
 * Policy that matters: trim. The buffer is alone at the top of the thread's
 * heap, so each free leaves a free top of its size.
 *   trim off: one madvise.dontneed an iteration (1024 +- 2), and with --touch
 *             as many minor faults as the buffer has pages (48) an iteration;
 *   trim on:  at most 2 madvise.dontneed, and no fault after the first
 *             iteration: the top stays below max(128 KiB, 2 x 192 KiB).
 * stack, realloc and commit must make no difference as long as the buffer is
 * below the size from which blocks are mappings of their own (1 MiB in the
 * bundled allocator).
 */
#include "scenarios/scenario.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t iterations = 1024, pages = 48, is_touching;
static size_t page_bytes;

static void allocate_and_free(void)
{
	char *buffer = malloc(pages * page_bytes);

	if (!buffer)
		scenario__fail("malloc", errno);
	scenario__use(buffer);
	if (is_touching)
		for (uint64_t i = 0; i < pages; i++)
			*(volatile char *)&buffer[i * page_bytes] = 1;
	free(buffer);
}

static void warm_up(unsigned worker)
{
	(void)worker;
	allocate_and_free();
}

static void measured(unsigned worker)
{
	(void)worker;
	for (uint64_t i = 0; i < iterations; i++)
		allocate_and_free();
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--iterations", &iterations, 1, UINT32_MAX},
		{SCENARIO_COUNT, "--pages", &pages, 1, 1 << 20},
		{SCENARIO_FLAG, "--touch", &is_touching, 0, 0},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	const struct scenario_work work = {.warm_up = warm_up, .measured = measured};
	struct scenario_requests requests = {0};
	uint64_t elapsed_ns;

	scenario__parse(argc, argv, options);
	page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	elapsed_ns = scenario__run_workers(1, &work);
	requests.malloc_cnt = requests.free_cnt = iterations;
	scenario__report(&requests, elapsed_ns, "iterations_per_s", (double)iterations * 1e9 / (double)elapsed_ns);
	return 0;
}
