/* SPDX-License-Identifier: BSD-2-Clause */
/* What a reader of a comparison should know before believing it, in words; see render_compare.h. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "cli/format.h"
#include "cli/render_compare.h"

enum {
	FEW_BLOCKS = 4,     /* below it no difference can reach p < 0.05 */
	SOME_BLOCKS = 10,   /* below it an interval is little more than the range */
	NOISY_PERCENT = 10, /* relative spread */
	BUSY_PERCENT = 20,  /* of one CPU, kept busy by others */
	SHOWN_BYTES = 64,   /* of a program's name, with what shows that it was cut */
};

static void __attribute__((format(printf, 2, 3))) warn(struct compare_report *report, const char *fmt, ...)
{
	char text[COMPARE_WARNING_BYTES];
	va_list args;

	if (report->warning_cnt == COMPARE_WARNING_MAX)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	/* Names of programs may have anything in them, and may have been cut. */
	format__escape(text, report->warnings[report->warning_cnt++], COMPARE_WARNING_BYTES);
}

/* A name that is a long command is cut, so that what is said of it is not. */
static const char *shown(const struct compare_program *program, char buf[SHOWN_BYTES])
{
	if (snprintf(buf, SHOWN_BYTES, "%s", program->name) >= SHOWN_BYTES)
		strcpy(buf + SHOWN_BYTES - sizeof("..."), "...");
	return buf;
}

double render_compare__geometric(const struct compare_report *report, size_t config, enum compare_figure figure)
{
	double sum = 0;

	for (size_t i = 0; i < report->program_cnt; i++) {
		const struct comparison *comparison = report->programs[i].comparison;
		const struct compare_stat *stat = compare__stat(comparison, config, figure);

		if (!comparison->is_measured[figure] || !stat->has_ratio || !(stat->ratio.median > 0))
			return NAN;
		sum += log(stat->ratio.median);
	}
	return exp(sum / (double)report->program_cnt);
}

static void warn_runs(struct compare_report *report)
{
	if (report->signal)
		warn(report, "interrupted: %zu of %zu blocks were finished", report->block_cnt,
		     report->wanted_block_cnt);
	else if (report->is_out_of_time && report->block_cnt < report->wanted_block_cnt)
		warn(report, "--time was up after %zu of %zu blocks", report->block_cnt, report->wanted_block_cnt);
	else if (report->is_out_of_time)
		warn(report, "--time was up after %zu blocks; not all times are within %g %% of their median",
		     report->block_cnt, report->precision_percent);
	if (report->block_cnt < FEW_BLOCKS)
		warn(report, "too few runs: with %zu of each no difference can be told from chance; take %d or more",
		     report->block_cnt, SOME_BLOCKS);
	else if (report->block_cnt < SOME_BLOCKS)
		warn(report, "few runs: the intervals of %zu are rough; take %d or more", report->block_cnt,
		     SOME_BLOCKS);
}

/* Two saved files: what stood between them is in the differences. */
static void warn_apart(struct compare_report *report)
{
	const struct profile *a = report->shown[0], *b = report->shown[1];

	warn(report, "measured apart, not in turn: what the machine did differently then is in the differences%s",
	     report->block_cnt == 1 ? "; one run each: no statistics are possible" : "");
	if (strcmp(a->kernel, b->kernel) != 0 || a->cpu_cnt != b->cpu_cnt || a->ram_pages != b->ram_pages)
		warn(report, "on different machines: Linux %s, %d CPUs, and Linux %s, %d CPUs", a->kernel, a->cpu_cnt,
		     b->kernel, b->cpu_cnt);
	if (strcmp(a->version, b->version) != 0)
		warn(report, "by different versions: alloctrace %s and %s", a->version, b->version);
	if (a->tier != b->tier)
		warn(report, "with different tiers: %d and %d", a->tier, b->tier);
}

static void warn_load(struct compare_report *report)
{
	const struct compare_load *load = &report->load;

	if (load->others * 100 > BUSY_PERCENT)
		warn(report, "other processes kept %.1f of %d CPUs busy; times are less certain, counts are not",
		     load->others, report->shown[0]->cpu_cnt);
	if (load->stolen * 100 > BUSY_PERCENT)
		warn(report,
		     "the machine under this virtual one took %.1f CPUs; times are less certain, counts are not",
		     load->stolen);
}

/* A first run beyond the fence of all later ones: what it had to fetch or fill, they found ready. */
static void warn_first(struct compare_report *report, const struct compare_program *program)
{
	const struct comparison *comparison = program->comparison;
	double later[1024], fence, median;
	char name[SHOWN_BYTES];
	size_t cnt = comparison->block_cnt - 1;

	if (cnt < FEW_BLOCKS)
		return;
	if (cnt > sizeof(later) / sizeof(later[0]))
		cnt = sizeof(later) / sizeof(later[0]);
	for (size_t config = 0; config < comparison->config_cnt; config++) {
		double first = compare__value(comparison, 0, config, COMPARE_WALL);

		for (size_t i = 0; i < cnt; i++)
			later[i] = compare__value(comparison, i + 1, config, COMPARE_WALL);
		if (stats__upper_fence(later, cnt, &fence) || stats__median(later, cnt, &median))
			return;
		if (first > fence && first > 1.25 * median)
			warn(report, "%s: the first run of %s was slow (%.0f %% longer than the others' median)",
			     shown(program, name), report->configs->all[config].name, 100 * (first / median - 1));
	}
}

/* Names of the configurations for which is_it holds, as many as fit. */
static const char *list(const struct compare_report *report, const struct comparison *comparison,
			enum compare_figure figure, bool (*is_it)(const struct compare_stat *stat), char *buf,
			size_t buf_bytes)
{
	size_t used = 0;

	buf[0] = 0;
	for (size_t config = 0; config < comparison->config_cnt && used < buf_bytes; config++)
		if (is_it(compare__stat(comparison, config, figure)))
			used += snprintf(buf + used, buf_bytes - used, "%s%s", used ? ", " : "",
					 report->configs->all[config].name);
	return buf;
}

static bool is_varying(const struct compare_stat *stat)
{
	return stat->min != stat->max;
}

static bool is_noisy(const struct compare_stat *stat)
{
	return stat->value.median >= COMPARE_NOISY_MIN_NS && stat->spread * 100 > NOISY_PERCENT;
}

static bool has_outlier(const struct compare_stat *stat)
{
	return stat->outlier_cnt && stat->value.median >= COMPARE_NOISY_MIN_NS;
}

static void warn_counts(struct compare_report *report, const struct compare_program *program)
{
	char names[128], figure_name[COMPARE_NAME_BYTES], name[SHOWN_BYTES];

	for (int class = 1; class < AT_CLASS_CNT; class ++) {
		int figure = COMPARE_CLASS_CALLS + class;

		if (profile__class_syscall(class) == AT_SYS_INVALID || !compare__occurs(program->comparison, figure))
			continue;
		list(report, program->comparison, figure, is_varying, names, sizeof(names));
		if (names[0])
			warn(report, "%s: the count of %s is not the same in all runs (of %s)", shown(program, name),
			     compare__name(figure, figure_name), names);
	}
}

static void warn_noise(struct compare_report *report, const struct compare_program *program)
{
	const struct comparison *comparison = program->comparison;
	char names[128], name[SHOWN_BYTES];
	double most = 0;

	list(report, comparison, COMPARE_WALL, is_noisy, names, sizeof(names));
	for (size_t config = 0; config < comparison->config_cnt; config++)
		most = fmax(most, compare__stat(comparison, config, COMPARE_WALL)->spread);
	if (names[0])
		warn(report, "%s: noisy: wall time spreads by up to %.0f %% (%s)", shown(program, name), 100 * most,
		     names);
	list(report, comparison, COMPARE_WALL, has_outlier, names, sizeof(names));
	if (names[0])
		warn(report, "%s: outliers in wall time, kept (%s)", shown(program, name), names);
	if (!comparison->is_exact)
		warn(report, "%s: not all counts are exact; 'alloctrace run' says what is missing",
		     shown(program, name));
}

static void warn_notes(struct compare_report *report, const struct compare_program *program)
{
	char name[SHOWN_BYTES];

	for (size_t config = 0; config < report->configs->cnt; config++)
		if (program->notes[config][0])
			warn(report, "%s, %s: %s", shown(program, name), report->configs->all[config].name,
			     program->notes[config]);
}

static void warn_all(struct compare_report *report)
{
	report->warning_cnt = 0;
	if (report->is_apart)
		warn_apart(report);
	if (!report->is_apart || report->block_cnt > 1)
		warn_runs(report);
	warn_load(report);
	for (size_t i = 0; i < report->program_cnt; i++) {
		warn_notes(report, &report->programs[i]);
		warn_counts(report, &report->programs[i]);
		warn_first(report, &report->programs[i]);
		warn_noise(report, &report->programs[i]);
	}
}

int render_compare__finish(struct compare_report *report)
{
	for (size_t i = 0; i < report->program_cnt; i++)
		if (compare__finish(report->programs[i].comparison, report->block_cnt, report->seed))
			return -ENOMEM;
	warn_all(report);
	return 0;
}
