/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What callchains add to a call, by depth of the stack: mmap and munmap at the
 * end of a recursion, bare, counted, and counted by callchain, interleaved, each
 * time in a new process; the best of many short batches.
 * usage: callchain_cost [ROUNDS]
 */
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/tracer.h"

enum { BATCH_CNT = 300, CALL_CNT = 100, PAGE_BYTES = 4096, ROUND_MAX = 99 };

enum config { BARE, COUNTED, CALLCHAINS, CONFIG_CNT };
static const char *const config_names[CONFIG_CNT] = {"bare", "counted", "callchains"};
static const int depths[] = {1, 10, 40, 100};
enum { DEPTH_CNT = sizeof(depths) / sizeof(depths[0]) };

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static __attribute__((noinline, noclone)) uint64_t batch(int depth)
{
	uint64_t ns;

	if (depth > 1) {
		ns = batch(depth - 1);
		__asm__ volatile("" ::: "memory"); /* no tail call */
		return ns;
	}
	ns = now_ns();
	for (int i = 0; i < CALL_CNT / 2; i++) {
		long mem = syscall(SYS_mmap, 0, PAGE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		syscall(SYS_munmap, mem, PAGE_BYTES);
	}
	return now_ns() - ns;
}

static void die(const char *what)
{
	fprintf(stderr, "callchain_cost: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void work(int depth, int go, int result)
{
	uint64_t best_ns = UINT64_MAX, ns;
	cpu_set_t cpus;
	double call_ns;
	char byte;

	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	if (read(go, &byte, 1) != 1)
		_exit(1);
	for (int i = 0; i < BATCH_CNT; i++) {
		ns = batch(depth);
		if (ns < best_ns)
			best_ns = ns;
	}
	call_ns = (double)best_ns / CALL_CNT;
	_exit(write(result, &call_ns, sizeof(call_ns)) != sizeof(call_ns));
}

static double measure(const struct features *features, enum config config, int depth)
{
	struct tracer_opts opts = {.callchains = config == CALLCHAINS ? CALLCHAINS_ON : CALLCHAINS_NONE};
	struct tracer *tracer = NULL;
	int go[2], result[2];
	double call_ns = 0;
	pid_t pid;

	if (pipe(go) || pipe(result))
		die("pipe");
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid)
		work(depth, go[0], result[1]);
	if (config != BARE &&
	    (tracer__open(&tracer, features, &opts) || tracer__add_target(tracer, pid) || tracer__start(tracer)))
		exit(1);
	if (write(go[1], "g", 1) != 1 || read(result[0], &call_ns, sizeof(call_ns)) != sizeof(call_ns))
		die("worker");
	waitpid(pid, NULL, 0);
	for (int i = 0; i < 2; i++) {
		close(go[i]);
		close(result[i]);
	}
	if (tracer)
		tracer__stop(tracer);
	tracer__free(tracer);
	return call_ns;
}

static int by_value(const void *a, const void *b)
{
	double diff = *(const double *)a - *(const double *)b;

	return diff < 0 ? -1 : diff > 0;
}

static double median(double *values, int cnt)
{
	qsort(values, (size_t)cnt, sizeof(*values), by_value);
	return cnt % 2 ? values[cnt / 2] : (values[cnt / 2 - 1] + values[cnt / 2]) / 2;
}

/* "added": the median of the differences within rounds. */
static void report(int depth, double ns[CONFIG_CNT][ROUND_MAX], int round_cnt)
{
	double added[ROUND_MAX];

	for (int round = 0; round < round_cnt; round++)
		added[round] = ns[CALLCHAINS][round] - ns[COUNTED][round];
	printf("%6d", depth);
	for (int config = BARE; config < CONFIG_CNT; config++)
		printf(" %10.0f", median(ns[config], round_cnt));
	printf(" %10.0f\n", median(added, round_cnt));
}

int main(int argc, char **argv)
{
	static double ns[DEPTH_CNT][CONFIG_CNT][ROUND_MAX];
	int round_cnt = argc > 1 ? atoi(argv[1]) : 5;
	struct features features;
	char advice[256];

	if (round_cnt < 1 || round_cnt > ROUND_MAX) {
		fprintf(stderr, "usage: callchain_cost [ROUNDS] (1 to %d)\n", ROUND_MAX);
		return 2;
	}
	feature__probe(&features);
	if (features.best_tier < 1) {
		feature__advice(&features, 0, advice, sizeof(advice));
		printf("%s\n", advice);
		return 0;
	}
	for (int round = 0; round < round_cnt; round++)
		for (int i = 0; i < DEPTH_CNT; i++)
			for (int j = 0; j < CONFIG_CNT; j++) {
				enum config config = (round + j) % CONFIG_CNT;

				ns[i][config][round] = measure(&features, config, depths[i]);
			}
	printf("ns a call\ndepth ");
	for (int config = BARE; config < CONFIG_CNT; config++)
		printf(" %10s", config_names[config]);
	printf(" %10s\n", "added");
	for (int i = 0; i < DEPTH_CNT; i++)
		report(depths[i], ns[i], round_cnt);
	return 0;
}
