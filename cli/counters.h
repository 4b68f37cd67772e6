/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The allocator's own counters: hands a shared page range to every process of
 * the run that asks for it (alloc/control.h, "Handover") and sums them up, so
 * that counts survive any death. One memory file a process: none can see or
 * disturb another's. Memory is that of the processes alive, not of all.
 */
#ifndef ALLOCTRACE_CLI_COUNTERS_H
#define ALLOCTRACE_CLI_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "alloc/control.h"

struct counters;

struct counters_opts {
	uid_t uid;          /* served beside root: whom the command runs as */
	pid_t only_pid;     /* 0: every process; else this one alone */
	const char *prefix; /* of the socket's name; for tests */
};

/* Listens on a new random name. 0 or -errno; says nothing. */
int counters__open(struct counters **counters, const struct counters_opts *opts);
/* Serves only this process from now on; 0: every one. */
void counters__set_only_pid(struct counters *counters, pid_t pid);
/* Value of ATM_HANDOVER_ENV for the command. */
const char *counters__name(const struct counters *counters);
/* Readable when counters__serve has something to do. */
int counters__fd(const struct counters *counters);
/* Answers everybody who is waiting; never blocks. */
void counters__serve(struct counters *counters);

struct counters_result {
	uint64_t process_cnt;        /* whose counters are in the sums */
	uint64_t refused_cnt;        /* connections of other users, or that failed */
	uint64_t uncounted_heap_cnt; /* heaps whose requests are missing */
	uint32_t phases_seen;        /* bit p: some process was in phase p */
	struct atm_sums phases[ATM_PHASE_CNT];
};

/* Serves who is left, stops listening, and sums up all processes. Once. */
void counters__finish(struct counters *counters, struct counters_result *result);
/* Closes and frees. NULL-safe. */
void counters__free(struct counters *counters);

/* How many processes hold counters now; for tests. */
uint64_t counters__live_cnt(const struct counters *counters);

/*
 * One process's counts by phase, added to own[]. Own counts of a phase are the
 * sums at the next phase that was marked (or now) minus those at its start.
 * A difference that would be negative counts as 0.
 */
void counters__add_own(const struct atm_counters *shared, struct atm_sums own[ATM_PHASE_CNT]);

/* A moment in a process's life, to count from. */
struct counters_mark {
	uint32_t phases_seen;
	struct atm_sums sums;
};
void counters__mark(const struct atm_counters *shared, struct counters_mark *mark);
/*
 * The same of what came after the mark, billed as the tracer bills a process that it
 * met there: to phase 0 until the process marks another.
 */
void counters__add_since(const struct atm_counters *shared, const struct counters_mark *mark,
			 struct atm_sums own[ATM_PHASE_CNT]);
void counters__add_sums(struct atm_sums *dst, const struct atm_sums *src);

#endif
