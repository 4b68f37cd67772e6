/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts that the JSON documents have in common. Apart from render.h, so that the other renderers need not know jansson.
 */
#ifndef ALLOCTRACE_CLI_RENDER_JSON_H
#define ALLOCTRACE_CLI_RENDER_JSON_H

#include <jansson.h>

#include "cli/profile.h"

/* Text that need not be UTF-8; see the top of render_json.c. */
void render_json__set_text(json_t *object, const char *key, const char *text);
/* The machine. */
json_t *render_json__host(const struct profile *profile);
/* Each tunable of a --tune list; NULL is an empty list. */
json_t *render_json__tune(const char *tune);

#endif
