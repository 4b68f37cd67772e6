/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What tracing adds to one call, in both slot modes and with each ledger: the same loop bare and
 * traced, interleaved, each time in a new process; the best of many short
 * batches, so that other load on the machine matters little.
 * usage: trace_cost [ROUNDS]
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/bench/cost.h"

enum { BATCH_CNT = 600, CALL_CNT = 100, PAGE_CNT = 64, PAGE_BYTES = 4096 };

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

/* One batch of each workload: ns in total; CALL_CNT or PAGE_CNT operations. */

static uint64_t batch_madvise(const void *pages)
{
	uint64_t start_ns = cost__now_ns();

	(void)pages;
	for (int i = 0; i < CALL_CNT; i++)
		syscall(SYS_madvise, 1, 0, MADV_DONTNEED);
	return cost__now_ns() - start_ns;
}

static uint64_t batch_pair(const void *pages)
{
	uint64_t start_ns = cost__now_ns();

	(void)pages;
	for (int i = 0; i < CALL_CNT; i++) {
		long mem = syscall(SYS_mmap, 0, PAGE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		syscall(SYS_munmap, mem, PAGE_BYTES);
	}
	return cost__now_ns() - start_ns;
}

static uint64_t batch_fault(const void *pages)
{
	uint64_t start_ns;

	madvise((void *)pages, PAGE_CNT * PAGE_BYTES, MADV_DONTNEED);
	start_ns = cost__now_ns();
	for (int i = 0; i < PAGE_CNT; i++)
		((volatile char *)pages)[i * PAGE_BYTES] = 1;
	return cost__now_ns() - start_ns;
}

/* What an allocator does that keeps nothing. */
static uint64_t batch_touched_pair(const void *pages)
{
	uint64_t start_ns = cost__now_ns();

	(void)pages;
	for (int i = 0; i < CALL_CNT; i++) {
		char *mem = mmap(NULL, 4 * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		for (int page = 0; page < 4; page++)
			((volatile char *)mem)[page * PAGE_BYTES] = 1;
		munmap(mem, 4 * PAGE_BYTES);
	}
	return cost__now_ns() - start_ns;
}

static uint64_t batch_getppid(const void *pages)
{
	uint64_t start_ns = cost__now_ns();

	(void)pages;
	for (int i = 0; i < CALL_CNT; i++)
		syscall(SYS_getppid);
	return cost__now_ns() - start_ns;
}

static const struct workload {
	const char *name;
	uint64_t (*batch)(const void *pages);
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

static double work(const void *arg)
{
	const struct workload *workload = arg;
	char *pages = mmap(NULL, PAGE_CNT * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		_exit(1);
	madvise(pages, PAGE_CNT * PAGE_BYTES, MADV_NOHUGEPAGE);
	return cost__best(workload->batch, pages, BATCH_CNT, workload->op_cnt);
}

static double measure(const struct features *features, int config, const struct workload *workload)
{
	struct tracer_opts opts = {
		.is_following = true,
		.slot_mode = configs[config].slot_mode,
		.ledgers = configs[config].ledgers,
	};
	struct cost_worker worker, other;
	struct tracer *tracer = NULL;
	double op_ns;

	if (config != BARE && tracer__open(&tracer, features, &opts))
		exit(1);
	if (workload->is_bystander) {
		cost__start(&other, work, workload);
		if (tracer && (tracer__add_target(tracer, other.pid) || tracer__start(tracer)))
			exit(1);
		cost__start(&worker, work, workload);
	} else {
		cost__start(&worker, work, workload);
		if (tracer && (tracer__add_target(tracer, worker.pid) || tracer__start(tracer)))
			exit(1);
	}
	op_ns = cost__finish(&worker);
	if (workload->is_bystander)
		cost__finish(&other);
	if (tracer)
		tracer__stop(tracer);
	tracer__free(tracer);
	return op_ns;
}

int main(int argc, char **argv)
{
	static double ns[WORKLOAD_CNT][CONFIG_CNT][COST_ROUND_MAX];
	int round_cnt = cost__rounds(argc, argv);
	struct features features;

	cost__probe(&features);
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
	for (int i = 0; i < WORKLOAD_CNT; i++) {
		printf("%-24s %9.0f", workloads[i].name, cost__median(ns[i][BARE], round_cnt));
		for (int config = FIRST_TRACED; config < CONFIG_CNT; config++)
			printf(" %+9.0f", cost__median_added(ns[i][config], ns[i][BARE], round_cnt));
		printf("\n");
	}
	return 0;
}
