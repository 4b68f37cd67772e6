/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What known_calls makes in its measured phase: X(class, good calls, failing
 * calls, bytes of a good call). Mostly primes, so that a wrong sum cannot look right.
 * The markers themselves: the one that ends the phase is billed to it.
 */
#ifndef ALLOCTRACE_TESTS_TRACE_KNOWN_H
#define ALLOCTRACE_TESTS_TRACE_KNOWN_H

enum { KNOWN_PAGE = 4096, KNOWN_LEN = 3 * KNOWN_PAGE };

/* Failing munmaps: half of a length beyond all memory, half unaligned. A smaller brk and a query cannot fail. */
#define KNOWN_CALLS(X)                                \
	X(MMAP_ANON, 101, 7, KNOWN_LEN)               \
	X(MMAP_FILE, 11, 3, KNOWN_LEN)                \
	X(MMAP_RESERVE, 13, 2, KNOWN_LEN)             \
	X(MMAP_STACK, 17, 5, KNOWN_LEN)               \
	X(MMAP_FIXED, 23, 19, KNOWN_LEN)              \
	X(MUNMAP, 101 + 11 + 13 + 17, 200, KNOWN_LEN) \
	X(MPROTECT_COMMIT, 37, 41, KNOWN_PAGE)        \
	X(MPROTECT_GUARD, 37, 29, KNOWN_PAGE)         \
	X(MPROTECT_OTHER, 43, 47, KNOWN_PAGE)         \
	X(MADVISE_DONTNEED, 53, 31, KNOWN_LEN)        \
	X(MADVISE_FREE, 59, 127, KNOWN_LEN)           \
	X(MADVISE_HUGEPAGE, 0, 61, 0)                 \
	X(MADVISE_NOHUGEPAGE, 0, 67, 0)               \
	X(MADVISE_POPULATE, 71, 113, KNOWN_LEN)       \
	X(MADVISE_PHASE, 0, 1, 0)                     \
	X(MADVISE_OTHER, 73, 79, KNOWN_LEN)           \
	X(MREMAP_GROW, 83, 3, KNOWN_PAGE)             \
	X(MREMAP_SHRINK, 83, 5, KNOWN_PAGE)           \
	X(MREMAP_MOVE, 89, 131, KNOWN_LEN)            \
	X(BRK_GROW, 97, 7, KNOWN_PAGE)                \
	X(BRK_SHRINK, 97, 0, KNOWN_PAGE)              \
	X(BRK_QUERY, 103, 0, 0)                       \
	X(PROCESS_MADVISE, 107, 11, KNOWN_LEN)        \
	X(PKEY_MPROTECT, 109, 13, KNOWN_LEN)

/* MADV_RANDOM succeeds; this one does not exist and fails. */
#define KNOWN_BAD_ADVICE 119

/* Numbers of calls of the other patterns. */
enum {
	KNOWN_MIGRATED = 20011, /* mmap and munmap pairs of each thread */
	KNOWN_INT80 = 97,
	KNOWN_READ_BYTES = 4 << 20,
	KNOWN_EXEC_CALLS = 31, /* failing munmaps before and after each exec */
	KNOWN_LEADER_CALLS = 1009,
};

#endif
