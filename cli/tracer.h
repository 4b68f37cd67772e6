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

#include <stdbool.h>
#include <sys/types.h>

#include "cli/feature.h"
#include "cli/profile.h"

struct tracer;

/* Where a call's start time is kept: see docs/architecture.md. */
enum slot_mode {
	SLOT_AUTO,    /* SLOT_ARRAY up to 65,536 pids, SLOT_STORAGE above */
	SLOT_ARRAY,   /* an array indexed by tid: cheapest */
	SLOT_STORAGE, /* task storage: memory only for threads that exist */
};

struct tracer_opts {
	bool is_following; /* children of targets become targets */
	enum slot_mode slot_mode;
	bool is_measuring_bpf; /* BPF_ENABLE_STATS instead of calibration */
	unsigned ledgers;      /* LEDGER_*: to be kept */
};

int tracer__open(struct tracer **tracer, const struct features *features, const struct tracer_opts *opts);
/* Before tracer__start; the process must be stopped or held by the caller. */
int tracer__add_target(struct tracer *tracer, pid_t tgid);
int tracer__start(struct tracer *tracer);
/* Detaches everything; calls in flight stay in their slots for collect. */
int tracer__stop(struct tracer *tracer);
/* Fills the tool and class parts of the profile. After tracer__stop. */
int tracer__collect(struct tracer *tracer, struct profile *profile);
/* Closes and frees. NULL-safe. */
void tracer__free(struct tracer *tracer);

#endif
