/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measured runs: a configuration goes in, a finished profile comes out. What is
 * the same for all runs of one invocation (user, tier) is found out once. Owns
 * the order of the stages from the settings to the profile; writes no report.
 *
 * Order: session__open, session__prepare for each configuration (finds all
 * wrong usage, starts nothing), session__choose_tier, session__run. Functions
 * return 0, or the exit status after saying what is wrong.
 */
#ifndef ALLOCTRACE_CLI_SESSION_H
#define ALLOCTRACE_CLI_SESSION_H

#include <signal.h>
#include <stdbool.h>

#include "cli/command.h"
#include "cli/counters.h"
#include "cli/environment.h"
#include "cli/feature.h"
#include "cli/profile.h"
#include "cli/target.h"
#include "cli/tracer.h"
#include "cli/user.h"

enum { SESSION_TIER_BEST = -1 };

struct session_opts {
	const char *user; /* --user; NULL = the caller */
	bool is_following, is_measuring_bpf;
	int tier;         /* the one to use, or SESSION_TIER_BEST */
	unsigned ledgers; /* LEDGER_* */
	enum slot_mode slot_mode;
	enum callchain_mode callchains;
	int stdin_fd, stdout_fd; /* of the commands; <= 0: ours */
};

struct session {
	struct session_opts opts;
	struct user user;
	struct sigaction old_pipe; /* SIGPIPE as our caller left it, for every command */
	struct features features;
	int tier;
};

/* One configuration of one program. Nothing of it is copied. */
struct session_config {
	const char *policy, *tune; /* NULL: as in the environment, or else the defaults */
	const char *allocator;
	char *const *env; /* NAME=VALUE, NULL-terminated: added to the environment; NULL = none */
	bool is_command;  /* after --, not a scenario */
	char **words;     /* scenario or command, and its arguments */
};

struct session_run {
	struct session_config config;
	struct command command;
	struct environment environment;
	struct counters *counters;
	struct tracer *tracer;
	struct target target; /* of the finished run: for its end, and target__pass_on */
	struct profile *profile;
};

int session__open(struct session *session, const struct session_opts *opts);
int session__choose_tier(struct session *session);
void session__close(struct session *session);

/* Settings, command, allocator and environment of one run. session__free_run in any case. */
int session__prepare(struct session *session, const struct session_config *config, struct session_run *run);
/* Runs it; the command is gone when this returns. Once for each prepared run. */
int session__run(struct session *session, struct session_run *run);
void session__free_run(struct session_run *run);

#endif
