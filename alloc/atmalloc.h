/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Public interface of libatmalloc beyond the C library's malloc family.
 *
 * All functions are thread-safe. None is async-signal-safe unless it says so.
 * None allocates. A program that must also run under another malloc declares
 * them weak and tests the address.
 */
#ifndef ATMALLOC_H
#define ATMALLOC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Sets the policies from a set: "all", "none", an exact list "trim,commit", or
 * changes to the default, "+trim", "-trim", comma-separated. Takes effect for
 * every decision after the return. Returns 0, or -EINVAL for an unknown name
 * (nothing is changed then).
 */
int atmalloc_set_policy(const char *set);

/*
 * Writes the policies in force, comma-separated, or "none", into buf (always
 * terminated when buf_bytes > 0). Returns the length that the text has, as
 * snprintf does.
 */
size_t atmalloc_get_policy(char *buf, size_t buf_bytes);

/*
 * Sets tunables, "NAME=VALUE,..."; sizes as 256K, 4M. Returns 0, or -EINVAL for
 * an unknown name or a malformed value (nothing is changed then).
 */
int atmalloc_set_tune(const char *list);

/*
 * Marks a phase (0 startup, 1 measured, 2 teardown): counts from here on are
 * billed to it, by the tracer and in the allocator's own counters. Makes one
 * madvise call, which fails in the kernel with EINVAL by design; errno is kept.
 * Call it while no other thread of the process allocates, or the own counters
 * of the two phases may be off by the calls then running.
 */
void atmalloc_phase(unsigned phase);

#ifdef __cplusplus
}
#endif

#endif
