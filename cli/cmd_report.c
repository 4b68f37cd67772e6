/* SPDX-License-Identifier: BSD-2-Clause */
/* report: shows what was saved, again. Needs no privileges, and not the machine that measured. */
#include <stdlib.h>

#include "cli/cmd.h"
#include "cli/expect.h"
#include "cli/msg.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/render.h"
#include "cli/render_compare.h"
#include "cli/saved.h"

enum { OPT_COLOR = 256, OPT_EXPECT };

struct report_opts {
	const char *file, *output;
	bool is_json;
	enum color color;
	struct expects expects;
};

struct report {
	struct report_opts opts;
	struct saved saved;
	struct output output;
};

static const struct argp_option options[] = {
	{"json", 'j', NULL, 0, "Report as JSON", 0},
	{"output", 'o', "FILE", 0, "Report to FILE, - is stdout (default: stdout)", 0},
	{"color", OPT_COLOR, "WHEN", 0, "auto, always, never (default: auto)", 0},
	{"expect", OPT_EXPECT, "EXPECTATION", 0,
	 "Exit with 1 unless this is so, as in run and compare; may be repeated", 0},
	{0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct report_opts *opts = state->input;
	int chosen;

	switch (key) {
	case 'j': opts->is_json = true; return 0;
	case 'o': opts->output = arg; return 0;
	case OPT_EXPECT: return expect__add(&opts->expects, arg) ? OPTIONS_SAID : 0;
	case OPT_COLOR:
		chosen = options__color(arg);
		opts->color = chosen;
		return chosen < 0 ? OPTIONS_SAID : 0;
	case ARGP_KEY_ARG:
		if (opts->file) {
			msg__error("report: one file, not '%s' as well", arg);
			return OPTIONS_SAID;
		}
		opts->file = arg;
		return 0;
	case ARGP_KEY_END:
		if (opts->file)
			return 0;
		msg__error("report: no file; 'alloctrace run --save FILE' makes one");
		return OPTIONS_SAID;
	default: return ARGP_ERR_UNKNOWN;
	}
}

const struct argp cmd_report_argp = {
	.options = options,
	.parser = parse_option,
	.args_doc = "FILE",
	.doc = "Shows again what 'run --save' or 'compare --save' has saved, as it was shown then. Needs no "
	       "privileges, "
	       "and may run on another machine."
	       "\vExit status: 0, 1 when an expectation is not met, 2 wrong usage, 125 alloctrace failed, or the file "
	       "is none of its own.",
	.children = options_common,
};

static int render(FILE *out, const void *data)
{
	const struct report *report = data;
	const struct profile *profile = report->saved.profile;
	struct look_opts look_opts = {.color = report->opts.color};
	struct look look = output__look(&report->output, &look_opts);
	struct render_opts opts = {.has_color = output__wants_color(&report->output, report->opts.color)};

	if (profile)
		return report->opts.is_json ? render__json(out, profile) : render__table(out, profile, &opts);
	if (report->opts.is_json)
		return render_compare__json(out, &report->saved.comparison->report);
	return render_compare__table(out, &report->saved.comparison->report, &look);
}

int cmd_report(int argc, char **argv)
{
	struct report report = {.opts.output = "-"};
	struct expects *expects = &report.opts.expects;
	const struct saved_comparison *comparison;
	int status = options__parse(&cmd_report_argp, argc, argv, &report.opts);

	if (status)
		return status;
	status = saved__read(report.opts.file, &report.saved);
	comparison = report.saved.comparison;
	if (!status)
		status = expect__parse_all(expects, comparison ? &comparison->configs : NULL);
	if (!status)
		status = output__open(&report.output, report.opts.output);
	if (!status)
		status = output__write(&report.output, render, &report);
	if (!status)
		status = comparison ? expect__check_comparison(expects, &comparison->report)
				    : expect__check_profile(expects, report.saved.profile);
	expect__free(expects);
	saved__free(&report.saved);
	return status;
}
