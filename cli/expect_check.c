/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether expectations are met, and what is said when not; see expect.h. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cmd.h"
#include "cli/expect.h"
#include "cli/format.h"
#include "cli/msg.h"
#include "cli/render.h"
#include "cli/render_json.h"
#include "cli/stats.h"

enum { VALUE_BYTES = 64, NAME_BYTES = 160 };

/* What the terms are looked up in: a document of a run, or a program of a comparison. */
struct source {
	const json_t *document; /* of a run */
	const char *shown;      /* the phase that is shown */
	const struct compare_report *report;
	const struct compare_program *program;
};

static bool is_met(enum expect_operator operator, double left, double right)
{
	switch (operator) {
	case EXPECT_AT_MOST: return left <= right;
	case EXPECT_BELOW: return left < right;
	case EXPECT_AT_LEAST: return left >= right;
	case EXPECT_ABOVE: return left > right;
	case EXPECT_EQUAL: return left == right;
	case EXPECT_UNEQUAL: return left != right;
	default: return false;
	}
}

static bool value_in_run(const struct source *source, const struct figure *figure, int phase, double *value)
{
	const json_t *phases = json_object_get(source->document, "phases");
	const char *name = phase == EXPECT_PHASE_SHOWN ? source->shown : profile__phase_name(phase);
	const json_t *object = phase == EXPECT_PHASE_ALL || figure->is_of_run
				       ? json_object_get(source->document, "total")
				       : json_object_get(phases, name);

	return object && figure__in_phase(figure, source->document, object, value);
}

/* Median over the blocks of the sum of the parts. */
static bool value_in_comparison(const struct source *source, const struct expect_term *term, double *value)
{
	const struct comparison *comparison = source->program->comparison;
	enum compare_figure parts[FIGURE_PART_MAX];
	size_t cnt = figure__parts(term->figure, parts);
	double *sums;
	bool is_there = true;

	if (term->phase != EXPECT_PHASE_SHOWN &&
	    term->phase != (comparison->has_phases ? (int)AT_PHASE_MEASURED : (int)EXPECT_PHASE_ALL))
		return false;
	for (size_t i = 0; i < cnt; i++)
		is_there &= comparison->is_measured[parts[i]];
	sums = calloc(comparison->block_cnt, sizeof(*sums));
	if (!is_there || !sums) {
		free(sums);
		return false;
	}
	for (size_t block = 0; block < comparison->block_cnt; block++)
		for (size_t i = 0; i < cnt; i++)
			sums[block] += compare__value(comparison, block, term->config, parts[i]);
	is_there = !stats__median(sums, comparison->block_cnt, value);
	free(sums);
	return is_there;
}

static bool value_of(const struct source *source, const struct expect_term *term, double *value)
{
	return source->program ? value_in_comparison(source, term, value)
			       : value_in_run(source, term->figure, term->phase, value);
}

/* Exact: an expectation may fail by 1. */
static const char *format_value(double value, enum compare_unit unit, char buf[VALUE_BYTES])
{
	static const char *const units[] = {
		[COMPARE_UNIT_CNT] = "", [COMPARE_UNIT_NS] = " ns", [COMPARE_UNIT_BYTES] = " bytes"};
	char digits[FORMAT_BYTES];
	double size = fabs(value);

	if (size < 1e15 && size == floor(size))
		snprintf(buf, VALUE_BYTES, "%s%s%s", value < 0 ? "-" : "", format__count((uint64_t)size, digits),
			 units[unit]);
	else
		snprintf(buf, VALUE_BYTES, "%.6g%s", value, units[unit]);
	return buf;
}

static const char *format_name(const struct source *source, const struct expect_term *term, char buf[NAME_BYTES])
{
	const char *phase = term->phase == EXPECT_PHASE_SHOWN ? NULL
			    : term->phase == EXPECT_PHASE_ALL ? "all"
							      : profile__phase_name(term->phase);

	snprintf(buf, NAME_BYTES, "%s%s%s%s%s%s", term->figure->name, phase ? "@" : "", phase ? phase : "",
		 source->report ? "(" : "", source->report ? source->report->configs->all[term->config].name : "",
		 source->report ? ")" : "");
	return buf;
}

/* One side: its value, and in `said` "NAME is VALUE", or "" for a plain number. False: not measured. */
static bool side(const struct source *source, const struct expect *expect, int number, double *value,
		 char said[NAME_BYTES + VALUE_BYTES + 64])
{
	const struct expect_term *term = &expect->terms[number], *other = &expect->terms[!number];
	char name[NAME_BYTES], text[VALUE_BYTES];
	double whole;

	said[0] = 0;
	if (!term->figure) {
		struct expect_term of = *other;

		*value = term->number;
		if (!term->whole)
			return true;
		of.figure = term->whole;
		if (!value_of(source, &of, &whole)) {
			msg__error("cannot tell whether '%s': %s was not measured", expect->text,
				   format_name(source, &of, name));
			return false;
		}
		*value = term->number * whole;
		snprintf(said, NAME_BYTES + VALUE_BYTES, "%s is %s", format_name(source, &of, name),
			 format_value(whole, of.figure->unit, text));
		return true;
	}
	if (!value_of(source, term, value)) {
		msg__error("cannot tell whether '%s': %s was not measured", expect->text,
			   format_name(source, term, name));
		return false;
	}
	snprintf(said, NAME_BYTES + VALUE_BYTES, "%s is %s", format_name(source, term, name),
		 format_value(*value, term->figure->unit, text));
	*value *= term->number;
	return true;
}

static int check(const struct expects *expects, const struct source *source)
{
	const char *program = source->program ? source->program->name : "";
	int result = 0;

	for (size_t i = 0; i < expects->cnt; i++) {
		const struct expect *expect = &expects->all[i];
		char left_said[NAME_BYTES + VALUE_BYTES + 64], right_said[NAME_BYTES + VALUE_BYTES + 64];
		char escaped[256];
		double left, right;

		if (!side(source, expect, 0, &left, left_said) || !side(source, expect, 1, &right, right_said)) {
			result = AT_EXIT_OWN;
			continue;
		}
		format__escape(program, escaped, sizeof(escaped));
		if (is_met(expect->operator, left, right)) {
			msg__info("met: '%s'%s%s: %s%s%s", expect->text, *program ? " in " : "", escaped, left_said,
				  left_said[0] && right_said[0] ? ", " : "", right_said);
			continue;
		}
		msg__error("not met: '%s'%s%s: %s%s%s", expect->text, *program ? " in " : "", escaped, left_said,
			   left_said[0] && right_said[0] ? ", " : "", right_said);
		if (!result)
			result = AT_EXIT_UNMET;
	}
	return result;
}

int expect__check_profile(const struct expects *expects, const struct profile *profile)
{
	struct source source = {.shown = render__has_phases(profile) ? profile__phase_name(AT_PHASE_MEASURED) : "all"};
	json_t *document;
	int result;

	if (!expects->cnt)
		return 0;
	document = render_json__document(profile);
	if (!document) {
		msg__error("out of memory");
		return AT_EXIT_OWN;
	}
	source.document = document;
	result = check(expects, &source);
	json_decref(document);
	return result;
}

int expect__check_comparison(const struct expects *expects, const struct compare_report *report)
{
	int result = 0;

	for (size_t i = 0; i < report->program_cnt && expects->cnt; i++) {
		struct source source = {.report = report, .program = &report->programs[i]};
		int one = check(expects, &source);

		if (one > result)
			result = one;
	}
	return result;
}
