/* SPDX-License-Identifier: BSD-2-Clause */
/* check: what this machine and these privileges allow, and why not more. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/feature.h"
#include "cli/msg.h"
#include "cli/options.h"

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	(void)state;
	if (key != ARGP_KEY_ARG)
		return ARGP_ERR_UNKNOWN;
	msg__error("check takes no arguments, not '%s'", arg);
	return OPTIONS_SAID;
}

const struct argp cmd_check_argp = {
	.parser = parse_option,
	.doc = "Tries what the kernel allows here and says which tier of tracing that gives."
	       "\vExit status: 0 when calls can be traced in the kernel (tier 1 or more), else 1.",
	.children = options_common,
};

/* A reason is given once. */
static void print_line(const char *name, const char *text)
{
	static char last[320];
	bool is_said = strncmp(text, "no: ", 4) == 0 && strcmp(text, last) == 0;

	printf("  %-29s %s\n", name, is_said ? "no, for the same reason" : text);
	snprintf(last, sizeof(last), "%s", text);
}

static void print_feature(const char *name, const struct feature *feature)
{
	char text[320] = "yes";

	if (!feature->is_ok)
		snprintf(text, sizeof(text), "no: %s", feature->why[0] ? feature->why : strerror(feature->err));
	print_line(name, text);
}

int cmd_check(int argc, char **argv)
{
	static const char *const tiers[] = {
		"run works under the bundled allocator, from its own counts and process totals",
		"memory calls and page faults are traced exactly, by BTF tracepoints and perf events",
		"memory calls and page faults are traced exactly, by function entry and exit",
	};
	struct features features;
	char text[320];
	int status = options__parse(&cmd_check_argp, argc, argv, NULL);

	if (status)
		return status;
	feature__probe(&features);
	puts("What works here:");
	print_feature("kernel types (BTF)", &features.btf);
	print_feature("BPF programs", &features.bpf);
	print_feature("reading kernel memory", &features.kernel_read);
	print_feature("BTF tracepoints", &features.tp_btf);
	print_feature("page fault events", &features.fault_event);
	print_feature("task storage", &features.task_storage);
	print_feature("walking over mappings", &features.vma_iter);
	print_feature("function entry and exit", &features.fentry);
	print_feature("the host's PIDs", &features.pid_namespace);
	printf("\ntier %d: %s\n", features.best_tier, tiers[features.best_tier]);
	puts("\nWhat a report has here:");
	for (int column = 0; column < FEATURE_COLUMN_CNT; column++) {
		feature__column(&features, column, text, sizeof(text));
		print_line(feature__column_name(column), text);
	}
	if (fflush(stdout))
		return AT_EXIT_OWN;
	return features.best_tier >= 1 ? 0 : 1;
}
