/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A comparison for people: what was compared and how, a verdict a configuration
 * with savings and costs side by side, then the figures in the order of their
 * weight. A figure in which nothing differs takes one line.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/settings.h"
#include "cli/format.h"
#include "cli/plot.h"
#include "cli/render_compare.h"

enum {
	NAME_WIDTH = 24,
	SUMMED_UP_BLOCKS = 4, /* with fewer all is ~: what was seen is shown nevertheless */
};

struct table {
	FILE *out;
	const struct compare_report *report;
	const struct comparison *comparison; /* of the program in hand */
	const struct look *look;
	const char *bold, *plain, *alarm, *picture;
};

/* What a verdict weighs; the classes stand in the table. */
static const enum compare_figure headline[] = {
	COMPARE_CALLS,   COMPARE_KERNEL,         COMPARE_SYS,         COMPARE_USER,           COMPARE_WALL,
	COMPARE_MAX_RSS, COMPARE_FINAL_RSS,      COMPARE_COMMIT_PEAK, COMPARE_COMMIT_CHARGED, COMPARE_VMAS_PEAK,
	COMPARE_REFAULT, COMPARE_REFAULT_WASTED, COMPARE_LOCK_WAIT,   COMPARE_MINOR_FAULTS};
enum { HEADLINE_CNT = sizeof(headline) / sizeof(headline[0]) };

/* Names of commands and allocators may have anything in them. */
enum { SAFE_BYTES = 1024 };

static const char *config_name(const struct table *table, size_t config, char buf[SAFE_BYTES])
{
	return format__escape(table->report->configs->all[config].name, buf, SAFE_BYTES);
}

static const char *format_value(double value, enum compare_unit unit, char buf[FORMAT_BYTES])
{
	char *at = buf;

	if (value < 0)
		*at++ = '-';
	value = fabs(value);
	if (unit == COMPARE_UNIT_NS) {
		format__ns((uint64_t)(value + 0.5), at);
	} else if (unit == COMPARE_UNIT_BYTES) {
		format__bytes((uint64_t)(value + 0.5), at);
	} else {
		format__count((uint64_t)value, at);
		if (value != floor(value)) /* between two runs */
			strcat(at, ".5");
	}
	return buf;
}

/* "-99.8 %", "+12 %", "x 34": as many digits as mean something. */
static const char *format_ratio(double ratio, char buf[FORMAT_BYTES])
{
	double percent = 100 * (ratio - 1);

	if (ratio >= 10)
		snprintf(buf, FORMAT_BYTES, "x %.*f", ratio < 100, ratio);
	else
		snprintf(buf, FORMAT_BYTES, "%+.1f %%", percent == 0 ? 0 : percent);
	return buf;
}

/* The change of a figure in one phrase, without its interval. */
static const char *format_change(const struct table *table, size_t config, enum compare_figure figure,
				 char buf[FORMAT_BYTES + 1])
{
	const struct compare_stat *stat = compare__stat(table->comparison, config, figure);
	char text[FORMAT_BYTES];

	if (stat->has_ratio)
		return format_ratio(stat->ratio.median, buf);
	format_value(stat->difference.median, compare__unit(figure), text);
	snprintf(buf, FORMAT_BYTES + 1, "%s%s", stat->difference.median >= 0 ? "+" : "", text);
	return buf;
}

static void print_configs(const struct table *table)
{
	const struct compare_report *report = table->report;
	char escaped[256], policy[128];

	for (size_t i = 0; i < report->configs->cnt; i++) {
		const struct compare_config *config = &report->configs->all[i];
		const struct profile *shown = report->shown[i];

		fprintf(table->out, "%-*s%s: %s", FORMAT_LABEL_WIDTH, i ? "" : "compared",
			format__escape(config->name, escaped, sizeof(escaped)), shown->allocator);
		if (shown->has_policy) {
			settings__format_policy(shown->policy, policy, sizeof(policy));
			fprintf(table->out, ", policies %s", policy);
		}
		if (config->tune)
			fprintf(table->out, ", %s", format__escape(config->tune, escaped, sizeof(escaped)));
		for (char **var = config->env; var && *var; var++)
			fprintf(table->out, ", %s", format__escape(*var, escaped, sizeof(escaped)));
		fputs(i == report->base ? " (base)\n" : "\n", table->out);
	}
}

static void print_runs(const struct table *table)
{
	const struct compare_report *report = table->report;
	char until[96] = "";

	if (report->precision_percent > 0 && !report->is_out_of_time && !report->signal)
		snprintf(until, sizeof(until), " (until times were within %g %% of their median)",
			 report->precision_percent);
	if (report->is_apart) {
		format__line(table->out, "runs", "%zu of each, of two saved files", report->block_cnt);
		return;
	}
	format__line(table->out, "runs", "%zu blocks of one run each in random order%s, after a warm-up; seed %llu",
		     report->block_cnt, until, (unsigned long long)report->seed);
}

static void print_settings(const struct table *table)
{
	const struct compare_report *report = table->report;
	const struct profile *host = report->shown[0];
	const char *separator = " ";
	char name[SAFE_BYTES];

	fprintf(table->out, "%salloctrace %s compare:", table->bold, host->version);
	for (size_t i = 0; i < report->program_cnt; i++, separator = ", ")
		fprintf(table->out, "%s%s", separator, format__escape(report->programs[i].name, name, sizeof(name)));
	fprintf(table->out, "%s\n", table->plain);
	print_configs(table);
	print_runs(table);
	format__line(table->out, "machine", "tier %d; Linux %s, %d CPUs, governor %s, THP %s, overcommit_memory %d",
		     host->tier, host->kernel, host->cpu_cnt, report->governor[0] ? report->governor : "not known",
		     host->thp[0] ? host->thp : "not known", host->overcommit_memory);
	if (report->load.start >= 0)
		format__line(table->out, "load",
			     "%.2f at the start, %.2f at the end; the runs kept %.2f CPUs busy, "
			     "others %.2f",
			     report->load.start, report->load.end, report->load.own, fmax(0, report->load.others));
	if (!host->has_trace)
		format__line(table->out, "missing", "kernel time, faults by phase: not traced%s",
			     host->has_self_counts ? "; calls are those of the allocator itself" : "; calls");
	for (size_t i = 0; i < report->warning_cnt; i++)
		format__line(table->out, i ? "" : "warnings", "%s%s%s", table->alarm, report->warnings[i],
			     table->plain);
}

/* "name -99.8 %, name +3 %" of the headline figures that went the way of sign. */
static bool print_moved(const struct table *table, size_t config, int sign, const char *word)
{
	char change[FORMAT_BYTES + 1], name[COMPARE_NAME_BYTES];
	const char *separator = word;

	for (size_t i = 0; i < HEADLINE_CNT; i++) {
		if (compare__direction(table->comparison, config, headline[i]) != sign)
			continue;
		fprintf(table->out, "%s%s %s", separator, compare__name(headline[i], name),
			format_change(table, config, headline[i], change));
		separator = ", ";
	}
	return separator != word;
}

/* Savings beside costs; whether a trade is worth it is not ours to say. */
static void print_verdicts(const struct table *table)
{
	char safe[SAFE_BYTES];

	for (size_t config = 0; config < table->comparison->config_cnt; config++) {
		bool has_saved = false, has_cost = false;

		if (config == table->comparison->base)
			continue;
		for (size_t i = 0; i < HEADLINE_CNT; i++) {
			int direction = compare__direction(table->comparison, config, headline[i]);

			has_saved |= direction < 0;
			has_cost |= direction > 0;
		}
		fprintf(table->out, "%-*s", NAME_WIDTH, config_name(table, config, safe));
		if (!has_saved && !has_cost)
			fputs(table->report->block_cnt == 1 ? "one run each: what differs may be chance"
							    : "~ no difference that could not be chance",
			      table->out);
		print_moved(table, config, -1, has_cost ? "trades: saves " : "saves ");
		print_moved(table, config, 1, has_saved ? "; costs " : "costs ");
		if (has_saved && !has_cost)
			fputs("; costs nothing that was measured", table->out);
		fputc('\n', table->out);
	}
}

static int print_ranking(const struct table *table)
{
	size_t *order = calloc(table->comparison->config_cnt, sizeof(*order));
	char count[FORMAT_BYTES];
	char safe[SAFE_BYTES];
	double last = 0;

	if (!order)
		return -ENOMEM;
	compare__rank(table->comparison, COMPARE_CALLS, order);
	fputs("ranking by memory syscalls: ", table->out);
	for (size_t i = 0; i < table->comparison->config_cnt; i++) {
		double median = compare__stat(table->comparison, order[i], COMPARE_CALLS)->value.median;

		if (i && median != last)
			fprintf(table->out, " (%s) < ", format_value(last, COMPARE_UNIT_CNT, count));
		else if (i)
			fputs(" = ", table->out);
		fputs(config_name(table, order[i], safe), table->out);
		last = median;
	}
	fprintf(table->out, " (%s)\n", format_value(last, COMPARE_UNIT_CNT, count));
	free(order);
	return 0;
}

static void print_interval(const struct table *table, const struct compare_stat *stat, enum compare_unit unit)
{
	const struct stats_interval *interval = &stat->value;
	char low[FORMAT_BYTES], high[FORMAT_BYTES], text[2 * FORMAT_BYTES + 8];

	if (stat->min == stat->max)
		snprintf(text, sizeof(text), "every run");
	else
		snprintf(text, sizeof(text), "%s .. %s", format_value(interval->low, unit, low),
			 format_value(interval->high, unit, high));
	fprintf(table->out, " %26s", text);
}

static void print_change(const struct table *table, size_t config, enum compare_figure figure)
{
	const struct compare_stat *stat = compare__stat(table->comparison, config, figure);
	enum compare_unit unit = compare__unit(figure);
	char change[FORMAT_BYTES + 1], low[FORMAT_BYTES], high[FORMAT_BYTES];

	if (config == table->comparison->base) {
		fputs("       base", table->out);
		return;
	}
	fprintf(table->out, " %10s", format_change(table, config, figure, change));
	if (stat->has_ratio && stat->ratio.low != stat->ratio.high)
		fprintf(table->out, "  [%s, %s]", format_ratio(stat->ratio.low, low),
			format_ratio(stat->ratio.high, high));
	else if (!stat->has_ratio && stat->difference.low != stat->difference.high)
		fprintf(table->out, "  [%s, %s]", format_value(stat->difference.low, unit, low),
			format_value(stat->difference.high, unit, high));
	if (stat->is_same)
		fputs("  ~", table->out);
}

/* The right edge of a figure's pictures. */
static double most_of(const struct comparison *comparison, enum compare_figure figure)
{
	double most = 0;

	for (size_t config = 0; config < comparison->config_cnt; config++)
		most = fmax(most, compare__stat(comparison, config, figure)->value.high);
	return most;
}

static void print_bar(const struct table *table, const struct compare_stat *stat, double most)
{
	struct plot_bar bar = {stat->value.low, stat->value.median, stat->value.high, most};

	if (!table->look->plot_columns || !(most > 0))
		return;
	fprintf(table->out, " %s", table->picture);
	plot__bar(table->out, &bar, table->look->plot_columns, table->look->is_ascii);
	fputs(table->plain, table->out);
}

/* Room where a line has no picture and the others have. */
static int picture_room(const struct table *table)
{
	return table->look->plot_columns ? table->look->plot_columns + 1 : 0;
}

static void print_figure(const struct table *table, enum compare_figure figure)
{
	const struct compare_stat *base = compare__stat(table->comparison, table->comparison->base, figure);
	enum compare_unit unit = compare__unit(figure);
	double most = most_of(table->comparison, figure);
	char name[COMPARE_NAME_BYTES], text[FORMAT_BYTES], safe[SAFE_BYTES];

	if (!compare__occurs(table->comparison, figure))
		return;
	if (compare__is_constant(table->comparison, figure) ||
	    (compare__is_same_in_all(table->comparison, figure) && table->report->block_cnt >= SUMMED_UP_BLOCKS)) {
		fprintf(table->out, "%s%-*s%s%*s %14s", table->bold, NAME_WIDTH, compare__name(figure, name),
			table->plain, picture_room(table), "", format_value(base->value.median, unit, text));
		print_interval(table, base, unit);
		fprintf(table->out, "          ~ %s\n",
			compare__is_constant(table->comparison, figure) ? "the same in all" : "in all");
		return;
	}
	fprintf(table->out, "%s%s%s\n", table->bold, compare__name(figure, name), table->plain);
	for (size_t config = 0; config < table->comparison->config_cnt; config++) {
		const struct compare_stat *stat = compare__stat(table->comparison, config, figure);

		fprintf(table->out, "  %-*s", NAME_WIDTH - 2, config_name(table, config, safe));
		print_bar(table, stat, most);
		fprintf(table->out, " %14s", format_value(stat->value.median, unit, text));
		print_interval(table, stat, unit);
		print_change(table, config, figure);
		fputc('\n', table->out);
	}
}

static void print_effect(const struct table *table, enum compare_figure figure, uint32_t first, uint32_t second)
{
	struct stats_interval effect;
	enum compare_unit unit = compare__unit(figure);
	char a[64], b[64], name[160], median[FORMAT_BYTES], low[FORMAT_BYTES], high[FORMAT_BYTES];

	if (compare__effect(table->comparison, figure, first, second, &effect))
		return;
	settings__format_policy(first, a, sizeof(a));
	settings__format_policy(second, b, sizeof(b));
	snprintf(name, sizeof(name), "%s%s%s", a, first == second ? "" : " x ", first == second ? "" : b);
	fprintf(table->out, "  %-*s %14s  [%s, %s]%s\n", NAME_WIDTH - 2, name,
		format_value(effect.median, unit, median), format_value(effect.low, unit, low),
		format_value(effect.high, unit, high), effect.low <= 0 && effect.high >= 0 ? "  ~" : "");
}

static void print_effects(const struct table *table, enum compare_figure figure)
{
	char name[COMPARE_NAME_BYTES];

	if (!table->comparison->is_measured[figure])
		return;
	fprintf(table->out, "\n%seffects of the policies on %s%s (each alone, then by twos)\n", table->bold,
		compare__name(figure, name), table->plain);
	for (uint32_t distance = 0; distance < POLICY_CNT; distance++)
		for (uint32_t first = 0; first + distance < POLICY_CNT; first++)
			print_effect(table, figure, 1u << first, 1u << (first + distance));
}

static int print_program(struct table *table, const struct compare_program *program)
{
	char name[SAFE_BYTES], base[SAFE_BYTES];
	int err = 0;

	table->comparison = program->comparison;
	fprintf(table->out, "\n%s%s%s, %s, against %s:\n", table->bold,
		format__escape(program->name, name, sizeof(name)), table->plain,
		table->comparison->has_phases ? "calls and kernel time of its measured phase" : "the whole run",
		config_name(table, table->comparison->base, base));
	print_verdicts(table);
	if (table->comparison->is_measured[COMPARE_CALLS])
		err = print_ranking(table);
	fprintf(table->out, "\n%s%-*s%*s %14s %26s %10s%s\n", table->bold, NAME_WIDTH, "", picture_room(table), "",
		"median", "95 % interval", "change", table->plain);
	for (int figure = 0; figure < COMPARE_FIGURE_CNT; figure++)
		print_figure(table, figure);
	if (table->report->is_matrix) {
		print_effects(table, COMPARE_CALLS);
		print_effects(table, COMPARE_KERNEL);
	}
	return err;
}

static void print_geometric(const struct table *table)
{
	const struct compare_report *report = table->report;
	char name[COMPARE_NAME_BYTES], text[FORMAT_BYTES], safe[SAFE_BYTES];

	fprintf(table->out, "\n%sgeometric means of the change over %zu scenarios, against %s%s (- where one is 0)\n",
		table->bold, report->program_cnt, config_name(table, report->base, safe), table->plain);
	for (size_t config = 0; config < report->configs->cnt; config++) {
		if (config == report->base)
			continue;
		fprintf(table->out, "%-*s", NAME_WIDTH, config_name(table, config, safe));
		for (size_t i = 0; i < HEADLINE_CNT; i++) {
			double mean = render_compare__geometric(report, config, headline[i]);

			fprintf(table->out, "%s%s %s", i ? ", " : "", compare__name(headline[i], name),
				isnan(mean) ? "-" : format_ratio(mean, text));
		}
		fputc('\n', table->out);
	}
}

int render_compare__table(FILE *out, const struct compare_report *report, const struct look *look)
{
	struct table table = {
		.out = out,
		.report = report,
		.look = look,
		.bold = look->has_color ? "\033[1m" : "",
		.plain = look->has_color ? "\033[0m" : "",
		.alarm = look->has_color ? "\033[33m" : "",
		.picture = look->has_color ? "\033[36m" : "",
	};
	int err = 0;

	print_settings(&table);
	for (size_t i = 0; i < report->program_cnt && !err; i++)
		err = print_program(&table, &report->programs[i]);
	if (report->program_cnt > 1)
		print_geometric(&table);
	return err;
}
