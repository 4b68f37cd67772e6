/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The writers of results: each takes a finished profile and writes it to a
 * stream. They look at nothing else and change nothing.
 */
#ifndef ALLOCTRACE_CLI_RENDER_H
#define ALLOCTRACE_CLI_RENDER_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/profile.h"

struct render_opts {
	bool has_color;
	unsigned top_cnt; /* processes, and threads of each, that are listed; 0 = all */
};

/* 0, or -ENOMEM; errors of the stream are left in the stream. */
int render__table(FILE *out, const struct profile *profile, const struct render_opts *opts);
int render__json(FILE *out, const struct profile *profile);
/* What came between two times since the start, of an attached target; JSON in one line. */
int render__interval_table(FILE *out, const struct profile *part, const struct render_opts *opts, uint64_t from_ns,
			   uint64_t to_ns);
int render__interval_json(FILE *out, const struct profile *part, uint64_t from_ns, uint64_t to_ns);

/* Part of the table: the ledgers of the phase that it shows. total: profile__total(). */
void render__ledgers(FILE *out, const struct profile *profile, const struct phase_stat *total,
		     const struct render_opts *opts);

/* A phase beyond startup was marked: the report is by phases, not "all". */
static inline bool render__has_phases(const struct profile *profile)
{
	return profile->phases_seen & ~(1u << AT_PHASE_STARTUP);
}

/* "decision" names as in alloc/control.h. */
const char *render__decision_name(enum atm_decision decision);
/* Sum of a request kind over its size bands. */
uint64_t render__band_sum(const uint64_t cnt[ATM_BAND_CNT]);

#endif
