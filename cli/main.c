/* SPDX-License-Identifier: BSD-2-Clause */
/* The way into the verbs. Does no work of its own. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"

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
