/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The whole coupling between the allocator and the CLI: the control block, the
 * counters, and how the counters of a process are handed to the CLI. Includes
 * nothing of either side. Sizes and values are ABI: a change raises ATM_ABI.
 */
#ifndef ALLOCTRACE_ALLOC_CONTROL_H
#define ALLOCTRACE_ALLOC_CONTROL_H

#include <stdint.h>

#define ATM_ABI 2
#define ATM_MAGIC 0x314d54415f4d5441ull /* "ATM_ATM1" in memory order */

/* The policies: X(id, name). Bit of the policy word = 1 << position. */
#define ATM_POLICIES(X)     \
	X(STACK, stack)     \
	X(REALLOC, realloc) \
	X(COMMIT, commit)   \
	X(TRIM, trim)

#define X(id, name) POLICY_BIT_##id,
enum { ATM_POLICIES(X) POLICY_CNT };
#undef X
#define X(id, name) POLICY_##id = 1 << POLICY_BIT_##id,
enum { ATM_POLICIES(X) POLICY_NONE = 0, POLICY_ALL = (1 << POLICY_CNT) - 1 };
#undef X

/*
 * Tunables: X(id, name, unit, default, help). unit: BYTES and PAGES and MS are
 * numbers (BYTES take K, M, G); the others are words, listed in ATM_TUNE_WORDS.
 * Default 0 of commit_batch and trim_threshold means: computed, see docs/policies.md.
 */
#define ATM_TUNABLES(X)                                                                                  \
	X(STACK_CACHE, stack_cache, BYTES, 40ull << 20, "thread stacks kept for reuse")                  \
	X(REALLOC_KEEP, realloc_keep, BYTES, 256ull << 10, "largest tail that a shrink leaves in place") \
	X(GROW, grow, GROW, 0, "how a block that cannot grow in place moves")                            \
	X(COMMIT_BATCH, commit_batch, PAGES, 0, "pages that a heap's freed mappings may hold")           \
	X(COMMIT_HOLD, commit_hold, MS, 10000, "how long an unused mapping is held")                     \
	X(COMMIT_RECLAIM, commit_reclaim, RECLAIM, 0, "who gives it back then")                          \
	X(TRIM_THRESHOLD, trim_threshold, BYTES, 0, "free top at which it is released")                  \
	X(CHECK, check, CHECK, 0, "invariant walkers")

/* Words of the tunables that are not numbers: X(unit, word, value). */
#define ATM_TUNE_WORDS(X)      \
	X(RECLAIM, request, 0) \
	X(RECLAIM, thread, 1)  \
	X(GROW, mremap, 0)     \
	X(GROW, copy, 1)       \
	X(CHECK, basic, 0)     \
	X(CHECK, full, 1)

enum atm_unit {
	ATM_UNIT_INVALID,
	ATM_UNIT_BYTES,
	ATM_UNIT_PAGES,
	ATM_UNIT_MS,
	ATM_UNIT_GROW,
	ATM_UNIT_CHECK,
	ATM_UNIT_RECLAIM
};
#define X(id, name, unit, dflt, help) ATM_TUNE_##id,
enum atm_tunable { ATM_TUNABLES(X) ATM_TUNE_CNT };
#undef X

/*
 * Memory syscalls by kind: X(id, name). The names are those of the tracer's
 * classes, so that the two counts can be laid side by side.
 */
#define ATM_KINDS(X)                            \
	X(MMAP_ANON, "mmap.anon")               \
	X(MMAP_FILE, "mmap.file")               \
	X(MMAP_RESERVE, "mmap.reserve")         \
	X(MMAP_STACK, "mmap.stack")             \
	X(MMAP_FIXED, "mmap.fixed")             \
	X(MUNMAP, "munmap")                     \
	X(MPROTECT_COMMIT, "mprotect.commit")   \
	X(MPROTECT_GUARD, "mprotect.guard")     \
	X(MADVISE_DONTNEED, "madvise.dontneed") \
	X(MADVISE_PHASE, "madvise.phase")       \
	X(MREMAP_GROW, "mremap.grow")           \
	X(MREMAP_SHRINK, "mremap.shrink")       \
	X(MREMAP_MOVE, "mremap.move")

#define X(id, name) ATM_KIND_##id,
enum atm_kind { ATM_KINDS(X) ATM_KIND_CNT };
#undef X

/* Decisions of the policies, and others worth a count: X(id, name, meaning). */
#define ATM_DECISIONS(X)                                                               \
	X(STACK_MAPPED, "stack.mapped", "stacks mapped anew")                          \
	X(STACK_REUSED, "stack.reused", "stacks taken from the cache")                 \
	X(REALLOC_KEPT, "realloc.kept", "shrinks that changed nothing")                \
	X(REALLOC_UNMAPPED, "realloc.unmapped", "tails unmapped at once")              \
	X(REALLOC_CACHED, "realloc.cached", "tails put into the page cache")           \
	X(COMMIT_HELD, "commit.held", "freed large mappings held for reuse")           \
	X(COMMIT_REUSED, "commit.reused", "large requests served from a held mapping") \
	X(COMMIT_RELEASED, "commit.released", "large mappings given back")             \
	X(TRIM_TAKEN, "trim.taken", "releases of a free heap top")                     \
	X(TRIM_AVOIDED, "trim.avoided", "free heap tops left below the threshold")     \
	X(HEAP_GROWN, "heap.grown", "commit steps of heaps")                           \
	X(CACHE_HIT, "cache.hit", "requests served from the page cache")               \
	X(CACHE_MISS, "cache.miss", "requests of its sizes that it had nothing for")   \
	X(REALLOC_IN_PLACE, "realloc.in_place", "large blocks grown where they were")  \
	X(REALLOC_MOVED, "realloc.moved", "large blocks moved to grow")

#define X(id, name, help) ATM_DECISION_##id,
enum atm_decision { ATM_DECISIONS(X) ATM_DECISION_CNT };
#undef X

/* Requests are counted by size band; upper edges in bytes, the last is open. */
#define ATM_BANDS(X) X(64) X(256) X(1024) X(4096) X(16384) X(131072) X(1048576) X(UINT64_MAX)
enum { ATM_BAND_CNT = 8 };

/* Phases, with the values that the tracer's marker carries (docs/output.md). */
#define ATM_PHASE_MARK 0x41540000
enum { ATM_PHASE_CNT = 3 };

/*
 * Requests. A realloc counts as one realloc, in the band of the new size,
 * whatever it does inside.
 */
struct atm_requests {
	uint64_t malloc_cnt[ATM_BAND_CNT]; /* malloc, calloc, aligned entries; by size asked */
	uint64_t free_cnt[ATM_BAND_CNT];   /* by the block's size */
	uint64_t realloc_cnt[ATM_BAND_CNT];
};
_Static_assert(sizeof(struct atm_requests) == 192, "three cache lines");

/*
 * What one heap counts, on cache lines of its own. Written only by the thread
 * that has the heap, read by anyone.
 */
struct atm_cell {
	_Alignas(64) struct atm_requests requests;
	uint64_t decision_cnt[ATM_DECISION_CNT];
};

/* Everything that the allocator counts, summed. */
struct atm_sums {
	uint64_t call_cnt[ATM_KIND_CNT];
	uint64_t error_cnt[ATM_KIND_CNT];
	uint64_t decision_cnt[ATM_DECISION_CNT];
	struct atm_requests requests;
};

/* Heaps that exist at once beyond this number count nothing of their own. */
enum { ATM_CELL_CNT = 512 };

/*
 * The counters of one process: exported as `atmalloc_counters`, page-aligned,
 * zero at start. Under `alloctrace run` a shared mapping of a memfd stands in
 * its place (atm_handover), so that the CLI can read it after any death.
 *
 * The sums of a process are live plus all cells[]. At each phase marker the
 * sums so far are stored in at_phase[phase]; phase p's own counts are the
 * sums at the next marker (or the end) minus at_phase[p].
 */
struct atm_counters {
	_Alignas(4096) uint64_t magic; /* ATM_MAGIC once initialised */
	uint32_t abi;
	uint32_t pid;                /* as the process itself sees it */
	uint32_t phase;              /* in force */
	uint32_t phases_seen;        /* bit p: at_phase[p] is valid */
	uint32_t cell_cnt;           /* cells in use: [0, cell_cnt); the others are zero */
	uint32_t uncounted_heap_cnt; /* heaps beyond ATM_CELL_CNT */
	struct atm_sums live;        /* atomic adds */
	struct atm_sums at_phase[ATM_PHASE_CNT];
	struct atm_cell cells[ATM_CELL_CNT];
};
enum { ATM_COUNTERS_BYTES = 164 << 10 };
_Static_assert(sizeof(struct atm_counters) == ATM_COUNTERS_BYTES, "whole pages: it is mapped over");

/*
 * The control block: exported as `atmalloc_control`. `policy`
 * may be written from outside at any time (one aligned 32-bit word).
 */
struct atm_control {
	uint64_t magic; /* ATM_MAGIC, set at build time */
	uint32_t abi;
	uint32_t bytes;          /* sizeof(struct atm_control) */
	uint32_t policy;         /* POLICY_* bits */
	uint32_t policy_default; /* what +NAME and -NAME change; POLICY_ALL */
	uint64_t tune[ATM_TUNE_CNT];
	uint64_t commit_batch_fixed_pages;  /* in force when policy commit is off */
	uint64_t commit_batch_scaled_pages; /* in force when it is on */
	uint64_t cpu_cnt;                   /* as the two batches were computed with */
	uint64_t ram_pages;                 /* the smaller of the machine's and the cgroup's */
};

/*
 * Handover of the counters. The CLI listens on the abstract unix stream socket
 * named by the environment variable; the library connects (at start and in
 * each forked child), receives this message with a memfd attached, maps
 * ATM_COUNTERS_BYTES of it at `offset` over atmalloc_counters, and closes
 * everything. No descriptor stays open in the process.
 */
#define ATM_HANDOVER_ENV "ATMALLOC_COUNTERS"
struct atm_handover {
	uint64_t magic; /* ATM_MAGIC */
	uint32_t abi;
	uint32_t bytes; /* ATM_COUNTERS_BYTES */
	uint64_t offset;
};

#define ATM_POLICY_ENV "ATMALLOC_POLICY"
#define ATM_TUNE_ENV "ATMALLOC_TUNE"

#endif
