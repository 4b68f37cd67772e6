/* SPDX-License-Identifier: BSD-2-Clause */
/* policy -p PID [SET]: the policies of running processes, shown or changed. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/settings.h"
#include "cli/cmd.h"
#include "cli/msg.h"
#include "cli/options.h"
#include "cli/policy_ctl.h"

struct policy_opts {
	const char *pids, *set;
	bool is_json;
};

static const struct argp_option options[] = {
	{"pid", 'p', "PID[,PID...]", 0, "The processes", 0},
	{"json", 'j', NULL, 0, "Show as JSON", 1},
	{0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct policy_opts *opts = state->input;

	switch (key) {
	case 'p': opts->pids = arg; return 0;
	case 'j': opts->is_json = true; return 0;
	case ARGP_KEY_ARG:
		if (opts->set) {
			msg__error("policy takes one set, not '%s' as well; names are separated by commas", arg);
			return OPTIONS_SAID;
		}
		opts->set = arg;
		return 0;
	case ARGP_KEY_END:
		if (opts->pids)
			return 0;
		msg__error("policy: which process? give --pid PID");
		return OPTIONS_SAID;
	default: return ARGP_ERR_UNKNOWN;
	}
}

const struct argp cmd_policy_argp = {
	.options = options,
	.parser = parse_option,
	.args_doc = "[SET]",
	.doc = "Shows the policies of a running process under the bundled allocator, or changes them at once."
	       "\vSET is all, none, an exact list like trim,commit, or changes to the default like -trim or "
	       "+trim,-stack.",
	.children = options_common,
};

/* Words and numbers of the tunables, with their units where they have one. */
static const char *tune_word(enum atm_unit unit, uint64_t value)
{
#define X(of, word, number)                           \
	if (unit == ATM_UNIT_##of && value == number) \
		return #word;
	ATM_TUNE_WORDS(X)
#undef X
	return NULL;
}

static void print_text(const struct policy_ctl *ctl)
{
	const struct atm_control *control = &ctl->control;
	char policy[128];
	const char *word, *separator = "";

	settings__format_policy(control->policy, policy, sizeof(policy));
	printf("%d: %s\n  tunables: ", (int)ctl->pid, policy);
#define X(id, name, unit, dflt, help)                                    \
	word = tune_word(ATM_UNIT_##unit, control->tune[ATM_TUNE_##id]); \
	printf("%s" #name "=", separator);                               \
	if (word)                                                        \
		printf("%s", word);                                      \
	else                                                             \
		printf("%" PRIu64, control->tune[ATM_TUNE_##id]);        \
	separator = ", ";
	ATM_TUNABLES(X)
#undef X
	printf("\n  commit batch: %" PRIu64 " pages with policy commit, %" PRIu64 " without\n",
	       control->commit_batch_scaled_pages, control->commit_batch_fixed_pages);
}

static json_t *json_process(const struct policy_ctl *ctl)
{
	const struct atm_control *control = &ctl->control;
	json_t *policy = json_array(), *tune = json_object();
	const char *word;

#define X(id, name)                        \
	if (control->policy & POLICY_##id) \
		json_array_append_new(policy, json_string(#name));
	ATM_POLICIES(X)
#undef X
#define X(id, name, unit, dflt, help)                                    \
	word = tune_word(ATM_UNIT_##unit, control->tune[ATM_TUNE_##id]); \
	json_object_set_new(tune, #name, word ? json_string(word) : json_integer(control->tune[ATM_TUNE_##id]));
	ATM_TUNABLES(X)
#undef X
	return json_pack("{s:i, s:o, s:o, s:I, s:I}", "pid", (int)ctl->pid, "policy", policy, "tune", tune,
			 "commit_batch_fixed_pages", (json_int_t)control->commit_batch_fixed_pages,
			 "commit_batch_scaled_pages", (json_int_t)control->commit_batch_scaled_pages);
}

/* Changes when there is a set, shows when there is none. */
static int handle_pid(const struct policy_opts *opts, pid_t pid, json_t *processes)
{
	struct policy_ctl ctl;
	uint32_t policy;
	char why[512];

	if (policy_ctl__open(&ctl, pid, why, sizeof(why)))
		goto fail;
	if (opts->set) {
		if (options__policy(opts->set, ctl.control.policy_default, &policy))
			return AT_EXIT_USAGE;
		if (policy_ctl__set(&ctl, policy, why, sizeof(why)))
			goto fail;
	}
	if (opts->is_json)
		json_array_append_new(processes, json_process(&ctl));
	else if (!opts->set)
		print_text(&ctl);
	return 0;
fail:
	msg__error("process %d: %s", (int)pid, why);
	return 1;
}

static bool parse_pid(const char *text, size_t bytes, pid_t *pid)
{
	long value = 0;

	if (!bytes || bytes > 9)
		return false;
	for (size_t i = 0; i < bytes; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = 10 * value + (text[i] - '0');
	}
	*pid = value;
	return value > 0;
}

/* "-trim" is a set, but looks like options: such words are taken out before argp sees them. */
static void take_set(int *argc, char **argv, struct policy_opts *opts)
{
	struct settings_error error;
	uint32_t policy;

	for (int i = 1; i < *argc && !opts->set; i++) {
		if (argv[i][0] != '-' || settings__parse_policy(argv[i], POLICY_ALL, &policy, &error))
			continue;
		opts->set = argv[i];
		memmove(&argv[i], &argv[i + 1], (*argc - i) * sizeof(*argv));
		--*argc;
	}
}

int cmd_policy(int argc, char **argv)
{
	struct policy_opts opts = {0};
	json_t *processes;
	uint32_t policy;
	int status;

	take_set(&argc, argv, &opts);
	status = options__parse(&cmd_policy_argp, argc, argv, &opts);
	if (status)
		return status;
	/* Said once, and before any process is changed. */
	if (opts.set && options__policy(opts.set, POLICY_ALL, &policy))
		return AT_EXIT_USAGE;
	processes = json_array();
	for (const char *at = opts.pids; status != AT_EXIT_USAGE;) {
		size_t bytes = strcspn(at, ",");
		pid_t pid;
		int one;

		if (!parse_pid(at, bytes, &pid)) {
			msg__error("--pid %s: '%.*s' is not a process number", opts.pids, (int)bytes, at);
			status = AT_EXIT_USAGE;
			break;
		}
		one = handle_pid(&opts, pid, processes);
		status = one ? one : status;
		at += bytes;
		if (!*at++)
			break;
	}
	if (opts.is_json && status != AT_EXIT_USAGE) {
		json_dumpf(processes, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	json_decref(processes);
	return fflush(stdout) ? AT_EXIT_OWN : status;
}
