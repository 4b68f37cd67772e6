/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The allocators of all attached processes: which ones they are, and what the bundled one counted between
 * attaching and the end. Read from outside; no process is stopped or changed.
 *
 * Order: allocators__begin once they are traced, allocators__end while they still are, allocators__fill with what was
 * traced. Requests are read inside the time of tracing, so that there are never more of them than were traced.
 */
#ifndef ALLOCTRACE_CLI_ALLOCATORS_H
#define ALLOCTRACE_CLI_ALLOCATORS_H

#include <stdbool.h>

#include "cli/processes.h"
#include "cli/profile.h"

struct allocators;

/* Takes over *first, the processes that there are. 0 or -ENOMEM; *allocators is to be freed in any case. */
int allocators__begin(struct allocators **allocators, struct processes *first);
/*
 * Takes over *last, the processes that there are then. is_partial: of some processes only some threads
 * are traced, whose requests cannot be told from those of the others. 0 or -ENOMEM.
 */
int allocators__end(struct allocators *allocators, struct processes *last, bool is_partial);
/* Into the profile and its processes. */
void allocators__fill(const struct allocators *allocators, struct profile *profile);
/* NULL-safe. */
void allocators__free(struct allocators *allocators);

#endif
