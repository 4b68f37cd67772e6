/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A large block shrinks by a page and grows back, while one-page requests in
 * between take whatever single page is to be had.
 *
 * Policy that matters: realloc (with its tunables realloc_keep and grow).
 *   realloc on:  no mmap, munmap or mremap after the warm-up iteration;
 *   realloc on, realloc_keep=0: one munmap (the tail) and one growth in place
 *                an iteration; nothing is copied or moved;
 *   realloc off, grow=copy: one mmap and one munmap of the whole block and a
 *                copy of 4 MiB an iteration (1000 of each);
 *   realloc off, grow=mremap: one mremap that moves the block an iteration.
 * stack and trim must make no difference. commit must not with realloc on; with
 * it off and grow=copy it decides what becomes of the mapping that the copy
 * leaves behind, so the figures above for that case are those of policy none.
 */
#include "scenarios/scenario.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t iterations = 1000, pages = 1024, shrunk_pages = 1023, fillers = 64;
static size_t page_bytes;
static unsigned char *block;
static void **filler_blocks;

static void resize(uint64_t to_pages)
{
	unsigned char *moved = realloc(block, to_pages * page_bytes);

	if (!moved)
		scenario__fail("realloc", errno);
	block = moved;
	scenario__use(block);
}

static void iterate(void)
{
	resize(shrunk_pages);
	for (uint64_t i = 0; i < fillers; i++) {
		filler_blocks[i] = malloc(page_bytes);
		if (!filler_blocks[i])
			scenario__fail("malloc", errno);
		*(volatile char *)filler_blocks[i] = 1;
	}
	resize(pages);
	for (uint64_t i = 0; i < fillers; i++)
		free(filler_blocks[i]);
}

static unsigned char mark_of(uint64_t page)
{
	return (unsigned char)(page * 37 + 1);
}

/* Pages that every size had, so that no move may have lost them. */
static void check_marks(void)
{
	uint64_t common_pages = shrunk_pages < pages ? shrunk_pages : pages;

	for (uint64_t i = 0; i < common_pages; i++) {
		if (block[i * page_bytes] == mark_of(i))
			continue;
		fprintf(stderr, "realloc_pingpong: page %ju of the block lost its contents\n", (uintmax_t)i);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--iterations", &iterations, 1, UINT32_MAX},
		{SCENARIO_COUNT, "--pages", &pages, 1, 1 << 20},
		{SCENARIO_COUNT, "--shrunk-pages", &shrunk_pages, 1, 1 << 20},
		{SCENARIO_COUNT, "--fillers", &fillers, 0, 1 << 20},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	struct scenario_requests requests = {0};
	uint64_t begin_ns, elapsed_ns;

	scenario__parse(argc, argv, options);
	page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	filler_blocks = calloc(fillers ? fillers : 1, sizeof(*filler_blocks));
	if (!filler_blocks)
		scenario__fail("calloc", errno);
	resize(pages);
	for (uint64_t i = 0; i < pages; i++)
		block[i * page_bytes] = mark_of(i);
	iterate();
	scenario__phase(SCENARIO_MEASURED);
	begin_ns = scenario__now_ns();
	for (uint64_t i = 0; i < iterations; i++)
		iterate();
	elapsed_ns = scenario__now_ns() - begin_ns;
	scenario__phase(SCENARIO_TEARDOWN);
	check_marks();
	free(block);
	free(filler_blocks);
	requests.malloc_cnt = requests.free_cnt = iterations * fillers;
	requests.realloc_cnt = 2 * iterations;
	scenario__report(&requests, elapsed_ns, "iterations_per_s", (double)iterations * 1e9 / (double)elapsed_ns);
	return 0;
}
