/* SPDX-License-Identifier: BSD-2-Clause */
/* The writers of callchains. They look at a finished profile, whose callchains are there, and change nothing. */
#ifndef ALLOCTRACE_CLI_RENDER_CALLCHAIN_H
#define ALLOCTRACE_CLI_RENDER_CALLCHAIN_H

#include <jansson.h>
#include <stdio.h>

#include "cli/profile.h"

/* For people: a tree a class, from the outermost caller inwards, worst first. 0 or -ENOMEM. */
int render_callchain__tree(FILE *out, const struct profile *profile);
/* For output__write: data is a struct profile. 0 or -ENOMEM. */
int render_callchain__folded(FILE *out, const void *data);
int render_callchain__pprof(FILE *out, const void *data);
/* The key "callchains" of the JSON document. NULL when out of memory. */
json_t *render_callchain__json(const struct profile *profile);

#endif
