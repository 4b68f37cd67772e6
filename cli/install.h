/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where our own files are: beside the binary in a build directory, or in
 * ../lib/alloctrace when installed. And the allocators of the system.
 */
#ifndef ALLOCTRACE_CLI_INSTALL_H
#define ALLOCTRACE_CLI_INSTALL_H

#include <stddef.h>

/*
 * Writes the absolute path of one of our files ("libatmalloc.so",
 * "scenarios/trim_loop"); 0, -ENOENT, or another -errno. Says nothing.
 */
int install__path(const char *file, char *path, size_t path_bytes);

/* The allocators of --allocator that are neither ours nor a path. */
struct allocator {
	const char *name;
	const char *files[4]; /* library names in order of preference; NULL ends */
	const char *package;  /* Debian */
};

/* The last entry has no name. */
extern const struct allocator install_allocators[];

/* Finds an allocator's library; 0 and the absolute path, or -ENOENT. */
int install__allocator(const struct allocator *allocator, char *path, size_t path_bytes);

#endif
