/* SPDX-License-Identifier: BSD-2-Clause */
/* The verbs: one table, one handler and one argp each, and the exit statuses. */
#ifndef ALLOCTRACE_CLI_CMD_H
#define ALLOCTRACE_CLI_CMD_H

#include <argp.h>

/* What `run` adds to the statuses of the command itself; as env(1) has them. */
enum {
	AT_EXIT_UNMET = 1, /* an expectation */
	AT_EXIT_USAGE = 2,
	AT_EXIT_OWN = 125,
	AT_EXIT_NOT_EXECUTABLE = 126,
	AT_EXIT_NOT_FOUND = 127,
};

struct verb {
	const char *name;
	const char *purpose;
	int (*run)(int argc, char **argv); /* argv[0] is "alloctrace VERB"; returns the exit status */
	const struct argp *argp;
};

/* In order of the help; the last entry has no name. */
extern const struct verb cmd_verbs[];

int cmd_run(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_attach(int argc, char **argv);
int cmd_policy(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_help(int argc, char **argv);

extern const struct argp cmd_run_argp, cmd_compare_argp, cmd_attach_argp, cmd_report_argp, cmd_policy_argp,
	cmd_list_argp, cmd_check_argp, cmd_help_argp;

/* NULL when there is no such verb. */
const struct verb *cmd__find(const char *name);
/* Says in one line that there is no such verb; returns AT_EXIT_USAGE. */
int cmd__unknown(const char *name);
void cmd__print_version(void);

#endif
