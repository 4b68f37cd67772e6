/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of a report that an attached target has more: processes and threads. See render.h. */
#ifndef ALLOCTRACE_CLI_RENDER_PROCESSES_H
#define ALLOCTRACE_CLI_RENDER_PROCESSES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli/processes.h"

/* "2 processes, 7 threads: redis-server (1234), ...": who was attached to. */
void render_processes__headline(FILE *out, const struct processes *processes);
/* Processes, the costliest first, each with its threads; top_cnt of each at most, 0 = all. */
void render_processes__table(FILE *out, const struct processes *processes, unsigned top_cnt, bool has_color,
			     bool has_threads);
/* Fills "processes", and "other" where there is any. ledgers: LEDGER_*, those that were kept. */
void render_processes__json(json_t *document, const struct processes *processes, unsigned ledgers);

#endif
