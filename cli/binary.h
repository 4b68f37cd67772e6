/* SPDX-License-Identifier: BSD-2-Clause */
/* What a command is, looked at before it is started: found where, and can a preload reach it? */
#ifndef ALLOCTRACE_CLI_BINARY_H
#define ALLOCTRACE_CLI_BINARY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * The files that execvp would try for `name`, in order, NULL-terminated; only
 * those that exist. For a name with a slash: itself, existing or not. NULL when
 * out of memory. Free with binary__free_paths.
 */
char **binary__paths(const char *name);
void binary__free_paths(char **paths);

/* Why a preloaded allocator does not replace the malloc of a program. */
struct binary_finding {
	bool is_replaceable; /* it does: nothing to say */
	bool is_32bit;
	char why[180]; /* "PATH is static"; "" when replaceable */
};

/*
 * Looks at what `uid` and `gid` would start. A #! script is looked at through
 * its interpreter. A file that cannot be read is taken for replaceable.
 */
void binary__inspect(const char *path, uid_t uid, gid_t gid, struct binary_finding *finding);

/* NULL when path is a shared object that this machine's 64-bit programs can load; else what is wrong. */
const char *binary__library_fault(const char *path);

#endif
