/* SPDX-License-Identifier: BSD-2-Clause */
/* Choosing and preloading an allocator; see preload.h. */
#include "cli/preload.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/binary.h"
#include "cli/cmd.h"
#include "cli/install.h"
#include "cli/msg.h"

static int find_bundled(char *path, size_t path_bytes)
{
	int err = install__path("libatmalloc.so", path, path_bytes);

	if (!err)
		return 0;
	msg__error("cannot find libatmalloc.so beside the program or in ../lib/alloctrace: %s; is the installation "
		   "complete? '--allocator system' does without it",
		   strerror(-err));
	return AT_EXIT_OWN;
}

static int find_file(const char *file, char *path, size_t path_bytes)
{
	char real[PATH_MAX];
	const char *fault;

	if (!realpath(file, real) || strlen(real) >= path_bytes) {
		msg__error("--allocator %s: %s", file, strerror(errno));
		return AT_EXIT_USAGE;
	}
	fault = binary__library_fault(real);
	if (fault) {
		msg__error("--allocator %s: %s", file, fault);
		return AT_EXIT_USAGE;
	}
	strcpy(path, real);
	return 0;
}

static int unknown_allocator(const char *name)
{
	char known[256] = PRELOAD_BUNDLED ", " PRELOAD_SYSTEM;
	size_t used = strlen(known);

	for (const struct allocator *known_one = install_allocators; known_one->name && used < sizeof(known);
	     known_one++)
		used += snprintf(known + used, sizeof(known) - used, ", %s", known_one->name);
	msg__error("unknown allocator '%s'; known: %s, or a library's path (with a /)", name, known);
	return AT_EXIT_USAGE;
}

int preload__find(const char *allocator, char *path, size_t path_bytes)
{
	path[0] = 0;
	if (strcmp(allocator, PRELOAD_SYSTEM) == 0)
		return 0;
	if (strcmp(allocator, PRELOAD_BUNDLED) == 0)
		return find_bundled(path, path_bytes);
	if (strchr(allocator, '/'))
		return find_file(allocator, path, path_bytes);
	for (const struct allocator *known = install_allocators; known->name; known++) {
		if (strcmp(allocator, known->name) != 0)
			continue;
		if (install__allocator(known, path, path_bytes) == 0)
			return 0;
		msg__error("allocator %s is not installed; on Debian it is in the package %s", allocator,
			   known->package);
		return AT_EXIT_USAGE;
	}
	return unknown_allocator(allocator);
}

int preload__set(struct environment *environment, const char *path)
{
	const char *old = environment__get(environment, "LD_PRELOAD");
	char *value;
	int err;

	/* Where ld.so splits the list, it knows no escape. */
	if (strpbrk(path, " :")) {
		msg__error("cannot preload '%s': ld.so takes no path with a space or a colon", path);
		return AT_EXIT_OWN;
	}
	if (asprintf(&value, "%s%s%s", path, old && *old ? ":" : "", old ? old : "") < 0) {
		msg__error("out of memory");
		return AT_EXIT_OWN;
	}
	err = environment__set(environment, "LD_PRELOAD", value);
	free(value);
	return err ? AT_EXIT_OWN : 0;
}
