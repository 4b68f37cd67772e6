/* SPDX-License-Identifier: BSD-2-Clause */
/* Statistics of small samples; see stats.h. */
#include "cli/stats.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t rotate_left(uint64_t value, int bits)
{
	return value << bits | value >> (64 - bits);
}

void stats__seed(struct stats_rng *rng, uint64_t seed)
{
	for (int i = 0; i < 4; i++) {
		uint64_t mixed = seed += 0x9e3779b97f4a7c15ull;

		mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ull;
		mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebull;
		rng->word[i] = mixed ^ mixed >> 31;
	}
}

uint64_t stats__random(struct stats_rng *rng)
{
	uint64_t *word = rng->word;
	uint64_t result = rotate_left(word[1] * 5, 7) * 9, shifted = word[1] << 17;

	word[2] ^= word[0];
	word[3] ^= word[1];
	word[1] ^= word[2];
	word[0] ^= word[3];
	word[2] ^= shifted;
	word[3] = rotate_left(word[3], 45);
	return result;
}

uint64_t stats__random_below(struct stats_rng *rng, uint64_t limit)
{
	/* The first (2^64 mod limit) numbers would come up once more often than the rest. */
	uint64_t least = -limit % limit, value;

	do
		value = stats__random(rng);
	while (value < least);
	return value % limit;
}

static int compare_doubles(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/* In order; NULL when out of memory. */
static double *sorted_copy(const double *sample, size_t cnt)
{
	double *copy = malloc(cnt * sizeof(*copy));

	if (!copy)
		return NULL;
	memcpy(copy, sample, cnt * sizeof(*copy));
	qsort(copy, cnt, sizeof(*copy), compare_doubles);
	return copy;
}

double stats__quantile_sorted(const double *sorted, size_t cnt, double q)
{
	double at = q * (double)(cnt - 1), floor_at = floor(at);
	size_t index = (size_t)floor_at;

	if (index + 1 >= cnt)
		return sorted[cnt - 1];
	return sorted[index] + (at - floor_at) * (sorted[index + 1] - sorted[index]);
}

int stats__median(const double *sample, size_t cnt, double *median)
{
	double *sorted = sorted_copy(sample, cnt);

	if (!sorted)
		return -ENOMEM;
	*median = stats__quantile_sorted(sorted, cnt, 0.5);
	free(sorted);
	return 0;
}

/*
 * The median of a resample: how often each order statistic was drawn is enough,
 * and needs no sorting. drawn has cnt zeros, and has them again afterwards.
 */
static double resampled_median(const double *sorted, size_t cnt, uint32_t *drawn, struct stats_rng *rng)
{
	size_t low_rank = (cnt - 1) / 2, high_rank = cnt / 2, seen = 0;
	double low = 0, high = 0;

	for (size_t i = 0; i < cnt; i++)
		drawn[stats__random_below(rng, cnt)]++;
	for (size_t i = 0; i < cnt; i++) {
		if (seen <= low_rank && low_rank < seen + drawn[i])
			low = sorted[i];
		if (seen <= high_rank && high_rank < seen + drawn[i])
			high = sorted[i];
		seen += drawn[i];
		drawn[i] = 0;
	}
	return low + (high - low) / 2;
}

int stats__interval(const double *sample, size_t cnt, struct stats_rng *rng, struct stats_interval *interval)
{
	const double tail = (100 - STATS_CONFIDENCE_PERCENT) / 200.0;
	double *sorted = sorted_copy(sample, cnt), *medians = malloc(STATS_RESAMPLE_CNT * sizeof(*medians));
	uint32_t *drawn = calloc(cnt, sizeof(*drawn));
	int err = -ENOMEM;

	if (!sorted || !medians || !drawn)
		goto out;
	err = 0;
	interval->median = interval->low = interval->high = stats__quantile_sorted(sorted, cnt, 0.5);
	if (sorted[0] == sorted[cnt - 1])
		goto out;
	for (int i = 0; i < STATS_RESAMPLE_CNT; i++)
		medians[i] = resampled_median(sorted, cnt, drawn, rng);
	qsort(medians, STATS_RESAMPLE_CNT, sizeof(*medians), compare_doubles);
	interval->low = stats__quantile_sorted(medians, STATS_RESAMPLE_CNT, tail);
	interval->high = stats__quantile_sorted(medians, STATS_RESAMPLE_CNT, 1 - tail);
out:
	free(drawn);
	free(medians);
	free(sorted);
	return err;
}

int stats__ratio(const double *value, const double *base, size_t cnt, struct stats_rng *rng,
		 struct stats_interval *interval)
{
	double *ratios = malloc(cnt * sizeof(*ratios));
	int err = ratios ? 0 : -ENOMEM;

	for (size_t i = 0; i < cnt && !err; i++) {
		if (base[i] < 0 || (base[i] == 0 && value[i] != 0))
			err = -ERANGE;
		else
			ratios[i] = base[i] == 0 ? 1 : value[i] / base[i];
	}
	if (!err)
		err = stats__interval(ratios, cnt, rng, interval);
	free(ratios);
	return err;
}

struct ranked {
	double value;
	bool is_first; /* of sample a */
};

static int compare_ranked(const void *a, const void *b)
{
	return compare_doubles(&((const struct ranked *)a)->value, &((const struct ranked *)b)->value);
}

/* Rank sum of sample a, equal values sharing their mean rank; and the sum of t^3 - t over groups of t equal ones. */
static double rank_sum(const struct ranked *all, size_t cnt, double *tie_sum)
{
	double sum = 0;

	*tie_sum = 0;
	for (size_t from = 0, to; from < cnt; from = to) {
		double rank, tied;

		for (to = from + 1; to < cnt && all[to].value == all[from].value; to++)
			;
		rank = (double)(from + 1 + to) / 2;
		tied = (double)(to - from);
		*tie_sum += tied * tied * tied - tied;
		for (size_t i = from; i < to; i++)
			sum += all[i].is_first ? rank : 0;
	}
	return sum;
}

/*
 * The share of all orders of both samples, without ties, in which U is at least
 * `least`. The numbers of orders by U are the coefficients of the Gaussian
 * binomial, the product of (1 - q^(b_cnt + i)) / (1 - q^i) for i = 1 ... a_cnt;
 * all are whole, and below 2^53 up to STATS_EXACT_MAX.
 */
static double exact_tail(size_t a_cnt, size_t b_cnt, size_t least)
{
	size_t top = a_cnt * b_cnt;
	double ways[STATS_EXACT_MAX * STATS_EXACT_MAX + 1] = {1}, sum = 0, all = 0;

	for (size_t i = 1; i <= a_cnt; i++) {
		for (size_t u = top; u >= b_cnt + i; u--)
			ways[u] -= ways[u - b_cnt - i];
		for (size_t u = i; u <= top; u++)
			ways[u] += ways[u - i];
	}
	for (size_t u = 0; u <= top; u++) {
		all += ways[u];
		sum += u >= least ? ways[u] : 0;
	}
	return sum / all;
}

static double normal_p(double u_high, double a_cnt, double b_cnt, double tie_sum)
{
	double cnt = a_cnt + b_cnt;
	double variance = a_cnt * b_cnt / 12 * (cnt + 1 - tie_sum / (cnt * (cnt - 1)));
	double z = variance > 0 ? (u_high - a_cnt * b_cnt / 2 - 0.5) / sqrt(variance) : 0;

	return z > 0 ? erfc(z / sqrt(2)) : 1;
}

int stats__mann_whitney(const double *a, size_t a_cnt, const double *b, size_t b_cnt, double *u, double *p)
{
	size_t cnt = a_cnt + b_cnt;
	struct ranked *all = malloc(cnt * sizeof(*all));
	double tie_sum, high;

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++)
		all[i] = (struct ranked){.value = i < a_cnt ? a[i] : b[i - a_cnt], .is_first = i < a_cnt};
	qsort(all, cnt, sizeof(*all), compare_ranked);
	*u = rank_sum(all, cnt, &tie_sum) - (double)a_cnt * (double)(a_cnt + 1) / 2;
	free(all);
	high = fmax(*u, (double)a_cnt * (double)b_cnt - *u);
	if (tie_sum == 0 && a_cnt <= STATS_EXACT_MAX && b_cnt <= STATS_EXACT_MAX)
		*p = fmin(1, 2 * exact_tail(a_cnt, b_cnt, (size_t)high));
	else
		*p = normal_p(high, (double)a_cnt, (double)b_cnt, tie_sum);
	return 0;
}

/* Median, and median and mean of the absolute deviations from it. */
static int deviations(const double *sample, size_t cnt, double *median, double *mad, double *mean)
{
	double *deviation = malloc(cnt * sizeof(*deviation));
	int err = deviation ? stats__median(sample, cnt, median) : -ENOMEM;

	*mad = *mean = 0;
	for (size_t i = 0; i < cnt && !err; i++) {
		deviation[i] = fabs(sample[i] - *median);
		*mean += deviation[i] / (double)cnt;
	}
	if (!err)
		err = stats__median(deviation, cnt, mad);
	free(deviation);
	return err;
}

int stats__outliers(const double *sample, size_t cnt, bool *is_outlier, size_t *outlier_cnt)
{
	double median, mad, mean, unit;
	int err = deviations(sample, cnt, &median, &mad, &mean);

	if (err)
		return err;
	*outlier_cnt = 0;
	unit = mad > 0 ? mad / 0.6745 : 1.253314 * mean;
	for (size_t i = 0; i < cnt; i++) {
		bool is_out = unit > 0 && fabs(sample[i] - median) / unit > 3.5;

		if (is_outlier)
			is_outlier[i] = is_out;
		*outlier_cnt += is_out;
	}
	return 0;
}

int stats__spread(const double *sample, size_t cnt, double *spread)
{
	double median, mad, mean;
	int err = deviations(sample, cnt, &median, &mad, &mean);

	if (err)
		return err;
	*spread = median != 0 ? mad / 0.6745 / fabs(median) : 0;
	return 0;
}

int stats__upper_fence(const double *sample, size_t cnt, double *fence)
{
	double *sorted = sorted_copy(sample, cnt), low, high;

	if (!sorted)
		return -ENOMEM;
	low = stats__quantile_sorted(sorted, cnt, 0.25);
	high = stats__quantile_sorted(sorted, cnt, 0.75);
	free(sorted);
	*fence = high + 1.5 * (high - low);
	return 0;
}

double stats__geometric_mean(const double *sample, size_t cnt)
{
	double sum = 0;

	for (size_t i = 0; i < cnt; i++) {
		if (!(sample[i] > 0))
			return NAN;
		sum += log(sample[i]);
	}
	return exp(sum / (double)cnt);
}
