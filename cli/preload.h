/* SPDX-License-Identifier: BSD-2-Clause */
/* Which allocator the command gets, and the environment that gives it. */
#ifndef ALLOCTRACE_CLI_PRELOAD_H
#define ALLOCTRACE_CLI_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>

#define PRELOAD_BUNDLED "bundled"
#define PRELOAD_SYSTEM "system"

/*
 * Finds the library of --allocator NAME; path is "" for the system's own. 0, or
 * the exit status after saying what is wrong.
 */
int preload__find(const char *allocator, char *path, size_t path_bytes);
/* Puts path in front of LD_PRELOAD of this process, and so of the command. 0 or the exit status. */
int preload__set(const char *path);

#endif
