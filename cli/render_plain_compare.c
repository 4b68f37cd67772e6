/* SPDX-License-Identifier: BSD-2-Clause */
/* A comparison as CSV and Markdown; see render_plain.h. */
#include <math.h>
#include <string.h>

#include "cli/format.h"
#include "cli/render_plain.h"

static const char *const units[] = {
	[COMPARE_UNIT_CNT] = "count", [COMPARE_UNIT_NS] = "ns", [COMPARE_UNIT_BYTES] = "bytes"};

/* ",VALUE": as many digits as it has. */
static void print_number(FILE *out, double value)
{
	if (value == floor(value) && fabs(value) < 9e15)
		fprintf(out, ",%.0f", value);
	else
		fprintf(out, ",%.17g", value);
}

static void print_interval(FILE *out, const struct stats_interval *interval)
{
	print_number(out, interval->median);
	print_number(out, interval->low);
	print_number(out, interval->high);
}

static void print_line(FILE *out, const struct compare_report *report, const struct compare_program *program,
		       size_t config, enum compare_figure figure)
{
	const struct compare_stat *stat = compare__stat(program->comparison, config, figure);
	char key[COMPARE_NAME_BYTES];

	render_plain__field(out, program->name);
	fputc(',', out);
	render_plain__field(out, report->configs->all[config].name);
	fprintf(out, ",%s,%s", compare__key(figure, key), units[compare__unit(figure)]);
	print_interval(out, &stat->value);
	if (config == report->base) {
		fputs(",,,,,,,,", out);
	} else {
		print_interval(out, &stat->difference);
		if (stat->has_ratio)
			print_interval(out, &stat->ratio);
		else
			fputs(",,,", out);
		print_number(out, stat->p);
		fprintf(out, ",%s", stat->is_same ? "true" : "false");
	}
	fprintf(out, ",%zu", stat->outlier_cnt);
	print_number(out, stat->spread);
	fputc('\n', out);
}

int render_plain__compare_csv(FILE *out, const struct compare_report *report)
{
	fputs("program,configuration,figure,unit,median,low,high,difference,difference_low,difference_high,ratio,"
	      "ratio_low,ratio_high,p,same,outliers,spread\n",
	      out);
	for (size_t i = 0; i < report->program_cnt; i++)
		for (size_t config = 0; config < report->configs->cnt; config++)
			for (int figure = 0; figure < COMPARE_FIGURE_CNT; figure++)
				if (report->programs[i].comparison->is_measured[figure])
					print_line(out, report, &report->programs[i], config, figure);
	return 0;
}

static void print_cell(FILE *out, const struct compare_report *report, const struct comparison *comparison,
		       size_t config, enum compare_figure figure)
{
	const struct compare_stat *stat = compare__stat(comparison, config, figure);
	double value = stat->value.median;
	char text[FORMAT_BYTES];

	if (compare__unit(figure) == COMPARE_UNIT_NS)
		fputs(format__ns((uint64_t)(value + 0.5), text), out);
	else if (compare__unit(figure) == COMPARE_UNIT_BYTES)
		fputs(format__bytes((uint64_t)(value + 0.5), text), out);
	else
		fprintf(out, "%s%s", format__count((uint64_t)value, text), value == floor(value) ? "" : ".5");
	if (config != report->base && stat->has_ratio)
		fprintf(out, " (%+.1f %%)", 100 * (stat->ratio.median - 1));
	if (config != report->base && stat->is_same)
		fputs(" \\~", out);
	fputs(" | ", out);
}

static void print_program(FILE *out, const struct compare_report *report, const struct compare_program *program)
{
	char name[COMPARE_NAME_BYTES];

	fputs("\n## ", out);
	render_plain__text(out, program->name);
	fprintf(out, "\n\n%s, median of %zu, change against ",
		program->comparison->has_phases ? "calls and kernel time of its measured phase" : "the whole run",
		report->block_cnt);
	render_plain__text(out, report->configs->all[report->base].name);
	fputs("; \\~ cannot be told from chance\n\n| figure | ", out);
	for (size_t config = 0; config < report->configs->cnt; config++) {
		render_plain__text(out, report->configs->all[config].name);
		fputs(" | ", out);
	}
	fputs("\n|---|", out);
	for (size_t config = 0; config < report->configs->cnt; config++)
		fputs("--:|", out);
	fputc('\n', out);
	for (int figure = 0; figure < COMPARE_FIGURE_CNT; figure++) {
		if (!compare__occurs(program->comparison, figure))
			continue;
		fprintf(out, "| %s | ", compare__name(figure, name));
		for (size_t config = 0; config < report->configs->cnt; config++)
			print_cell(out, report, program->comparison, config, figure);
		fputc('\n', out);
	}
}

int render_plain__compare_markdown(FILE *out, const struct compare_report *report)
{
	const struct profile *host = report->shown[0];

	fprintf(out, "# alloctrace %s compare\n\nTier %d; Linux %s, %d CPUs; seed %llu\n", host->version, host->tier,
		host->kernel, host->cpu_cnt, (unsigned long long)report->seed);
	for (size_t i = 0; i < report->warning_cnt; i++) {
		fputs(i ? "* " : "\n* ", out);
		render_plain__text(out, report->warnings[i]);
		fputc('\n', out);
	}
	for (size_t i = 0; i < report->program_cnt; i++)
		print_program(out, report, &report->programs[i]);
	return 0;
}
