/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A tool takes an aligned buffer, leaves a small block behind for good, and
 * frees the buffer, again and again.
 *
 * Policy that matters: commit, as a buffer of 1.5 MiB is a mapping of its own,
 * and the 201 small blocks of 64 bytes fit one slab.
 *   commit off: one mmap and one munmap of 384 pages an iteration (200), and
 *               with --touch 384 faults;
 *   commit on:  none after the warm-up, if 384 pages fit the batch.
 * stack, realloc and trim must make no difference.
 * With --align of more than a page more is mapped and cut at up to two ends: up
 * to 3 munmap an iteration with commit off; with it on, none.
 *
 * The C library with a high threshold (MALLOC_MMAP_THRESHOLD_=33554432): one brk
 * up an iteration, of the buffer's size, as the next one does not quite fit where
 * the last one was. Where the small block comes to lie above the buffer, that
 * stays; where it is cut from an older buffer, one brk down follows. The net
 * growth is above 0, and the end of the heap never comes back to where it was.
 */
#include "scenarios/scenario.h"

#include <errno.h>
#include <stdlib.h>

static uint64_t iterations = 200, align = 64, buffer_bytes = 3 << 19, pinned_bytes = 64, is_touching;
static void **pinned;

static void iterate(uint64_t i)
{
	void *buffer;
	int err = posix_memalign(&buffer, align, buffer_bytes);

	if (err)
		scenario__fail("posix_memalign", err);
	scenario__touch(buffer, is_touching ? buffer_bytes : 1);
	pinned[i] = scenario__malloc(pinned_bytes);
	scenario__touch(pinned[i], pinned_bytes);
	free(buffer);
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--iterations", &iterations, 1, 1 << 24},
		{SCENARIO_BYTES, "--align", &align, sizeof(void *), 1ull << 30},
		{SCENARIO_BYTES, "--size", &buffer_bytes, 1, 1ull << 32},
		{SCENARIO_BYTES, "--pinned", &pinned_bytes, 1, 1ull << 32},
		{SCENARIO_FLAG, "--touch", &is_touching, 0, 0},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	struct scenario_requests requests = {0};
	uint64_t begin_ns, elapsed_ns;

	scenario__parse(argc, argv, options);
	pinned = scenario__malloc((iterations + 1) * sizeof(*pinned));
	scenario__touch(pinned, (iterations + 1) * sizeof(*pinned));
	iterate(iterations);
	scenario__phase(SCENARIO_MEASURED);
	begin_ns = scenario__now_ns();
	for (uint64_t i = 0; i < iterations; i++)
		iterate(i);
	elapsed_ns = scenario__now_ns() - begin_ns;
	scenario__phase(SCENARIO_TEARDOWN);
	for (uint64_t i = 0; i <= iterations; i++)
		free(pinned[i]);
	free(pinned);
	requests.malloc_cnt = 2 * iterations;
	requests.free_cnt = iterations;
	scenario__report(&requests, elapsed_ns, "iterations_per_s", (double)iterations * 1e9 / (double)elapsed_ns);
	return 0;
}
