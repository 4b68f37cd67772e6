/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Outer threads each create a batch of inner threads that return at once, and
 * then join them. No thread is joined before all are created, so that every
 * inner thread needs a stack of its own whatever the order of events is. All
 * stacks exist at once, two mappings each: the kernel's vm.max_map_count (65,530
 * by default) allows about 32,000 inner threads in all.
 *
 * Policy that matters: stack (with its tunable stack_cache). By default a stack
 * has 21 usable pages and a guard of 256.
 *   stack off: a mapping of 277 pages read-write, then mprotect.guard of 256;
 *   stack on:  a mapping of 277 pages without access, then mprotect.commit of
 *              21 pages;
 * the same number of mmap.stack and of mprotect calls both ways, one of each an
 * inner thread. Charged to the commit account at the mmap: 277 pages off, 0 on
 * (21 follow at the mprotect). realloc, commit and trim must make no difference.
 *
 * With --mlock, as in the bug report behind the policy, all memory that is
 * mapped from then on is locked: off costs about twice the faults, the resident
 * memory and the time of on.
 */
#include "scenarios/scenario.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

static uint64_t outer = 8, inner = 32, stack_bytes = 86016, guard_bytes = 1 << 20, is_locking;
static pthread_t *threads; /* outer x inner */
static pthread_attr_t attr;
static pthread_barrier_t all_created;

static void *return_at_once(void *arg)
{
	return arg;
}

static void warm_up(unsigned worker)
{
	void *block = malloc(64);

	/* The C library allocates for each new thread; that heap must exist. */
	(void)worker;
	scenario__use(block);
	free(block);
}

static void create_and_join(unsigned worker)
{
	pthread_t *mine = &threads[worker * inner];

	for (uint64_t i = 0; i < inner; i++) {
		int err = pthread_create(&mine[i], &attr, return_at_once, NULL);

		if (err)
			scenario__fail("pthread_create", err);
	}
	pthread_barrier_wait(&all_created);
	for (uint64_t i = 0; i < inner; i++)
		pthread_join(mine[i], NULL);
}

static void prepare(void)
{
	int err;

	threads = calloc(outer * inner, sizeof(*threads));
	if (!threads)
		scenario__fail("calloc", errno);
	err = pthread_attr_init(&attr);
	if (!err)
		err = pthread_attr_setstacksize(&attr, stack_bytes);
	if (!err)
		err = pthread_attr_setguardsize(&attr, guard_bytes);
	if (!err)
		err = pthread_barrier_init(&all_created, NULL, (unsigned)outer);
	if (err)
		scenario__fail("thread attributes", err);
	if (is_locking && mlockall(MCL_FUTURE))
		scenario__fail("mlockall", errno);
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--outer", &outer, 1, 4096},
		{SCENARIO_COUNT, "--inner", &inner, 1, 32768},
		{SCENARIO_BYTES, "--stack-size", &stack_bytes, PTHREAD_STACK_MIN, 1ull << 40},
		{SCENARIO_BYTES, "--guard", &guard_bytes, 0, 1ull << 40},
		{SCENARIO_FLAG, "--mlock", &is_locking, 0, 0},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	const struct scenario_work work = {.warm_up = warm_up, .measured = create_and_join};
	struct scenario_requests requests = {0};
	uint64_t elapsed_ns;

	scenario__parse(argc, argv, options);
	prepare();
	elapsed_ns = scenario__run_workers((unsigned)outer, &work);
	pthread_attr_destroy(&attr);
	pthread_barrier_destroy(&all_created);
	free(threads);
	requests.thread_cnt = outer * inner;
	scenario__report(&requests, elapsed_ns, "threads_per_s",
			 (double)requests.thread_cnt * 1e9 / (double)elapsed_ns);
	return 0;
}
