/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A finished comparison, and the writers of it. They look at nothing else and
 * change nothing. 0, or -ENOMEM; errors of the stream are left in the stream.
 */
#ifndef ALLOCTRACE_CLI_RENDER_COMPARE_H
#define ALLOCTRACE_CLI_RENDER_COMPARE_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/compare.h"
#include "cli/compare_config.h"
#include "cli/output.h"
#include "cli/profile.h"

enum { COMPARE_WARNING_MAX = 64, COMPARE_WARNING_BYTES = 1024 };

/* One scenario, or the command. */
struct compare_program {
	char *name; /* as given */
	struct comparison *comparison;
	char (*notes)[256]; /* by configuration: why its policies do not apply; "" = they do */
};

struct compare_load {
	double start, end;     /* runnable tasks in the last minute, of the whole system; < 0 = not known */
	double own;            /* CPUs that the runs themselves kept busy, on average */
	double others, stolen; /* CPUs that other processes kept busy, and other virtual machines; < 0 = not known */
};

struct compare_report {
	const struct compare_configs *configs;
	const struct profile **shown; /* by configuration: a profile with its settings, and the host */
	size_t base;
	struct compare_program *programs;
	size_t program_cnt;
	size_t block_cnt, wanted_block_cnt; /* wanted: at least, with a precision */
	uint64_t seed;
	bool is_matrix;
	bool is_apart;            /* of two saved files: not measured in turn */
	int signal;               /* that ended it early; 0 = none */
	double precision_percent; /* blocks went on until times were within it; 0 = blocks were counted only */
	bool is_out_of_time;      /* --time ended it */
	char governor[32];        /* of the CPU frequency; "" = not known */
	struct compare_load load;
	char warnings[COMPARE_WARNING_MAX][COMPARE_WARNING_BYTES];
	size_t warning_cnt;
};

/* When all runs are there: computes the statistics, and the warnings from all the rest. 0 or -ENOMEM. */
int render_compare__finish(struct compare_report *report);
/* Geometric mean over the programs of a configuration's change; NAN when one has none, or is 0. */
double render_compare__geometric(const struct compare_report *report, size_t config, enum compare_figure figure);

int render_compare__table(FILE *out, const struct compare_report *report, const struct look *look);
int render_compare__json(FILE *out, const struct compare_report *report);
/*
 * One page with its charts and all that they need. Both return 0, or the exit
 * status after saying why: the build may have had no charting library.
 */
int render_compare__open_page(struct output *page, const char *name);
int render_compare__write_page(struct output *page, const struct compare_report *report);

#endif
