/* SPDX-License-Identifier: BSD-2-Clause */
/* Measuring and medians of the *_cost programs; see cost.h. */
#include "tests/bench/cost.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void cost__die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(1);
}

int cost__rounds(int argc, char **argv)
{
	int cnt = argc > 1 ? atoi(argv[1]) : 5;

	if (argc > 2 || cnt < 1 || cnt > COST_ROUND_MAX) {
		fprintf(stderr, "usage: %s [ROUNDS] (1 to %d)\n", program_invocation_short_name, COST_ROUND_MAX);
		exit(2);
	}
	return cnt;
}

void cost__probe(struct features *features)
{
	char advice[256];

	feature__probe(features);
	if (features->best_tier >= 1)
		return;
	feature__advice(features, 0, advice, sizeof(advice));
	printf("%s\n", advice);
	exit(0);
}

uint64_t cost__now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

double cost__best(uint64_t (*batch)(const void *arg), const void *arg, int batch_cnt, int op_cnt)
{
	uint64_t best_ns = UINT64_MAX, ns;

	for (int i = 0; i < batch_cnt; i++) {
		ns = batch(arg);
		if (ns < best_ns)
			best_ns = ns;
	}
	return (double)best_ns / op_cnt;
}

static void run_worker(double (*work)(const void *arg), const void *arg, int go, int result)
{
	cpu_set_t cpus;
	double op_ns;
	char byte;

	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	if (read(go, &byte, 1) != 1)
		_exit(1);
	op_ns = work(arg);
	_exit(write(result, &op_ns, sizeof(op_ns)) != sizeof(op_ns));
}

void cost__start(struct cost_worker *worker, double (*work)(const void *arg), const void *arg)
{
	int go[2], result[2];

	if (pipe(go) || pipe(result))
		cost__die("pipe");
	worker->pid = fork();
	if (worker->pid < 0)
		cost__die("fork");
	if (!worker->pid) {
		close(go[1]);
		close(result[0]);
		run_worker(work, arg, go[0], result[1]);
	}
	close(go[0]);
	close(result[1]);
	worker->go = go[1];
	worker->result = result[0];
}

double cost__finish(struct cost_worker *worker)
{
	double op_ns = 0;

	if (write(worker->go, "g", 1) != 1 || read(worker->result, &op_ns, sizeof(op_ns)) != sizeof(op_ns))
		cost__die("worker");
	close(worker->go);
	close(worker->result);
	waitpid(worker->pid, NULL, 0);
	return op_ns;
}

static int by_value(const void *a, const void *b)
{
	double diff = *(const double *)a - *(const double *)b;

	return diff < 0 ? -1 : diff > 0;
}

double cost__median(const double *values, int cnt)
{
	double sorted[COST_ROUND_MAX];

	memcpy(sorted, values, (size_t)cnt * sizeof(*values));
	qsort(sorted, (size_t)cnt, sizeof(*sorted), by_value);
	return cnt % 2 ? sorted[cnt / 2] : (sorted[cnt / 2 - 1] + sorted[cnt / 2]) / 2;
}

double cost__median_added(const double *values, const double *base, int cnt)
{
	double added[COST_ROUND_MAX];

	for (int i = 0; i < cnt; i++)
		added[i] = values[i] - base[i];
	return cost__median(added, cnt);
}
