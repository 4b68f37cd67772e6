/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Statistics of small samples. Pure arithmetic: no I/O, no clock; the only
 * randomness is the generator that the caller seeds. Samples are never changed
 * and need no order. Functions that need room return 0 or -ENOMEM.
 */
#ifndef ALLOCTRACE_CLI_STATS_H
#define ALLOCTRACE_CLI_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* xoshiro256**, seeded through splitmix64: the same seed gives the same numbers everywhere. */
struct stats_rng {
	uint64_t word[4];
};

void stats__seed(struct stats_rng *rng, uint64_t seed);
uint64_t stats__random(struct stats_rng *rng);
/* Uniform in [0, limit), without bias; limit > 0. */
uint64_t stats__random_below(struct stats_rng *rng, uint64_t limit);

/* Resamples of a bootstrap, and the coverage of its intervals. */
enum { STATS_RESAMPLE_CNT = 2000, STATS_CONFIDENCE_PERCENT = 95 };

struct stats_interval {
	double median, low, high;
};

/* Linear interpolation between order statistics (R's type 7); sorted is in order, cnt > 0, 0 <= q <= 1. */
double stats__quantile_sorted(const double *sorted, size_t cnt, double q);
/* cnt > 0. */
int stats__median(const double *sample, size_t cnt, double *median);
/* Median, and its interval by the percentile bootstrap. A constant sample uses no random numbers. cnt > 0. */
int stats__interval(const double *sample, size_t cnt, struct stats_rng *rng, struct stats_interval *interval);
/*
 * The median of value[i] / base[i], with its interval. 0/0 is 1: nothing has
 * changed. -ERANGE when a base is 0 and its value is not, or is negative.
 */
int stats__ratio(const double *value, const double *base, size_t cnt, struct stats_rng *rng,
		 struct stats_interval *interval);

/*
 * Two-sided Mann-Whitney U test: the probability of ranks at least as uneven as
 * these when both samples are of one distribution. Exact when no two values are
 * equal and neither sample has more than STATS_EXACT_MAX; else the normal
 * approximation with corrections for ties and continuity. Both counts > 0.
 */
enum { STATS_EXACT_MAX = 20 };
int stats__mann_whitney(const double *a, size_t a_cnt, const double *b, size_t b_cnt, double *u, double *p);

/*
 * Outliers by the modified z-score of Iglewicz and Hoaglin: 0.6745 |x - median| /
 * MAD above 3.5; where the MAD is 0, |x - median| / (1.2533 x mean absolute
 * deviation). Marks them in is_outlier (may be NULL) and counts them.
 */
int stats__outliers(const double *sample, size_t cnt, bool *is_outlier, size_t *outlier_cnt);
/* MAD / 0.6745 / |median|: the standard deviation of a normal sample, relative. 0 when the median is 0. */
int stats__spread(const double *sample, size_t cnt, double *spread);
/* Tukey's upper fence, Q3 + 1.5 (Q3 - Q1). */
int stats__upper_fence(const double *sample, size_t cnt, double *fence);

/* Of positive values; NAN when one is not. cnt > 0. */
double stats__geometric_mean(const double *sample, size_t cnt);

#endif
