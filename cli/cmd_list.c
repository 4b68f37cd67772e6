/* SPDX-License-Identifier: BSD-2-Clause */
/* list: everything that the other verbs take by name. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "alloc/control.h"
#include "cli/cmd.h"
#include "cli/format.h"
#include "cli/install.h"
#include "cli/msg.h"
#include "cli/options.h"
#include "cli/scenarios.h"

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	(void)state;
	if (key != ARGP_KEY_ARG)
		return ARGP_ERR_UNKNOWN;
	msg__error("list takes no arguments, not '%s'", arg);
	return OPTIONS_SAID;
}

const struct argp cmd_list_argp = {
	.parser = parse_option,
	.doc = "Lists scenarios, policies, tunables and allocators.",
	.children = options_common,
};

static void print_scenarios(const struct scenarios *scenarios)
{
	puts("Scenarios (alloctrace run NAME):");
	for (size_t i = 0; i < scenarios->cnt; i++) {
		const struct scenario *scenario = &scenarios->all[i];

		printf("  %-18s %s (policy %s)\n", scenario->name, scenario->purpose, scenario->policy);
		if (*scenario->arguments)
			printf("  %-18s   default: %s\n", "", scenario->arguments);
	}
}

static void print_policies(void)
{
	puts("\nPolicies (--policy SET; all are on by default):");
#define X(id, name) printf("  %s\n", #name);
	ATM_POLICIES(X)
#undef X
}

static const char *unit_text(enum atm_unit unit)
{
	switch (unit) {
	case ATM_UNIT_BYTES: return "bytes";
	case ATM_UNIT_PAGES: return "pages";
	case ATM_UNIT_MS: return "ms";
	default: return "word";
	}
}

static void print_tunable(const char *name, enum atm_unit unit, uint64_t dflt, const char *help)
{
	char text[FORMAT_BYTES] = "computed";
	const char *word = NULL;

#define X(of, of_word, number)                       \
	if (unit == ATM_UNIT_##of && dflt == number) \
		word = #of_word;
	ATM_TUNE_WORDS(X)
#undef X
	if (dflt && unit == ATM_UNIT_BYTES)
		format__bytes(dflt, text);
	else if (dflt)
		snprintf(text, sizeof(text), "%" PRIu64, dflt);
	printf("  %-16s %-6s %s (default: %s)\n", name, unit_text(unit), help, word ? word : text);
}

static void print_tunables(void)
{
	puts("\nTunables of the bundled allocator (--tune NAME=VALUE,...; bytes take K, M, G):");
#define X(id, name, unit, dflt, help) print_tunable(#name, ATM_UNIT_##unit, dflt, help);
	ATM_TUNABLES(X)
#undef X
}

static void print_allocators(void)
{
	char path[PATH_MAX];

	puts("\nAllocators (--allocator NAME, or a library's path):");
	printf("  %-10s %s\n", "bundled",
	       install__path("libatmalloc.so", path, sizeof(path))
		       ? "libatmalloc.so is missing: installation incomplete"
		       : path);
	printf("  %-10s the program's own\n", "system");
	for (const struct allocator *allocator = install_allocators; allocator->name; allocator++) {
		if (install__allocator(allocator, path, sizeof(path)) == 0)
			printf("  %-10s %s\n", allocator->name, path);
		else
			printf("  %-10s not installed (Debian package %s)\n", allocator->name, allocator->package);
	}
}

int cmd_list(int argc, char **argv)
{
	struct scenarios scenarios;
	int status = options__parse(&cmd_list_argp, argc, argv, NULL);

	if (status)
		return status;
	/* The rest is worth showing where the list is missing. */
	if (scenarios__load(&scenarios))
		status = 1;
	else
		print_scenarios(&scenarios);
	print_policies();
	print_tunables();
	print_allocators();
	scenarios__free(&scenarios);
	return fflush(stdout) ? AT_EXIT_OWN : status;
}
