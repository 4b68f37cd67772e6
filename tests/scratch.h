/* SPDX-License-Identifier: BSD-2-Clause */
/* Temporary files of tests in C: where tests/run wants them, so that none is left behind. */
#ifndef ALLOCTRACE_TESTS_SCRATCH_H
#define ALLOCTRACE_TESTS_SCRATCH_H

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* Makes an empty file and writes its path; returns its descriptor, or -1. */
static inline int scratch__file(char path[PATH_MAX])
{
	const char *place = getenv("TMPDIR");

	snprintf(path, PATH_MAX, "%s/alloctrace-test-XXXXXX", place ? place : "/tmp");
	return mkstemp(path);
}

#endif
