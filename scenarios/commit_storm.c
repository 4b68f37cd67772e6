/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several processes allocate a large block and free it again, without touching
 * it: each pair may cost two updates of the system's commit account.
 *
 * Policy that matters: commit (with its tunable commit_batch).
 *   commit off: one mmap and one munmap an operation, as 32 MiB = 8192 pages is
 *               past any fixed batch, max(32, 2 x CPUs) pages;
 *   commit on:  none an operation after the warm-up, as long as the block's
 *               pages fit the scaled batch, RAM pages / (20 x CPUs).
 * stack, realloc and trim must make no difference. Every child marks its own
 * phases; the parent stays in startup.
 */
#include "scenarios/scenario.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t processes = 4, iterations = 5000, block_bytes = 32 << 20;

static void allocate_and_free(void)
{
	void *block = malloc(block_bytes);

	if (!block)
		scenario__fail("malloc", errno);
	scenario__use(block);
	free(block);
}

/* Ends the process. Starts when the last writer of the gate closes it. */
static _Noreturn void run_child(const int gate[2])
{
	char byte;

	close(gate[1]);
	allocate_and_free();
	while (read(gate[0], &byte, 1) < 0 && errno == EINTR)
		;
	scenario__phase(SCENARIO_MEASURED);
	for (uint64_t i = 0; i < iterations; i++)
		allocate_and_free();
	scenario__phase(SCENARIO_TEARDOWN);
	_exit(0);
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--processes", &processes, 1, 4096},
		{SCENARIO_COUNT, "--iterations", &iterations, 1, UINT32_MAX},
		{SCENARIO_BYTES, "--size", &block_bytes, 1, UINT64_MAX / 2},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	struct scenario_requests requests = {0};
	uint64_t begin_ns, elapsed_ns;
	int gate[2], status, failed_cnt = 0;

	scenario__parse(argc, argv, options);
	if (pipe(gate))
		scenario__fail("pipe", errno);
	for (uint64_t i = 0; i < processes; i++) {
		pid_t child = fork();

		if (child < 0)
			scenario__fail("fork", errno);
		if (child == 0)
			run_child(gate);
	}
	begin_ns = scenario__now_ns();
	close(gate[1]);
	for (uint64_t i = 0; i < processes; i++)
		if (wait(&status) < 0 || status != 0)
			failed_cnt++;
	elapsed_ns = scenario__now_ns() - begin_ns;
	if (failed_cnt)
		scenario__fail("a child process failed", ECHILD);
	requests.malloc_cnt = requests.free_cnt = processes * iterations;
	scenario__report(&requests, elapsed_ns, "operations_per_s",
			 (double)requests.malloc_cnt * 1e9 / (double)elapsed_ns);
	return 0;
}
