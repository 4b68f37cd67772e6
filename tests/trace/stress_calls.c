/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A target that makes very many calls, between the phase markers:
 *   stress_calls pairs THREADS N    each thread maps and unmaps a page N times
 *   stress_calls processes N        N short processes in sequence, CALLS_EACH
 *                                   failing munmaps in each
 *   stress_calls limited            failing and good mmaps under RLIMIT_AS
 *   stress_calls killed|left|replaced N FILE
 *                                   N processes in sequence, which a thread of their own
 *                                   ends (SIGKILL, exit_group, execve) while CALLER_CNT
 *                                   others make calls
 *   stress_calls endless FILE       CALLER_CNT threads make calls until killed
 * The calls of the last two are counted in FILE (struct stress_counts): nothing
 * else here makes such calls.
 * Exits with 0, or 1 when a call of its own went otherwise than planned.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/trace/phases.h"
#include "tests/trace/stress.h"

enum { PAGE_BYTES = 4096, THREAD_MAX = 256, CALLS_EACH = 3, BIG_CNT = 101, SMALL_CNT = 11, MIB = 1 << 20 };

static long pair_cnt;

static void *pairs_of_one(void *arg)
{
	(void)arg;
	for (long i = 0; i < pair_cnt; i++) {
		long mem = syscall(SYS_mmap, 0, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		expect(mem > 0 && !syscall(SYS_munmap, mem, PAGE_BYTES));
	}
	return NULL;
}

/* The threads' stacks are mapped before the phase and stay mapped until it is over. */
static void pairs(int thread_cnt)
{
	static pthread_t all[THREAD_MAX];
	pthread_attr_t attr;
	char *stacks = mmap(NULL, (size_t)thread_cnt * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	expect(stacks != MAP_FAILED);
	mark(1);
	for (int i = 0; i < thread_cnt; i++) {
		expect(!pthread_attr_init(&attr) && !pthread_attr_setstack(&attr, stacks + (size_t)i * MIB, MIB));
		expect(!pthread_create(&all[i], &attr, pairs_of_one, NULL));
	}
	for (int i = 0; i < thread_cnt; i++)
		expect(!pthread_join(all[i], NULL));
	mark(2);
}

static void processes(long n)
{
	int status;

	mark(1);
	for (long i = 0; i < n; i++) {
		pid_t pid = fork();

		if (!pid) {
			for (int j = 0; j < CALLS_EACH; j++)
				expect(syscall(SYS_munmap, 1, 0) == -1);
			_exit(failed);
		}
		expect(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
	}
	mark(2);
}

static void limited(void)
{
	const struct rlimit limit = {256L * MIB, 256L * MIB};

	expect(!setrlimit(RLIMIT_AS, &limit));
	mark(1);
	for (int i = 0; i < BIG_CNT; i++)
		expect(syscall(SYS_mmap, 0, 1024L * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == -1);
	for (int i = 0; i < SMALL_CNT; i++)
		expect(syscall(SYS_mmap, 0, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) > 0);
	mark(2);
}

static struct stress_counts *counts;
static const char *self, *how;

static void *call_on(void *arg)
{
	char *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (long i = 0;; i++) {
		atomic_fetch_add(&counts->protect_begun, 1);
		expect(!syscall(SYS_pkey_mprotect, page, PAGE_BYTES, i % 2 ? PROT_READ | PROT_WRITE : PROT_READ, -1));
		atomic_fetch_add(&counts->protect_ended, 1);
		atomic_fetch_add(&counts->populate_begun, 1);
		expect(!syscall(SYS_madvise, page, PAGE_BYTES, MADV_POPULATE_READ));
		atomic_fetch_add(&counts->populate_ended, 1);
	}
	return arg;
}

/* Ends the process, itself included, when the others have made some calls. */
static void *end_all(void *arg)
{
	long wait_us = *(long *)arg;

	while (!atomic_load(&counts->populate_ended))
		usleep(100);
	usleep((useconds_t)wait_us);
	if (!strcmp(how, "killed"))
		kill(getpid(), SIGKILL);
	else if (!strcmp(how, "replaced"))
		execl(self, self, "nothing", NULL);
	else
		_exit(failed);
	return NULL;
}

static void call_endlessly(pthread_t *ender, long wait_us)
{
	pthread_t caller;

	for (int i = 1; i < CALLER_CNT; i++)
		expect(!pthread_create(&caller, NULL, call_on, NULL));
	if (ender)
		expect(!pthread_create(ender, NULL, end_all, &wait_us));
	call_on(NULL);
}

static void end_in_calls(long n)
{
	pthread_t ender;
	int status = 0;

	mark(1);
	for (long i = 0; i < n; i++) {
		pid_t pid = fork();

		if (!pid)
			call_endlessly(&ender, i * 37 % 2000);
		expect(pid > 0 && waitpid(pid, &status, 0) == pid);
		expect(!strcmp(how, "killed") ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : !status);
	}
	mark(2);
}

static int map_counts(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return fd >= 0 && counts != MAP_FAILED;
}

int main(int argc, char **argv)
{
	const char *pattern = argc > 1 ? argv[1] : "";
	long n = argc > 2 ? atol(argv[2]) : 0;

	self = argv[0];
	how = pattern;
	pair_cnt = argc > 3 ? atol(argv[3]) : 0;
	if (!strcmp(pattern, "pairs") && n > 0 && n <= THREAD_MAX)
		pairs((int)n);
	else if (!strcmp(pattern, "processes"))
		processes(n);
	else if (!strcmp(pattern, "limited"))
		limited();
	else if (!strcmp(pattern, "endless") && argc == 3 && map_counts(argv[2]))
		call_endlessly(NULL, 0);
	else if (argc == 4 && map_counts(argv[3]))
		end_in_calls(n);
	else if (strcmp(pattern, "nothing") != 0)
		failed = 1;
	return failed;
}
