/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which allocator a running process has, told from the files that it has
 * mapped: their names, symbols and version texts. Reads /proc alone, and
 * changes nothing.
 */
#ifndef ALLOCTRACE_CLI_ALLOCATOR_H
#define ALLOCTRACE_CLI_ALLOCATOR_H

#include <stddef.h>
#include <sys/types.h>

#include "alloc/control.h"

/*
 * "jemalloc 5.3.0", "glibc 2.36", "Go 1.19.8", "Java 17.0.9, glibc 2.36",
 * "bundled, policies trim,commit": the runtimes with a heap of their own, and
 * the allocator that serves malloc. "" when it cannot be told. bundled: the
 * control block of the bundled one in it; NULL: it has none.
 */
void allocator__find(pid_t pid, const struct atm_control *bundled, char *text, size_t text_bytes);

#endif
