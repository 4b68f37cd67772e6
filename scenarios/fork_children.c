/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A preforking server: the parent's heap is full of holes, freed blocks between
 * blocks in use; then it forks children that allocate and write blocks of the
 * same size. With --trim the parent calls malloc_trim(0) once before it forks.
 *
 * No policy matters: holes are not at the top of the heap, and nothing is large.
 * By default there are 200 holes of 16 pages, and 8 children that take 20 of
 * them each. No child makes a call for its blocks, and each has 320 minor faults
 * for them, with and without --trim: without, to copy pages whose contents
 * nobody needs, with it, to get empty ones; some more are for what else a child
 * writes first. --trim adds a burst of madvise.dontneed in the parent, one a
 * hole (200). Under the bundled allocator, when it is traced, each child makes
 * one mmap.file: its counters.
 */
#include "scenarios/scenario.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t children = 8, hole_cnt = 200, block_bytes = 64 << 10, child_block_cnt = 20, is_trimming;
static void **blocks; /* 2 x hole_cnt */

static void make_holes(void)
{
	blocks = scenario__malloc(2 * hole_cnt * sizeof(*blocks));
	for (uint64_t i = 0; i < 2 * hole_cnt; i++) {
		blocks[i] = scenario__malloc(block_bytes);
		scenario__touch(blocks[i], block_bytes);
	}
	for (uint64_t i = 0; i < 2 * hole_cnt; i += 2)
		free(blocks[i]);
}

/* Ends the process, and leaves its blocks to the kernel. */
static _Noreturn void run_child(void)
{
	for (uint64_t i = 0; i < child_block_cnt; i++)
		scenario__touch(scenario__malloc(block_bytes), block_bytes);
	_exit(0);
}

static void run_children(void)
{
	int status, failed_cnt = 0;

	for (uint64_t i = 0; i < children; i++) {
		pid_t child = fork();

		if (child < 0)
			scenario__fail("fork", errno);
		if (child == 0)
			run_child();
	}
	for (uint64_t i = 0; i < children; i++)
		if (wait(&status) < 0 || status != 0)
			failed_cnt++;
	if (failed_cnt)
		scenario__fail("a child process failed", ECHILD);
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--children", &children, 1, 4096},
		{SCENARIO_COUNT, "--holes", &hole_cnt, 1, 1 << 24},
		{SCENARIO_BYTES, "--size", &block_bytes, 1, 1ull << 32},
		{SCENARIO_COUNT, "--child-blocks", &child_block_cnt, 0, 1 << 24},
		{SCENARIO_FLAG, "--trim", &is_trimming, 0, 0},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	struct scenario_requests requests = {0};
	uint64_t begin_ns, elapsed_ns;

	scenario__parse(argc, argv, options);
	make_holes();
	scenario__phase(SCENARIO_MEASURED);
	begin_ns = scenario__now_ns();
	if (is_trimming)
		malloc_trim(0);
	run_children();
	elapsed_ns = scenario__now_ns() - begin_ns;
	scenario__phase(SCENARIO_TEARDOWN);
	for (uint64_t i = 1; i < 2 * hole_cnt; i += 2)
		free(blocks[i]);
	free(blocks);
	requests.malloc_cnt = children * child_block_cnt;
	scenario__report(&requests, elapsed_ns, "children_per_s", (double)children * 1e9 / (double)elapsed_ns);
	return 0;
}
