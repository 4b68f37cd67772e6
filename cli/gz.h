/* SPDX-License-Identifier: BSD-2-Clause */
/* gzip in memory: a whole text in, a whole text out, and never more than a limit. */
#ifndef ALLOCTRACE_CLI_GZ_H
#define ALLOCTRACE_CLI_GZ_H

#include <stdbool.h>
#include <stddef.h>

/* The same text gives the same bytes: no time and no name are in it. 0 or -ENOMEM; *packed is the caller's. */
int gz__pack(const char *text, size_t bytes, char **packed, size_t *packed_bytes);
/*
 * Unpacks one gzip member. *text is the caller's, with a 0 behind its end. 0;
 * -EFBIG when it unpacks to more than most_bytes, -ENODATA when it ends too
 * early, -EBADMSG when it is damaged or something follows it, -ENOMEM.
 */
int gz__unpack(const char *packed, size_t packed_bytes, size_t most_bytes, char **text, size_t *text_bytes);
/* Begins as gzip does. */
bool gz__is_packed(const char *data, size_t bytes);

#endif
