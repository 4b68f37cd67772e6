/* SPDX-License-Identifier: BSD-2-Clause */
/* The allocator's own counters: arithmetic by phase, and the handover with processes that play the library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/counters.h"

static struct atm_counters *new_shared(void)
{
	struct atm_counters *shared = aligned_alloc(4096, ATM_COUNTERS_BYTES);

	assert_non_null(shared);
	memset(shared, 0, ATM_COUNTERS_BYTES);
	shared->magic = ATM_MAGIC;
	shared->abi = ATM_ABI;
	return shared;
}

static uint64_t munmaps(const struct atm_sums *sums)
{
	return sums->call_cnt[ATM_KIND_MUNMAP];
}

static void test_no_phase(void **state)
{
	struct atm_counters *shared = new_shared();
	struct atm_sums own[ATM_PHASE_CNT] = {0};

	(void)state;
	shared->live.call_cnt[ATM_KIND_MUNMAP] = 7;
	counters__add_own(shared, own);
	assert_int_equal(munmaps(&own[0]), 7);
	assert_int_equal(munmaps(&own[1]), 0);
	assert_int_equal(munmaps(&own[2]), 0);
	free(shared);
}

static void test_three_phases(void **state)
{
	struct atm_counters *shared = new_shared();
	struct atm_sums own[ATM_PHASE_CNT] = {0};

	(void)state;
	shared->phases_seen = 7;
	shared->phase = 2;
	shared->at_phase[1].call_cnt[ATM_KIND_MUNMAP] = 3;
	shared->at_phase[2].call_cnt[ATM_KIND_MUNMAP] = 16;
	shared->live.call_cnt[ATM_KIND_MUNMAP] = 17;
	counters__add_own(shared, own);
	assert_int_equal(munmaps(&own[0]), 3);
	assert_int_equal(munmaps(&own[1]), 13);
	assert_int_equal(munmaps(&own[2]), 1);
	free(shared);
}

static void test_phase_left_out(void **state)
{
	struct atm_counters *shared = new_shared();
	struct atm_sums own[ATM_PHASE_CNT] = {0};

	(void)state;
	shared->phases_seen = 1u << 2;
	shared->at_phase[2].call_cnt[ATM_KIND_MUNMAP] = 5;
	shared->live.call_cnt[ATM_KIND_MUNMAP] = 9;
	counters__add_own(shared, own);
	assert_int_equal(munmaps(&own[0]), 5);
	assert_int_equal(munmaps(&own[1]), 0);
	assert_int_equal(munmaps(&own[2]), 4);
	free(shared);
}

/* A child forked in `measured`: that phase is marked with zeros, and startup stays empty. */
static void test_forked_in_phase(void **state)
{
	struct atm_counters *shared = new_shared();
	struct atm_sums own[ATM_PHASE_CNT] = {0};

	(void)state;
	shared->phase = 1;
	shared->phases_seen = 1u << 1;
	shared->live.call_cnt[ATM_KIND_MUNMAP] = 11;
	counters__add_own(shared, own);
	assert_int_equal(munmaps(&own[0]), 0);
	assert_int_equal(munmaps(&own[1]), 11);
	assert_int_equal(munmaps(&own[2]), 0);
	free(shared);
}

static void test_cells_are_summed(void **state)
{
	struct atm_counters *shared = new_shared();
	struct atm_sums own[ATM_PHASE_CNT] = {0};

	(void)state;
	shared->phases_seen = 2;
	shared->at_phase[1].requests.malloc_cnt[0] = 10;
	shared->at_phase[1].decision_cnt[ATM_DECISION_TRIM_TAKEN] = 2;
	shared->cell_cnt = ATM_CELL_CNT;
	shared->cells[0].requests.malloc_cnt[0] = 11;
	shared->cells[ATM_CELL_CNT - 1].requests.malloc_cnt[0] = 13;
	shared->cells[1].requests.realloc_cnt[ATM_BAND_CNT - 1] = 5;
	shared->cells[2].decision_cnt[ATM_DECISION_TRIM_TAKEN] = 4;
	shared->live.decision_cnt[ATM_DECISION_TRIM_TAKEN] = 1;
	counters__add_own(shared, own);
	assert_int_equal(own[0].requests.malloc_cnt[0], 10);
	assert_int_equal(own[1].requests.malloc_cnt[0], 14);
	assert_int_equal(own[1].requests.realloc_cnt[ATM_BAND_CNT - 1], 5);
	assert_int_equal(own[0].decision_cnt[ATM_DECISION_TRIM_TAKEN], 2);
	assert_int_equal(own[1].decision_cnt[ATM_DECISION_TRIM_TAKEN], 3);
	free(shared);
}

/* From a mark in phase 1 on: phase 0 until another is marked, and nothing of before. */
static void test_since_mark(void **state)
{
	struct atm_counters *shared = new_shared();
	struct atm_sums own[ATM_PHASE_CNT] = {0};
	struct counters_mark mark;

	(void)state;
	shared->phases_seen = 3;
	shared->phase = 1;
	shared->at_phase[1].call_cnt[ATM_KIND_MUNMAP] = 5;
	shared->live.call_cnt[ATM_KIND_MUNMAP] = 11;
	shared->cell_cnt = 1;
	shared->cells[0].requests.free_cnt[3] = 17;
	counters__mark(shared, &mark);
	shared->at_phase[2].call_cnt[ATM_KIND_MUNMAP] = 24;
	shared->at_phase[2].requests.free_cnt[3] = 36;
	shared->phases_seen = 7;
	shared->phase = 2;
	shared->live.call_cnt[ATM_KIND_MUNMAP] = 41;
	shared->cells[0].requests.free_cnt[3] = 59;
	counters__add_since(shared, &mark, own);
	assert_int_equal(munmaps(&own[0]), 13);
	assert_int_equal(munmaps(&own[1]), 0);
	assert_int_equal(munmaps(&own[2]), 17);
	assert_int_equal(own[0].requests.free_cnt[3], 19);
	assert_int_equal(own[2].requests.free_cnt[3], 23);
	free(shared);
}

/* Counters that shrink (a broken process) are 0, never 2^64 - 1. */
static void test_no_underflow(void **state)
{
	struct atm_counters *shared = new_shared();
	struct atm_sums own[ATM_PHASE_CNT] = {0};

	(void)state;
	shared->phases_seen = 6;
	shared->at_phase[1].call_cnt[ATM_KIND_MUNMAP] = 9;
	shared->at_phase[2].call_cnt[ATM_KIND_MUNMAP] = 8;
	shared->live.call_cnt[ATM_KIND_MUNMAP] = 7;
	counters__add_own(shared, own);
	assert_int_equal(munmaps(&own[0]), 9);
	assert_int_equal(munmaps(&own[1]), 0);
	assert_int_equal(munmaps(&own[2]), 0);
	free(shared);
}

/* A count of cells beyond the array, from a process that is broken or means harm, is not followed. */
static void test_cell_cnt_is_bounded(void **state)
{
	struct atm_counters *shared = new_shared();
	struct atm_sums own[ATM_PHASE_CNT] = {0};

	(void)state;
	shared->cell_cnt = UINT32_MAX;
	shared->cells[ATM_CELL_CNT - 1].requests.free_cnt[0] = 3;
	counters__add_own(shared, own);
	assert_int_equal(own[0].requests.free_cnt[0], 3);
	free(shared);
}

/* The library's part of the handover; NULL when it is refused. */
static struct atm_counters *take_over(const char *name)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct atm_handover handover;
	struct iovec iov = {&handover, sizeof(handover)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), memory_fd;
	void *map;

	memcpy(addr.sun_path + 1, name, strlen(name));
	if (connect(fd, (struct sockaddr *)&addr, offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)) ||
	    recvmsg(fd, &msg, MSG_CMSG_CLOEXEC) != sizeof(handover) || !CMSG_FIRSTHDR(&msg) ||
	    handover.magic != ATM_MAGIC || handover.abi != ATM_ABI || handover.bytes != ATM_COUNTERS_BYTES) {
		close(fd);
		return NULL;
	}
	memcpy(&memory_fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	/* Nobody may pull the memory away from under the reader. */
	if (ftruncate(memory_fd, 0) == 0)
		return NULL;
	map = mmap(NULL, handover.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, handover.offset);
	close(memory_fd);
	close(fd);
	return map == MAP_FAILED ? NULL : map;
}

/* A program under the library: counts, and dies as asked. Exit status 9: it was refused. */
static _Noreturn void play_program(const char *name, uint64_t call_cnt, int signal)
{
	struct atm_counters *shared = take_over(name);

	if (!shared)
		_exit(9);
	shared->magic = ATM_MAGIC;
	shared->abi = ATM_ABI;
	shared->live.call_cnt[ATM_KIND_MUNMAP] = call_cnt;
	shared->cell_cnt = 4;
	shared->cells[3].requests.free_cnt[1] = 2 * call_cnt;
	if (signal)
		kill(getpid(), signal);
	_exit(0);
}

/* Serves until the child has ended; its wait status. */
static int serve_until_end(struct counters *counters, pid_t pid)
{
	struct pollfd fds = {.fd = counters__fd(counters), .events = POLLIN};
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		poll(&fds, 1, 1);
		counters__serve(counters);
	}
	return status;
}

static int run_program(struct counters *counters, uint64_t call_cnt, int signal)
{
	pid_t pid = fork();

	if (pid == 0)
		play_program(counters__name(counters), call_cnt, signal);
	assert_true(pid > 0);
	return serve_until_end(counters, pid);
}

static struct counters *open_counters(void)
{
	struct counters_opts opts = {.uid = getuid(), .prefix = "alloctrace-test-"};
	struct counters *counters;

	assert_int_equal(counters__open(&counters, &opts), 0);
	return counters;
}

static void test_handover(void **state)
{
	struct counters *counters = open_counters();
	struct counters_result result;

	(void)state;
	assert_int_equal(run_program(counters, 5, 0), 0);
	assert_int_equal(run_program(counters, 6, SIGKILL), SIGKILL);
	counters__finish(counters, &result);
	assert_int_equal(result.process_cnt, 2);
	assert_int_equal(result.refused_cnt, 0);
	assert_int_equal(munmaps(&result.phases[0]), 11);
	assert_int_equal(result.phases[0].requests.free_cnt[1], 22);
	counters__free(counters);
}

/* Waiting in the queue when everything is over: still answered. */
static void test_drain(void **state)
{
	struct counters *counters = open_counters();
	struct counters_result result;
	pid_t pid = fork();
	struct pollfd fds = {.fd = counters__fd(counters), .events = POLLIN};

	(void)state;
	if (pid == 0)
		play_program(counters__name(counters), 1, 0);
	assert_int_equal(poll(&fds, 1, 10000), 1);
	counters__finish(counters, &result);
	waitpid(pid, NULL, 0);
	assert_int_equal(result.refused_cnt, 0);
	counters__free(counters);
}

/* exec: the same process asks again, and the counts of both programs stay. */
static void test_same_pid_again(void **state)
{
	struct counters *counters = open_counters();
	struct counters_result result;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		struct atm_counters *shared = take_over(counters__name(counters));

		if (!shared)
			_exit(9);
		shared->magic = ATM_MAGIC;
		shared->abi = ATM_ABI;
		shared->live.call_cnt[ATM_KIND_MUNMAP] = 100;
		play_program(counters__name(counters), 1, 0);
	}
	assert_int_equal(serve_until_end(counters, pid), 0);
	assert_int_equal(counters__live_cnt(counters), 1);
	counters__finish(counters, &result);
	assert_int_equal(munmaps(&result.phases[0]), 101);
	assert_int_equal(result.process_cnt, 2);
	counters__free(counters);
}

/* Memory is that of the living: the dead are folded away as more come. */
static void test_many_processes(void **state)
{
	enum { CNT = 509 };
	struct counters *counters = open_counters();
	struct counters_result result;

	(void)state;
	for (int i = 0; i < CNT; i++) {
		assert_int_equal(run_program(counters, 1, 0), 0);
		assert_true(counters__live_cnt(counters) <= 64);
	}
	counters__finish(counters, &result);
	assert_int_equal(result.process_cnt, CNT);
	assert_int_equal(munmaps(&result.phases[0]), CNT);
	assert_int_equal(result.phases[0].requests.free_cnt[1], 2 * CNT);
	counters__free(counters);
}

static void test_strangers_are_refused(void **state)
{
	struct counters_opts opts = {.uid = 12345, .prefix = "alloctrace-test-"};
	struct counters *counters;
	struct counters_result result;
	pid_t pid;

	(void)state;
	if (getuid() != 0)
		skip();
	assert_int_equal(counters__open(&counters, &opts), 0);
	pid = fork();
	if (pid == 0) {
		if (setuid(54321))
			_exit(1);
		play_program(counters__name(counters), 1, 0);
	}
	assert_int_equal(WEXITSTATUS(serve_until_end(counters, pid)), 9);
	counters__finish(counters, &result);
	assert_int_equal(result.refused_cnt, 1);
	assert_int_equal(result.process_cnt, 0);
	counters__free(counters);
}

static void test_only_one_process(void **state)
{
	struct counters *counters = open_counters();
	struct counters_result result;

	(void)state;
	counters__set_only_pid(counters, 1);
	assert_int_equal(WEXITSTATUS(run_program(counters, 1, 0)), 9);
	counters__finish(counters, &result);
	assert_int_equal(result.process_cnt, 0);
	assert_int_equal(result.refused_cnt, 0); /* not followed is not missing */
	counters__free(counters);
}

/* Out of descriptors: turned away, never left waiting. */
static void test_no_descriptors(void **state)
{
	struct counters *counters = open_counters();
	struct counters_result result;
	struct rlimit old, none;
	pid_t pid = fork();
	int status, next_fd;

	(void)state;
	if (pid == 0)
		play_program(counters__name(counters), 1, 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	next_fd = dup(0);
	close(next_fd);
	none = (struct rlimit){next_fd, old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	status = serve_until_end(counters, pid);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(WEXITSTATUS(status), 9);
	counters__finish(counters, &result);
	assert_int_equal(result.refused_cnt, 1);
	counters__free(counters);
}

/* A process that died before it wrote anything does not count. */
static void test_never_used(void **state)
{
	struct counters *counters = open_counters();
	struct counters_result result;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(take_over(counters__name(counters)) ? 0 : 9);
	assert_int_equal(serve_until_end(counters, pid), 0);
	counters__finish(counters, &result);
	assert_int_equal(result.process_cnt, 0);
	counters__free(counters);
}

static void test_names_differ(void **state)
{
	struct counters *a = open_counters(), *b = open_counters();

	(void)state;
	assert_string_not_equal(counters__name(a), counters__name(b));
	assert_int_equal(strlen(counters__name(a)), strlen("alloctrace-test-") + 32);
	counters__free(a);
	counters__free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_phase),
		cmocka_unit_test(test_three_phases),
		cmocka_unit_test(test_phase_left_out),
		cmocka_unit_test(test_forked_in_phase),
		cmocka_unit_test(test_cells_are_summed),
		cmocka_unit_test(test_since_mark),
		cmocka_unit_test(test_no_underflow),
		cmocka_unit_test(test_cell_cnt_is_bounded),
		cmocka_unit_test(test_handover),
		cmocka_unit_test(test_drain),
		cmocka_unit_test(test_same_pid_again),
		cmocka_unit_test(test_many_processes),
		cmocka_unit_test(test_strangers_are_refused),
		cmocka_unit_test(test_only_one_process),
		cmocka_unit_test(test_no_descriptors),
		cmocka_unit_test(test_never_used),
		cmocka_unit_test(test_names_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
