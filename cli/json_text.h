/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Text in JSON. JSON is Unicode; arguments and paths are bytes. Valid UTF-8 is
 * written as it is (the writer escapes quotes and control characters). In
 * anything else each broken byte becomes U+FFFD, and a second key, named with
 * "_latin1" at the end, holds the whole text with one character U+0000-U+00FF a
 * byte: encoding it as Latin-1 gives the original back.
 */
#ifndef ALLOCTRACE_CLI_JSON_TEXT_H
#define ALLOCTRACE_CLI_JSON_TEXT_H

#include <jansson.h>

/* Both keys, where the text needs them. */
void json_text__set(json_t *object, const char *key, const char *text);
/* An array of texts; the second key holds all of them when one needs it. texts: NULL-terminated; NULL = none. */
void json_text__set_array(json_t *object, const char *key, char *const *texts);

/*
 * The original bytes, owned by the caller. 0; -ENOENT when there is no such
 * key, -EINVAL when it holds something else than text, -ENOMEM.
 */
int json_text__get(const json_t *object, const char *key, char **text);
int json_text__get_array(const json_t *object, const char *key, char ***texts);

#endif
