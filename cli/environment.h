/* SPDX-License-Identifier: BSD-2-Clause */
/* The environment of a command, apart from our own: every run begins with a copy, and none sees another's changes. */
#ifndef ALLOCTRACE_CLI_ENVIRONMENT_H
#define ALLOCTRACE_CLI_ENVIRONMENT_H

#include <stddef.h>

struct environment {
	char **vars; /* NULL-terminated, for execve; all owned */
	size_t cnt;
};

/* Copies vars. 0 or -ENOMEM; free in both cases. */
int environment__copy(struct environment *environment, char *const *vars);
/* NULL when it is not set. */
const char *environment__get(const struct environment *environment, const char *name);
/* Replaces a variable of that name. 0 or -ENOMEM. */
int environment__set(struct environment *environment, const char *name, const char *value);
void environment__unset(struct environment *environment, const char *name);
/* Frees what it holds; a zeroed one, too. */
void environment__free(struct environment *environment);

#endif
