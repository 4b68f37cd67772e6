/* SPDX-License-Identifier: BSD-2-Clause */
/* Small parts of JSON documents. Without memory they are NULL, which jansson takes and leaves out. */
#ifndef ALLOCTRACE_CLI_JSON_PART_H
#define ALLOCTRACE_CLI_JSON_PART_H

#include <stdint.h>

#include <jansson.h>

/* JSON's integers are signed here: what is too large becomes the largest. */
json_t *json_part__number(uint64_t value);
void json_part__set_number(json_t *object, const char *key, uint64_t value);
/* Takes over part: adds it to object when it has something in it. */
void json_part__set_if_any(json_t *object, const char *key, json_t *part);

#endif
