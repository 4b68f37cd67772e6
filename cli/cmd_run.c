/* SPDX-License-Identifier: BSD-2-Clause */
/* run: start a scenario or a command, trace it, report. Options and the order of the stages. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc/settings.h"
#include "cli/binary.h"
#include "cli/cmd.h"
#include "cli/command.h"
#include "cli/counters.h"
#include "cli/feature.h"
#include "cli/host.h"
#include "cli/ledger.h"
#include "cli/msg.h"
#include "cli/options.h"
#include "cli/preload.h"
#include "cli/profile.h"
#include "cli/render.h"
#include "cli/target.h"
#include "cli/tracer.h"
#include "cli/user.h"

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
};

enum color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };
enum { TIER_AUTO = -1, TIER_MAX = 2 };

struct run_opts {
	const char *policy, *tune, *allocator, *user, *output;
	bool is_following, is_json, is_measuring_bpf;
	enum color color;
	int tier;
	unsigned ledgers; /* LEDGER_* */
	enum slot_mode slot_mode;
	bool is_command; /* after --, not a scenario */
	char **words;    /* scenario or command, and its arguments */
};

struct run {
	struct run_opts opts;
	struct user user;
	struct command command;
	struct features features;
	int tier;
	FILE *out;
	struct counters *counters;
	struct tracer *tracer;
	struct target target;
	struct profile *profile;
};

static const struct argp_option options[] = {
	{"policy", OPT_POLICY, "SET", 0,
	 "all, none, an exact list like trim,commit, or changes like -trim (default: all)", 0},
	{"tune", OPT_TUNE, "NAME=VALUE,...", 0, "Tunables of the bundled allocator; 'alloctrace list' has them", 0},
	{"allocator", OPT_ALLOCATOR, "NAME", 0,
	 "bundled, system, jemalloc, mimalloc, tcmalloc, or a library's path (default: bundled)", 0},
	{"no-follow", OPT_NO_FOLLOW, NULL, 0, "Only the command's own process, not its children", 0},
	{"user", OPT_USER, "USER", 0, "Run the command as USER (default: you, also under sudo)", 0},
	{"json", 'j', NULL, 0, "Report as JSON", 1},
	{"output", 'o', "FILE", 0, "Report to FILE, - is stdout (default: stderr)", 1},
	{"color", OPT_COLOR, "WHEN", 0, "auto, always, never (default: auto)", 1},
	{"tier", OPT_TIER, "N", 0, "Trace with tier N at most: 0 is no kernel tracing (default: the best)", 2},
	{"ledgers", OPT_LEDGERS, "LIST", 0, "Keep these only: commit, vmas, all, none (default: all)", 2},
	{"no-ledgers", OPT_NO_LEDGERS, NULL, 0, "Keep none: the cheapest tracing", 2},
	{"slots", OPT_SLOTS, "KIND", 0, "auto, array, storage: where start times are kept (default: auto)", 2},
	{"bpf-stats", OPT_BPF_STATS, NULL, 0, "Measure the tracer's own cost; slows every traced call", 2},
	{0},
};

/* The index of word in NULL-terminated words; -1 after saying what is known. */
static int choose(const char *option, const char *word, const char *const *words)
{
	char known[128] = "";
	size_t used = 0;

	for (int i = 0; words[i]; i++) {
		if (strcmp(word, words[i]) == 0)
			return i;
		used += snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", words[i]);
	}
	msg__error("%s: unknown '%s'; known: %s", option, word, known);
	return -1;
}

static error_t parse_choice(int key, const char *arg, struct run_opts *opts)
{
	static const char *const tiers[] = {"0", "1", "2", NULL};
	static const char *const slots[] = {"auto", "array", "storage", NULL};
	static const char *const colors[] = {"auto", "always", "never", NULL};
	int chosen = key == OPT_TIER    ? choose("--tier", arg, tiers)
		     : key == OPT_SLOTS ? choose("--slots", arg, slots)
					: choose("--color", arg, colors);

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
	case 'j': opts->is_json = true; return 0;
	case 'o': opts->output = arg; return 0;
	case OPT_BPF_STATS: opts->is_measuring_bpf = true; return 0;
	case OPT_NO_LEDGERS: opts->ledgers = 0; return 0;
	case OPT_LEDGERS:
		if (ledger__parse(arg, &opts->ledgers))
			return 0;
		msg__error("--ledgers: unknown '%s'; known: commit, vmas (with commas between), all, none", arg);
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
	       "\vExit status: that of the command; a signal that ended it ends alloctrace, too. 2 wrong usage, 125 "
	       "alloctrace failed, 126 the command cannot be executed, 127 it was not found.",
	.children = options_common,
};

static int out_of_memory(void)
{
	msg__error("out of memory");
	return AT_EXIT_OWN;
}

/* Empty is as good as unset. */
static const char *get_setting(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* Settings of the allocator, from the options or else from the environment, and what the profile says of them. */
static int choose_settings(struct run *run)
{
	struct run_opts *opts = &run->opts;
	struct profile *profile = run->profile;
	bool is_bundled = strcmp(opts->allocator, PRELOAD_BUNDLED) == 0;
	uint64_t tune[ATM_TUNE_CNT];
	size_t bytes;

	if (!is_bundled && (opts->policy || opts->tune)) {
		msg__error("%s is for the bundled allocator only, not for %s", opts->policy ? "--policy" : "--tune",
			   opts->allocator);
		return AT_EXIT_USAGE;
	}
	bytes = strlen(opts->allocator); /* the end of a long path says more than its start */
	snprintf(profile->allocator, sizeof(profile->allocator), "%s",
		 opts->allocator + (bytes < sizeof(profile->allocator) ? 0 : bytes - sizeof(profile->allocator) + 1));
	if (!is_bundled)
		return 0;
	if (!opts->policy)
		opts->policy = get_setting(ATM_POLICY_ENV);
	if (!opts->tune)
		opts->tune = get_setting(ATM_TUNE_ENV);
	profile->policy = POLICY_ALL;
	if (opts->policy && options__policy(opts->policy, POLICY_ALL, &profile->policy))
		return AT_EXIT_USAGE;
	settings__tune_defaults(tune);
	if (opts->tune && options__tune(opts->tune, tune))
		return AT_EXIT_USAGE;
	if (opts->tune) {
		profile->tune = strdup(opts->tune);
		if (!profile->tune)
			return out_of_memory();
	}
	profile->has_policy = true;
	return 0;
}

/* Preloads the allocator, where it can reach the program; says in the profile where it cannot. */
static int prepare_allocator(struct run *run)
{
	struct profile *profile = run->profile;
	struct binary_finding finding;
	char library[4096], policy[128];
	int status = preload__find(run->opts.allocator, library, sizeof(library));

	if (status)
		return status;
	unsetenv(ATM_HANDOVER_ENV); /* of an alloctrace that we may run under */
	binary__inspect(command__file(&run->command), run->user.uid, run->user.gid, &finding);
	if (!finding.is_replaceable && (library[0] || finding.is_32bit))
		snprintf(profile->note, sizeof(profile->note), "%s%s%s", finding.why,
			 library[0] ? ": traced, but malloc is not replaced" : "",
			 profile->has_policy ? " and policies do not apply" : "");
	if (!finding.is_replaceable)
		profile->has_policy = false;
	if (!finding.is_replaceable || !library[0])
		return 0;
	if (profile->has_policy) {
		settings__format_policy(profile->policy, policy, sizeof(policy));
		setenv(ATM_POLICY_ENV, policy, 1);
		if (profile->tune)
			setenv(ATM_TUNE_ENV, profile->tune, 1);
	}
	msg__info("preloading %s", library);
	return preload__set(library);
}

static int choose_tier(struct run *run)
{
	char advice[256];

	feature__probe(&run->features);
	run->tier = run->features.best_tier;
	msg__info("tier %d can be had here", run->tier);
	if (run->opts.tier == TIER_AUTO)
		return 0;
	if (run->opts.tier > run->tier) {
		feature__advice(&run->features, run->tier, advice, sizeof(advice));
		msg__error("tier %d cannot be had here, %d can%s%s", run->opts.tier, run->tier, advice[0] ? ": " : "",
			   advice);
		return AT_EXIT_OWN;
	}
	run->tier = run->opts.tier;
	return 0;
}

static int open_output(struct run *run)
{
	const char *name = run->opts.output;

	run->out = !name ? stderr : strcmp(name, "-") == 0 ? stdout : fopen(name, "we");
	if (run->out)
		return 0;
	msg__error("cannot write the report to '%s': %s", name, strerror(errno));
	return AT_EXIT_OWN;
}

/* Without the counters there is still the tracer: a failure is not the end. */
static void open_counters(struct run *run)
{
	struct counters_opts opts = {.uid = run->user.uid};
	int err;

	if (!run->profile->has_policy)
		return;
	err = counters__open(&run->counters, &opts);
	if (!err && setenv(ATM_HANDOVER_ENV, counters__name(run->counters), 1))
		err = -ENOMEM;
	if (err)
		msg__warn("the allocator's own counters are not available: %s", strerror(-err));
}

static int start_tracer(struct run *run)
{
	struct tracer_opts opts = {
		.is_following = run->opts.is_following,
		.slot_mode = run->opts.slot_mode,
		.is_measuring_bpf = run->opts.is_measuring_bpf,
		.ledgers = run->opts.ledgers,
	};

	if (run->tier < 1)
		return 0;
	if (tracer__open(&run->tracer, &run->features, &opts) || tracer__add_target(run->tracer, run->target.pid) ||
	    tracer__start(run->tracer))
		return AT_EXIT_OWN;
	return 0;
}

static void serve_counters(void *data)
{
	counters__serve(data);
}

static int run_target(struct run *run)
{
	int fd = run->counters ? counters__fd(run->counters) : -1;
	int status = target__release(&run->target, run->command.argv[0]);
	int err;

	if (status)
		return status;
	err = target__wait(&run->target, fd, serve_counters, run->counters);
	if (!err)
		return 0;
	msg__error("cannot wait for the command: %s", strerror(-err));
	return AT_EXIT_OWN;
}

static uint64_t timeval_ns(struct timeval tv)
{
	return tv.tv_sec * 1000000000ull + tv.tv_usec * 1000ull;
}

static void fill_from_target(struct run *run)
{
	struct profile *profile = run->profile;
	const struct target *target = &run->target;

	profile->pid = target->pid;
	profile->has_exit = true;
	if (WIFSIGNALED(target->status))
		profile->exit_signal = WTERMSIG(target->status);
	else
		profile->exit_status = WEXITSTATUS(target->status);
	profile->wall_ns = target->end_ns - target->start_ns;
	profile->user_ns = timeval_ns(target->rusage.ru_utime);
	profile->sys_ns = timeval_ns(target->rusage.ru_stime);
	profile->max_rss_bytes = target->rusage.ru_maxrss * 1024ull;
	profile->minor_fault_cnt = target->rusage.ru_minflt;
	profile->major_fault_cnt = target->rusage.ru_majflt;
}

static void fill_from_counters(struct run *run)
{
	struct profile *profile = run->profile;
	struct counters_result *result;

	if (!run->counters)
		return;
	result = calloc(1, sizeof(*result));
	if (!result)
		return;
	counters__finish(run->counters, result);
	profile->has_self_counts = result->process_cnt > 0;
	profile->self_process_cnt = result->process_cnt;
	profile->phases_seen |= result->phases_seen;
	for (int phase = 0; phase < AT_PHASE_CNT; phase++)
		profile->phases[phase].self = result->phases[phase];
	if (result->refused_cnt)
		msg__warn(
			"the own counters of %llu processes are missing: they ran as another user, or memory was short",
			(unsigned long long)result->refused_cnt);
	if (result->uncounted_heap_cnt)
		msg__warn("requests of %llu heaps are missing: a process had more than %d at once",
			  (unsigned long long)result->uncounted_heap_cnt, ATM_CELL_CNT);
	if (!result->process_cnt) {
		profile->has_policy = false;
		snprintf(profile->note, sizeof(profile->note),
			 "no process loaded the bundled allocator: policies do not apply (may its user read the "
			 "library?)");
	}
	free(result);
}

static int collect(struct run *run)
{
	if (run->tracer && (tracer__stop(run->tracer) || tracer__collect(run->tracer, run->profile)))
		return AT_EXIT_OWN;
	run->profile->tier = run->tier;
	run->profile->has_trace = run->tracer;
	host__fill(run->profile);
	fill_from_target(run);
	fill_from_counters(run);
	return 0;
}

static bool wants_color(const struct run *run)
{
	if (run->opts.color != COLOR_AUTO)
		return run->opts.color == COLOR_ALWAYS;
	return isatty(fileno(run->out)) && !getenv("NO_COLOR");
}

/* Rendered in memory and written at once: a report is whole, or its end is an error that is seen. */
static int write_report(struct run *run)
{
	char *text = NULL, advice[256] = "";
	size_t bytes = 0;
	struct render_opts opts = {.has_color = wants_color(run), .advice = advice};
	FILE *memory = open_memstream(&text, &bytes);
	int err;

	if (!memory)
		return out_of_memory();
	feature__advice(&run->features, run->tier, advice, sizeof(advice));
	err = run->opts.is_json ? render__json(memory, run->profile) : render__table(memory, run->profile, &opts);
	if (ferror(memory))
		err = -ENOMEM;
	if (fclose(memory) || err) {
		free(text);
		return out_of_memory();
	}
	errno = 0;
	if (fwrite(text, 1, bytes, run->out) != bytes || fflush(run->out) ||
	    (run->opts.output && run->out != stdout && fclose(run->out)))
		err = errno ? -errno : -EIO;
	free(text);
	/* A reader that has seen enough is no failure of ours. */
	if (!err || err == -EPIPE)
		return 0;
	msg__error("cannot write the report to '%s': %s", run->opts.output ? run->opts.output : "stderr",
		   strerror(-err));
	return AT_EXIT_OWN;
}

static int prepare(struct run *run)
{
	int status = choose_settings(run);

	if (!status)
		status = command__find(&run->command, run->opts.words, !run->opts.is_command);
	if (!status && user__resolve(run->opts.user, &run->user))
		status = AT_EXIT_USAGE;
	if (!status)
		status = prepare_allocator(run);
	if (!status)
		status = choose_tier(run);
	if (!status)
		status = open_output(run);
	if (!status)
		open_counters(run);
	return status;
}

static int fork_target(struct run *run)
{
	size_t cnt = 0;
	struct target_spec spec = {
		.paths = run->command.paths, .argv = run->command.argv, .envp = environ, .user = &run->user};

	while (run->command.argv[cnt])
		cnt++;
	run->profile->argv = calloc(cnt + 1, sizeof(char *));
	if (!run->profile->argv)
		return out_of_memory();
	for (size_t i = 0; run->command.argv[i]; i++)
		if (!(run->profile->argv[i] = strdup(run->command.argv[i])))
			return out_of_memory();
	if (target__fork(&run->target, &spec)) {
		target__abort(&run->target);
		return AT_EXIT_OWN;
	}
	if (run->counters && !run->opts.is_following)
		counters__set_only_pid(run->counters, run->target.pid);
	return 0;
}

/* Everything between the fork and the report; the child is gone when it returns. */
static int trace(struct run *run)
{
	int status = fork_target(run);

	if (status)
		return status;
	status = start_tracer(run);
	if (!status)
		status = run_target(run);
	if (!status)
		status = collect(run);
	target__abort(&run->target);
	return status;
}

static void free_run(struct run *run)
{
	tracer__free(run->tracer);
	counters__free(run->counters);
	profile__free(run->profile);
	user__free(&run->user);
	command__free(&run->command);
}

int cmd_run(int argc, char **argv)
{
	struct run run = {
		.opts = {.allocator = PRELOAD_BUNDLED,
			 .is_following = true,
			 .tier = TIER_AUTO,
			 .ledgers = LEDGER_ALL,
			 .slot_mode = SLOT_AUTO},
	};
	int status = options__parse(&cmd_run_argp, argc, argv, &run.opts);
	bool has_report = false;

	if (status)
		return status;
	run.profile = profile__new();
	status = run.profile ? prepare(&run) : out_of_memory();
	if (!status) {
		status = trace(&run);
		has_report = !status;
	}
	if (has_report)
		status = write_report(&run);
	free_run(&run);
	return has_report && !status ? target__pass_on(&run.target) : status;
}
