/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An interpreter whose arenas are all full needs one more in every pass of a
 * loop, and gives it back at the end of the pass: allocate, write, free, beside
 * the arenas that stay.
 *
 * Policy that matters: trim, as an arena of 256 KiB is the top of the heap.
 *   trim off: one madvise.dontneed a pass and, as each pass writes all of the
 *             arena, 64 minor faults (5000 and 320,000);
 *   trim on:  none after the warm-up pass: the free top, 256 KiB, stays below
 *             the threshold, 2 x 256 KiB.
 * With --arena 1M, where an arena is a mapping of its own, it is commit:
 *   commit off: one mmap, one munmap and 256 faults a pass;
 *   commit on:  none after the warm-up pass, if 256 pages fit the batch.
 * stack and realloc must make no difference. An allocator that caches nothing
 * (the C library's with MALLOC_MMAP_THRESHOLD_=131072) maps and unmaps 5000
 * times, and faults 64 times a pass, or 65 with a header in front of the block.
 */
#include "scenarios/scenario.h"

#include <stdlib.h>

static uint64_t arena_bytes = 256 << 10, full_cnt = 64, passes = 5000;

static void pass(void)
{
	void *arena = scenario__malloc(arena_bytes);

	scenario__touch(arena, arena_bytes);
	free(arena);
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--passes", &passes, 1, UINT32_MAX},
		{SCENARIO_COUNT, "--full", &full_cnt, 0, 1 << 20},
		{SCENARIO_BYTES, "--arena", &arena_bytes, 1, 1ull << 32},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	struct scenario_requests requests = {0};
	uint64_t begin_ns, elapsed_ns;
	void **full;

	scenario__parse(argc, argv, options);
	full = scenario__malloc((full_cnt + 1) * sizeof(*full));
	for (uint64_t i = 0; i < full_cnt; i++) {
		full[i] = scenario__malloc(arena_bytes);
		scenario__touch(full[i], arena_bytes);
	}
	pass();
	scenario__phase(SCENARIO_MEASURED);
	begin_ns = scenario__now_ns();
	for (uint64_t i = 0; i < passes; i++)
		pass();
	elapsed_ns = scenario__now_ns() - begin_ns;
	scenario__phase(SCENARIO_TEARDOWN);
	for (uint64_t i = 0; i < full_cnt; i++)
		free(full[i]);
	free(full);
	requests.malloc_cnt = requests.free_cnt = passes;
	scenario__report(&requests, elapsed_ns, "passes_per_s", (double)passes * 1e9 / (double)elapsed_ns);
	return 0;
}
