/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts that the JSON documents have in common. Apart from render.h, so that the other renderers need not know jansson.
 */
#ifndef ALLOCTRACE_CLI_RENDER_JSON_H
#define ALLOCTRACE_CLI_RENDER_JSON_H

#include <jansson.h>

#include "cli/profile.h"
#include "cli/render_compare.h"

/* The schemas. */
#define RENDER_JSON_PROFILE "alloctrace.profile/1"
#define RENDER_JSON_COMPARISON "alloctrace.comparison/1"

/* The whole documents; NULL when out of memory. */
json_t *render_json__document(const struct profile *profile);
json_t *render_json__comparison(const struct compare_report *report);

/* The machine. */
json_t *render_json__host(const struct profile *profile);
/* Each tunable of a --tune list; NULL is an empty list. */
json_t *render_json__tune(const char *tune);

/* The ledgers that were kept, into a phase object. */
void render_json__set_ledgers(json_t *object, const struct profile *profile, const struct phase_stat *phase);
/* Waits for locks, into the objects of the classes. */
void render_json__set_waits(json_t *classes, const struct profile *profile, const struct phase_stat *phase);

#endif
