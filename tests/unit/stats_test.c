/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Statistics against published tables, and against scipy 1.10.1 (numpy), whose
 * values stand beside the call that gave them.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cli/stats.h"

#define CNT(array) (sizeof(array) / sizeof((array)[0]))

static void is_near(double expected, double actual)
{
	if (!(fabs(expected - actual) <= 1e-9 * fmax(1, fabs(expected))))
		fail_msg("expected %.12g, got %.12g", expected, actual);
}

static void test_generator(void **state)
{
	/* The first numbers of xoshiro256** from the state 1, 2, 3, 4, as its reference implementation gives them. */
	static const uint64_t expected[] = {11520, 0, 1509978240, 1215971899390074240};
	struct stats_rng rng = {.word = {1, 2, 3, 4}};
	uint64_t seen[7] = {0};

	(void)state;
	for (size_t i = 0; i < CNT(expected); i++)
		assert_int_equal(stats__random(&rng), expected[i]);
	stats__seed(&rng, 42);
	for (int i = 0; i < 70000; i++)
		seen[stats__random_below(&rng, 7)]++;
	for (int i = 0; i < 7; i++)
		assert_in_range(seen[i], 9600, 10400); /* 10,000, and over 4 standard deviations of it */
}

static const double ten[] = {2.1, 3.4, 1.9, 8.8, 2.7, 2.2, 3.0, 2.5, 2.4, 2.9};

static void test_order_statistics(void **state)
{
	static const double sorted[] = {1.9, 2.1, 2.2, 2.4, 2.5, 2.7, 2.9, 3.0, 3.4, 8.8};
	double value;

	(void)state;
	assert_int_equal(stats__median(ten, 10, &value), 0);
	is_near(2.6, value); /* numpy.median */
	assert_int_equal(stats__median(ten, 1, &value), 0);
	is_near(2.1, value);
	assert_int_equal(stats__median(ten, 3, &value), 0);
	is_near(2.1, value);
	is_near(2.25, stats__quantile_sorted(sorted, 10, 0.25)); /* numpy.quantile */
	is_near(2.975, stats__quantile_sorted(sorted, 10, 0.75));
	is_near(8.8, stats__quantile_sorted(sorted, 10, 1));
	assert_int_equal(stats__upper_fence(ten, 10, &value), 0);
	is_near(2.975 + 1.5 * 0.725, value);
	is_near(2.86311731415, stats__geometric_mean(ten, 10)); /* scipy.stats.gmean */
	assert_true(isnan(stats__geometric_mean((double[]){1, 0}, 2)));
	assert_int_equal(stats__spread(ten, 10, &value), 0);
	is_near(0.4 / 0.6745 / 2.6, value); /* scipy.stats.median_abs_deviation: 0.4 */
}

/*
 * scipy.stats.bootstrap((x,), numpy.median, n_resamples=200000,
 * method='percentile', random_state=1): the limits are 2.2 and 3.15, 9.25 and 12.
 * They fall on order statistics, or halfway between two: with 2000 resamples it
 * may be a neighbouring one.
 */
static void test_interval(void **state)
{
	static const double odd[] = {12, 7.5, 9.25, 14, 11, 8, 10.5, 13.25, 9.75, 12.5, 10, 11.75, 8.5};
	struct stats_interval interval;
	struct stats_rng rng, before;

	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		stats__seed(&rng, seed);
		assert_int_equal(stats__interval(ten, 10, &rng, &interval), 0);
		is_near(2.6, interval.median);
		assert_true(interval.low >= 2.15 && interval.low <= 2.25);
		assert_true(interval.high >= 3.0 && interval.high <= 3.2);
		assert_int_equal(stats__interval(odd, CNT(odd), &rng, &interval), 0);
		is_near(10.5, interval.median);
		assert_true(interval.low >= 8.5 && interval.low <= 9.75);
		assert_true(interval.high >= 11.75 && interval.high <= 12.5);
	}
	before = rng;
	assert_int_equal(stats__interval((double[]){7, 7, 7}, 3, &rng, &interval), 0);
	assert_true(interval.low == 7 && interval.median == 7 && interval.high == 7);
	assert_memory_equal(&before, &rng, sizeof(rng));
}

/* Of 1,000 samples of 25 from a distribution with median 0, the interval should hold it in about 950. */
static void test_interval_coverage(void **state)
{
	struct stats_interval interval;
	struct stats_rng rng;
	int hit_cnt = 0;

	(void)state;
	stats__seed(&rng, 7);
	for (int i = 0; i < 1000; i++) {
		double sample[25];

		for (int j = 0; j < 25; j++) {
			double uniform = ((double)(stats__random(&rng) >> 11) + 0.5) / 9007199254740992.0;

			sample[j] = log(uniform / (1 - uniform)); /* logistic */
		}
		assert_int_equal(stats__interval(sample, 25, &rng, &interval), 0);
		hit_cnt += interval.low <= 0 && interval.high >= 0;
	}
	assert_in_range(hit_cnt, 925, 975);
}

static void test_ratio(void **state)
{
	struct stats_interval interval;
	struct stats_rng rng;

	(void)state;
	stats__seed(&rng, 1);
	/* Paired: the ratios are 1.5 throughout, whatever the blocks did to both. */
	assert_int_equal(stats__ratio((double[]){1.5, 3, 150}, (double[]){1, 2, 100}, 3, &rng, &interval), 0);
	assert_true(interval.low == 1.5 && interval.median == 1.5 && interval.high == 1.5);
	assert_int_equal(stats__ratio((double[]){0, 0}, (double[]){0, 0}, 2, &rng, &interval), 0);
	assert_true(interval.median == 1);
	assert_int_equal(stats__ratio((double[]){0, 0}, (double[]){8, 9}, 2, &rng, &interval), 0);
	assert_true(interval.median == 0);
	assert_int_equal(stats__ratio((double[]){1, 1}, (double[]){1, 0}, 2, &rng, &interval), -ERANGE);
}

struct pair {
	double a[21], b[21];
	size_t a_cnt, b_cnt;
	double u, p;
};

/* scipy.stats.mannwhitneyu(a, b, alternative='two-sided', method=...): 'exact' without ties, else 'asymptotic'. */
static const struct pair pairs[] = {
	{{19, 22, 16, 29, 24}, {20, 11, 17, 12}, 5, 4, 17, 0.111111111111},
	{{1.5, 2.5, 3.5}, {4, 5, 6}, 3, 3, 0, 0.1},
	{{3, 1, 4, 15, 9, 2, 6}, {5, 35, 8, 97, 93, 23}, 7, 6, 5, 0.0221445221445},
	{{10.1, 10.4, 9.8, 10.0, 10.2, 9.9, 10.3, 10.6, 9.7, 10.5},
	 {10.35, 10.8, 11.0, 10.45, 10.9, 10.15, 11.2, 10.7, 10.25, 11.1},
	 10,
	 10,
	 14,
	 0.00519604234775},
	{{1, 2, 2, 3, 3, 3, 4, 7}, {2, 3, 4, 4, 5, 5, 6, 8}, 8, 8, 15.5, 0.0883222407241},
	{{1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024}, {0}, 10, 10, 100, 1.59379116881e-05},
	{{5, 5, 5, 5}, {5, 5, 5, 5}, 4, 4, 8, 1},
};

static void test_mann_whitney(void **state)
{
	double a[21], b[21], u, p;

	(void)state;
	for (size_t i = 0; i < CNT(pairs); i++) {
		const struct pair *pair = &pairs[i];

		assert_int_equal(stats__mann_whitney(pair->a, pair->a_cnt, pair->b, pair->b_cnt, &u, &p), 0);
		is_near(pair->u, u);
		is_near(pair->p, p);
		assert_int_equal(stats__mann_whitney(pair->b, pair->b_cnt, pair->a, pair->a_cnt, &u, &p), 0);
		is_near((double)pair->a_cnt * (double)pair->b_cnt - pair->u, u);
		is_near(pair->p, p);
	}
	/* Beyond the exact sizes: x = 1..21, y = 1.5 x + 0.25, method='asymptotic'. */
	for (int i = 0; i < 21; i++) {
		a[i] = i + 1;
		b[i] = 1.5 * (i + 1) + 0.25;
	}
	assert_int_equal(stats__mann_whitney(a, 21, b, 21, &u, &p), 0);
	is_near(140, u);
	is_near(0.0441715518852, p);
}

/* a has n values, b has m, without ties, and U is exactly u: values of a are moved up one place at a time. */
static double p_at(size_t n, size_t m, size_t u)
{
	double a[20], b[20], seen_u, p;
	size_t left = u;

	for (size_t j = 0; j < m; j++)
		b[j] = (double)(j + 1);
	for (size_t i = 0; i < n; i++) {
		size_t above = left < m ? left : m; /* this many of b are below it */

		left -= above;
		a[i] = (double)above + 0.5 + (double)i / 100;
	}
	assert_int_equal(stats__mann_whitney(a, n, b, m, &seen_u, &p), 0);
	assert_true(seen_u == (double)u);
	return p;
}

/* Critical values of U, two-sided, alpha = 0.05, as statistics textbooks print them: the largest significant U. */
static void test_critical_values(void **state)
{
	static const struct {
		size_t n, m, critical;
	} table[] = {
		{4, 4, 0},  {5, 5, 2},   {5, 8, 6},    {6, 6, 5},    {7, 7, 8},    {8, 8, 13},
		{9, 9, 17}, {8, 10, 17}, {10, 10, 23}, {12, 12, 37}, {15, 15, 64}, {20, 20, 127},
	};

	(void)state;
	for (size_t i = 0; i < CNT(table); i++) {
		assert_true(p_at(table[i].n, table[i].m, table[i].critical) <= 0.05);
		assert_true(p_at(table[i].n, table[i].m, table[i].critical + 1) > 0.05);
	}
	assert_true(p_at(3, 3, 0) > 0.05); /* no value is significant */
}

static void test_outliers(void **state)
{
	bool is_outlier[10];
	size_t cnt;

	(void)state;
	assert_int_equal(stats__outliers(ten, 10, is_outlier, &cnt), 0);
	assert_int_equal(cnt, 1);
	assert_true(is_outlier[3]);
	/* MAD 0: one in twelve is far from eleven equal ones, and no outlier is among equal values. */
	assert_int_equal(stats__outliers((double[]){5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 90}, 12, NULL, &cnt), 0);
	assert_int_equal(cnt, 1);
	assert_int_equal(stats__outliers((double[]){3, 3, 3, 3}, 4, NULL, &cnt), 0);
	assert_int_equal(cnt, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_generator),       cmocka_unit_test(test_order_statistics),
		cmocka_unit_test(test_interval),        cmocka_unit_test(test_interval_coverage),
		cmocka_unit_test(test_ratio),           cmocka_unit_test(test_mann_whitney),
		cmocka_unit_test(test_critical_values), cmocka_unit_test(test_outliers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
