/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Expectations: what --expect says of a run or a comparison, and whether it is
 * so. The grammar, with spaces where one likes:
 *
 *     expectation = term ("<=" | "<" | ">=" | ">" | "==" | "!=") term
 *     term        = number | [number "*"] figure
 *     number      = ["-"] digits ["." digits] [unit]
 *     unit        = "%" | "K" | "M" | "G" | "ns" | "us" | "ms" | "s"
 *     figure      = name ["@" phase] ["(" configuration ")"]
 *
 * One term at least is a figure. docs/ci-gate.md says what each means.
 */
#ifndef ALLOCTRACE_CLI_EXPECT_H
#define ALLOCTRACE_CLI_EXPECT_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/figure.h"
#include "cli/render_compare.h"

enum { EXPECT_MAX = 64, EXPECT_WHY_BYTES = 900 };

enum expect_operator {
	EXPECT_INVALID,
	EXPECT_AT_MOST,
	EXPECT_BELOW,
	EXPECT_AT_LEAST,
	EXPECT_ABOVE,
	EXPECT_EQUAL,
	EXPECT_UNEQUAL,
};

enum { EXPECT_PHASE_SHOWN = -1, EXPECT_PHASE_ALL = AT_PHASE_CNT };

struct expect_term {
	const struct figure *figure; /* NULL: a number */
	const struct figure *whole;  /* of a number in percent: what it is a part of */
	double number;               /* the number, or the factor of the figure */
	int phase;                   /* AT_PHASE_*, EXPECT_PHASE_* */
	size_t config;               /* of a comparison */
};

struct expect {
	const char *text; /* as given; not owned */
	enum expect_operator operator;
	struct expect_term terms[2];
};

/* What was given, and what it means; zeroed at first. */
struct expects {
	const char *texts[EXPECT_MAX];
	size_t cnt;
	struct figures figures;
	struct expect all[EXPECT_MAX];
};

/* Takes an option's value. 0, or AT_EXIT_USAGE after saying that there are too many. */
int expect__add(struct expects *expects, const char *text);
/*
 * Understands all of them, for a run (configs NULL) or a comparison of configs.
 * 0, or the exit status after saying what is wrong and where. expect__free in
 * any case.
 */
int expect__parse_all(struct expects *expects, const struct compare_configs *configs);
void expect__free(struct expects *expects);

/* One of them; -EINVAL and the reason in `why`. */
int expect__parse(const char *text, const struct figures *figures, const struct compare_configs *configs,
		  struct expect *expect, char why[EXPECT_WHY_BYTES]);

/*
 * Says which are not met, with what was measured. 0; AT_EXIT_UNMET; AT_EXIT_OWN
 * when a figure was not measured.
 */
int expect__check_profile(const struct expects *expects, const struct profile *profile);
int expect__check_comparison(const struct expects *expects, const struct compare_report *report);

#endif
