/* SPDX-License-Identifier: BSD-2-Clause */
/* Comparisons of made-up runs: what is the same, what is not, and by how much. */
#include <linux/types.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/compare.h"
#include "cli/compare_config.h"

static struct profile *new_profile(void)
{
	struct profile *profile = profile__new();

	assert_non_null(profile);
	profile->has_trace = true;
	profile->phases_seen = 1u << AT_PHASE_STARTUP | 1u << AT_PHASE_MEASURED;
	return profile;
}

static struct class_stat *measured(struct profile *profile, enum at_class class)
{
	return &profile->phases[AT_PHASE_MEASURED].classes[class];
}

/* Sum of 12 uniform numbers: near enough to normal, mean 0, standard deviation 1. */
static double noise(struct stats_rng *rng)
{
	double sum = -6;

	for (int i = 0; i < 12; i++)
		sum += (double)(stats__random(rng) >> 11) / 9007199254740992.0;
	return sum;
}

/* Two configurations, and blocks that differ much more than the runs in them. */
static struct comparison *make_noisy(size_t block_cnt, double factor, uint64_t seed)
{
	struct comparison *comparison = compare__new(2, 0, true);
	struct profile *profile = new_profile();
	struct stats_rng rng;

	stats__seed(&rng, seed);
	for (size_t block = 0; block < block_cnt; block++)
		for (size_t config = 0; config < 2; config++) {
			double wall = 20e6 * exp(0.1 * noise(&rng));

			profile->wall_ns = (uint64_t)(config ? wall * factor : wall);
			assert_int_equal(compare__add(comparison, block, config, profile), 0);
		}
	assert_int_equal(compare__finish(comparison, block_cnt, seed), 0);
	profile__free(profile);
	return comparison;
}

/* A/A: of 100 comparisons of a configuration with itself, at least 93 say so. */
static void test_same(void **state)
{
	int same_cnt = 0, still_cnt = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 100; seed++) {
		struct comparison *comparison = make_noisy(10, 1, seed);

		same_cnt += compare__stat(comparison, 1, COMPARE_WALL)->is_same;
		still_cnt += !compare__direction(comparison, 1, COMPARE_WALL);
		compare__free(comparison);
	}
	print_message("# %d of 100 are ~, %d have no direction\n", same_cnt, still_cnt);
	assert_in_range(same_cnt, 93, 100);
	assert_in_range(still_cnt, same_cnt, 100);
}

/* A difference that is there is seen: 20 % under 10 % noise. */
static void test_different(void **state)
{
	int seen_cnt = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 50; seed++) {
		struct comparison *comparison = make_noisy(20, 1.2, seed);
		const struct compare_stat *stat = compare__stat(comparison, 1, COMPARE_WALL);

		assert_true(stat->has_ratio);
		assert_true(stat->ratio.low <= stat->ratio.median && stat->ratio.median <= stat->ratio.high);
		seen_cnt += compare__direction(comparison, 1, COMPARE_WALL) > 0;
		compare__free(comparison);
	}
	assert_in_range(seen_cnt, 45, 50);
}

/* Exact counts under two bases: 1021 madvise and 1021 faults more in one, 13 munmap more in the other. */
static struct comparison *make_counts(size_t base)
{
	static const uint64_t dontneed[] = {1021, 0}, unmapped[] = {0, 13};
	struct comparison *comparison = compare__new(2, base, true);
	struct profile *profile = new_profile();

	for (size_t block = 0; block < 5; block++)
		for (size_t config = 0; config < 2; config++) {
			measured(profile, AT_CLASS_MADVISE_DONTNEED)->call_cnt = dontneed[config];
			measured(profile, AT_CLASS_MADVISE_DONTNEED)->sum_ns = 1000 * dontneed[config];
			measured(profile, AT_CLASS_MUNMAP)->call_cnt = unmapped[config];
			measured(profile, AT_CLASS_MADVISE_PHASE)->call_cnt = 2; /* ours: in no sum */
			measured(profile, AT_CLASS_FAULT_MINOR)->sum_ns = 77;    /* not measured: has_faults is false */
			profile->phases[AT_PHASE_STARTUP].classes[AT_CLASS_MUNMAP].call_cnt = 99;
			assert_int_equal(compare__add(comparison, block, config, profile), 0);
		}
	assert_int_equal(compare__finish(comparison, 5, 1), 0);
	profile__free(profile);
	return comparison;
}

static void test_counts(void **state)
{
	enum compare_figure dontneed = COMPARE_CLASS_CALLS + AT_CLASS_MADVISE_DONTNEED;
	enum compare_figure unmapped = COMPARE_CLASS_CALLS + AT_CLASS_MUNMAP;
	struct comparison *comparison = make_counts(0);
	char buf[COMPARE_NAME_BYTES];
	size_t order[2];

	(void)state;
	assert_true(compare__stat(comparison, 0, COMPARE_CALLS)->value.median == 1021);
	assert_true(compare__stat(comparison, 1, COMPARE_CALLS)->value.median == 13);
	assert_true(compare__stat(comparison, 0, COMPARE_KERNEL)->value.median == 1021000);
	assert_true(compare__stat(comparison, 1, dontneed)->ratio.median == 0);
	assert_int_equal(compare__direction(comparison, 1, dontneed), -1);
	assert_int_equal(compare__direction(comparison, 1, unmapped), 1);
	assert_false(compare__stat(comparison, 1, unmapped)->has_ratio); /* from 0 */
	assert_true(compare__stat(comparison, 1, unmapped)->difference.median == 13);
	assert_false(compare__occurs(comparison, COMPARE_CLASS_CALLS + AT_CLASS_MADVISE_PHASE));
	assert_false(compare__occurs(comparison, COMPARE_CLASS_CALLS + AT_CLASS_FAULT_MINOR));
	assert_true(compare__is_constant(comparison, COMPARE_CLASS_CALLS + AT_CLASS_BRK_GROW));
	compare__rank(comparison, COMPARE_CALLS, order);
	assert_int_equal(order[0], 1);
	assert_string_equal(compare__key(dontneed, buf), "calls.madvise.dontneed");
	assert_string_equal(compare__key(COMPARE_MAX_RSS, buf), "max_rss_bytes");
	compare__free(comparison);
}

static void test_base_changes_signs(void **state)
{
	enum compare_figure unmapped = COMPARE_CLASS_CALLS + AT_CLASS_MUNMAP;
	struct comparison *comparison = make_counts(1);

	(void)state;
	assert_int_equal(compare__direction(comparison, 0, COMPARE_CALLS), 1);
	assert_int_equal(compare__direction(comparison, 0, unmapped), -1);
	assert_int_equal(compare__direction(comparison, 1, COMPARE_CALLS), 0);
	assert_true(compare__stat(comparison, 0, COMPARE_CALLS)->difference.median == 1008);
	compare__free(comparison);
}

/* An unfinished block leaves no trace. */
static void test_unfinished_block(void **state)
{
	struct comparison *comparison = compare__new(2, 0, true);
	struct profile *profile = new_profile();

	(void)state;
	for (size_t run = 0; run < 7; run++) {
		profile->user_ns = run < 6 ? 1000 : 999999;
		assert_int_equal(compare__add(comparison, run / 2, run % 2, profile), 0);
	}
	assert_int_equal(compare__finish(comparison, 3, 1), 0);
	assert_true(compare__stat(comparison, 0, COMPARE_USER)->max == 1000);
	profile__free(profile);
	compare__free(comparison);
}

/* calls = 1000 - 600 a - 100 b + 50 ab: effects are known by hand. */
static void test_effects(void **state)
{
	struct comparison *comparison = compare__new(16, 0, true);
	struct profile *profile = new_profile();
	struct stats_interval effect;

	(void)state;
	for (size_t block = 0; block < 3; block++)
		for (size_t config = 0; config < 16; config++) {
			int a = !!(config & 1), b = !!(config & 8);

			measured(profile, AT_CLASS_MUNMAP)->call_cnt = 1000 - 600 * a - 100 * b + 50 * a * b;
			assert_int_equal(compare__add(comparison, block, config, profile), 0);
		}
	assert_int_equal(compare__finish(comparison, 3, 1), 0);
	assert_int_equal(compare__effect(comparison, COMPARE_CALLS, 1, 1, &effect), 0);
	assert_true(effect.median == -575 && effect.low == -575 && effect.high == -575);
	assert_int_equal(compare__effect(comparison, COMPARE_CALLS, 8, 8, &effect), 0);
	assert_true(effect.median == -75);
	assert_int_equal(compare__effect(comparison, COMPARE_CALLS, 1, 8, &effect), 0);
	assert_true(effect.median == 25);
	assert_int_equal(compare__effect(comparison, COMPARE_CALLS, 2, 4, &effect), 0);
	assert_true(effect.median == 0);
	profile__free(profile);
	compare__free(comparison);
}

/* Values of --config have commas of their own. */
static void test_config_text(void **state)
{
	struct compare_configs configs = {.cnt = 0};
	size_t index;

	(void)state;
	assert_int_equal(compare_config__add_text(
				 &configs, "mine:policy=trim,commit,tune=realloc_keep=0,grow=copy,env=A=1,2,env=B="),
			 0);
	assert_string_equal(configs.all[0].name, "mine");
	assert_string_equal(configs.all[0].policy, "trim,commit");
	assert_string_equal(configs.all[0].tune, "realloc_keep=0,grow=copy");
	assert_string_equal(configs.all[0].env[0], "A=1,2");
	assert_string_equal(configs.all[0].env[1], "B=");
	assert_null(configs.all[0].env[2]);
	assert_int_equal(compare_config__add_allocator(&configs, "/usr/lib/libx.so"), 0);
	assert_int_equal(compare_config__find(&configs, "libx.so", &index), 0);
	assert_int_equal(index, 1);
	compare_config__free(&configs);
	assert_int_equal(compare_config__add_matrix(&configs), 0);
	assert_int_equal(configs.cnt, 16);
	assert_string_equal(configs.all[0].name, "none");
	compare_config__free(&configs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same),
		cmocka_unit_test(test_different),
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_base_changes_signs),
		cmocka_unit_test(test_unfinished_block),
		cmocka_unit_test(test_effects),
		cmocka_unit_test(test_config_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
