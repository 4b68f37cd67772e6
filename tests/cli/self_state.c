/* SPDX-License-Identifier: BSD-2-Clause */
/* Prints what a process inherits: run bare and under the tool, it must say the same. */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void print_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(dir))
			printf("fd %s\n", entry->d_name);
	if (dir)
		closedir(dir);
}

static void print_status(void)
{
	static const char *const keys[] = {"SigBlk",    "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp",
					   "TracerPid", "Uid",    "Gid",    "Groups",     "CapInh",
					   "CapPrm",    "CapEff", "CapBnd", "CapAmb"};
	FILE *status = fopen("/proc/self/status", "re");
	char line[4096];

	while (status && fgets(line, sizeof(line), status))
		for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
			if (strncmp(line, keys[i], strlen(keys[i])) == 0 && line[strlen(keys[i])] == ':')
				fputs(line, stdout);
	if (status)
		fclose(status);
}

int main(void)
{
	print_fds();
	print_status();
	for (int resource = 0; resource < RLIM_NLIMITS; resource++) {
		struct rlimit limit;

		if (getrlimit(resource, &limit) == 0)
			printf("limit %d %ju %ju\n", resource, (uintmax_t)limit.rlim_cur, (uintmax_t)limit.rlim_max);
	}
	printf("umask %o\n", umask(0));
	printf("group %d session %d\n", (int)getpgrp(), (int)getsid(0));
	return 0;
}
