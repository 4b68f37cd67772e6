/* SPDX-License-Identifier: BSD-2-Clause */
/* The verb table and the way into it. Does no work of its own. */
#include <fcntl.h>
#include <linux/types.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "alloc/control.h"
#include "bpf/event.h"
#include "cli/cmd.h"
#include "cli/msg.h"

const struct verb cmd_verbs[] = {
	{"run", "run a scenario or a command and report what its memory calls cost", cmd_run, &cmd_run_argp},
	{"policy", "show or change the policies of a running process", cmd_policy, &cmd_policy_argp},
	{"list", "list scenarios, policies, tunables and allocators", cmd_list, &cmd_list_argp},
	{"check", "say what this machine and these privileges allow", cmd_check, &cmd_check_argp},
	{"help", "explain a verb", cmd_help, &cmd_help_argp},
	{NULL, NULL, NULL, NULL},
};

const struct verb *cmd__find(const char *name)
{
	for (const struct verb *verb = cmd_verbs; verb->name; verb++)
		if (strcmp(verb->name, name) == 0)
			return verb;
	return NULL;
}

int cmd__unknown(const char *name)
{
	char known[256] = "";
	size_t used = 0;

	for (const struct verb *verb = cmd_verbs; verb->name && used < sizeof(known); verb++)
		used += snprintf(known + used, sizeof(known) - used, "%s%s", used ? ", " : "", verb->name);
	msg__error("unknown verb '%s'; known: %s", name, known);
	return AT_EXIT_USAGE;
}

void cmd__print_version(void)
{
	printf("alloctrace %s (library ABI %d, event ABI %d)\n", AT_VERSION, ATM_ABI, AT_EVENT_ABI);
}

/*
 * Standard streams that the caller closed are held by /dev/null, so that no
 * file of ours takes their numbers. Close-on-exec: a command sees them closed.
 */
static void hold_standard_fds(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", (fd ? O_WRONLY : O_RDONLY) | O_CLOEXEC) < 0)
			return;
}

int main(int argc, char **argv)
{
	char name[64];
	const struct verb *verb;

	hold_standard_fds();
	if (argc < 2) {
		char *help[] = {"alloctrace help", NULL};

		cmd_help(1, help);
		return AT_EXIT_USAGE;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		cmd__print_version();
		return fflush(stdout) ? AT_EXIT_OWN : 0;
	}
	verb = cmd__find(strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ? "help" : argv[1]);
	if (!verb)
		return cmd__unknown(argv[1]);
	snprintf(name, sizeof(name), "alloctrace %s", verb->name);
	argv[1] = name;
	return verb->run(argc - 1, argv + 1);
}
