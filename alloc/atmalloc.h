/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Public interface of libatmalloc beyond the C library's malloc family.
 *
 * All functions are thread-safe. None is async-signal-safe unless it says so.
 * None allocates, none changes errno. A program that must also run under
 * another malloc declares them weak and tests the address. Policies and
 * tunables are described in docs/policies.md.
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
 * (nothing is changed then). Async-signal-safe.
 */
int atmalloc_set_policy(const char *set);

/*
 * Writes the policies in force, comma-separated, or "none", into buf (always
 * terminated when buf_bytes > 0). Returns the length that the text has, as
 * snprintf does. Async-signal-safe.
 */
size_t atmalloc_get_policy(char *buf, size_t buf_bytes);

/*
 * Sets tunables, "NAME=VALUE,..."; sizes as 256K, 4M. Returns 0, or -EINVAL for
 * an unknown name or a malformed value (nothing is changed then). Of two calls
 * at once that set different tunables both take effect. Async-signal-safe.
 */
int atmalloc_set_tune(const char *list);

/*
 * The value of one tunable, in its unit: bytes, pages or ms; of a word its
 * place in the list of words (grow: mremap 0, copy 1; check: basic 0, full 1).
 * Returns 0, or -EINVAL for an unknown name (*value is untouched then).
 * Async-signal-safe.
 */
int atmalloc_get_tune(const char *name, uint64_t *value);

/*
 * Counters of this process since its start (in a forked child: since the fork).
 * They only grow, but those whose names end in `_bytes` or `heaps`, which are
 * what is the case now:
 *
 *   call.CLASS, error.CLASS   memory syscalls that the library made, and those
 *                             that failed, by class: call.mmap.anon
 *   policy decisions          trim.taken, commit.held, ...
 *   malloc.N, free.N, realloc.N  requests of up to N bytes, and beyond the next
 *                             smaller N; malloc.inf: of more than the largest
 *   heaps                     heaps made so far, of live and dead threads
 *   heap.committed_bytes, heap.used_bytes  of their segments
 *   large.mapped_bytes        of mappings of their own, in use or kept
 *   held.now_bytes            of these, kept by policy commit
 *   stack.cached_bytes        thread stacks without a thread
 *
 * Other threads go on while the values are read: each is exact at some moment
 * during the call, all together only when nothing else runs.
 */

/* Name of a counter, static text; NULL at and beyond the number of counters. Async-signal-safe. */
const char *atmalloc_counter_name(size_t index);

/* Writes the first `cnt` counters, in the order of their names, and returns how many there are. */
size_t atmalloc_read_counters(uint64_t *values, size_t cnt);

/* One counter by its name. Returns 0, or -EINVAL for an unknown name (*value is untouched then). */
int atmalloc_get_counter(const char *name, uint64_t *value);

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
