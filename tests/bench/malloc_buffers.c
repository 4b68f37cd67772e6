/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large-block churn: 20 buffers of 1 to 25 MiB, of which a random one is
 * replaced at each step; a page in eight of a new one is written.
 */
#include "scenarios/scenario.h"

#include <stdlib.h>
#include <unistd.h>

#define BUFFER_CNT 20

static uint64_t steps = 3000, min_bytes = 1 << 20, max_bytes = 25 << 20;

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--steps", &steps, 1, UINT32_MAX},
		{SCENARIO_BYTES, "--min-size", &min_bytes, 1, 1ull << 32},
		{SCENARIO_BYTES, "--max-size", &max_bytes, 1, 1ull << 32},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	char *buffers[BUFFER_CNT] = {NULL};
	uint64_t random = 3;

	scenario__parse(argc, argv, options);
	if (max_bytes < min_bytes)
		max_bytes = min_bytes;
	for (uint64_t i = 0; i < steps; i++) {
		char **buffer = &buffers[scenario__random(&random) % BUFFER_CNT];
		size_t bytes = min_bytes + scenario__random(&random) % (max_bytes - min_bytes + 1);

		free(*buffer);
		*buffer = scenario__malloc(bytes);
		for (size_t at = 0; at < bytes; at += 8 * page_bytes)
			(*buffer)[at] = 1;
	}
	for (int i = 0; i < BUFFER_CNT; i++)
		free(buffers[i]);
	return 0;
}
