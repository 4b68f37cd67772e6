/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Short-lived numbers of arbitrary length, as in a program that factors: each
 * step makes a few results of 16 to 128 bytes and drops those before.
 */
#include "scenarios/scenario.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER_CNT 16

struct number {
	uint32_t digit_cnt;
	uint32_t digits[];
};

static uint64_t steps = 20000000;

static struct number *number_new(uint32_t digit_cnt)
{
	struct number *number = scenario__malloc(sizeof(*number) + digit_cnt * sizeof(uint32_t));

	number->digit_cnt = digit_cnt;
	number->digits[0] = number->digits[digit_cnt - 1] = digit_cnt;
	return number;
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--steps", &steps, 1, UINT32_MAX},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	struct number *live[NUMBER_CNT] = {NULL};
	uint64_t random = 7;

	scenario__parse(argc, argv, options);
	for (uint64_t i = 0; i < steps; i++) {
		uint64_t dice = scenario__random(&random);
		struct number **slot = &live[dice % NUMBER_CNT];
		struct number *quotient = number_new(1 + (uint32_t)(dice >> 8) % 28);
		struct number *rest = number_new(1 + (uint32_t)(dice >> 16) % 12);

		quotient->digits[0] += rest->digits[0];
		free(rest);
		free(*slot);
		*slot = quotient;
	}
	for (int i = 0; i < NUMBER_CNT; i++)
		free(live[i]);
	return 0;
}
