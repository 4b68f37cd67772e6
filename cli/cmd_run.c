/* SPDX-License-Identifier: BSD-2-Clause */
/* run: start a scenario or a command, trace it, report. Options and the order of the stages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/callchain_output.h"
#include "cli/cmd.h"
#include "cli/expect.h"
#include "cli/ledger.h"
#include "cli/msg.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/preload.h"
#include "cli/render.h"
#include "cli/render_callchain.h"
#include "cli/render_plain.h"
#include "cli/saved.h"
#include "cli/session.h"

enum {
	OPT_POLICY = 256,
	OPT_TUNE,
	OPT_ALLOCATOR,
	OPT_NO_FOLLOW,
	OPT_USER,
	OPT_TIER,
	OPT_SLOTS,
	OPT_BPF_STATS,
	OPT_COLOR,
	OPT_LEDGERS,
	OPT_NO_LEDGERS,
	OPT_SAVE,
	OPT_CALLCHAIN,
	OPT_EXPECT,
	OPT_FOLDED,
	OPT_PPROF,
	OPT_FORMAT,
};

struct run_opts {
	const char *policy, *tune, *allocator, *user, *output, *save;
	bool is_following, is_measuring_bpf;
	enum render_format format;
	enum color color;
	int tier;
	unsigned ledgers; /* LEDGER_* */
	struct callchain_output callchain;
	enum slot_mode slot_mode;
	bool is_command; /* after --, not a scenario */
	char **words;    /* scenario or command, and its arguments */
	struct expects expects;
};

struct run {
	struct run_opts opts;
	struct session session;
	struct session_run measured;
	struct output output;
};

static const struct argp_option options[] = {
	{"policy", OPT_POLICY, "SET", 0,
	 "all, none, an exact list like trim,commit, or changes like -trim (default: all)", 0},
	{"tune", OPT_TUNE, "NAME=VALUE,...", 0, "Tunables of the bundled allocator; 'alloctrace list' has them", 0},
	{"allocator", OPT_ALLOCATOR, "NAME", 0,
	 "bundled, system, jemalloc, mimalloc, tcmalloc, or a library's path (default: bundled)", 0},
	{"no-follow", OPT_NO_FOLLOW, NULL, 0, "Only the command's own process, not its children", 0},
	{"user", OPT_USER, "USER", 0, "Run the command as USER (default: you, also under sudo)", 0},
	CALLCHAIN_OUTPUT_OPTIONS(OPT_CALLCHAIN, OPT_FOLDED, OPT_PPROF, 1),
	{"json", 'j', NULL, 0, "Report as JSON: --format json", 1},
	{"format", OPT_FORMAT, "FORMAT", 0, "table, json, csv, markdown (default: table)", 1},
	{"output", 'o', "FILE", 0, "Report to FILE, - is stdout (default: stderr)", 1},
	{"save", OPT_SAVE, "FILE", 0, "Save all that was measured, for 'alloctrace report'", 1},
	{"expect", OPT_EXPECT, "EXPECTATION", 0,
	 "Exit with 1 unless this is so, as 'madvise.dontneed<=2'; may be repeated", 1},
	{"color", OPT_COLOR, "WHEN", 0, "auto, always, never (default: auto)", 1},
	{"tier", OPT_TIER, "N", 0, "Trace with tier N at most: 0 is no kernel tracing (default: the best)", 2},
	{"ledgers", OPT_LEDGERS, "LIST", 0,
	 "Keep these only: commit, vmas, refault, locks, stacks, all, none (default: all)", 2},
	{"no-ledgers", OPT_NO_LEDGERS, NULL, 0, "Keep none: the cheapest tracing", 2},
	{"slots", OPT_SLOTS, "KIND", 0, "auto, array, storage: where start times are kept (default: auto)", 2},
	{"bpf-stats", OPT_BPF_STATS, NULL, 0, "Measure the tracer's own cost; slows every traced call", 2},
	{0},
};

static error_t parse_choice(int key, const char *arg, struct run_opts *opts)
{
	static const char *const slots[] = {"auto", "array", "storage", NULL};
	int chosen = key == OPT_TIER    ? options__tier(arg)
		     : key == OPT_SLOTS ? options__choose("--slots", arg, slots)
					: options__color(arg);

	if (chosen < 0)
		return OPTIONS_SAID;
	if (key == OPT_TIER)
		opts->tier = chosen;
	else if (key == OPT_SLOTS)
		opts->slot_mode = chosen; /* in the order of enum slot_mode */
	else
		opts->color = chosen;
	return 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct run_opts *opts = state->input;

	switch (key) {
	case OPT_POLICY: opts->policy = arg; return 0;
	case OPT_TUNE: opts->tune = arg; return 0;
	case OPT_ALLOCATOR: opts->allocator = arg; return 0;
	case OPT_NO_FOLLOW: opts->is_following = false; return 0;
	case OPT_USER: opts->user = arg; return 0;
	case 'j': opts->format = RENDER_JSON; return 0;
	case OPT_FORMAT: return render_plain__choose(arg, &opts->format) ? 0 : OPTIONS_SAID;
	case 'o': opts->output = arg; return 0;
	case OPT_SAVE: opts->save = arg; return 0;
	case OPT_EXPECT: return expect__add(&opts->expects, arg) ? OPTIONS_SAID : 0;
	case OPT_BPF_STATS: opts->is_measuring_bpf = true; return 0;
	case OPT_CALLCHAIN: opts->callchain.is_asked = true; return 0;
	case OPT_FOLDED: opts->callchain.folded = arg; return 0;
	case OPT_PPROF: opts->callchain.pprof = arg; return 0;
	case OPT_NO_LEDGERS: opts->ledgers = 0; return 0;
	case OPT_LEDGERS:
		if (ledger__parse(arg, &opts->ledgers))
			return 0;
		msg__error("--ledgers: unknown '%s'; known: %s (with commas between), all, none", arg, ledger__names());
		return OPTIONS_SAID;
	case OPT_TIER:
	case OPT_SLOTS:
	case OPT_COLOR: return parse_choice(key, arg, opts);
	case ARGP_KEY_ARG:
		/* The rest is the command's, whatever it looks like. */
		opts->is_command = state->quoted;
		opts->words = &state->argv[state->next - 1];
		state->next = state->argc;
		return 0;
	case ARGP_KEY_END:
		if (opts->words)
			return 0;
		msg__error(
			"run: no scenario and no command; 'alloctrace list' names the scenarios, a command follows --");
		return OPTIONS_SAID;
	default: return ARGP_ERR_UNKNOWN;
	}
}

const struct argp cmd_run_argp = {
	.options = options,
	.parser = parse_option,
	.args_doc = "SCENARIO [ARG...]\n-- COMMAND [ARG...]",
	.doc = "Runs a bundled scenario, or any command, and reports what its memory calls cost in the kernel."
	       "\vExit status: that of the command; a signal that ended it ends alloctrace, too. 1 when the command "
	       "succeeded and an expectation was not met, 2 wrong usage, 125 alloctrace failed, 126 the command cannot "
	       "be executed, 127 it was not found.",
	.children = options_common,
};

static int render(FILE *out, const void *data)
{
	const struct run *run = data;
	struct render_opts opts = {.has_color = output__wants_color(&run->output, run->opts.color)};

	return render_plain__run(out, run->measured.profile, run->opts.format, &opts);
}

static int prepare(struct run *run)
{
	struct run_opts *opts = &run->opts;
	struct session_opts session_opts = {
		.user = opts->user,
		.is_following = opts->is_following,
		.is_measuring_bpf = opts->is_measuring_bpf,
		.tier = opts->tier,
		.ledgers = opts->ledgers,
		.callchains = callchain_output__mode(&opts->callchain),
		.slot_mode = opts->slot_mode,
	};
	struct session_config config = {
		.policy = opts->policy,
		.tune = opts->tune,
		.allocator = opts->allocator,
		.is_command = opts->is_command,
		.words = opts->words,
	};
	int status = session__open(&run->session, &session_opts);

	if (!status)
		status = expect__parse_all(&opts->expects, NULL);
	if (!status)
		status = session__prepare(&run->session, &config, &run->measured);
	if (!status)
		status = session__choose_tier(&run->session);
	if (!status && opts->save)
		status = saved__check(opts->save);
	if (!status)
		status = callchain_output__open(&run->opts.callchain);
	return status ? status : output__open(&run->output, opts->output);
}

int cmd_run(int argc, char **argv)
{
	struct run run = {
		.opts = {.allocator = PRELOAD_BUNDLED,
			 .is_following = true,
			 .tier = SESSION_TIER_BEST,
			 .ledgers = LEDGER_ALL,
			 .slot_mode = SLOT_AUTO},
	};
	int status = options__parse(&cmd_run_argp, argc, argv, &run.opts);
	bool has_report = false;
	int unmet = 0;

	if (status)
		return status;
	status = prepare(&run);
	if (!status) {
		status = session__run(&run.session, &run.measured);
		has_report = !status;
	}
	if (has_report) {
		run.measured.profile->is_tree_asked = run.opts.callchain.is_asked;
		status = output__write(&run.output, render, &run);
	}
	if (has_report && !status)
		status = callchain_output__write(&run.opts.callchain, run.measured.profile);
	if (has_report && run.opts.save && saved__write_profile(run.opts.save, run.measured.profile))
		status = AT_EXIT_OWN;
	if (has_report)
		unmet = expect__check_profile(&run.opts.expects, run.measured.profile);
	expect__free(&run.opts.expects);
	session__free_run(&run.measured);
	session__close(&run.session);
	/* A command that failed says more than what it was expected to do. */
	if (has_report && !status)
		status = target__pass_on(&run.measured.target);
	return status ? status : unmet;
}
