/* SPDX-License-Identifier: BSD-2-Clause */
/* compare: configurations of a scenario or a command against each other. Options, and the order of the runs. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/compare_config.h"
#include "cli/compare_runs.h"
#include "cli/expect.h"
#include "cli/msg.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/render_compare.h"
#include "cli/render_plain.h"
#include "cli/saved.h"
#include "cli/scenarios.h"

enum {
	OPT_POLICY = 256,
	OPT_TUNE,
	OPT_ALLOCATOR,
	OPT_CONFIG,
	OPT_MATRIX,
	OPT_BASE,
	OPT_ALL,
	OPT_RUNS,
	OPT_TIME,
	OPT_PRECISION,
	OPT_SEED,
	OPT_SHOW_OUTPUT,
	OPT_NO_FOLLOW,
	OPT_USER,
	OPT_TIER,
	OPT_COLOR,
	OPT_PLOT,
	OPT_ASCII,
	OPT_HTML,
	OPT_NO_LEDGERS,
	OPT_SAVE,
	OPT_EXPECT,
	OPT_FORMAT,
};

enum { DEFAULT_BLOCK_CNT = 10, DEFAULT_PRECISION_PERCENT = 2, PROGRAM_MAX = 64 };

struct compare_opts {
	struct compare_configs configs;
	const char *base, *tune, *output, *save, *html;
	bool is_matrix, is_all, has_seed, has_precision;
	struct look_opts look;
	enum render_format format;
	struct compare_plan plan;
	char *programs[PROGRAM_MAX];
	size_t program_cnt;
	struct scenarios scenarios; /* with --all: owns the names */
	struct expects expects;
};

static const struct argp_option options[] = {
	{"policy", OPT_POLICY, "SET", 0, "Compare this set of policies; may be repeated", 0},
	{"allocator", OPT_ALLOCATOR, "NAME", 0, "Compare this allocator, as in run; may be repeated", 0},
	{"config", OPT_CONFIG, "NAME:SETTING=VALUE,...", 0,
	 "Compare these settings (policy, allocator, tune, env=VAR=VALUE); may be repeated", 0},
	{"matrix", OPT_MATRIX, NULL, 0, "Compare all 16 sets of policies, and show the effect of each and of pairs", 0},
	{"base", OPT_BASE, "NAME", 0, "Changes are against this configuration (default: the first)", 0},
	{"tune", OPT_TUNE, "NAME=VALUE,...", 0, "Tunables, where a configuration has none of its own", 0},
	{"all", OPT_ALL, NULL, 0, "All bundled scenarios", 0},
	{"runs", OPT_RUNS, "N", 0, "Blocks: one run of each configuration (default: 10)", 1},
	{"time", OPT_TIME, "DURATION", 0,
	 "Go on after these blocks until times are precise, but begin no block that would end later, as 30s or 5m", 1},
	{"precision", OPT_PRECISION, "PERCENT", 0,
	 "With --time: 95 % intervals of kernel and wall time within this of their median (default: 2)", 1},
	{"seed", OPT_SEED, "N", 0, "Of the order of the runs and the intervals (default: a new one, printed)", 1},
	{"show-output", OPT_SHOW_OUTPUT, NULL, 0, "Let the commands write to standard output", 1},
	{"no-follow", OPT_NO_FOLLOW, NULL, 0, "Only the command's own process, not its children", 1},
	{"user", OPT_USER, "USER", 0, "Run the command as USER (default: you, also under sudo)", 1},
	{"json", 'j', NULL, 0, "Report as JSON: --format json", 2},
	{"format", OPT_FORMAT, "FORMAT", 0, "table, json, csv, markdown (default: table)", 2},
	{"output", 'o', "FILE", 0, "Report to FILE, - is stdout (default: stdout, stderr with --show-output)", 2},
	{"save", OPT_SAVE, "FILE", 0, "Save all runs and their settings, for 'alloctrace report'", 2},
	{"expect", OPT_EXPECT, "EXPECTATION", 0,
	 "Exit with 1 unless this is so, as 'kernel_ns(all)<=0.5*kernel_ns(none)'; may be repeated", 2},
	{"color", OPT_COLOR, "WHEN", 0, "auto, always, never (default: auto)", 2},
	{"plot", OPT_PLOT, "WHEN", 0,
	 "Small pictures in the table: auto (on a terminal), always, never (default: auto)", 2},
	{"ascii", OPT_ASCII, NULL, 0, "Draw them in ASCII, as where the locale is not UTF-8", 2},
	{"html", OPT_HTML, "FILE", 0, "Write a page with charts to FILE, too", 2},
	{"tier", OPT_TIER, "N", 0, "Trace with tier N at most: 0 is no kernel tracing (default: the best)", 2},
	{"no-ledgers", OPT_NO_LEDGERS, NULL, 0, "Keep no ledgers: the cheapest tracing", 2},
	{0},
};

/* A whole number from least to most; false after saying what is wrong. */
static bool parse_number(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *number)
{
	char *end;

	errno = 0;
	*number = strtoull(text, &end, 10);
	if (*text >= '0' && *text <= '9' && !*end && !errno && *number >= least && *number <= most)
		return true;
	msg__error("%s: '%s' is not a number from %llu to %llu", option, text, (unsigned long long)least,
		   (unsigned long long)most);
	return false;
}

static bool parse_duration(const char *text, uint64_t *ns)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = {{"ms", 1e6}, {"s", 1e9}, {"m", 60e9}};
	char *end;
	double value = strtod(text, &end);

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (*text >= '0' && *text <= '9' && strcmp(end, units[i].unit) == 0 && value > 0 && value < 1e9) {
			*ns = (uint64_t)(value * units[i].ns);
			return true;
		}
	msg__error("--time: '%s' is no duration; known units: ms, s, m", text);
	return false;
}

static bool parse_percent(const char *text, double *percent)
{
	char *end;

	*percent = strtod(text, &end);
	if (*text >= '0' && *text <= '9' && !*end && *percent > 0 && *percent <= 100)
		return true;
	msg__error("--precision: '%s' is not a number of percent above 0, up to 100", text);
	return false;
}

/* What is about the runs themselves. */
static error_t parse_plan(int key, const char *arg, struct compare_opts *opts)
{
	uint64_t number;
	int chosen;

	switch (key) {
	case OPT_RUNS:
		if (!parse_number("--runs", arg, 1, COMPARE_BLOCK_MAX, &number))
			return OPTIONS_SAID;
		opts->plan.block_cnt = number;
		return 0;
	case OPT_TIME: return parse_duration(arg, &opts->plan.limit_ns) ? 0 : OPTIONS_SAID;
	case OPT_PRECISION:
		opts->has_precision = true;
		return parse_percent(arg, &opts->plan.precision_percent) ? 0 : OPTIONS_SAID;
	case OPT_SEED:
		opts->has_seed = true;
		return parse_number("--seed", arg, 0, UINT64_MAX, &opts->plan.seed) ? 0 : OPTIONS_SAID;
	case OPT_TIER:
		chosen = options__tier(arg);
		opts->plan.session.tier = chosen;
		return chosen < 0 ? OPTIONS_SAID : 0;
	case OPT_COLOR:
		chosen = options__color(arg);
		opts->look.color = chosen;
		return chosen < 0 ? OPTIONS_SAID : 0;
	case OPT_PLOT:
		chosen = options__plot(arg);
		opts->look.plot = chosen;
		return chosen < 0 ? OPTIONS_SAID : 0;
	case OPT_ASCII: opts->look.is_ascii = true; return 0;
	case OPT_SHOW_OUTPUT: opts->plan.is_showing_output = true; return 0;
	case OPT_NO_FOLLOW: opts->plan.session.is_following = false; return 0;
	case OPT_NO_LEDGERS: opts->plan.session.ledgers = 0; return 0;
	case OPT_USER: opts->plan.session.user = arg; return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_word(char *arg, struct compare_opts *opts, struct argp_state *state)
{
	if (state->quoted) {
		if (opts->program_cnt) {
			msg__error("compare: scenarios, or a command after --, not both");
			return OPTIONS_SAID;
		}
		opts->plan.command = &state->argv[state->next - 1];
		state->next = state->argc;
		return 0;
	}
	if (opts->program_cnt == PROGRAM_MAX) {
		msg__error("compare: more than %d scenarios", PROGRAM_MAX);
		return OPTIONS_SAID;
	}
	opts->programs[opts->program_cnt++] = arg;
	return 0;
}

static error_t check_words(const struct compare_opts *opts)
{
	if (opts->is_all && (opts->program_cnt || opts->plan.command)) {
		msg__error("compare: --all has scenarios of its own: no other ones, and no command, beside it");
		return OPTIONS_SAID;
	}
	if (opts->has_precision && !opts->plan.limit_ns) {
		msg__error("--precision needs --time: how long may it take?");
		return OPTIONS_SAID;
	}
	if (opts->program_cnt || opts->plan.command || opts->is_all)
		return 0;
	msg__error("compare: no scenario and no command; 'alloctrace list' names the scenarios, a command "
		   "follows --");
	return OPTIONS_SAID;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct compare_opts *opts = state->input;

	switch (key) {
	case OPT_POLICY: return compare_config__add_policy(&opts->configs, arg) ? OPTIONS_SAID : 0;
	case OPT_ALLOCATOR: return compare_config__add_allocator(&opts->configs, arg) ? OPTIONS_SAID : 0;
	case OPT_CONFIG: return compare_config__add_text(&opts->configs, arg) ? OPTIONS_SAID : 0;
	case OPT_MATRIX: opts->is_matrix = true; return 0;
	case OPT_ALL: opts->is_all = true; return 0;
	case OPT_BASE: opts->base = arg; return 0;
	case OPT_TUNE: opts->tune = arg; return 0;
	case 'j': opts->format = RENDER_JSON; return 0;
	case OPT_FORMAT: return render_plain__choose(arg, &opts->format) ? 0 : OPTIONS_SAID;
	case 'o': opts->output = arg; return 0;
	case OPT_HTML: opts->html = arg; return 0;
	case OPT_SAVE: opts->save = arg; return 0;
	case OPT_EXPECT: return expect__add(&opts->expects, arg) ? OPTIONS_SAID : 0;
	case ARGP_KEY_ARG: return parse_word(arg, opts, state);
	case ARGP_KEY_END: return check_words(opts);
	default: return parse_plan(key, arg, opts);
	}
}

const struct argp cmd_compare_argp = {
	.options = options,
	.parser = parse_option,
	.args_doc = "SCENARIO...\n--all\n-- COMMAND [ARG...]",
	.doc = "Compares policies, allocators and settings on bundled scenarios, or on any command: runs them in turn, "
	       "in random order, and says what differs, by how much, and whether that could be chance."
	       "\vWithout --policy, --allocator and --config: no policy, each alone, and all. A scenario with "
	       "arguments "
	       "is one word: 'trim_loop --touch'. Exit status: 0, 1 when a run failed or an expectation was not met, 2 "
	       "wrong usage, 125 alloctrace "
	       "failed, 128 + N when signal N ended it early.",
	.children = options_common,
};

static int choose_scenarios(struct compare_opts *opts)
{
	if (!opts->is_all)
		return 0;
	if (scenarios__load(&opts->scenarios))
		return AT_EXIT_OWN;
	for (size_t i = 0; i < opts->scenarios.cnt && i < PROGRAM_MAX; i++)
		opts->programs[opts->program_cnt++] = opts->scenarios.all[i].name;
	return 0;
}

static int choose_configs(struct compare_opts *opts, size_t *base)
{
	int status = 0;

	if (opts->is_matrix && opts->configs.cnt) {
		msg__error("--matrix has configurations of its own: not with --policy, --allocator or --config");
		return AT_EXIT_USAGE;
	}
	if (opts->is_matrix)
		status = compare_config__add_matrix(&opts->configs);
	else if (!opts->configs.cnt)
		status = compare_config__add_default(&opts->configs);
	if (!status && opts->configs.cnt < 2) {
		msg__error("compare: one configuration only; there is nothing to compare it with");
		return AT_EXIT_USAGE;
	}
	if (!status)
		status = compare_config__set_tune(&opts->configs, opts->tune);
	return status ? status : compare_config__find(&opts->configs, opts->base, base);
}

struct render_data {
	const struct compare_report *report;
	enum render_format format;
	struct look look;
};

static int render(FILE *out, const void *data)
{
	const struct render_data *shown = data;

	return render_plain__comparison(out, shown->report, shown->format, &shown->look);
}

static int write_report(const struct compare_opts *opts, struct output *output, const struct compare_report *report)
{
	struct render_data data = {
		.report = report,
		.format = opts->format,
		.look = output__look(output, &opts->look),
	};

	return output__write(output, render, &data);
}

static int compare(struct compare_opts *opts)
{
	struct compare_report report = {.configs = &opts->configs, .is_matrix = opts->is_matrix};
	struct compare_runs runs = {0};
	struct output output, page;
	int status = choose_configs(opts, &report.base), unmet = 0;

	if (!status)
		status = expect__parse_all(&opts->expects, &opts->configs);
	if (!status)
		status = choose_scenarios(opts);
	if (!status && !opts->has_seed && getrandom(&opts->plan.seed, sizeof(opts->plan.seed), 0) < 0)
		status = AT_EXIT_OWN;
	if (!opts->has_seed)
		opts->plan.seed >>= 32; /* short enough to be typed again */
	if (!status)
		status = compare_runs__prepare(&runs, &opts->plan, opts->programs, opts->program_cnt, &report);
	if (!status && opts->save)
		status = saved__check(opts->save);
	if (!status)
		/* Standard output, unless the commands write there. */
		status = output__open(&output, opts->output || opts->plan.is_showing_output ? opts->output : "-");
	/* Opened before the work begins, as the report is. */
	if (!status && opts->html)
		status = render_compare__open_page(&page, opts->html);
	if (!status)
		status = compare_runs__run(&runs, &report);
	if (!status) {
		status = write_report(opts, &output, &report);
		if (opts->html && render_compare__write_page(&page, &report))
			status = AT_EXIT_OWN;
		if (opts->save && saved__write_comparison(opts->save, &report))
			status = AT_EXIT_OWN;
		unmet = expect__check_comparison(&opts->expects, &report);
	}
	if (!status && report.signal)
		status = 128 + report.signal;
	if (!status)
		status = unmet;
	compare_runs__free(&runs, &report);
	return status;
}

int cmd_compare(int argc, char **argv)
{
	struct compare_opts *opts = calloc(1, sizeof(*opts));
	int status;

	if (!opts)
		return AT_EXIT_OWN;
	opts->plan.block_cnt = DEFAULT_BLOCK_CNT;
	opts->plan.precision_percent = DEFAULT_PRECISION_PERCENT;
	opts->plan.session =
		(struct session_opts){.is_following = true, .tier = SESSION_TIER_BEST, .ledgers = LEDGER_ALL};
	status = options__parse(&cmd_compare_argp, argc, argv, opts);
	if (!status)
		status = compare(opts);
	compare_config__free(&opts->configs);
	scenarios__free(&opts->scenarios);
	expect__free(&opts->expects);
	free(opts);
	return status;
}
