/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What tracing adds to one call, in both slot modes and with each ledger: the same loop bare and
 * traced, interleaved, each time in a new process; the best of many short
 * batches, so that other load on the machine matters little.
 * usage: trace_cost [ROUNDS]
 */
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
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

enum { BATCH_CNT = 600, CALL_CNT = 100, PAGE_CNT = 64, PAGE_BYTES = 4096, ROUND_MAX = 99 };

static const struct config {
	const char *name;
	enum slot_mode slot_mode;
	unsigned ledgers;
} configs[] = {
	{"bare", SLOT_ARRAY, 0}, /* not traced */
	{"array", SLOT_ARRAY, 0},
	{"storage", SLOT_STORAGE, 0},
#define X(id, name) {name, SLOT_ARRAY, LEDGER_##id},
	LEDGERS(X)
#undef X
		{"all", SLOT_ARRAY, LEDGER_ALL},
};
enum { BARE, FIRST_TRACED, CONFIG_CNT = sizeof(configs) / sizeof(configs[0]) };

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* One batch of each workload: ns in total; CALL_CNT or PAGE_CNT operations. */

static uint64_t batch_madvise(char *pages)
{
	uint64_t start_ns = now_ns();

	(void)pages;
	for (int i = 0; i < CALL_CNT; i++)
		syscall(SYS_madvise, 1, 0, MADV_DONTNEED);
	return now_ns() - start_ns;
}

static uint64_t batch_pair(char *pages)
{
	uint64_t start_ns = now_ns();

	(void)pages;
	for (int i = 0; i < CALL_CNT; i++) {
		long mem = syscall(SYS_mmap, 0, PAGE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		syscall(SYS_munmap, mem, PAGE_BYTES);
	}
	return now_ns() - start_ns;
}

static uint64_t batch_fault(char *pages)
{
	uint64_t start_ns;

	madvise(pages, PAGE_CNT * PAGE_BYTES, MADV_DONTNEED);
	start_ns = now_ns();
	for (int i = 0; i < PAGE_CNT; i++)
		((volatile char *)pages)[i * PAGE_BYTES] = 1;
	return now_ns() - start_ns;
}

/* What an allocator does that keeps nothing. */
static uint64_t batch_touched_pair(char *pages)
{
	uint64_t start_ns = now_ns();

	(void)pages;
	for (int i = 0; i < CALL_CNT; i++) {
		char *mem = mmap(NULL, 4 * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		for (int page = 0; page < 4; page++)
			((volatile char *)mem)[page * PAGE_BYTES] = 1;
		munmap(mem, 4 * PAGE_BYTES);
	}
	return now_ns() - start_ns;
}

static uint64_t batch_getppid(char *pages)
{
	uint64_t start_ns = now_ns();

	(void)pages;
	for (int i = 0; i < CALL_CNT; i++)
		syscall(SYS_getppid);
	return now_ns() - start_ns;
}

static const struct workload {
	const char *name;
	uint64_t (*batch)(char *pages);
	int op_cnt;
	bool is_bystander; /* runs beside a traced process, not as one */
} workloads[] = {
	{"failing madvise", batch_madvise, CALL_CNT, false},
	{"mmap + munmap", batch_pair, CALL_CNT, false},
	{"mmap, 4 faults, munmap", batch_touched_pair, CALL_CNT, false},
	{"page fault", batch_fault, PAGE_CNT, false},
	{"getppid", batch_getppid, CALL_CNT, false},
	{"bystander's getppid", batch_getppid, CALL_CNT, true},
};
enum { WORKLOAD_CNT = sizeof(workloads) / sizeof(workloads[0]) };

static double work(const struct workload *workload)
{
	char *pages = mmap(NULL, PAGE_CNT * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t best_ns = UINT64_MAX, ns;

	madvise(pages, PAGE_CNT * PAGE_BYTES, MADV_NOHUGEPAGE);
	for (int i = 0; i < BATCH_CNT; i++) {
		ns = workload->batch(pages);
		if (ns < best_ns)
			best_ns = ns;
	}
	munmap(pages, PAGE_CNT * PAGE_BYTES);
	return (double)best_ns / workload->op_cnt;
}

static void die(const char *what)
{
	fprintf(stderr, "trace_cost: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* A child on the first CPU that waits for a byte, works, and writes the result. */
static pid_t start_worker(const struct workload *workload, int *go, int *result)
{
	int go_fds[2], result_fds[2];
	cpu_set_t cpus;
	double op_ns;
	pid_t pid;
	char byte;

	if (pipe(go_fds) || pipe(result_fds))
		die("pipe");
	pid = fork();
	if (pid < 0)
		die("fork");
	if (pid) {
		close(go_fds[0]);
		close(result_fds[1]);
		*go = go_fds[1];
		*result = result_fds[0];
		return pid;
	}
	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	if (read(go_fds[0], &byte, 1) != 1)
		_exit(1);
	op_ns = work(workload);
	_exit(write(result_fds[1], &op_ns, sizeof(op_ns)) != sizeof(op_ns));
}

static double finish_worker(pid_t pid, int go, int result)
{
	double op_ns = 0;

	if (write(go, "g", 1) != 1 || read(result, &op_ns, sizeof(op_ns)) != sizeof(op_ns))
		die("worker");
	close(go);
	close(result);
	waitpid(pid, NULL, 0);
	return op_ns;
}

static double measure(const struct features *features, int config, const struct workload *workload)
{
	struct tracer_opts opts = {
		.is_following = true,
		.slot_mode = configs[config].slot_mode,
		.ledgers = configs[config].ledgers,
	};
	struct tracer *tracer = NULL;
	pid_t pid, other = 0;
	int go, result, other_go, other_result;
	double op_ns;

	if (config != BARE && tracer__open(&tracer, features, &opts))
		exit(1);
	if (workload->is_bystander) {
		other = start_worker(workload, &other_go, &other_result);
		if (tracer && (tracer__add_target(tracer, other) || tracer__start(tracer)))
			exit(1);
		pid = start_worker(workload, &go, &result);
	} else {
		pid = start_worker(workload, &go, &result);
		if (tracer && (tracer__add_target(tracer, pid) || tracer__start(tracer)))
			exit(1);
	}
	op_ns = finish_worker(pid, go, result);
	if (other)
		finish_worker(other, other_go, other_result);
	if (tracer)
		tracer__stop(tracer);
	tracer__free(tracer);
	return op_ns;
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

/* Median of the differences to the bare run, within rounds. */
static void report(const struct workload *workload, double ns[CONFIG_CNT][ROUND_MAX], int round_cnt)
{
	double added[ROUND_MAX], bare[ROUND_MAX];

	memcpy(bare, ns[BARE], sizeof(bare));
	printf("%-24s %9.0f", workload->name, median(bare, round_cnt));
	for (int config = FIRST_TRACED; config < CONFIG_CNT; config++) {
		for (int round = 0; round < round_cnt; round++)
			added[round] = ns[config][round] - ns[BARE][round];
		printf(" %+9.0f", median(added, round_cnt));
	}
	printf("\n");
}

int main(int argc, char **argv)
{
	static double ns[WORKLOAD_CNT][CONFIG_CNT][ROUND_MAX];
	int round_cnt = argc > 1 ? atoi(argv[1]) : 5;
	struct features features;
	char advice[256];

	if (round_cnt < 1 || round_cnt > ROUND_MAX) {
		fprintf(stderr, "usage: trace_cost [ROUNDS] (1 to %d)\n", ROUND_MAX);
		return 2;
	}
	feature__probe(&features);
	if (features.best_tier < 1) {
		feature__advice(&features, 0, advice, sizeof(advice));
		printf("%s\n", advice);
		return 0;
	}
	for (int round = 0; round < round_cnt; round++)
		for (int i = 0; i < WORKLOAD_CNT; i++)
			for (int j = 0; j < CONFIG_CNT; j++) {
				int config = (round + j) % CONFIG_CNT;

				ns[i][config][round] = measure(&features, config, &workloads[i]);
			}
	printf("%-24s", "ns: bare, and added by");
	for (int config = BARE; config < CONFIG_CNT; config++)
		printf(" %9s", configs[config].name);
	printf("\n");
	for (int i = 0; i < WORKLOAD_CNT; i++)
		report(&workloads[i], ns[i], round_cnt);
	return 0;
}
