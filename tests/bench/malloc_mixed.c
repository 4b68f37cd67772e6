/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that allocate and free blocks of mixed sizes, each its own: most are
 * small, a few tens of kilobytes; some live long. Blocks are written at both ends.
 */
#include "scenarios/scenario.h"

#include <stdlib.h>

#define SLOT_CNT 2000

static uint64_t threads = 4, operations = 4000000;

static size_t random_bytes(uint64_t dice)
{
	switch (dice % 64) {
	case 0: return 1 + (dice >> 8) % 65536;
	case 1:
	case 2:
	case 3:
	case 4: return 1 + (dice >> 8) % 8192;
	default: return 1 + (dice >> 8) % 512;
	}
}

static void work(unsigned worker)
{
	uint64_t random = worker + 1;
	char **slots = calloc(SLOT_CNT, sizeof(*slots));

	if (!slots)
		exit(1);
	for (uint64_t i = 0; i < operations; i++) {
		uint64_t dice = scenario__random(&random);
		/* Half of the work is on the first 50 slots: young blocks die first. */
		char **slot = &slots[dice >> 32 & 1 ? (dice >> 33) % 50 : (dice >> 33) % SLOT_CNT];
		size_t bytes = random_bytes(dice);

		free(*slot);
		*slot = scenario__malloc(bytes);
		(*slot)[0] = (*slot)[bytes - 1] = 1;
	}
	for (int i = 0; i < SLOT_CNT; i++)
		free(slots[i]);
	free(slots);
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--threads", &threads, 1, 4096},
		{SCENARIO_COUNT, "--operations", &operations, 1, UINT32_MAX},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	const struct scenario_work job = {.measured = work};

	scenario__parse(argc, argv, options);
	scenario__run_workers((unsigned)threads, &job);
	return 0;
}
