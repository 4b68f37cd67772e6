/* SPDX-License-Identifier: BSD-2-Clause */
/* The ledgers of single processes and threads of an attached target. See render_processes.h. */
#ifndef ALLOCTRACE_CLI_RENDER_ROW_LEDGERS_H
#define ALLOCTRACE_CLI_RENDER_ROW_LEDGERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli/processes.h"

/* A line a process, in their order; of those beyond top_cnt (0 = all) none. Nothing where there is nothing to tell. */
void render_row_ledgers__table(FILE *out, const struct processes *processes, unsigned ledgers, unsigned top_cnt,
			       bool has_color);
/* Sets a key for each of the ledgers (LEDGER_*) that were kept. */
void render_row_ledgers__json(json_t *object, const struct at_row_ledger *ledger, unsigned ledgers);

#endif
