/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes and threads in a saved profile: every figure as it was measured. */
#ifndef ALLOCTRACE_CLI_PROCESSES_FIELDS_H
#define ALLOCTRACE_CLI_PROCESSES_FIELDS_H

#include <jansson.h>

#include "cli/fields.h"
#include "cli/processes.h"

/* A new object; NULL when out of memory. */
json_t *processes_fields__write(const struct processes *processes);
/* As fields__read; *processes, to be freed in any case, is empty before. */
int processes_fields__read(const json_t *object, struct processes *processes, struct fields_reading *reading);

#endif
