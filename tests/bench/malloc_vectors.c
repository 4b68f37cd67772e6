/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Growing vectors: 64 at a time are appended to in turn and grow by half with
 * realloc, from 16 bytes to between 4 KiB and 4 MiB; a full one is dropped and
 * begun again.
 */
#include "scenarios/scenario.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VECTOR_CNT 64
#define APPEND_BYTES 1024

struct vector {
	char *data;
	size_t used_bytes, room_bytes, full_bytes;
};

static uint64_t appends = 8000000;

static void append(struct vector *vector, size_t bytes)
{
	size_t room_bytes = vector->room_bytes;

	while (room_bytes < vector->used_bytes + bytes)
		room_bytes = room_bytes ? room_bytes + room_bytes / 2 : 16;
	if (room_bytes != vector->room_bytes) {
		vector->data = realloc(vector->data, room_bytes);
		if (!vector->data)
			scenario__fail("realloc", errno);
		vector->room_bytes = room_bytes;
	}
	memset(vector->data + vector->used_bytes, 1, bytes);
	vector->used_bytes += bytes;
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--appends", &appends, 1, UINT32_MAX},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	struct vector vectors[VECTOR_CNT] = {0};
	uint64_t random = 5;

	scenario__parse(argc, argv, options);
	for (uint64_t i = 0; i < appends; i++) {
		uint64_t dice = scenario__random(&random);
		struct vector *vector = &vectors[dice % VECTOR_CNT];

		if (vector->used_bytes >= vector->full_bytes) {
			free(vector->data);
			memset(vector, 0, sizeof(*vector));
			/* Small ones are many, large ones few. */
			vector->full_bytes = (size_t)4096 << __builtin_ctzll(dice >> 8 | 1 << 10);
		}
		append(vector, 1 + (dice >> 20) % (vector->used_bytes < APPEND_BYTES ? 16 : APPEND_BYTES));
	}
	for (int i = 0; i < VECTOR_CNT; i++)
		free(vectors[i].data);
	return 0;
}
