/* SPDX-License-Identifier: BSD-2-Clause */
/* Which allocator the command gets, and the environment that gives it. */
#ifndef ALLOCTRACE_CLI_PRELOAD_H
#define ALLOCTRACE_CLI_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/environment.h"

#define PRELOAD_BUNDLED "bundled"
#define PRELOAD_SYSTEM "system"

/*
 * Finds the library of --allocator NAME; path is "" for the system's own. 0, or
 * the exit status after saying what is wrong.
 */
int preload__find(const char *allocator, char *path, size_t path_bytes);
/* Puts path in front of LD_PRELOAD. 0 or the exit status. */
int preload__set(struct environment *environment, const char *path);

#endif
