/* SPDX-License-Identifier: BSD-2-Clause */
/* help [VERB]: what there is, or one verb's options. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/msg.h"
#include "cli/options.h"

static error_t parse(int key, char *arg, struct argp_state *state)
{
	const char **verb = state->input;

	switch (key) {
	case ARGP_KEY_INIT: state->child_inputs[0] = NULL; return 0;
	case ARGP_KEY_ARG:
		if (*verb) {
			msg__error("help takes one verb, not '%s' as well", arg);
			return OPTIONS_SAID;
		}
		*verb = arg;
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

const struct argp cmd_help_argp = {
	.parser = parse,
	.args_doc = "[VERB]",
	.doc = "Explains a verb, or lists the verbs.",
	.children = options_common,
};

static void print_verbs(void)
{
	puts("alloctrace shows what a program's memory allocator costs in the kernel.\n"
	     "\n"
	     "  alloctrace run [OPTION...] SCENARIO [ARG...]      a bundled scenario\n"
	     "  alloctrace run [OPTION...] -- COMMAND [ARG...]    any program\n"
	     "  alloctrace compare [OPTION...] SCENARIO...        policies against each other\n"
	     "  alloctrace report FILE                            what --save has saved\n"
	     "  alloctrace policy -p PID [SET]                    policies of a running process\n"
	     "\n"
	     "Verbs:");
	for (const struct verb *verb = cmd_verbs; verb->name; verb++)
		printf("  %-8s %s\n", verb->name, verb->purpose);
	puts("\n'alloctrace help VERB' explains one; 'alloctrace --version' prints the version.");
}

int cmd_help(int argc, char **argv)
{
	const char *name = NULL;
	const struct verb *verb;
	char full[64];
	int err = options__parse(&cmd_help_argp, argc, argv, &name);

	if (err)
		return err;
	if (!name) {
		print_verbs();
		return fflush(stdout) ? AT_EXIT_OWN : 0;
	}
	verb = cmd__find(name);
	if (!verb)
		return cmd__unknown(name);
	snprintf(full, sizeof(full), "alloctrace %s", verb->name);
	argp_help(verb->argp, stdout, ARGP_HELP_SHORT_USAGE | ARGP_HELP_PRE_DOC | ARGP_HELP_LONG | ARGP_HELP_POST_DOC,
		  full);
	return fflush(stdout) ? AT_EXIT_OWN : 0;
}
