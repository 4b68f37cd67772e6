/* SPDX-License-Identifier: BSD-2-Clause */
/* What the bundled allocator counted, and what its requests cost in the kernel: as lines of the table, and as JSON. */
#ifndef ALLOCTRACE_CLI_RENDER_REQUESTS_H
#define ALLOCTRACE_CLI_RENDER_REQUESTS_H

#include <jansson.h>
#include <stdio.h>

#include "cli/processes.h"
#include "cli/profile.h"

/* Of the phase that the table shows; total: profile__total(). top_cnt: of processes, 0 = all. */
void render_requests__table(FILE *out, const struct profile *profile, const struct phase_stat *total, unsigned top_cnt);
/* Into the object of a phase. */
void render_requests__phase_json(json_t *object, const struct profile *profile, const struct phase_stat *phase);
/* Into the object of a process. */
void render_requests__process_json(json_t *object, const struct process_stat *item);

#endif
