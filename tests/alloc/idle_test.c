/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What policy commit holds in processes that have become idle. With
 * commit_reclaim=thread it goes back after commit_hold, in a hundred processes
 * at once as in one; the thread that does it goes as well, is no obstacle to
 * fork, and takes nothing that is in use. Waits are for a state, not a time.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "alloc/atmalloc.h"

#pragma weak atmalloc_set_tune
#pragma weak atmalloc_get_counter

#define MIB ((size_t)1 << 20)
#define PROCESS_CNT 100
#define BURST_BYTES (4 * MIB)
/* A process that only waits: its own pages, and the allocator's. */
#define IDLE_BYTES (MIB + MIB / 2)
#define WAIT_MAX_S 60

static uint64_t counter(const char *name)
{
	uint64_t value = 0;

	if (atmalloc_get_counter(name, &value))
		abort();
	return value;
}

static void tune(const char *list)
{
	assert_int_equal(atmalloc_set_tune(list), 0);
}

static void burst(void)
{
	char *volatile p = malloc(BURST_BYTES);

	memset(p, 1, BURST_BYTES);
	free(p);
}

static unsigned thread_cnt(void)
{
	DIR *tasks = opendir("/proc/self/task");
	unsigned cnt = 0;

	while (readdir(tasks))
		cnt++;
	closedir(tasks);
	return cnt - 2;
}

static bool is_idle(void)
{
	return counter("held.now_bytes") == 0 && thread_cnt() == 1;
}

/* Whether it comes about before the time is over. */
static bool comes_about(bool (*is_so)(void))
{
	for (int i = 0; i < WAIT_MAX_S * 100; i++) {
		if (is_so())
			return true;
		usleep(10000);
	}
	return false;
}

static void held_goes_back_and_comes_again(void **state)
{
	(void)state;
	tune("commit_hold=50,commit_reclaim=thread");
	for (int i = 0; i < 3; i++) {
		burst();
		assert_true(comes_about(is_idle));
	}
}

/* By default nothing happens while nothing is asked for: no thread, and the memory stays. */
static void request_waits_for_a_request(void **state)
{
	(void)state;
	tune("commit_hold=50,commit_reclaim=request");
	burst();
	usleep(200000);
	assert_int_equal(thread_cnt(), 1);
	assert_int_equal(counter("held.now_bytes"), BURST_BYTES);
	free(malloc(64 * MIB));
	assert_int_equal(counter("held.now_bytes"), 64 * MIB);
	tune("commit_hold=0");
	free(malloc(MIB));
}

static atomic_bool is_over;

static void *use_memory(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	while (!is_over) {
		size_t bytes = MIB + (size_t)rand_r(&seed) % (3 * MIB);
		char *a = malloc(bytes), *b = malloc(2 * MIB);

		memset(a, (int)seed, bytes);
		memset(b, (int)seed + 1, 2 * MIB);
		if (rand_r(&seed) % 16 == 0)
			usleep(2000);
		for (size_t i = 0; i < bytes; i += 4096)
			if (a[i] != (char)seed && a[i] != a[0])
				abort();
		free(b);
		b = realloc(a, bytes + MIB);
		if (b[0] != b[4096] || b[0] != b[bytes - 1])
			abort();
		free(b);
	}
	return NULL;
}

/* Always at it, as hardly anything may be held: many a fork finds another thread's heap in the middle of a change. */
static void nothing_in_use_is_taken(void **state)
{
	pthread_t threads[3];
	int status;

	(void)state;
	tune("commit_hold=0,commit_reclaim=thread,grow=copy,check=full");
	for (uintptr_t i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, use_memory, (void *)(i + 1)), 0);
	for (int i = 0; i < 100; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			alarm(WAIT_MAX_S);
			burst();
			_exit(!comes_about(is_idle));
		}
		burst();
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	is_over = true;
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	tune("check=basic,grow=mremap");
	assert_true(comes_about(is_idle));
}

/* Proportional set size of a process, from the kernel. */
static uint64_t pss_bytes(pid_t pid)
{
	char path[64], line[256];
	unsigned long long kib = 0;
	FILE *rollup;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	rollup = fopen(path, "r");
	assert_non_null(rollup);
	while (fgets(line, sizeof(line), rollup))
		if (sscanf(line, "Pss: %llu kB", &kib) == 1)
			break;
	fclose(rollup);
	return kib << 10;
}

static pid_t pids[PROCESS_CNT];

static uint64_t sum_of_pss(void)
{
	uint64_t sum = 0;

	for (int i = 0; i < PROCESS_CNT; i++)
		sum += pss_bytes(pids[i]);
	return sum;
}

static bool is_little(void)
{
	return sum_of_pss() <= PROCESS_CNT * IDLE_BYTES;
}

/* What an idle process does: a burst, a byte to say that it is over, and then nothing. */
static int be_idle(void)
{
	burst();
	if (write(STDOUT_FILENO, "x", 1) != 1)
		return 1;
	for (;;)
		pause();
}

static void start_idle(const char *settings)
{
	int fds[2];
	char byte;

	assert_int_equal(pipe(fds), 0);
	for (int i = 0; i < PROCESS_CNT; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			dup2(fds[1], STDOUT_FILENO);
			setenv("ATMALLOC_TUNE", settings, 1);
			execl("/proc/self/exe", "idle_test", "idle", (char *)NULL);
			_exit(127);
		}
		assert_true(pids[i] > 0);
	}
	close(fds[1]);
	for (int i = 0; i < PROCESS_CNT; i++)
		assert_int_equal(read(fds[0], &byte, 1), 1);
	close(fds[0]);
}

static void end_idle(void)
{
	for (int i = 0; i < PROCESS_CNT; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
}

static void a_hundred_idle_processes(void **state)
{
	uint64_t held, left;
	bool is_good;

	(void)state;
	start_idle("commit_reclaim=request");
	held = sum_of_pss();
	end_idle();
	assert_true(held >= PROCESS_CNT * BURST_BYTES);
	start_idle("commit_hold=100,commit_reclaim=thread");
	is_good = comes_about(is_little);
	left = sum_of_pss();
	end_idle();
	print_message("# %d idle processes: %llu MiB with commit_reclaim=request, %llu MiB with thread\n", PROCESS_CNT,
		      (unsigned long long)(held >> 20), (unsigned long long)(left >> 20));
	assert_true(is_good);
}

static int setup(void **state)
{
	(void)state;
	return &atmalloc_get_counter ? 0 : -1;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(held_goes_back_and_comes_again),
		cmocka_unit_test(request_waits_for_a_request),
		cmocka_unit_test(nothing_in_use_is_taken),
		cmocka_unit_test(a_hundred_idle_processes),
	};

	if (argc > 1 && strcmp(argv[1], "idle") == 0)
		return be_idle();
	return cmocka_run_group_tests(tests, setup, NULL);
}
