/* SPDX-License-Identifier: BSD-2-Clause */
/* report: shows what was saved, again. Needs no privileges, and not the machine that measured. */
#include <stdlib.h>

#include "cli/cmd.h"
#include "cli/expect.h"
#include "cli/msg.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/pair.h"
#include "cli/render_compare.h"
#include "cli/render_plain.h"
#include "cli/saved.h"

enum { OPT_COLOR = 256, OPT_EXPECT, OPT_FORMAT, OPT_HTML };

struct report_opts {
	const char *files[2]; /* NULL: not given */
	const char *output, *html;
	enum render_format format;
	enum color color;
	struct expects expects;
};

struct report {
	struct report_opts opts;
	struct saved saved; /* what is shown */
	struct output output, page;
};

static const struct argp_option options[] = {
	{"json", 'j', NULL, 0, "Report as JSON: --format json", 0},
	{"format", OPT_FORMAT, "FORMAT", 0, "table, json, csv, markdown (default: table)", 0},
	{"output", 'o', "FILE", 0, "Report to FILE, - is stdout (default: stdout)", 0},
	{"html", OPT_HTML, "FILE", 0, "Write a page with charts to FILE, too (of a comparison)", 0},
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
	case 'j': opts->format = RENDER_JSON; return 0;
	case OPT_FORMAT: return render_plain__choose(arg, &opts->format) ? 0 : OPTIONS_SAID;
	case 'o': opts->output = arg; return 0;
	case OPT_HTML: opts->html = arg; return 0;
	case OPT_EXPECT: return expect__add(&opts->expects, arg) ? OPTIONS_SAID : 0;
	case OPT_COLOR:
		chosen = options__color(arg);
		opts->color = chosen;
		return chosen < 0 ? OPTIONS_SAID : 0;
	case ARGP_KEY_ARG:
		if (opts->files[1]) {
			msg__error("report: one file, or two to compare, not '%s' as well", arg);
			return OPTIONS_SAID;
		}
		opts->files[opts->files[0] ? 1 : 0] = arg;
		return 0;
	case ARGP_KEY_END:
		if (opts->files[0])
			return 0;
		msg__error("report: no file; 'alloctrace run --save FILE' makes one");
		return OPTIONS_SAID;
	default: return ARGP_ERR_UNKNOWN;
	}
}

const struct argp cmd_report_argp = {
	.options = options,
	.parser = parse_option,
	.args_doc = "FILE [FILE]",
	.doc = "Shows again what --save has saved, as it was shown then; or sets two files against each other: two "
	       "runs, "
	       "or the configurations that two comparisons have in common. Needs no privileges, and may run on another "
	       "machine."
	       "\vExit status: 0, 1 when an expectation is not met, 2 wrong usage, 125 alloctrace failed, or the file "
	       "is none of its own.",
	.children = options_common,
};

static int render(FILE *out, const void *data)
{
	const struct report *report = data;
	struct look_opts look_opts = {.color = report->opts.color};
	struct look look = output__look(&report->output, &look_opts);
	struct render_opts opts = {.has_color = look.has_color};

	return report->saved.profile
		       ? render_plain__run(out, report->saved.profile, report->opts.format, &opts)
		       : render_plain__comparison(out, &report->saved.comparison->report, report->opts.format, &look);
}

/* Of one file, or of both together. */
static int read_files(struct report *report)
{
	struct saved both[2] = {0};
	int status;

	if (!report->opts.files[1])
		return saved__read(report->opts.files[0], &report->saved);
	status = saved__read(report->opts.files[0], &both[0]);
	if (!status)
		status = saved__read(report->opts.files[1], &both[1]);
	if (!status)
		status = pair__make(both, report->opts.files, &report->saved);
	saved__free(&both[0]);
	saved__free(&both[1]);
	return status;
}

/* A run has no configurations that charts could set side by side. */
static int open_page(struct report *report)
{
	if (!report->opts.html)
		return 0;
	if (report->saved.comparison)
		return render_compare__open_page(&report->page, report->opts.html);
	msg__error("report: --html draws a comparison, and %s is a run; 'alloctrace compare --save FILE' saves one",
		   report->opts.files[0]);
	return AT_EXIT_USAGE;
}

int cmd_report(int argc, char **argv)
{
	struct report report = {.opts.output = "-"};
	struct expects *expects = &report.opts.expects;
	const struct saved_comparison *comparison;
	int status = options__parse(&cmd_report_argp, argc, argv, &report.opts);

	if (status)
		return status;
	status = read_files(&report);
	comparison = report.saved.comparison;
	if (!status)
		status = expect__parse_all(expects, comparison ? &comparison->configs : NULL);
	if (!status)
		status = output__open(&report.output, report.opts.output);
	if (!status)
		status = open_page(&report);
	if (!status)
		status = output__write(&report.output, render, &report);
	if (!status && report.opts.html)
		status = render_compare__write_page(&report.page, &comparison->report);
	if (!status)
		status = comparison ? expect__check_comparison(expects, &comparison->report)
				    : expect__check_profile(expects, report.saved.profile);
	expect__free(expects);
	saved__free(&report.saved);
	return status;
}
