/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The allocator at the edges of threads and processes: fork with other threads
 * inside malloc (B35), vfork and posix_spawn (B77), malloc and free in the last
 * destructors (B37), heaps of dead threads, the map count limit (A37, B41).
 * timeout: 240
 */
#include "tests/alloc/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>

#include "alloc/atmalloc.h"

#pragma weak atmalloc_get_counter

#define FORKER_CNT 4
#define FORK_CNT 125

static atomic_bool is_over;

static void *churn(void *arg)
{
	unsigned random = (unsigned)(uintptr_t)arg;
	void *blocks[64] = {NULL};

	while (!atomic_load(&is_over)) {
		random = random * 1103515245 + 12345;
		free(blocks[random >> 20 & 63]);
		blocks[random >> 20 & 63] = malloc((random >> 8) % ((random & 15) ? 3000 : 3000000));
	}
	for (int i = 0; i < 64; i++)
		free(blocks[i]);
	return NULL;
}

static void *return_arg(void *arg)
{
	free(malloc(1000));
	return arg;
}

static _Noreturn void child(void)
{
	void *blocks[1000];
	pthread_t thread;

	alarm(20);
	for (int i = 0; i < 1000; i++)
		blocks[i] = malloc((size_t)i * 11);
	if (pthread_create(&thread, NULL, return_arg, NULL) || pthread_join(thread, NULL))
		_exit(1);
	for (int i = 0; i < 1000; i++)
		free(blocks[i]);
	_exit(0);
}

static void *fork_often(void *arg)
{
	for (int i = 0; i < FORK_CNT; i++) {
		pid_t pid = fork();
		int status;

		if (pid == 0)
			child();
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
			return "a child failed";
	}
	return arg;
}

static void fork_while_others_allocate(void **state)
{
	pthread_t churners[4], forkers[FORKER_CNT];
	void *failure = NULL;

	(void)state;
	atomic_store(&is_over, false);
	for (uintptr_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&churners[i], NULL, churn, (void *)(i + 1)), 0);
	for (int i = 0; i < FORKER_CNT; i++)
		assert_int_equal(pthread_create(&forkers[i], NULL, fork_often, NULL), 0);
	for (int i = 0; i < FORKER_CNT; i++) {
		pthread_join(forkers[i], &failure);
		assert_null(failure);
	}
	atomic_store(&is_over, true);
	for (int i = 0; i < 4; i++)
		pthread_join(churners[i], NULL);
}

static pid_t spawn_true(bool is_vfork)
{
	char *argv[] = {"true", NULL};
	pid_t pid = -1;

	if (!is_vfork)
		return posix_spawnp(&pid, "true", NULL, NULL, argv, environ) ? -1 : pid;
	pid = vfork();
	if (pid == 0) {
		execvp("true", argv);
		_exit(127);
	}
	return pid;
}

static void *spawn_often(void *arg)
{
	for (int i = 0; i < 100; i++) {
		pid_t pid = spawn_true(i % 2);
		int status;

		if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
			return "a child failed";
	}
	return arg;
}

static void spawn_while_others_allocate(void **state)
{
	pthread_t churner, spawners[2];
	void *failure = NULL;

	(void)state;
	atomic_store(&is_over, false);
	assert_int_equal(pthread_create(&churner, NULL, churn, (void *)7), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&spawners[i], NULL, spawn_often, NULL), 0);
	for (int i = 0; i < 2; i++) {
		pthread_join(spawners[i], &failure);
		assert_null(failure);
	}
	atomic_store(&is_over, true);
	pthread_join(churner, NULL);
}

#define HANDLER_FORK_CNT 199
static volatile sig_atomic_t handler_fork_cnt;

static void fork_in_handler(int signal)
{
	int status;
	pid_t pid = fork();

	(void)signal;
	if (pid == 0)
		_exit(0);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		_exit(20);
	handler_fork_cnt++;
}

/* Most of the time is spent where the library holds a lock: in new mappings and their records. */
static void allocate_under_signals(void *arg)
{
	struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = fork_in_handler};

	(void)arg;
	if (preload.set_policy("none") || sigaction(SIGPROF, &action, NULL) || setitimer(ITIMER_PROF, &often, NULL))
		_exit(10);
	while (handler_fork_cnt < HANDLER_FORK_CNT) {
		void *volatile p = malloc(2 << 20), *volatile q = malloc(300000), *volatile r = malloc(50);

		p = realloc(p, 3 << 20);
		free(r);
		free(q);
		free(p);
	}
	if (setitimer(ITIMER_PROF, &never, NULL))
		_exit(11);
}

/* As in glibc, where malloc and free may be what the signal has interrupted. */
static void fork_in_signal_handlers(void **state)
{
	(void)state;
	assert_int_equal(child__run(allocate_under_signals, NULL), 0);
}

/*
 * A thread is stopped by SIGSYS at an mmap that it makes with two locks of the
 * library, while another one's fork has the locks before these and waits for
 * them: a fork in the handler must come to an end all the same.
 */
static atomic_int stopped, other_tid;
static atomic_bool has_forked;

static bool is_in_futex(int tid)
{
	char path[64], text[16] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC); /* in a handler: no stdio, which allocates */
	CHILD_CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) >= 0);
	close(fd);
	return atoi(text) == SYS_futex;
}

static void fork_at_the_mapping(int signal, siginfo_t *info, void *context)
{
	(void)info;
	stopped = 1;
	while (!other_tid || !is_in_futex(other_tid))
		usleep(1000);
	fork_in_handler(signal);
	has_forked = true;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -ENOMEM;
}

/* This thread's mappings of less than 1 MiB end in a SIGSYS: the library's records. */
static void trap_small_mappings(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 1 << 20, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(filter) / sizeof(*filter), .filter = filter};

	CHILD_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHILD_CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void *fork_meanwhile(void *arg)
{
	while (!stopped)
		usleep(1000);
	other_tid = (int)syscall(SYS_gettid);
	fork_in_handler(0);
	return arg;
}

static void fork_between_locks(void *arg)
{
	struct sigaction action = {.sa_sigaction = fork_at_the_mapping, .sa_flags = SA_SIGINFO};
	pthread_t other;

	(void)arg;
	alarm(30);
	CHILD_CHECK(pthread_create(&other, NULL, fork_meanwhile, NULL) == 0);
	CHILD_CHECK(sigaction(SIGSYS, &action, NULL) == 0);
	trap_small_mappings();
	/* Each needs a part of the table that finds it. */
	for (int i = 0; i < 1000 && !stopped; i++)
		if (!malloc(16 << 20))
			break;
	CHILD_CHECK(has_forked);
	CHILD_CHECK(pthread_join(other, NULL) == 0);
	CHILD_CHECK(handler_fork_cnt == 2);
	free(malloc(1000));
}

static void fork_in_a_handler_beside_another(void **state)
{
	(void)state;
	assert_int_equal(child__run(fork_between_locks, NULL), 0);
}

static pthread_key_t late_key;
static atomic_int late_cnt;

/* Asks to be called again as long as it may be: the last call comes after any teardown of the allocator's. */
static void late_destructor(void *value)
{
	char *p = malloc(3000);

	memset(p, 1, 3000);
	free(value);
	atomic_fetch_add(&late_cnt, 1);
	pthread_setspecific(late_key, p);
}

static void *leave_late_value(void *arg)
{
	pthread_setspecific(late_key, malloc(100));
	return arg;
}

static size_t resident_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	unsigned long size, resident = 0;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%lu %lu", &size, &resident), 2);
	fclose(file);
	return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* The last block of each thread is lost by the test's own doing: 3,000 bytes each. */
static void allocation_in_last_destructors(void **state)
{
	(void)state;
	assert_int_equal(pthread_key_create(&late_key, late_destructor), 0);
	for (int i = 0; i < 500; i++) {
		pthread_t thread;

		assert_int_equal(pthread_create(&thread, NULL, leave_late_value, NULL), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
	}
	assert_int_equal(atomic_load(&late_cnt), 500 * PTHREAD_DESTRUCTOR_ITERATIONS);
	pthread_key_delete(late_key);
}

static void *use_some(void *arg)
{
	void *blocks[50];

	for (int i = 0; i < 50; i++) {
		blocks[i] = malloc(2000);
		memset(blocks[i], 1, 2000);
	}
	for (int i = 0; i < 50; i++)
		free(blocks[i]);
	return arg;
}

static void heaps_of_dead_threads_are_reused(void **state)
{
	size_t before = 0;

	(void)state;
	for (int i = 0; i < 5000; i++) {
		pthread_t thread;

		if (i == 100)
			before = resident_bytes();
		assert_int_equal(pthread_create(&thread, NULL, use_some, NULL), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
	}
	/* 4,900 heaps with 100 KB each would be about 500 MB. */
	assert_true(resident_bytes() < before + (4 << 20));
}

enum { LONE_CNT = 1009, LONE_THREAD_CNT = 300 };
static void *lone_blocks[LONE_CNT];
static bool is_lone_errno_kept;

/* All that the thread does is free: on the way it gets a heap, for what it hands over. */
static void free_lone(void *value)
{
	(void)value;
	is_lone_errno_kept = true;
	for (int i = 0; i < LONE_CNT; i++) {
		errno = 4711;
		free(lone_blocks[i]);
		is_lone_errno_kept = is_lone_errno_kept && errno == 4711;
	}
}

static void *run_lone(void *arg)
{
	free_lone(NULL);
	return arg;
}

/* In the last round of destructors, when it is too late for a heap that somebody would give back. */
static void free_lone_late(void *value)
{
	uintptr_t round = (uintptr_t)value;

	if (round < PTHREAD_DESTRUCTOR_ITERATIONS)
		pthread_setspecific(late_key, (void *)(round + 1));
	else
		free_lone(NULL);
}

static void *leave_lone(void *arg)
{
	free(lone_blocks[0]);
	lone_blocks[0] = NULL;
	pthread_setspecific(late_key, (void *)1);
	return arg;
}

static void threads_that_only_free(void **state)
{
	void *(*const works[])(void *) = {run_lone, leave_lone};
	uint64_t before = 0, after;

	(void)state;
	assert_int_equal(pthread_key_create(&late_key, free_lone_late), 0);
	for (int i = 0; i < LONE_THREAD_CNT; i++) {
		pthread_t thread;

		for (int k = 0; k < LONE_CNT; k++)
			memset(lone_blocks[k] = malloc(100), k, 100);
		if (i == 2)
			assert_int_equal(atmalloc_get_counter("heaps", &before), 0);
		assert_int_equal(pthread_create(&thread, NULL, works[i % 2], NULL), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_true(is_lone_errno_kept);
	}
	pthread_key_delete(late_key);
	assert_int_equal(atmalloc_get_counter("heaps", &after), 0);
	assert_int_equal(after, before);
	/* Every block came back to where it is from: 300 times as many would be 30 MB. */
	assert_true(resident_bytes() < 16 << 20);
}

/* Splits a mapping into pieces until the kernel allows no more; at least 50 are left when `spare`. */
static void fill_map_count(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *area = mmap(NULL, 140000 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	for (size_t i = 1; i < 140000; i += 2)
		if (mprotect(area + i * page, page, PROT_NONE))
			return;
	_exit(20); /* the limit was not reached: this test shows nothing here */
}

static void map_count_limit(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (pid == 0) {
		unsigned char *blocks[20], *large, *p;
		void *small[1000];

		preload.set_policy("none");
		/* A forked child's memory may not merge with what is committed later: enough is committed before. */
		for (int i = 0; i < 1000; i++)
			small[i] = malloc(100);
		for (int i = 0; i < 1000; i++)
			free(small[i]);
		/* Neighbours, so that an unmap in the middle needs one more map entry. */
		for (int i = 0; i < 20; i++)
			blocks[i] = malloc(2 << 20);
		large = malloc(8 << 20);
		memset(large, 3, 8 << 20);
		fill_map_count();
		for (int i = 1; i < 20; i += 2) {
			errno = 4711;
			free(blocks[i]);
			if (errno != 4711)
				_exit(21);
		}
		p = realloc(large, 5 << 20);
		if (!p || p[(5 << 20) - 1] != 3)
			_exit(22);
		/* Memory that could not be unmapped serves the next request. */
		for (int i = 0; i < 3; i++)
			if (!malloc(2 << 20))
				_exit(23);
		for (int i = 0; i < 1000; i++)
			if (!malloc(100))
				_exit(24);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 20)
		skip();
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fork_while_others_allocate),     cmocka_unit_test(spawn_while_others_allocate),
		cmocka_unit_test(fork_in_signal_handlers),        cmocka_unit_test(fork_in_a_handler_beside_another),
		cmocka_unit_test(allocation_in_last_destructors), cmocka_unit_test(heaps_of_dead_threads_are_reused),
		cmocka_unit_test(threads_that_only_free),         cmocka_unit_test(map_count_limit),
	};

	return cmocka_run_group_tests(tests, preload__find, NULL);
}
