/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A cache with a limit in bytes, whose entries' sizes drift from small to large
 * and back: what one phase leaves behind does not fit the next, so peak memory
 * shows what fragmentation costs.
 */
#include "scenarios/scenario.h"

#include <stdlib.h>
#include <string.h>

#define ENTRY_CNT ((uint64_t)1 << 20)
#define LIMIT_BYTES ((size_t)64 << 20)

struct entry {
	char *data;
	size_t bytes;
};

static uint64_t inserts = 4000000;

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--inserts", &inserts, 1, UINT32_MAX},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	struct entry *entries = calloc(ENTRY_CNT, sizeof(*entries));
	uint64_t random = 13, live_bytes = 0, oldest = 0;

	scenario__parse(argc, argv, options);
	if (!entries)
		return 1;
	for (uint64_t i = 0; i < inserts; i++) {
		struct entry *entry = &entries[i % ENTRY_CNT];
		/* Eight phases: around 64, 128 ... 1024 bytes and back. */
		uint64_t phase = i * 8 / inserts, around_bytes = (uint64_t)64 << (phase < 4 ? phase : 8 - phase);

		while (oldest < i && (live_bytes > LIMIT_BYTES || i - oldest == ENTRY_CNT)) {
			struct entry *old = &entries[oldest++ % ENTRY_CNT];

			live_bytes -= old->bytes;
			free(old->data);
			old->data = NULL;
		}
		/* One in 16 is used again and outlives its neighbours. */
		if (i % 16 == 0 && oldest < i) {
			struct entry *old = &entries[oldest++ % ENTRY_CNT];

			*entry = *old;
			old->data = NULL;
			old->bytes = 0;
			continue;
		}
		entry->bytes = around_bytes / 2 + scenario__random(&random) % around_bytes;
		entry->data = scenario__malloc(entry->bytes);
		memset(entry->data, 1, entry->bytes);
		live_bytes += entry->bytes;
	}
	for (uint64_t i = 0; i < ENTRY_CNT; i++)
		free(entries[i].data);
	free(entries);
	return 0;
}
