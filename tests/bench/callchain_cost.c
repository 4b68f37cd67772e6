/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What callchains add to a call, by depth of the stack: mmap and munmap at the
 * end of a recursion, bare, counted, counted by callchain, and counted with the
 * kernel's own way beside it: bpf_get_stackid() and a count, by frame pointers, which
 * this program is built with; and that without its page fault. Interleaved, each
 * time in a new process; the best of many short batches.
 * usage: callchain_cost [ROUNDS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/bench/cost.h"
#include "tests/bench/cost.skel.h"

enum { BATCH_CNT = 300, CALL_CNT = 100, PAGE_BYTES = 4096 };

enum config { BARE, COUNTED, CALLCHAINS, STACKID, NO_FAULT, CONFIG_CNT };
static const char *const config_names[CONFIG_CNT] = {"bare", "counted", "callchains", "stackid", "no fault"};
static const int depths[] = {1, 10, 40, 100};
enum { DEPTH_CNT = sizeof(depths) / sizeof(depths[0]) };

static __attribute__((noinline, noclone)) uint64_t batch_at(int depth)
{
	uint64_t ns;

	if (depth > 1) {
		ns = batch_at(depth - 1);
		__asm__ volatile("" ::: "memory"); /* no tail call */
		return ns;
	}
	ns = cost__now_ns();
	for (int i = 0; i < CALL_CNT / 2; i++) {
		long mem = syscall(SYS_mmap, 0, PAGE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		syscall(SYS_munmap, mem, PAGE_BYTES);
	}
	return cost__now_ns() - ns;
}

struct job {
	enum config config;
	int depth;
};

/*
 * The kernel's walk tries each frame pointer that could be one of user mode, the 0 at the end of every chain, too:
 * that takes a page fault, and most of the cost. For NO_FAULT the chain ends with what the kernel does not try.
 */
static uint64_t batch(const void *arg)
{
	const struct job *job = arg;
	void *volatile *frame = __builtin_frame_address(0);
	void *caller = frame[0];
	uint64_t ns;

	if (job->config >= STACKID)
		frame[0] = job->config == STACKID ? NULL : (void *)-1;
	ns = batch_at(job->depth);
	frame[0] = caller;
	return ns;
}

static double work(const void *job)
{
	return cost__best(batch, job, BATCH_CNT, CALL_CNT);
}

static struct cost_bpf *stackid_on(pid_t pid)
{
	struct cost_bpf *skel = cost_bpf__open();

	if (!skel)
		cost__die("cannot open the programs");
	skel->rodata->cfg_tgid = (__u32)pid;
	bpf_program__set_autoload(skel->progs.at_stackid_exit, true);
	if (cost_bpf__load(skel) || cost_bpf__attach(skel))
		cost__die("cannot attach the programs");
	return skel;
}

static double measure(const struct features *features, enum config config, int depth)
{
	struct tracer_opts opts = {.callchains = config == CALLCHAINS ? CALLCHAINS_ON : CALLCHAINS_NONE};
	struct tracer *tracer = NULL;
	struct cost_bpf *skel = NULL;
	const struct job job = {config, depth};
	struct cost_worker worker;
	double call_ns;

	cost__start(&worker, work, &job);
	if (config != BARE &&
	    (tracer__open(&tracer, features, &opts) || tracer__add_target(tracer, worker.pid) || tracer__start(tracer)))
		exit(1);
	if (config >= STACKID)
		skel = stackid_on(worker.pid);
	call_ns = cost__finish(&worker);
	cost_bpf__destroy(skel);
	if (tracer)
		tracer__stop(tracer);
	tracer__free(tracer);
	return call_ns;
}

/* The last columns: what callchains and stackid add to counting, by the medians of the differences within rounds. */
static void report(int depth, double ns[CONFIG_CNT][COST_ROUND_MAX], int round_cnt)
{
	printf("%6d", depth);
	for (int config = BARE; config < CONFIG_CNT; config++)
		printf(" %10.0f", cost__median(ns[config], round_cnt));
	for (int config = CALLCHAINS; config < CONFIG_CNT; config++)
		printf(" %+11.0f", cost__median_added(ns[config], ns[COUNTED], round_cnt));
	printf("\n");
}

int main(int argc, char **argv)
{
	static double ns[DEPTH_CNT][CONFIG_CNT][COST_ROUND_MAX];
	int round_cnt = cost__rounds(argc, argv);
	struct features features;

	cost__probe(&features);
	for (int round = 0; round < round_cnt; round++)
		for (int i = 0; i < DEPTH_CNT; i++)
			for (int j = 0; j < CONFIG_CNT; j++) {
				enum config config = (round + j) % CONFIG_CNT;

				ns[i][config][round] = measure(&features, config, depths[i]);
			}
	printf("ns a call\ndepth ");
	for (int config = BARE; config < CONFIG_CNT; config++)
		printf(" %10s", config_names[config]);
	for (int config = CALLCHAINS; config < CONFIG_CNT; config++)
		printf(" +%10s", config_names[config]);
	printf("\n");
	for (int i = 0; i < DEPTH_CNT; i++)
		report(depths[i], ns[i], round_cnt);
	return 0;
}
