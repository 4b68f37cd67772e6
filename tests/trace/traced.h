/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the cmocka programs that trace share: held children, runs under the
 * tracer, and what an exact one looks like. Includes cmocka for its users.
 */
#ifndef ALLOCTRACE_TESTS_TRACE_TRACED_H
#define ALLOCTRACE_TESTS_TRACE_TRACED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <bpf/bpf.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/tracer.h"

static struct features features;

enum { PROGRAM_BYTES = 512 };

/* The path of a program that was built beside this one. */
static inline void program_beside(char path[PROGRAM_BYTES], const char *self, const char *name)
{
	int dir_len = (int)(strrchr(self, '/') ? strrchr(self, '/') - self : 0);

	snprintf(path, PROGRAM_BYTES, "%.*s/%s", dir_len, self, name);
}

/* A child that waits for the word go before it becomes the target program. */
struct child {
	pid_t pid;
	int go;
};

/* One traced run. */
struct run {
	struct tracer *tracer;
	struct profile *profile;
	struct phase_stat *total;
	int status; /* of wait() */
	uint64_t wall_ns;
};

/* TEST_TIER chooses another tier than the best one. */
static inline const struct tracer_opts *opts_of(void **state)
{
	struct tracer_opts *opts = *state;
	const char *tier = getenv("TEST_TIER");

	opts->tier = tier ? atoi(tier) : 0;
	return opts;
}

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* uid 0 stays root. */
static inline struct child hold(const char *const argv[], uid_t uid)
{
	struct child child;
	int fds[2];
	char go;

	assert_return_code(pipe2(fds, O_CLOEXEC), errno);
	child.pid = fork();
	assert_return_code(child.pid, errno);
	if (!child.pid) {
		close(fds[1]);
		if (read(fds[0], &go, 1) != 1 || (uid && setresuid(uid, uid, uid)))
			_exit(126);
		execv(argv[0], (char *const *)argv);
		_exit(127);
	}
	close(fds[0]);
	child.go = fds[1];
	return child;
}

static inline void release(struct child *child)
{
	assert_int_equal(write(child->go, "g", 1), 1);
	close(child->go);
}

/* Opens a tracer on held children, and starts it. */
static inline void start(struct run *run, const struct tracer_opts *opts, const struct child *children, int cnt)
{
	*run = (struct run){0};
	assert_return_code(tracer__open(&run->tracer, &features, opts), 0);
	for (int i = 0; i < cnt; i++)
		assert_return_code(tracer__add_target(run->tracer, children[i].pid), 0);
	assert_return_code(tracer__start(run->tracer), 0);
	run->wall_ns = now_ns();
}

static inline void stop(struct run *run)
{
	run->wall_ns = now_ns() - run->wall_ns;
	assert_return_code(tracer__stop(run->tracer), 0);
	run->profile = profile__new();
	run->total = malloc(sizeof(*run->total));
	assert_non_null(run->profile);
	assert_non_null(run->total);
	assert_return_code(tracer__collect(run->tracer, run->profile), 0);
	profile__total(run->profile, run->total);
}

static inline void done(struct run *run)
{
	tracer__free(run->tracer);
	profile__free(run->profile);
	free(run->total);
}

/* Runs a program under the tracer, from its first instruction to its end. */
static inline void trace_as(struct run *run, const struct tracer_opts *opts, uid_t uid, const char *const argv[])
{
	struct child child = hold(argv, uid);

	start(run, opts, &child, 1);
	release(&child);
	assert_int_equal(waitpid(child.pid, &run->status, 0), child.pid);
	stop(run);
}

#define trace(run, opts, ...) trace_as(run, opts, 0, (const char *const[]){__VA_ARGS__, NULL})

/* Nothing lost, nothing in flight, no duration longer than the run. */
static inline void assert_exact(const struct run *run)
{
	for (int i = 0; i < AT_LOSS_CNT; i++)
		if (run->profile->loss_cnt[i] && i != AT_LOSS_CLASS_ASSUMED)
			fail_msg("loss %d: %lu", i, run->profile->loss_cnt[i]);
	assert_int_equal(run->profile->recursion_miss_cnt, 0);
	for (int i = 0; i < AT_SYS_CNT; i++)
		assert_int_equal(run->profile->in_flight_cnt[i], 0);
	for (int i = 0; i < AT_CLASS_CNT; i++) {
		assert_in_range(run->total->classes[i].max_ns, 0, run->wall_ns);
		assert_in_range(run->total->classes[i].last_errno, 0, 4095);
	}
}

/* A map of this process's tracer, and how large it is; -1 when it has none of that name. */
static inline int map_find(const char *name, struct bpf_map_info *info)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	int fd = -1;

	memset(info, 0, sizeof(*info));
	assert_non_null(dir);
	while (fd < 0 && (entry = readdir(dir)) != NULL) {
		uint32_t info_bytes = sizeof(*info);

		if (!bpf_obj_get_info_by_fd(atoi(entry->d_name), info, &info_bytes) && strcmp(info->name, name) == 0)
			fd = atoi(entry->d_name);
	}
	closedir(dir);
	return fd;
}

static inline int map_named(const char *name, struct bpf_map_info *info)
{
	int fd = map_find(name, info);

	assert_return_code(fd, 0);
	return fd;
}

/* The slots of a tracer with SLOT_ARRAY. */
static inline struct at_slot *map_slots(size_t *bytes)
{
	struct bpf_map_info info;
	int fd = map_named("slots", &info);
	void *slots;

	*bytes = (size_t)info.max_entries * info.value_size;
	slots = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(slots, MAP_FAILED);
	return slots;
}

/* No start time is left in an array of slots. Those in task storage go with their tasks. */
static inline void assert_slots_empty(void)
{
	struct bpf_map_info info;
	struct at_slot *slots;
	size_t bytes;

	if (map_find("slots", &info) < 0)
		return;
	slots = map_slots(&bytes);
	for (size_t i = 0; i < bytes / sizeof(*slots); i++)
		assert_int_equal(slots[i].start_ns, 0);
	munmap(slots, bytes);
}

static inline void assert_clean_exit(const struct run *run)
{
	assert_true(WIFEXITED(run->status));
	assert_int_equal(WEXITSTATUS(run->status), 0);
}

/* Whether a thread other than the first is inside a syscall. */
static inline bool is_thread_inside(pid_t pid, int nr)
{
	char path[600], line[64];
	struct dirent *entry;
	bool is_inside = false;
	FILE *file;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	assert_non_null(dir);
	while ((entry = readdir(dir)) != NULL) {
		snprintf(path, sizeof(path), "/proc/%d/task/%s/syscall", pid, entry->d_name);
		file = atoi(entry->d_name) && atoi(entry->d_name) != pid ? fopen(path, "r") : NULL;
		if (!file)
			continue;
		if (fgets(line, sizeof(line), file))
			is_inside |= line[0] != 'r' && atoi(line) == nr;
		fclose(file);
	}
	closedir(dir);
	return is_inside;
}

static struct tracer_opts in_array = {.is_following = true, .slot_mode = SLOT_ARRAY};
static struct tracer_opts in_storage = {.is_following = true, .slot_mode = SLOT_STORAGE};

#define BOTH(test)                                                                        \
	{.name = #test "_array", .test_func = test, .initial_state = &in_array},          \
	{                                                                                 \
		.name = #test "_storage", .test_func = test, .initial_state = &in_storage \
	}

static inline void test_tracing_is_possible(void **state)
{
	char advice[256];

	(void)state;
	feature__advice(&features, 0, advice, sizeof(advice));
	print_message("%s\n", advice);
	skip();
}

/* Runs the tests, all or those that the first argument names; where nothing can be traced, says why. */
static inline int run_traced(const struct CMUnitTest *tests, size_t cnt, int argc, char **argv)
{
	const struct CMUnitTest impossible[] = {cmocka_unit_test(test_tracing_is_possible)};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	feature__probe(&features);
	if (features.best_tier < 1)
		return cmocka_run_group_tests(impossible, NULL, NULL);
	return _cmocka_run_group_tests("traced", tests, cnt, NULL, NULL);
}

#endif
