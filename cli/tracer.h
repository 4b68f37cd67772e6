/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel side, seen from user space: load, choose targets, attach, detach,
 * collect. Only here and in feature.c is the BPF skeleton used.
 *
 * Order: tracer__open, tracer__add_target (a process that is held), and then
 * tracer__start, ..., tracer__stop, tracer__collect, tracer__free. Functions
 * return 0 or -errno and have then said why on stderr. Not thread-safe.
 */
#ifndef ALLOCTRACE_CLI_TRACER_H
#define ALLOCTRACE_CLI_TRACER_H

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/event.h"
#include "cli/feature.h"
#include "cli/profile.h"

struct tracer;

/* Where a call's start time is kept: see docs/architecture.md. */
enum slot_mode {
	SLOT_AUTO,    /* SLOT_ARRAY up to 65,536 pids, SLOT_STORAGE above */
	SLOT_ARRAY,   /* an array indexed by tid: cheapest */
	SLOT_STORAGE, /* task storage: memory only for threads that exist */
};

/* Whether calls are summed by the code path that made them. */
enum callchain_mode { CALLCHAINS_NONE, CALLCHAINS_ON, CALLCHAINS_BY_THREAD };

struct tracer_opts {
	bool is_following; /* children of targets become targets */
	enum slot_mode slot_mode;
	bool is_measuring_bpf; /* BPF_ENABLE_STATS instead of calibration */
	unsigned ledgers;      /* LEDGER_*: to be kept */
	enum callchain_mode callchains;
	int tier; /* 1 or 2; 0 = 2 where it loads, else 1 */
	/* attach: */
	bool is_live;          /* targets run already: tracer__pass and what follows it */
	bool is_partial;       /* not all threads of a target process are targets */
	bool is_open;          /* tracer__open_to_name, tracer__open_to_cgroup */
	bool has_compat;       /* a target makes 32-bit calls */
	bool is_faulting_wide; /* page fault events of all CPUs, not of threads */
	uint32_t row_cnt;      /* threads that have a row at one time */
};

int tracer__open(struct tracer **tracer, const struct features *features, const struct tracer_opts *opts);
/* Before tracer__start; the process must be stopped or held by the caller. */
int tracer__add_target(struct tracer *tracer, pid_t pid);
/* A file that a target is about to execute: its callchains are complete from the start. */
void tracer__expect(struct tracer *tracer, const char *path);
int tracer__start(struct tracer *tracer);

/*
 * attach, after tracer__start. A pass goes over all threads that our pid
 * namespace has. AT_PASS_LIST gives *tasks, to be freed; for others both
 * pointers are NULL. Threads of a wanted process or a wanted thread are made known by
 * AT_PASS_MARK, with all that they start from then on; their events count from
 * tracer__watch on, which is for a process as a whole.
 */
int tracer__pass(struct tracer *tracer, enum at_pass pass, struct at_task **tasks, size_t *task_cnt);
/* id, as the kernel numbers it: tgid with AT_SCOPE_PROCESS, tid with AT_SCOPE_THREAD. */
int tracer__want(struct tracer *tracer, uint32_t id, enum at_scope scope, uint64_t start_ns);
int tracer__watch(struct tracer *tracer, uint32_t tgid, pid_t pid);
/*
 * With is_open: a process that executes a program of this name, or does so or is forked in
 * this control group or below it, is watched from that moment. The same may be said again.
 */
int tracer__open_to_name(struct tracer *tracer, const char *name);
int tracer__open_to_cgroup(struct tracer *tracer, uint64_t id);
bool tracer__is_watched(const struct tracer *tracer, uint32_t tgid);
/* Page fault events of one more thread, by the number that we see. -ESRCH: it is gone. Nothing when is_faulting_wide.
 */
int tracer__watch_faults(struct tracer *tracer, pid_t tid, bool is_maybe_inherited);
/* After the first round of the two above: what the events counted before was nobody's. */
int tracer__begin_faults(struct tracer *tracer);
/* The rows' memory: row_cnt of them, of which *used_cnt may have something in them. The kernel side goes on writing. */
struct at_row *tracer__rows(struct tracer *tracer, uint32_t *used_cnt);
/* Has a row, zeroed by the caller, used again. */
int tracer__free_row(struct tracer *tracer, uint32_t number);
const struct at_attach *tracer__attach_state(const struct tracer *tracer);
/* Ends counting and, without is_live, detaches everything; calls in flight stay in their slots for collect. */
int tracer__stop(struct tracer *tracer);
/* Fills the tool and class parts of the profile. After tracer__stop; with is_live also before, for an interval. */
int tracer__collect(struct tracer *tracer, struct profile *profile);
/* Closes and frees. NULL-safe. */
void tracer__free(struct tracer *tracer);

#endif
