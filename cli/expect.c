/* SPDX-License-Identifier: BSD-2-Clause */
/* Understanding expectations; see expect.h. */
#include "cli/expect.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/msg.h"

enum { KNOWN_BYTES = 800, DIGIT_MAX = 15 };

enum suffix { SUFFIX_NONE, SUFFIX_PERCENT, SUFFIX_SIZE, SUFFIX_TIME };

struct parser {
	const char *text, *at;
	const struct figures *figures;
	const struct compare_configs *configs;
	struct expect *expect;
	const char *starts[2];   /* of the terms */
	enum suffix suffixes[2]; /* of their numbers */
	int powers[2];           /* of SUFFIX_SIZE: 1 K, 2 M, 3 G */
	char *why;
};

static int __attribute__((format(printf, 3, 4)))
wrong(const struct parser *parser, const char *at, const char *fmt, ...)
{
	size_t used = (size_t)snprintf(parser->why, EXPECT_WHY_BYTES, "at character %zu: ", at - parser->text + 1);
	va_list args;

	va_start(args, fmt);
	vsnprintf(parser->why + used, EXPECT_WHY_BYTES - used, fmt, args);
	va_end(args);
	return -EINVAL;
}

static void skip_spaces(struct parser *parser)
{
	while (*parser->at == ' ' || *parser->at == '\t')
		parser->at++;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_in_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '.';
}

/* What the word after a number says; the number itself is changed where the figure need not be known. */
static int parse_suffix(struct parser *parser, int term)
{
	static const struct {
		const char *word;
		enum suffix suffix;
		double factor;
		int power;
	} words[] = {{"%", SUFFIX_PERCENT, 0.01, 0}, {"K", SUFFIX_SIZE, 1, 1},  {"M", SUFFIX_SIZE, 1, 2},
		     {"G", SUFFIX_SIZE, 1, 3},       {"ns", SUFFIX_TIME, 1, 0}, {"us", SUFFIX_TIME, 1e3, 0},
		     {"ms", SUFFIX_TIME, 1e6, 0},    {"s", SUFFIX_TIME, 1e9, 0}};
	size_t bytes = *parser->at == '%' ? 1 : 0;

	while (bytes < 8 && parser->at[0] != '%' && is_in_name(parser->at[bytes]))
		bytes++;
	if (!bytes)
		return 0;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strlen(words[i].word) == bytes && memcmp(words[i].word, parser->at, bytes) == 0) {
			parser->suffixes[term] = words[i].suffix;
			parser->powers[term] = words[i].power;
			parser->expect->terms[term].number *= words[i].factor;
			parser->at += bytes;
			return 0;
		}
	return wrong(parser, parser->at, "unknown unit '%.*s'; known: %%, K, M, G, ns, us, ms, s", (int)bytes,
		     parser->at);
}

static int parse_number(struct parser *parser, int term)
{
	const char *start = parser->at;
	double number = 0, scale = 1;
	bool is_negative = *start == '-';
	int digit_cnt = 0;

	parser->at += is_negative;
	for (; is_digit(*parser->at); parser->at++, digit_cnt++)
		number = number * 10 + (*parser->at - '0');
	if (!digit_cnt)
		return wrong(parser, start, "a number or the name of a figure is wanted");
	if (*parser->at == '.' && is_digit(parser->at[1]))
		for (parser->at++; is_digit(*parser->at); parser->at++, digit_cnt++)
			number += (*parser->at - '0') * (scale /= 10);
	if (digit_cnt > DIGIT_MAX)
		return wrong(parser, start, "more than %d digits", DIGIT_MAX);
	parser->expect->terms[term].number = is_negative ? -number : number;
	return parse_suffix(parser, term);
}

static int parse_phase(struct parser *parser, int term)
{
	const char *start = ++parser->at;
	size_t bytes = 0;

	while (is_in_name(start[bytes]))
		bytes++;
	parser->at += bytes;
	if (parser->expect->terms[term].figure->is_of_run)
		return wrong(parser, start, "'%s' is of the whole run, not by phase",
			     parser->expect->terms[term].figure->name);
	for (int phase = 0; phase < AT_PHASE_CNT; phase++)
		if (strlen(profile__phase_name(phase)) == bytes &&
		    memcmp(profile__phase_name(phase), start, bytes) == 0) {
			parser->expect->terms[term].phase = phase;
			return 0;
		}
	if (bytes != 3 || memcmp(start, "all", bytes) != 0)
		return wrong(parser, start, "unknown phase '%.*s'; known: startup, measured, teardown, all", (int)bytes,
			     start);
	parser->expect->terms[term].phase = EXPECT_PHASE_ALL;
	return 0;
}

/* A configuration's name may have any character: it is compared with those that there are. */
static int parse_config(struct parser *parser, int term)
{
	const struct compare_configs *configs = parser->configs;
	const char *start = parser->at + 1;
	char known[KNOWN_BYTES] = "";
	size_t used = 0;

	if (!configs)
		return wrong(parser, parser->at, "configurations are compare's: a run has one");
	for (size_t i = 0; i < configs->cnt; i++) {
		size_t bytes = strlen(configs->all[i].name);

		if (strncmp(start, configs->all[i].name, bytes) == 0 && start[bytes] == ')') {
			parser->expect->terms[term].config = i;
			parser->at = start + bytes + 1;
			return 0;
		}
		if (used < sizeof(known))
			used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
						 configs->all[i].name);
	}
	return wrong(parser, start, "unknown configuration '%.*s'; known: %s", (int)strcspn(start, ")"), start, known);
}

static int parse_figure(struct parser *parser, int term)
{
	struct expect_term *place = &parser->expect->terms[term];
	enum compare_figure parts[FIGURE_PART_MAX];
	const char *start = parser->at;
	char known[KNOWN_BYTES];
	int err = 0;

	while (is_in_name(*parser->at))
		parser->at++;
	if (parser->at == start)
		return wrong(parser, start, "the name of a figure is wanted");
	place->figure = figures__find(parser->figures, start, (size_t)(parser->at - start));
	if (!place->figure)
		return wrong(
			parser, start, "unknown figure '%.*s'; known: %s", (int)(parser->at - start), start,
			figures__known(parser->figures, start, (size_t)(parser->at - start), known, sizeof(known)));
	if (parser->configs && !figure__parts(place->figure, parts))
		return wrong(parser, start, "'%s' is not kept by compare, only by run", place->figure->name);
	skip_spaces(parser);
	if (*parser->at == '@')
		err = parse_phase(parser, term);
	skip_spaces(parser);
	if (!err && *parser->at == '(')
		err = parse_config(parser, term);
	else if (!err && parser->configs)
		err = wrong(parser, parser->at, "which configuration? As %s(%s)", place->figure->name,
			    parser->configs->all[0].name);
	return err;
}

static int parse_term(struct parser *parser, int term)
{
	struct expect_term *place = &parser->expect->terms[term];
	const char *start;
	int err = 0;

	*place = (struct expect_term){.number = 1, .phase = EXPECT_PHASE_SHOWN};
	skip_spaces(parser);
	parser->starts[term] = start = parser->at;
	if (!is_in_name(*start) || is_digit(*start)) {
		err = parse_number(parser, term);
		skip_spaces(parser);
		if (err || *parser->at != '*')
			return err;
		if (parser->suffixes[term] != SUFFIX_NONE && parser->suffixes[term] != SUFFIX_PERCENT)
			return wrong(parser, start, "a factor has no unit but %%");
		parser->suffixes[term] = SUFFIX_NONE;
		parser->at++;
		skip_spaces(parser);
	}
	return parse_figure(parser, term);
}

static int parse_operator(struct parser *parser)
{
	static const char *const words[] = {
		[EXPECT_AT_MOST] = "<=", [EXPECT_AT_LEAST] = ">=", [EXPECT_EQUAL] = "==",
		[EXPECT_UNEQUAL] = "!=", [EXPECT_BELOW] = "<",     [EXPECT_ABOVE] = ">",
	};
	enum expect_operator found = EXPECT_INVALID;

	skip_spaces(parser);
	for (int i = EXPECT_AT_MOST; i <= EXPECT_UNEQUAL; i++)
		if (strncmp(parser->at, words[i], strlen(words[i])) == 0 &&
		    (!found || strlen(words[i]) > strlen(words[found])))
			found = i;
	if (!found)
		return wrong(parser, parser->at, "one of <= < >= > == != is wanted");
	parser->at += strlen(words[found]);
	parser->expect->operator= found;
	return 0;
}

/* The number of one side, in the unit of the other side's figure. */
static int fit_number(struct parser *parser, int term)
{
	struct expect_term *place = &parser->expect->terms[term];
	const struct expect_term *other = &parser->expect->terms[!term];
	double base = other->figure->unit == COMPARE_UNIT_BYTES ? 1024 : 1000;

	switch (parser->suffixes[term]) {
	case SUFFIX_NONE: return 0;
	case SUFFIX_TIME:
		return other->figure->unit == COMPARE_UNIT_NS
			       ? 0
			       : wrong(parser, parser->starts[term], "'%s' is no time", other->figure->name);
	case SUFFIX_SIZE:
		if (other->figure->unit == COMPARE_UNIT_NS)
			return wrong(parser, parser->starts[term], "'%s' is a time: its units are ns, us, ms, s",
				     other->figure->name);
		for (int i = 0; i < parser->powers[term]; i++)
			place->number *= base;
		return 0;
	default:
		place->whole = figures__whole(parser->figures, other->figure);
		return place->whole && !parser->configs
			       ? 0
			       : wrong(parser, parser->starts[term],
				       "'%s' is no part of another figure, of which it could have percents",
				       other->figure->name);
	}
}

int expect__parse(const char *text, const struct figures *figures, const struct compare_configs *configs,
		  struct expect *expect, char why[EXPECT_WHY_BYTES])
{
	struct parser parser = {
		.text = text,
		.at = text,
		.figures = figures,
		.configs = configs,
		.expect = expect,
		.why = why,
	};
	struct expect_term *terms = expect->terms;
	int err;

	*expect = (struct expect){.text = text};
	why[0] = 0;
	err = parse_term(&parser, 0);
	if (!err)
		err = parse_operator(&parser);
	if (!err)
		err = parse_term(&parser, 1);
	skip_spaces(&parser);
	if (!err && *parser.at)
		err = wrong(&parser, parser.at, "the end is wanted, not '%.20s'", parser.at);
	if (err)
		return err;
	if (!terms[0].figure && !terms[1].figure)
		return wrong(&parser, text, "there is no figure in it");
	if (terms[0].figure && terms[1].figure)
		return terms[0].figure->unit == terms[1].figure->unit
			       ? 0
			       : wrong(&parser, parser.starts[1], "'%s' and '%s' have not the same unit",
				       terms[0].figure->name, terms[1].figure->name);
	return fit_number(&parser, terms[0].figure ? 1 : 0);
}

int expect__add(struct expects *expects, const char *text)
{
	if (expects->cnt == EXPECT_MAX) {
		msg__error("--expect: more than %d", EXPECT_MAX);
		return AT_EXIT_USAGE;
	}
	expects->texts[expects->cnt++] = text;
	return 0;
}

int expect__parse_all(struct expects *expects, const struct compare_configs *configs)
{
	char why[EXPECT_WHY_BYTES];

	if (!expects->cnt)
		return 0;
	if (figures__list(&expects->figures)) {
		msg__error("out of memory");
		return AT_EXIT_OWN;
	}
	for (size_t i = 0; i < expects->cnt; i++)
		if (expect__parse(expects->texts[i], &expects->figures, configs, &expects->all[i], why)) {
			msg__error("--expect '%s': %s", expects->texts[i], why);
			return AT_EXIT_USAGE;
		}
	return 0;
}

void expect__free(struct expects *expects)
{
	figures__free(&expects->figures);
}
