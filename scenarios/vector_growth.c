/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two vectors grow in turn by steps of 1 MiB, from 1 MiB to 16 MiB each, by
 * realloc; what has been added is written. With --double each step doubles, as
 * tables do; with --fresh it goes to a fresh block (malloc, copy, free), as a
 * table that is hashed anew.
 *
 * Policy that matters: none; of the tunables grow. 30 steps:
 *   grow=mremap: one mremap a step (30), which may move and never fails;
 *                7680 faults, one for each page added;
 *   grow=copy:   one mremap a step as well, to grow in place; where that fails
 *                (the other vector is in the way) one mmap and a copy follow,
 *                and, where commit is off, one munmap.
 * stack, realloc (nothing shrinks) and trim must make no difference; commit must
 * not with grow=mremap. With grow=copy the old blocks are held, grown into when
 * they lie behind a vector, and cut for it otherwise: no munmap, and no more
 * copies than without.
 *
 * --double --fresh: 4 steps a vector, to 2, 4, 8 and 16 MiB: one mmap a step (8)
 * and faults for all sizes, 30 MiB a vector (15,360 in all), where 15 would do.
 * commit off: 8 munmap, on: none, as long as the freed 30 MiB fit the batch.
 */
#include "scenarios/scenario.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t from_bytes = 1 << 20, to_bytes = 16 << 20, step_bytes = 1 << 20, is_doubling, is_fresh;
static char *vectors[2];

static char *move(char *old, uint64_t old_bytes, uint64_t bytes)
{
	char *moved = scenario__malloc(bytes);

	memcpy(moved, old, old_bytes);
	free(old);
	return moved;
}

static void grow(char **vector, uint64_t old_bytes, uint64_t bytes)
{
	char *moved = is_fresh ? move(*vector, old_bytes, bytes) : realloc(*vector, bytes);

	if (!moved)
		scenario__fail("realloc", errno);
	scenario__touch(moved + old_bytes, bytes - old_bytes);
	scenario__use(moved);
	*vector = moved;
}

/* Returns how often both vectors grew. */
static uint64_t grow_both(void)
{
	uint64_t bytes = from_bytes, grown_cnt = 0;

	for (;; grown_cnt++) {
		uint64_t more_bytes = is_doubling ? bytes : step_bytes;

		if (more_bytes > to_bytes - bytes)
			return grown_cnt;
		grow(&vectors[0], bytes, bytes + more_bytes);
		grow(&vectors[1], bytes, bytes + more_bytes);
		bytes += more_bytes;
	}
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_BYTES, "--from", &from_bytes, 1, 1ull << 40},
		{SCENARIO_BYTES, "--to", &to_bytes, 1, 1ull << 40},
		{SCENARIO_BYTES, "--step", &step_bytes, 1, 1ull << 40},
		{SCENARIO_FLAG, "--double", &is_doubling, 0, 0},
		{SCENARIO_FLAG, "--fresh", &is_fresh, 0, 0},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	struct scenario_requests requests = {0};
	uint64_t begin_ns, elapsed_ns, grown_cnt;

	scenario__parse(argc, argv, options);
	if (from_bytes > to_bytes)
		from_bytes = to_bytes;
	for (int i = 0; i < 2; i++) {
		vectors[i] = scenario__malloc(from_bytes);
		scenario__touch(vectors[i], from_bytes);
	}
	scenario__phase(SCENARIO_MEASURED);
	begin_ns = scenario__now_ns();
	grown_cnt = 2 * grow_both();
	elapsed_ns = scenario__now_ns() - begin_ns;
	scenario__phase(SCENARIO_TEARDOWN);
	free(vectors[0]);
	free(vectors[1]);
	if (is_fresh)
		requests.malloc_cnt = requests.free_cnt = grown_cnt;
	else
		requests.realloc_cnt = grown_cnt;
	scenario__report(&requests, elapsed_ns, "steps_per_s", (double)grown_cnt * 1e9 / (double)elapsed_ns);
	return 0;
}
