/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What each process and thread of an attached target did: pure data and sums.
 * Filled from the rows of the kernel side, read by the renderers. A process is
 * one program in one life of a process number: an exec begins another.
 */
#ifndef ALLOCTRACE_CLI_PROCESSES_H
#define ALLOCTRACE_CLI_PROCESSES_H

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "alloc/control.h"
#include "bpf/event.h"

/* What is known of what the bundled allocator in a process counted: X(id, name, why it is not known). */
#define SELF_STATES(X)                                                       \
	X(NONE, "none", "")                                                  \
	X(KNOWN, "known", "")                                                \
	X(ENDED, "ended", "ended, or started another program")               \
	X(LATE, "late", "found when it ran already")                         \
	X(THREADS, "threads", "attached to some of its threads only")        \
	X(SHARED, "shared", "counts together with the process that made it") \
	X(HEAPS, "heaps", "more heaps than it counts")                       \
	X(UNREAD, "unread", "cannot be read")                                \
	X(UNASKED, "unasked", "too many processes, or not visible here")

#define X(id, name, why) SELF_##id,
enum self_state { SELF_STATES(X) SELF_STATE_CNT };
#undef X

/* Beyond these, those that have ended first are summed up without a name. */
enum { PROCESSES_MAX = 10000, PROCESSES_THREAD_MAX = 20000 };

struct usage {
	uint64_t call_cnt, error_cnt, bytes, sum_ns;
};

struct thread_stat {
	pid_t tid; /* as the user's namespace numbers it; 0 = not visible there */
	char comm[AT_COMM_BYTES];
	bool is_ended;
	uint64_t begin_ns; /* monotonic clock */
	struct at_cpu cpu; /* used while traced */
	struct usage classes[AT_CLASS_CNT];
	struct at_row_ledger ledger;
};

struct process_stat {
	pid_t pid; /* as the user's namespace numbers it; 0 = not visible there */
	uint32_t tgid;
	uint64_t start_ns; /* of the process, boot time clock */
	uint32_t exec_cnt; /* programs that it had started before this one, while traced */
	char comm[AT_COMM_BYTES];
	char allocator[128]; /* "" = not known */
	bool is_ended;       /* all of its threads have */
	bool has_leader;     /* comm is that of the process itself */
	bool is_found;       /* it ran already when it became a target */
	uint64_t begin_ns;   /* monotonic clock */
	struct at_cpu cpu;
	struct usage classes[AT_CLASS_CNT]; /* of all threads, as the next */
	struct at_row_ledger ledger;
	uint32_t self_state;         /* enum self_state */
	struct atm_sums self;        /* valid with SELF_KNOWN: what its allocator counted while it was traced */
	uint64_t thread_cnt;         /* all that it had */
	struct thread_stat *threads; /* those that are kept */
	size_t kept_cnt;
};

struct processes {
	struct process_stat *items;
	size_t cnt, cap;
	size_t kept_thread_cnt;
	uint32_t *index; /* by hash: number of the item + 1 */
	size_t index_cnt;
	struct usage rest[AT_CLASS_CNT];  /* of processes beyond PROCESSES_MAX */
	uint64_t rest_cnt;                /* rows in it */
	struct usage other[AT_CLASS_CNT]; /* the total less all rows: threads without one */
	uint64_t other_cnt;               /* threads that got no row */
};

void processes__init(struct processes *processes);
void processes__free(struct processes *processes);
/* Adds what a row holds. 0 or -ENOMEM. */
int processes__add_row(struct processes *processes, const struct at_row *row);
/* NULL: there is none. */
const struct process_stat *processes__find(const struct processes *processes, uint32_t tgid, uint64_t start_ns,
					   uint32_t exec_cnt);
/* Adds a copy of all that src has. 0 or -ENOMEM. */
int processes__add(struct processes *processes, const struct processes *src);
/* The part of now that is not in before, by process (ledgers: see row_ledger.h); threads are left out. 0 or -ENOMEM;
 * out is overwritten. */
int processes__since(const struct processes *now, const struct processes *before, struct processes *out);
/* Sums of all classes but the phase marker: calls and faults apart. */
void processes__sum(const struct usage classes[AT_CLASS_CNT], struct usage *calls, struct usage *faults);
/* Items in order of kernel time, most first; of equal ones the lower pid. */
void processes__sort(struct processes *processes);
/* System and user time, from shares that were counted in ticks and a total that was measured. */
uint64_t processes__sys_ns(const struct at_cpu *cpu);
uint64_t processes__user_ns(const struct at_cpu *cpu);
const char *processes__self_name(enum self_state state);
/* Those of all processes together. */
void processes__cpu(const struct processes *processes, struct at_cpu *cpu);

#endif
