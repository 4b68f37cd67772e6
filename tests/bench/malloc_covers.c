/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lists of bit sets, as in a logic minimiser: a list is built, filtered into
 * another, grown by realloc and dropped whole. Blocks of 40 to 400 bytes live
 * for one pass, tables of pointers for a few.
 */
#include "scenarios/scenario.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COVER_CNT 8

struct cover {
	unsigned char **sets;
	uint64_t set_cnt, room_cnt;
	size_t set_bytes;
};

static uint64_t passes = 60000, random_state = 11;

static void cover_add(struct cover *cover, const unsigned char *from)
{
	unsigned char *set = scenario__malloc(cover->set_bytes);

	if (from)
		memcpy(set, from, cover->set_bytes);
	else
		memset(set, (int)(cover->set_cnt & 255), cover->set_bytes);
	if (cover->set_cnt == cover->room_cnt) {
		cover->room_cnt = cover->room_cnt ? cover->room_cnt * 3 / 2 : 10;
		cover->sets = realloc(cover->sets, cover->room_cnt * sizeof(*cover->sets));
		if (!cover->sets)
			scenario__fail("realloc", errno);
	}
	cover->sets[cover->set_cnt++] = set;
}

static void cover_drop(struct cover *cover)
{
	for (uint64_t i = 0; i < cover->set_cnt; i++)
		free(cover->sets[i]);
	free(cover->sets);
	memset(cover, 0, sizeof(*cover));
}

static void make(struct cover *cover)
{
	uint64_t set_cnt = 20 + scenario__random(&random_state) % 180;

	cover->set_bytes = 40 + scenario__random(&random_state) % 91 * 4;
	while (set_cnt--)
		cover_add(cover, NULL);
}

/* What is left of a cover after every third set has been absorbed; takes its place. */
static void reduce(struct cover *cover)
{
	struct cover left = {.set_bytes = cover->set_bytes};

	for (uint64_t i = 0; i < cover->set_cnt; i++)
		if (i % 3)
			cover_add(&left, cover->sets[i]);
	cover_drop(cover);
	*cover = left;
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--passes", &passes, 1, UINT32_MAX},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	struct cover covers[COVER_CNT] = {0};

	scenario__parse(argc, argv, options);
	for (uint64_t i = 0; i < passes; i++) {
		struct cover *cover = &covers[scenario__random(&random_state) % COVER_CNT];

		if (cover->set_cnt > 20)
			reduce(cover);
		else if (cover->set_cnt)
			cover_drop(cover);
		else
			make(cover);
	}
	for (int i = 0; i < COVER_CNT; i++)
		cover_drop(&covers[i]);
	return 0;
}
