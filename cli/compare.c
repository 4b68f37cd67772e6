/* SPDX-License-Identifier: BSD-2-Clause */
/* Comparing configurations; see compare.h. */
#include "cli/compare.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t hist_cnt(const struct comparison *comparison)
{
	return comparison->config_cnt * AT_CLASS_CNT * AT_HIST_CNT;
}

struct comparison *compare__new(size_t config_cnt, size_t base, bool has_phases)
{
	struct comparison *comparison = calloc(1, sizeof(*comparison));

	if (!comparison)
		return NULL;
	comparison->config_cnt = config_cnt;
	comparison->base = base;
	comparison->has_phases = has_phases;
	comparison->is_exact = true;
	comparison->stats = calloc(config_cnt * COMPARE_FIGURE_CNT, sizeof(*comparison->stats));
	comparison->hists = calloc(hist_cnt(comparison), sizeof(*comparison->hists));
	comparison->last_hists = calloc(hist_cnt(comparison), sizeof(*comparison->last_hists));
	for (int figure = 0; figure < COMPARE_FIGURE_CNT; figure++)
		comparison->is_measured[figure] = true;
	if (comparison->stats && comparison->hists && comparison->last_hists)
		return comparison;
	compare__free(comparison);
	return NULL;
}

void compare__free(struct comparison *comparison)
{
	if (!comparison)
		return;
	free(comparison->values);
	free(comparison->stats);
	free(comparison->hists);
	free(comparison->last_hists);
	free(comparison);
}

static double *value_at(const struct comparison *comparison, size_t block, size_t config, int figure)
{
	return &comparison->values[(block * comparison->config_cnt + config) * COMPARE_FIGURE_CNT + figure];
}

double compare__value(const struct comparison *comparison, size_t block, size_t config, enum compare_figure figure)
{
	return *value_at(comparison, block, config, figure);
}

const struct compare_stat *compare__stat(const struct comparison *comparison, size_t config, enum compare_figure figure)
{
	return &comparison->stats[config * COMPARE_FIGURE_CNT + figure];
}

int compare__resize(struct comparison *comparison, size_t block_cnt)
{
	free(comparison->values);
	comparison->values = calloc(block_cnt * comparison->config_cnt * COMPARE_FIGURE_CNT, sizeof(double));
	comparison->block_cnt = comparison->values ? block_cnt : 0;
	return comparison->values ? 0 : -ENOMEM;
}

void compare__set_value(struct comparison *comparison, size_t block, size_t config, enum compare_figure figure,
			double value)
{
	*value_at(comparison, block, config, figure) = value;
}

static bool is_fault(int class)
{
	return profile__class_syscall(class) == AT_SYS_INVALID;
}

/* The kind that the allocator counts a class as; -1 when it never makes such a call. */
static int kind_of(int class)
{
	for (int kind = 0; kind < ATM_KIND_CNT; kind++)
		if (strcmp(profile__kind_name(kind), profile__class_name(class)) == 0)
			return kind;
	return -1;
}

static void fill_traced(const struct profile *profile, const struct phase_stat *phase, double *values)
{
	for (int class = 1; class < AT_CLASS_CNT; class ++) {
		const struct class_stat *stat = &phase->classes[class];

		values[COMPARE_CLASS_CALLS + class] = (double)stat->call_cnt;
		values[COMPARE_CLASS_KERNEL + class] = (double)stat->sum_ns;
		if (class == AT_CLASS_MADVISE_PHASE || (is_fault(class) && !profile->has_faults))
			continue;
		values[COMPARE_CALLS] += is_fault(class) ? 0 : (double)stat->call_cnt;
		values[COMPARE_KERNEL] += (double)stat->sum_ns;
	}
}

/* Without a tracer: what the allocator counted itself. */
static void fill_counted(const struct phase_stat *phase, double *values)
{
	for (int class = 1; class < AT_CLASS_CNT; class ++) {
		int kind = kind_of(class);

		if (kind < 0)
			continue;
		values[COMPARE_CLASS_CALLS + class] = (double)phase->self.call_cnt[kind];
		if (class != AT_CLASS_MADVISE_PHASE)
			values[COMPARE_CALLS] += (double)phase->self.call_cnt[kind];
	}
}

static bool is_in(const struct profile *profile, int figure)
{
	if (figure == COMPARE_COMMIT_PEAK || figure == COMPARE_COMMIT_CHARGED)
		return profile->has_trace && profile->ledgers & LEDGER_COMMIT;
	if (figure == COMPARE_VMAS_PEAK)
		return profile->has_trace && profile->ledgers & LEDGER_VMAS;
	if (figure == COMPARE_REFAULT || figure == COMPARE_REFAULT_WASTED)
		return profile->has_trace && profile->ledgers & LEDGER_REFAULT;
	if (figure == COMPARE_LOCK_WAIT)
		return profile->has_trace && profile->ledgers & LEDGER_LOCKS;
	if (figure == COMPARE_FINAL_RSS)
		return profile->final_rss_bytes;
	if (figure >= COMPARE_PROCESS)
		return true;
	if (figure >= COMPARE_KERNEL && !profile->has_trace)
		return false;
	for (int class = AT_CLASS_FAULT_MINOR; class <= AT_CLASS_FAULT_MAJOR; class ++)
		if (figure == COMPARE_CLASS_CALLS + class || figure == COMPARE_CLASS_KERNEL + class)
			return profile->has_faults;
	if (figure == COMPARE_CLASS_CALLS || figure == COMPARE_CLASS_KERNEL ||
	    figure == COMPARE_CLASS_CALLS + AT_CLASS_MADVISE_PHASE ||
	    figure == COMPARE_CLASS_KERNEL + AT_CLASS_MADVISE_PHASE)
		return false;
	return profile->has_trace || profile->has_self_counts;
}

/* The last block is complete: its durations are in the sums from now on. */
static void keep_hists(struct comparison *comparison)
{
	for (size_t i = 0; i < hist_cnt(comparison); i++)
		comparison->hists[i] += comparison->last_hists[i];
	memset(comparison->last_hists, 0, hist_cnt(comparison) * sizeof(*comparison->last_hists));
}

static void add_hists(struct comparison *comparison, size_t config, const struct phase_stat *phase)
{
	uint64_t *hists = comparison->last_hists + config * AT_CLASS_CNT * AT_HIST_CNT;

	for (int class = 1; class < AT_CLASS_CNT; class ++)
		for (int i = 0; i < AT_HIST_CNT; i++)
			hists[class * AT_HIST_CNT + i] += phase->classes[class].hist[i];
}

const uint64_t *compare__histogram(const struct comparison *comparison, size_t config, enum at_class class)
{
	return comparison->hists + (config * AT_CLASS_CNT + class) * AT_HIST_CNT;
}

void compare__add_histogram(struct comparison *comparison, size_t config, enum at_class class,
			    const uint64_t hist[AT_HIST_CNT])
{
	for (int i = 0; i < AT_HIST_CNT; i++)
		comparison->hists[(config * AT_CLASS_CNT + class) * AT_HIST_CNT + i] += hist[i];
}

static int begin_block(struct comparison *comparison)
{
	size_t cnt = comparison->config_cnt * COMPARE_FIGURE_CNT;
	double *values = reallocarray(comparison->values, (comparison->block_cnt + 1) * cnt, sizeof(*values));

	if (!values)
		return -ENOMEM;
	keep_hists(comparison);
	comparison->values = values;
	memset(values + comparison->block_cnt * cnt, 0, cnt * sizeof(*values));
	comparison->block_cnt++;
	return 0;
}

int compare__add(struct comparison *comparison, size_t block, size_t config, const struct profile *profile)
{
	struct phase_stat *phase = malloc(sizeof(*phase));
	struct refault_sum refault;
	double *values;
	int err = phase ? 0 : -ENOMEM;

	if (!err && block == comparison->block_cnt)
		err = begin_block(comparison);
	if (err)
		goto out;
	if (comparison->has_phases)
		*phase = profile->phases[AT_PHASE_MEASURED];
	else
		profile__total(profile, phase);
	values = value_at(comparison, block, config, 0);
	memset(values, 0, COMPARE_FIGURE_CNT * sizeof(*values));
	add_hists(comparison, config, phase);
	if (profile->has_trace)
		fill_traced(profile, phase, values);
	else
		fill_counted(phase, values);
	values[COMPARE_SYS] = (double)profile->sys_ns;
	values[COMPARE_USER] = (double)profile->user_ns;
	values[COMPARE_WALL] = (double)profile->wall_ns;
	values[COMPARE_MAX_RSS] = (double)profile->max_rss_bytes;
	values[COMPARE_FINAL_RSS] = (double)profile->final_rss_bytes;
	values[COMPARE_COMMIT_PEAK] = (double)phase->commit.peak_pages;
	values[COMPARE_COMMIT_CHARGED] = (double)phase->commit.charged_pages;
	values[COMPARE_VMAS_PEAK] = (double)phase->vmas.peak_cnt;
	refault = profile__refault_sum(&phase->refault);
	values[COMPARE_REFAULT] = (double)refault.returned_pages;
	values[COMPARE_REFAULT_WASTED] = (double)refault.wasted_ns;
	for (int lock = 0; lock < AT_LOCK_CNT; lock++)
		values[COMPARE_LOCK_WAIT] += (double)phase->locks.kinds[lock].sum_ns;
	values[COMPARE_MINOR_FAULTS] = (double)profile->minor_fault_cnt;
	values[COMPARE_MAJOR_FAULTS] = (double)profile->major_fault_cnt;
	for (int figure = 0; figure < COMPARE_FIGURE_CNT; figure++)
		comparison->is_measured[figure] &= is_in(profile, figure);
	if (profile->has_trace && !profile__is_exact(profile))
		comparison->is_exact = false;
out:
	free(phase);
	return err;
}

static void gather(const struct comparison *comparison, size_t config, int figure, double *sample)
{
	for (size_t block = 0; block < comparison->block_cnt; block++)
		sample[block] = compare__value(comparison, block, config, figure);
}

static int describe(const double *sample, size_t cnt, struct stats_rng *rng, struct compare_stat *stat)
{
	int err = stats__interval(sample, cnt, rng, &stat->value);

	if (!err)
		err = stats__spread(sample, cnt, &stat->spread);
	if (!err)
		err = stats__outliers(sample, cnt, NULL, &stat->outlier_cnt);
	stat->min = stat->max = sample[0];
	for (size_t i = 1; i < cnt; i++) {
		if (sample[i] < stat->min)
			stat->min = sample[i];
		if (sample[i] > stat->max)
			stat->max = sample[i];
	}
	return err;
}

/* room: cnt values. */
static int relate(const double *sample, const double *base, size_t cnt, double *room, struct stats_rng *rng,
		  struct compare_stat *stat)
{
	double u;
	int err = stats__mann_whitney(sample, cnt, base, cnt, &u, &stat->p);

	if (err)
		return err;
	stat->is_same = stat->p >= COMPARE_ALPHA;
	for (size_t i = 0; i < cnt; i++)
		room[i] = sample[i] - base[i];
	err = stats__interval(room, cnt, rng, &stat->difference);
	if (err)
		return err;
	err = stats__ratio(sample, base, cnt, rng, &stat->ratio);
	stat->has_ratio = !err;
	return err == -ERANGE ? 0 : err;
}

int compare__finish(struct comparison *comparison, size_t block_cnt, uint64_t seed)
{
	double *sample = calloc(block_cnt, sizeof(*sample)), *base = calloc(block_cnt, sizeof(*base));
	double *room = calloc(block_cnt, sizeof(*room));
	struct stats_rng rng;
	int err = sample && base && room ? 0 : -ENOMEM;

	if (block_cnt == comparison->block_cnt)
		keep_hists(comparison);
	comparison->block_cnt = block_cnt;
	stats__seed(&rng, seed);
	for (int figure = 0; figure < COMPARE_FIGURE_CNT && !err; figure++) {
		gather(comparison, comparison->base, figure, base);
		for (size_t config = 0; config < comparison->config_cnt && !err; config++) {
			struct compare_stat *stat = &comparison->stats[config * COMPARE_FIGURE_CNT + figure];

			*stat = (struct compare_stat){.p = 1, .is_same = true};
			gather(comparison, config, figure, sample);
			err = describe(sample, block_cnt, &rng, stat);
			if (!err && config != comparison->base)
				err = relate(sample, base, block_cnt, room, &rng, stat);
		}
	}
	free(room);
	free(base);
	free(sample);
	return err;
}

int compare__is_precise(const struct comparison *comparison, double percent, uint64_t seed, bool *is_precise)
{
	static const enum compare_figure figures[] = {COMPARE_KERNEL, COMPARE_WALL};
	double *sample = calloc(comparison->block_cnt, sizeof(*sample));
	struct stats_interval interval;
	struct stats_rng rng;
	int err = sample ? 0 : -ENOMEM;

	stats__seed(&rng, seed);
	*is_precise = true;
	for (size_t i = 0; i < 2 * comparison->config_cnt && *is_precise && !err; i++) {
		if (!comparison->is_measured[figures[i % 2]])
			continue;
		gather(comparison, i / 2, figures[i % 2], sample);
		err = stats__interval(sample, comparison->block_cnt, &rng, &interval);
		if (!err && interval.median >= COMPARE_NOISY_MIN_NS)
			*is_precise = fmax(interval.high - interval.median, interval.median - interval.low) <=
				      interval.median * percent / 100;
	}
	free(sample);
	return err;
}

bool compare__occurs(const struct comparison *comparison, enum compare_figure figure)
{
	for (size_t config = 0; config < comparison->config_cnt; config++)
		if (compare__stat(comparison, config, figure)->max > 0)
			return comparison->is_measured[figure];
	return false;
}

bool compare__is_same_in_all(const struct comparison *comparison, enum compare_figure figure)
{
	for (size_t config = 0; config < comparison->config_cnt; config++)
		if (!compare__stat(comparison, config, figure)->is_same)
			return false;
	return true;
}

bool compare__is_constant(const struct comparison *comparison, enum compare_figure figure)
{
	const struct compare_stat *first = compare__stat(comparison, 0, figure);

	for (size_t config = 0; config < comparison->config_cnt; config++) {
		const struct compare_stat *stat = compare__stat(comparison, config, figure);

		if (stat->min != first->min || stat->max != first->min)
			return false;
	}
	return true;
}

int compare__direction(const struct comparison *comparison, size_t config, enum compare_figure figure)
{
	const struct compare_stat *stat = compare__stat(comparison, config, figure);

	if (!comparison->is_measured[figure] || stat->is_same)
		return 0;
	return stat->difference.high < 0 ? -1 : stat->difference.low > 0;
}

void compare__rank(const struct comparison *comparison, enum compare_figure figure, size_t *order)
{
	for (size_t config = 0; config < comparison->config_cnt; config++) {
		double median = compare__stat(comparison, config, figure)->value.median;
		size_t at = config;

		for (; at && compare__stat(comparison, order[at - 1], figure)->value.median > median; at--)
			order[at] = order[at - 1];
		order[at] = config;
	}
}

int compare__effect(const struct comparison *comparison, enum compare_figure figure, uint32_t first, uint32_t second,
		    struct stats_interval *effect)
{
	double *sample = calloc(comparison->block_cnt, sizeof(*sample));
	struct stats_rng rng;
	int err;

	if (!sample)
		return -ENOMEM;
	for (size_t block = 0; block < comparison->block_cnt; block++)
		for (size_t config = 0; config < comparison->config_cnt; config++) {
			bool is_plus = config & first;

			if (second != first)
				is_plus = is_plus == !!(config & second);
			sample[block] += (is_plus ? 1 : -1) * compare__value(comparison, block, config, figure) /
					 ((double)comparison->config_cnt / 2);
		}
	stats__seed(&rng, figure);
	err = stats__interval(sample, comparison->block_cnt, &rng, effect);
	free(sample);
	return err;
}

struct process_figure {
	const char *key, *name;
	enum compare_unit unit;
};

static const struct process_figure process_figures[] = {
#define X(id, key, name, unit) {key, name, COMPARE_UNIT_##unit},
	COMPARE_PROCESS_FIGURES(X)
#undef X
};

const char *compare__key(enum compare_figure figure, char buf[COMPARE_NAME_BYTES])
{
	int number = (int)figure;

	if (number >= COMPARE_PROCESS)
		return process_figures[number - COMPARE_PROCESS].key;
	if (number == COMPARE_CALLS || number == COMPARE_KERNEL)
		return number == COMPARE_CALLS ? "calls" : "kernel_ns";
	if (number < COMPARE_KERNEL)
		snprintf(buf, COMPARE_NAME_BYTES, "calls.%s", profile__class_name(number - COMPARE_CLASS_CALLS));
	else
		snprintf(buf, COMPARE_NAME_BYTES, "kernel_ns.%s", profile__class_name(number - COMPARE_CLASS_KERNEL));
	return buf;
}

const char *compare__name(enum compare_figure figure, char buf[COMPARE_NAME_BYTES])
{
	int number = (int)figure;

	if (number >= COMPARE_PROCESS)
		return process_figures[number - COMPARE_PROCESS].name;
	if (number == COMPARE_CALLS || number == COMPARE_KERNEL)
		return number == COMPARE_CALLS ? "memory syscalls" : "kernel time";
	if (number < COMPARE_KERNEL)
		return profile__class_name(number - COMPARE_CLASS_CALLS);
	snprintf(buf, COMPARE_NAME_BYTES, "%s, time", profile__class_name(number - COMPARE_CLASS_KERNEL));
	return buf;
}

enum compare_unit compare__unit(enum compare_figure figure)
{
	int number = (int)figure;

	if (number >= COMPARE_PROCESS)
		return process_figures[number - COMPARE_PROCESS].unit;
	return number < COMPARE_KERNEL ? COMPARE_UNIT_CNT : COMPARE_UNIT_NS;
}
