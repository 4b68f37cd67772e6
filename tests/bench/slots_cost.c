/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What it costs when two threads' slots share a cache line: two threads with
 * neighbouring numbers, on two CPUs, make getppid calls; at each end of a call its
 * thread's slot is written. Slots of 16 bytes, four to a line; of a line; of two, as
 * the tracer's. Interleaved, each time with new threads; "alone" is one thread.
 * usage: slots_cost [ROUNDS]
 */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/bench/cost.h"
#include "tests/bench/cost.skel.h"

enum { BATCH_CNT = 2000, CALL_CNT = 100, TRY_MAX = 100, LINE_BYTES = 64, WORD_BYTES = 8 };

static const unsigned slot_bytes[] = {0, 16, 64, 128}; /* 0: no programs */
enum { CONFIG_CNT = sizeof(slot_bytes) / sizeof(slot_bytes[0]) };

static uint64_t batch(const void *arg)
{
	uint64_t start_ns = cost__now_ns();

	(void)arg;
	for (int i = 0; i < CALL_CNT; i++)
		syscall(SYS_getppid);
	return cost__now_ns() - start_ns;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The middle one: what two do to each other is not in the best. */
static double work(const void *arg)
{
	static _Thread_local uint64_t ns[BATCH_CNT];
	const size_t middle = BATCH_CNT / 2;

	for (int i = 0; i < BATCH_CNT; i++)
		ns[i] = batch(arg);
	qsort(ns, BATCH_CNT, sizeof(ns[0]), by_value);
	return (double)ns[middle] / CALL_CNT;
}

struct pair {
	pid_t tid;
	bool is_neighbour, is_over;
	pthread_barrier_t met;
};

static void *neighbour(void *arg)
{
	struct pair *pair = arg;
	pid_t tid = (pid_t)syscall(SYS_gettid);
	cpu_set_t cpus;

	/* Their slots of 16 bytes are in one line. */
	pair->is_neighbour = tid / (LINE_BYTES / 16) == pair->tid / (LINE_BYTES / 16);
	CPU_ZERO(&cpus);
	CPU_SET(1, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	pthread_barrier_wait(&pair->met);
	if (!pair->is_neighbour)
		return NULL;
	while (!__atomic_load_n(&pair->is_over, __ATOMIC_RELAXED))
		batch(NULL);
	return NULL;
}

/* In a child process: it has one thread, and tries until a second one's number is near. */
static double work_in_pair(const void *arg)
{
	struct pair pair = {.tid = (pid_t)syscall(SYS_gettid)};
	pthread_t thread;
	double op_ns;

	pthread_barrier_init(&pair.met, NULL, 2);
	if (pthread_create(&thread, NULL, neighbour, &pair))
		_exit(1);
	pthread_barrier_wait(&pair.met);
	op_ns = pair.is_neighbour ? work(arg) : -1;
	__atomic_store_n(&pair.is_over, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	return op_ns;
}

static double measure(unsigned bytes, bool is_pair)
{
	struct cost_bpf *skel = NULL;
	double op_ns = -1;

	if (bytes) {
		skel = cost_bpf__open();
		if (!skel)
			cost__die("cannot open the programs");
		skel->rodata->cfg_slot_words = bytes / WORD_BYTES;
		bpf_program__set_autoload(skel->progs.at_slot_enter, true);
		bpf_program__set_autoload(skel->progs.at_slot_exit, true);
		if (cost_bpf__load(skel) || cost_bpf__attach(skel))
			cost__die("cannot attach the programs");
	}
	for (int i = 0; i < TRY_MAX && op_ns < 0; i++) {
		struct cost_worker worker;

		cost__start(&worker, is_pair ? work_in_pair : work, NULL);
		op_ns = cost__finish(&worker);
	}
	cost_bpf__destroy(skel);
	return op_ns;
}

int main(int argc, char **argv)
{
	static double ns[CONFIG_CNT][2][COST_ROUND_MAX];
	int round_cnt = cost__rounds(argc, argv);
	struct features features;

	cost__probe(&features);
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		printf("one CPU: nobody shares a line\n");
		return 0;
	}
	for (int round = 0; round < round_cnt; round++)
		for (int j = 0; j < CONFIG_CNT; j++) {
			int config = (round + j) % CONFIG_CNT;

			for (int is_pair = 0; is_pair < 2; is_pair++)
				ns[config][is_pair][round] = measure(slot_bytes[config], is_pair);
		}
	printf("%-24s %9s %9s\n", "ns a getppid", "alone", "in a pair");
	for (int config = 0; config < CONFIG_CNT; config++) {
		char name[32] = "not traced";

		if (slot_bytes[config])
			snprintf(name, sizeof(name), "slots of %u bytes", slot_bytes[config]);
		printf("%-24s %9.0f %9.0f\n", name, cost__median(ns[config][0], round_cnt),
		       cost__median(ns[config][1], round_cnt));
	}
	return 0;
}
