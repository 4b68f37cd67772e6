/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages to the user on stderr, "alloctrace: ..." a line. Never a result. */
#ifndef ALLOCTRACE_CLI_MSG_H
#define ALLOCTRACE_CLI_MSG_H

#include <stdbool.h>

/* A failure: what failed, on what, why, and what to do, in one line. */
void msg__error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Something that the user should know and that does not stop the work. */
void msg__warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Progress and detail; shown with -v only. */
void msg__info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* level -1: errors only (-q); 0: errors and warnings; 1: all (-v). */
void msg__set_level(int level);
bool msg__is_quiet(void);

#endif
