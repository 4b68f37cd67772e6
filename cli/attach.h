/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Attaching to processes that run already, from the choice of them to the
 * profile, which it can save. Owns the order of the stages; writes no report. Targets are never
 * stopped, signalled or changed.
 *
 * Order: attach__open, attach__wait, attach__finish, attach__close. Functions
 * return 0, or the exit status after saying what is wrong. attach__open takes
 * over SIGINT, SIGTERM and SIGHUP until attach__close; from attach__finish on
 * a second one ends the process at once.
 */
#ifndef ALLOCTRACE_CLI_ATTACH_H
#define ALLOCTRACE_CLI_ATTACH_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/choice.h"
#include "cli/feature.h"
#include "cli/processes.h"
#include "cli/profile.h"
#include "cli/tracer.h"

struct attach;

struct attach_opts {
	bool is_following, is_measuring_bpf;
	unsigned ledgers; /* LEDGER_* */
	enum slot_mode slot_mode;
	enum callchain_mode callchains;
	uint32_t row_cnt;     /* threads with a row of their own at one time; 0 = enough for now and some to come */
	uint64_t duration_ns; /* 0 = no end */
	uint64_t interval_ns; /* 0 = none */
	const char *save;     /* file for the profile; NULL = none */
	/* What an interval brought; not 0 ends the wait with that status. Times are those since the start. */
	int (*on_interval)(void *data, const struct profile *part, uint64_t from_ns, uint64_t to_ns);
	void *data;
};

int attach__open(struct attach **attach, struct choice *choice, const struct attach_opts *opts);
int attach__wait(struct attach *attach);
/* *profile is the caller's then. */
int attach__finish(struct attach *attach, struct profile **profile);
/* The profile was to be saved and could not be, which has been said: the report comes first. */
bool attach__is_unsaved(const struct attach *attach);
/* The signal that ended the wait, 0 = none. */
int attach__signal(const struct attach *attach);
/* NULL-safe. */
void attach__close(struct attach *attach);

#endif
