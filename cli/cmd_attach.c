/* SPDX-License-Identifier: BSD-2-Clause */
/* attach: trace processes that run already, report. Options and the order of the stages. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/attach.h"
#include "cli/callchain_output.h"
#include "cli/cmd.h"
#include "cli/ledger.h"
#include "cli/msg.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/render.h"
#include "cli/render_callchain.h"

enum {
	OPT_CGROUP = 256,
	OPT_NAME,
	OPT_NO_FOLLOW,
	OPT_TOP,
	OPT_SAVE,
	OPT_ROWS,
	OPT_SLOTS,
	OPT_BPF_STATS,
	OPT_COLOR,
	OPT_LEDGERS,
	OPT_NO_LEDGERS,
	OPT_CALLCHAIN,
	OPT_FOLDED,
	OPT_PPROF,
};

/* Rows of processes, and of the threads of each, that a report has. */
enum { TOP_DEFAULT = 10 };

struct attach_cmd {
	struct choice choice;
	struct attach_opts opts;
	const char *output_name;
	bool is_json, has_pids;
	enum color color;
	unsigned top_cnt;
	struct output output;
	struct callchain_output callchain;
	const struct profile *shown;
	uint64_t from_ns, to_ns; /* of the interval shown */
};

static const struct argp_option options[] = {
	{"pid", 'p', "PID[,PID...]", 0, "These processes, all threads; may be given again", 0},
	{"tid", 't', "TID[,TID...]", 0, "These threads, and what they start", 0},
	{"name", OPT_NAME, "COMM", 0, "All processes of this name, those to come too", 0},
	{"cgroup", OPT_CGROUP, "PATH", 0,
	 "All processes of this control group (version 2) and below it, those to come too", 0},
	{"no-follow", OPT_NO_FOLLOW, NULL, 0, "Not the children that they start", 0},
	{"duration", 'd', "TIME", 0, "End after this time: 500ms, 10s, 2m (default: when all have ended, or Ctrl-C)",
	 1},
	{"interval", 'i', "TIME", 0, "Report what each such time brought, too", 1},
	{"top", OPT_TOP, "N", 0, "Processes, and threads of each, to list (default: 10; 0: all)", 1},
	CALLCHAIN_OUTPUT_OPTIONS(OPT_CALLCHAIN, OPT_FOLDED, OPT_PPROF, 2),
	{"json", 'j', NULL, 0, "Report as JSON", 2},
	{"output", 'o', "FILE", 0, "Report to FILE (default: -, stdout)", 2},
	{"save", OPT_SAVE, "FILE", 0, "Save all that was measured, for 'alloctrace report'", 2},
	{"color", OPT_COLOR, "WHEN", 0, "auto, always, never (default: auto)", 2},
	{"ledgers", OPT_LEDGERS, "LIST", 0,
	 "Keep these only: commit, vmas, refault, locks, stacks, all, none (default: all)", 3},
	{"no-ledgers", OPT_NO_LEDGERS, NULL, 0, "Keep none: the cheapest tracing", 3},
	{"rows", OPT_ROWS, "N", 0, "Threads that are told apart at one time (default: as many as are there, and 4096)",
	 3},
	{"slots", OPT_SLOTS, "KIND", 0, "auto, array, storage: where start times are kept (default: auto)", 3},
	{"bpf-stats", OPT_BPF_STATS, NULL, 0, "Measure the tracer's own cost; slows every traced call", 3},
	{0},
};

/* "500ms", "10s", "2m"; a bare number is seconds. False when it is none, or 0. */
static bool parse_time(const char *text, uint64_t *ns)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = {{"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"", 1e9}};
	char *end = NULL;
	double value = isdigit((unsigned char)*text) ? strtod(text, &end) : 0;

	for (size_t i = 0; end && value > 0 && i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(end, units[i].name) == 0 && value * units[i].ns < 1e18) {
			*ns = (uint64_t)(value * units[i].ns);
			return *ns >= 1000000;
		}
	return false;
}

static error_t parse_times(int key, const char *arg, struct attach_opts *opts)
{
	if (parse_time(arg, key == 'd' ? &opts->duration_ns : &opts->interval_ns))
		return 0;
	msg__error("%s: '%s' is not a time of a millisecond or more; examples: 500ms, 10s, 2m",
		   key == 'd' ? "--duration" : "--interval", arg);
	return OPTIONS_SAID;
}

static error_t parse_number(int key, const char *arg, struct attach_cmd *cmd)
{
	size_t digits = strspn(arg, "0123456789");
	long value = digits && digits == strlen(arg) && digits < 7 ? strtol(arg, NULL, 10) : -1;

	if (value < 0 || (key == OPT_ROWS && !value)) {
		msg__error("%s: '%s' is not a number that can be used here", key == OPT_TOP ? "--top" : "--rows", arg);
		return OPTIONS_SAID;
	}
	if (key == OPT_TOP)
		cmd->top_cnt = (unsigned)value;
	else
		cmd->opts.row_cnt = (uint32_t)value;
	return 0;
}

static error_t parse_choice(int key, const char *arg, struct attach_cmd *cmd)
{
	static const char *const slots[] = {"auto", "array", "storage", NULL};
	int chosen = key == OPT_SLOTS ? options__choose("--slots", arg, slots) : options__color(arg);

	if (chosen < 0)
		return OPTIONS_SAID;
	if (key == OPT_SLOTS)
		cmd->opts.slot_mode = chosen; /* in the order of enum slot_mode */
	else
		cmd->color = chosen;
	return 0;
}

static error_t parse_targets(int key, const char *arg, struct attach_cmd *cmd)
{
	int status = 0;

	switch (key) {
	case 'p':
		cmd->has_pids = true;
		status = choice__add_ids(&cmd->choice, "--pid", arg, AT_SCOPE_PROCESS);
		break;
	case 't': status = choice__add_ids(&cmd->choice, "--tid", arg, AT_SCOPE_THREAD); break;
	case OPT_NAME: status = choice__add_name(&cmd->choice, arg); break;
	case OPT_CGROUP: status = choice__add_cgroup(&cmd->choice, arg); break;
	/* -p $(pidof x): the numbers after the first are words of their own */
	case ARGP_KEY_ARG:
		if (cmd->has_pids) {
			status = choice__add_ids(&cmd->choice, "--pid", arg, AT_SCOPE_PROCESS);
			break;
		}
		msg__error("attach: '%s': say what it is with --pid, --tid, --name or --cgroup", arg);
		return OPTIONS_SAID;
	}
	return status ? OPTIONS_SAID : 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct attach_cmd *cmd = state->input;

	switch (key) {
	case 'p':
	case 't':
	case OPT_NAME:
	case OPT_CGROUP:
	case ARGP_KEY_ARG: return parse_targets(key, arg, cmd);
	case OPT_NO_FOLLOW: cmd->opts.is_following = false; return 0;
	case 'd':
	case 'i': return parse_times(key, arg, &cmd->opts);
	case OPT_TOP:
	case OPT_ROWS: return parse_number(key, arg, cmd);
	case OPT_CALLCHAIN: cmd->callchain.is_asked = true; return 0;
	case OPT_FOLDED: cmd->callchain.folded = arg; return 0;
	case OPT_PPROF: cmd->callchain.pprof = arg; return 0;
	case 'j': cmd->is_json = true; return 0;
	case 'o': cmd->output_name = arg; return 0;
	case OPT_SAVE: cmd->opts.save = arg; return 0;
	case OPT_BPF_STATS: cmd->opts.is_measuring_bpf = true; return 0;
	case OPT_NO_LEDGERS: cmd->opts.ledgers = 0; return 0;
	case OPT_LEDGERS:
		if (ledger__parse(arg, &cmd->opts.ledgers))
			return 0;
		msg__error("--ledgers: unknown '%s'; known: %s (with commas between), all, none", arg, ledger__names());
		return OPTIONS_SAID;
	case OPT_SLOTS:
	case OPT_COLOR: return parse_choice(key, arg, cmd);
	case ARGP_KEY_END:
		if (cmd->choice.cnt || choice__is_open(&cmd->choice))
			return 0;
		msg__error("attach: to what? give --pid PID, --tid TID, --name COMM or --cgroup PATH");
		return OPTIONS_SAID;
	default: return ARGP_ERR_UNKNOWN;
	}
}

const struct argp cmd_attach_argp = {
	.options = options,
	.parser = parse_option,
	.args_doc = "-p PID[,PID...] [PID...]",
	.doc = "Traces processes that run already, without touching them, and reports what their memory calls cost in "
	       "the "
	       "kernel: in total, by process and by thread."
	       "\vIt ends after --duration, when all processes that were given by number have ended, or with Ctrl-C, "
	       "and "
	       "always with a report. Exit status: 0 there is a report; 1 nothing could be attached to; 2 wrong usage; "
	       "125 "
	       "alloctrace failed, or the kernel does not let it trace; 128 + N signal N other than that of Ctrl-C "
	       "ended "
	       "it, after the report.",
	.children = options_common,
};

static int render(FILE *out, const void *data)
{
	const struct attach_cmd *cmd = data;
	struct render_opts opts = {.has_color = output__wants_color(&cmd->output, cmd->color), .top_cnt = cmd->top_cnt};

	int err = cmd->is_json ? render__json(out, cmd->shown) : render__table(out, cmd->shown, &opts);

	if (!err && !cmd->is_json && cmd->callchain.is_asked && cmd->shown->callchains)
		err = render_callchain__tree(out, cmd->shown);
	return err;
}

static int render_interval(FILE *out, const void *data)
{
	const struct attach_cmd *cmd = data;
	struct render_opts opts = {.has_color = output__wants_color(&cmd->output, cmd->color), .top_cnt = cmd->top_cnt};

	if (cmd->is_json)
		return render__interval_json(out, cmd->shown, cmd->from_ns, cmd->to_ns);
	return render__interval_table(out, cmd->shown, &opts, cmd->from_ns, cmd->to_ns);
}

static int show_interval(void *data, const struct profile *part, uint64_t from_ns, uint64_t to_ns)
{
	struct attach_cmd *cmd = data;

	cmd->shown = part;
	cmd->from_ns = from_ns;
	cmd->to_ns = to_ns;
	return output__write_part(&cmd->output, render_interval, cmd);
}

/* From the attaching to the written report. */
static int trace(struct attach_cmd *cmd)
{
	struct attach *attach = NULL;
	struct profile *profile = NULL;
	int status = attach__open(&attach, &cmd->choice, &cmd->opts);

	if (!status)
		status = attach__wait(attach);
	if (!status)
		status = attach__finish(attach, &profile);
	if (!status) {
		cmd->shown = profile;
		status = output__write(&cmd->output, render, cmd);
		if (!status)
			status = callchain_output__write(&cmd->callchain, profile);
	}
	if (!status && attach__signal(attach) && attach__signal(attach) != SIGINT)
		status = 128 + attach__signal(attach);
	if (!status && attach__is_unsaved(attach))
		status = AT_EXIT_OWN;
	profile__free(profile);
	attach__close(attach);
	return status;
}

int cmd_attach(int argc, char **argv)
{
	struct attach_cmd cmd = {
		.opts = {.is_following = true, .ledgers = LEDGER_ALL, .slot_mode = SLOT_AUTO},
		.output_name = "-",
		.top_cnt = TOP_DEFAULT,
	};
	int status = options__parse(&cmd_attach_argp, argc, argv, &cmd);

	cmd.opts.on_interval = show_interval;
	cmd.opts.data = &cmd;
	cmd.opts.callchains = callchain_output__mode(&cmd.callchain);
	if (!status)
		status = output__open(&cmd.output, cmd.output_name);
	if (!status)
		status = callchain_output__open(&cmd.callchain);
	if (!status)
		status = trace(&cmd);
	choice__free(&cmd.choice);
	return status;
}
