/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The runs of a comparison: their order, the warm-up, when to stop, progress on
 * a terminal. Fills a report, renders nothing. Functions return 0, or the exit
 * status after saying what is wrong.
 */
#ifndef ALLOCTRACE_CLI_COMPARE_RUNS_H
#define ALLOCTRACE_CLI_COMPARE_RUNS_H

#include <signal.h>

#include "cli/render_compare.h"
#include "cli/session.h"
#include "cli/stats.h"

enum { COMPARE_BLOCK_MAX = 100000 };

struct compare_plan {
	struct session_opts session;
	size_t block_cnt;         /* at least, with a limit */
	uint64_t limit_ns;        /* 0 = none; else blocks go on until times are precise, or it is up */
	double precision_percent; /* with a limit: of compare__is_precise */
	uint64_t seed;
	bool is_showing_output;
	char **command; /* NULL-terminated; NULL: scenarios */
};

struct compare_runs {
	const struct compare_plan *plan;
	struct session session;
	struct stats_rng rng;
	int null_fd;
	char ***words; /* by program; each NULL-terminated and owned, but for the command's */
	uint64_t start_ns;
	uint64_t own_cpu_ns; /* user and system time of the runs */
	size_t run_cnt;      /* finished, warm-ups too */
	bool has_handlers;
	struct sigaction old_actions[3];
};

/*
 * Finds all that can be found wrong without starting anything. report has the
 * configurations and the base; gets the programs.
 */
int compare_runs__prepare(struct compare_runs *runs, const struct compare_plan *plan, char **programs,
			  size_t program_cnt, struct compare_report *report);
/* Runs everything and computes the statistics: of the finished blocks, when a signal came. */
int compare_runs__run(struct compare_runs *runs, struct compare_report *report);
/* Frees what it holds, and what the report got. */
void compare_runs__free(struct compare_runs *runs, struct compare_report *report);

#endif
