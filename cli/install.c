/* SPDX-License-Identifier: BSD-2-Clause */
/* Finding our own files and the system's allocators; see install.h. */
#include "cli/install.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct allocator install_allocators[] = {
	{"jemalloc", {"libjemalloc.so.2"}, "libjemalloc2"},
	{"mimalloc", {"libmimalloc.so.2", "libmimalloc.so.2.*"}, "libmimalloc2.0"},
	{"tcmalloc", {"libtcmalloc_minimal.so.4", "libtcmalloc.so.4"}, "libtcmalloc-minimal4"},
	{NULL, {NULL}, NULL},
};

static int put(char *path, size_t path_bytes, const char *dir, const char *file)
{
	int bytes = snprintf(path, path_bytes, "%s/%s", dir, file);

	if (bytes < 0 || (size_t)bytes >= path_bytes)
		return -ENAMETOOLONG;
	return access(path, F_OK) ? -errno : 0;
}

int install__path(const char *file, char *path, size_t path_bytes)
{
	/*
	 * Beside the binary: a build. Up one: the list of scenarios, which is
	 * not built and so lies in the source tree. Last: an installation.
	 */
	static const char *const places[] = {"", "/..", "/../lib/alloctrace"};
	char binary[PATH_MAX], dir[PATH_MAX + 32];
	ssize_t bytes = readlink("/proc/self/exe", binary, sizeof(binary) - 1);
	char *slash;

	if (bytes < 0)
		return -errno;
	binary[bytes] = 0;
	slash = strrchr(binary, '/');
	if (!slash)
		return -ENOENT;
	*slash = 0;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		char found[PATH_MAX], real[PATH_MAX];

		snprintf(dir, sizeof(dir), "%s%s", binary, places[i]);
		if (put(found, sizeof(found), dir, file))
			continue;
		if (!realpath(found, real))
			continue;
		if (strlen(real) >= path_bytes)
			return -ENAMETOOLONG;
		strcpy(path, real);
		return 0;
	}
	return -ENOENT;
}

int install__allocator(const struct allocator *allocator, char *path, size_t path_bytes)
{
	static const char *const dirs[] = {
		"/usr/local/lib",
		"/usr/local/lib/x86_64-linux-gnu",
		"/usr/lib/x86_64-linux-gnu",
		"/lib/x86_64-linux-gnu",
		"/usr/lib64",
		"/lib64",
		"/usr/lib",
		"/lib",
	};

	for (size_t i = 0; allocator->files[i]; i++)
		for (size_t j = 0; j < sizeof(dirs) / sizeof(dirs[0]); j++) {
			char pattern[PATH_MAX];
			glob_t found;
			int err = -ENOENT;

			snprintf(pattern, sizeof(pattern), "%s/%s", dirs[j], allocator->files[i]);
			if (glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc)
				err = snprintf(path, path_bytes, "%s", found.gl_pathv[0]) < (int)path_bytes
					      ? 0
					      : -ENAMETOOLONG;
			globfree(&found);
			if (!err)
				return 0;
		}
	return -ENOENT;
}
