/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs a command and prints what it took, on one line on stderr after all that
 * it printed itself: "run_once: STATUS WALL_NS CPU_NS RSS_BYTES". A program's
 * peak RSS includes what it was started from: so not from an interpreter.
 * usage: run_once [NAME=VALUE]... COMMAND [ARGUMENT]...
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static uint64_t ns_of(struct timeval time)
{
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_usec * 1000;
}

static _Noreturn void start(char **argv)
{
	for (; *argv && strchr(*argv, '='); argv++)
		putenv(*argv);
	if (!*argv) {
		fprintf(stderr, "usage: run_once [NAME=VALUE]... COMMAND [ARGUMENT]...\n");
		_exit(2);
	}
	execvp(*argv, argv);
	fprintf(stderr, "run_once: cannot run %s: %s\n", *argv, strerror(errno));
	_exit(127);
}

int main(int argc, char **argv)
{
	uint64_t begin_ns = now_ns();
	struct rusage usage;
	pid_t pid = fork();
	int status;

	(void)argc;
	if (pid == 0)
		start(argv + 1);
	if (pid < 0 || wait4(pid, &status, 0, &usage) != pid) {
		perror("run_once");
		return 1;
	}
	status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	fprintf(stderr, "run_once: %d %ju %ju %ju\n", status, (uintmax_t)(now_ns() - begin_ns),
		(uintmax_t)(ns_of(usage.ru_utime) + ns_of(usage.ru_stime)), (uintmax_t)usage.ru_maxrss * 1024);
	return status;
}
