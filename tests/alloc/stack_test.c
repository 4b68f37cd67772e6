/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 180 */
/*
 * Thread stacks under the library: the same answers as without it, every stack
 * returned, policy stack's calls exact. Runs with the library preloaded.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc/control.h"
#include "tests/scratch.h"

/* The default of tunable stack_cache. */
#define CACHE_BYTES ((size_t)40 << 20)
/* Mappings that other parts of the allocator may add or drop meanwhile. */
#define SLACK_LINES 40

static struct atm_control *control;
static struct atm_counters *counters;
static int (*set_tune)(const char *list);
static const char *out_dir;

static uint64_t calls(enum atm_kind kind)
{
	return __atomic_load_n(&counters->live.call_cnt[kind], __ATOMIC_RELAXED);
}

static void set_policy(uint32_t policy)
{
	__atomic_store_n(&control->policy, policy, __ATOMIC_RELAXED);
}

static int find_library(void **state)
{
	void *symbol = dlsym(RTLD_DEFAULT, "atmalloc_set_tune");

	(void)state;
	memcpy(&set_tune, &symbol, sizeof(symbol));
	control = dlsym(RTLD_DEFAULT, "atmalloc_control");
	counters = dlsym(RTLD_DEFAULT, "atmalloc_counters");
	out_dir = getenv("O") ? getenv("O") : ".output";
	if (!control || !counters || !set_tune)
		fprintf(stderr, "stack_test must run with LD_PRELOAD=%s/libatmalloc.so\n", out_dir);
	return control && counters && set_tune ? 0 : -1;
}

/* Each test starts without cached stacks and with the defaults. */
static int reset(void **state)
{
	(void)state;
	set_policy(POLICY_ALL);
	set_tune("stack_cache=40M");
	malloc_trim(0);
	return 0;
}

static int count_maps(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int lines = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		lines++;
	fclose(maps);
	return lines;
}

static void *return_at_once(void *arg)
{
	return arg;
}

static void *exit_at_once(void *arg)
{
	pthread_exit(arg);
}

static void *sleep_forever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void *detach_self(void *arg)
{
	pthread_detach(pthread_self());
	return arg;
}

static int create(pthread_t *thread, size_t stack_bytes, size_t guard_bytes, int detach_state, void *(*start)(void *),
		  void *arg)
{
	pthread_attr_t attr;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, stack_bytes);
	pthread_attr_setguardsize(&attr, guard_bytes);
	pthread_attr_setdetachstate(&attr, detach_state);
	err = pthread_create(thread, &attr, start, arg);
	pthread_attr_destroy(&attr);
	return err;
}

static void create_and_join(size_t stack_bytes, size_t guard_bytes)
{
	pthread_t thread;

	assert_int_equal(create(&thread, stack_bytes, guard_bytes, PTHREAD_CREATE_JOINABLE, return_at_once, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Until no thread but the caller is in the kernel; detached ones end some time. */
static void wait_for_threads(void)
{
	char line[256];
	int threads = 0;

	for (int tries = 0; threads != 1; tries++) {
		FILE *status = fopen("/proc/self/status", "re");

		assert_non_null(status);
		while (fgets(line, sizeof(line), status))
			sscanf(line, "Threads: %d", &threads);
		fclose(status);
		assert_true(tries < 20000);
		usleep(500);
	}
}

/* --- The same answers as without the library -------------------------------- */

/* Output of a program of the tests; the caller frees it. */
static char *output_of(const char *program, const char *arg, const char *preload, rlim_t stack_limit)
{
	struct rlimit limit;
	char path[512], *text = calloc(1, 1 << 17);
	size_t bytes = 0;
	int ends[2], status;
	ssize_t got;
	pid_t child;

	if (program[0] == '/')
		snprintf(path, sizeof(path), "%s", program);
	else
		snprintf(path, sizeof(path), "%s/tests/alloc/%s", out_dir, program);
	assert_non_null(text);
	assert_int_equal(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		getrlimit(RLIMIT_STACK, &limit);
		limit.rlim_cur = stack_limit ? stack_limit : limit.rlim_cur;
		setrlimit(RLIMIT_STACK, &limit);
		dup2(ends[1], 1);
		/* Stacks cached by the C library report their size, not the one asked for. */
		setenv("GLIBC_TUNABLES", "glibc.pthread.stack_cache_size=0", 1);
		if (preload)
			setenv("LD_PRELOAD", preload, 1);
		else
			unsetenv("LD_PRELOAD");
		execl(path, program, arg, NULL);
		perror(path);
		_exit(127);
	}
	close(ends[1]);
	while ((got = read(ends[0], text + bytes, (1 << 17) - 1 - bytes)) > 0)
		bytes += (size_t)got;
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (status != 0)
		fail_msg("%s %s: wait status %x, printed: %s", program, arg ? arg : "", status, text);
	return text;
}

static void compare_answers(const char *program, const char *arg, rlim_t stack_limit)
{
	char *plain = output_of(program, arg, NULL, stack_limit);
	char *preloaded = output_of(program, arg, getenv("LD_PRELOAD"), stack_limit);
	char *plain_save, *preloaded_save;
	const char *a = strtok_r(plain, "\n", &plain_save), *b = strtok_r(preloaded, "\n", &preloaded_save);

	/* Line by line, so that a difference can be read. */
	for (; a && b; a = strtok_r(NULL, "\n", &plain_save), b = strtok_r(NULL, "\n", &preloaded_save))
		assert_string_equal(a, b);
	assert_null(a);
	assert_null(b);
	free(plain);
	free(preloaded);
}

static void answers_are_those_of_the_c_library(void **state)
{
	(void)state;
	compare_answers("stack_answers", NULL, 0);
}

static void answers_with_large_tls_too(void **state)
{
	(void)state;
	compare_answers("stack_answers_tls", NULL, 0);
}

static void default_size_follows_the_limit(void **state)
{
	(void)state;
	compare_answers("stack_answers", "--default", 0);
	compare_answers("stack_answers", "--default", (rlim_t)512 << 20);
	compare_answers("stack_answers", "--default", RLIM_INFINITY);
	compare_answers("stack_answers", "--default", 100 << 10);
}

static void locked_memory_allows_what_it_did(void **state)
{
	(void)state;
	if (geteuid() != 0) {
		fprintf(stderr, "skip locked_memory_allows_what_it_did: only root can become another user\n");
		skip();
	}
	compare_answers("stack_answers", "--locked", 0);
}

/* A copy that asks for executable stacks, as objects with trampolines do. */
static void make_exec_stack_copy(const char *original, const char *copy)
{
	char *image;
	size_t bytes;
	Elf64_Ehdr *header;
	Elf64_Phdr *segments;
	FILE *file;

	image = malloc(16 << 20);
	assert_non_null(image);
	file = fopen(original, "re");
	assert_non_null(file);
	bytes = fread(image, 1, 16 << 20, file);
	fclose(file);
	header = (Elf64_Ehdr *)image;
	segments = (Elf64_Phdr *)(image + header->e_phoff);
	for (int i = 0; i < header->e_phnum; i++)
		if (segments[i].p_type == PT_GNU_STACK)
			segments[i].p_flags |= PF_X;
	file = fopen(copy, "we");
	assert_non_null(file);
	assert_int_equal(fwrite(image, 1, bytes, file), bytes);
	fclose(file);
	free(image);
	assert_int_equal(chmod(copy, 0700), 0);
}

static void executable_stacks_stay_executable(void **state)
{
	char copy[PATH_MAX], original[512];
	char *text;

	(void)state;
	snprintf(original, sizeof(original), "%s/tests/alloc/stack_answers", out_dir);
	close(scratch__file(copy));
	make_exec_stack_copy(original, copy);
	text = output_of(copy, "--code", getenv("LD_PRELOAD"), 0);
	unlink(copy);
	assert_string_equal(text, "code on a stack: create=0 join=0 result=42\n");
	free(text);
}

/* A library that is loaded later makes all stacks of later threads executable. */
static void executable_stacks_by_dlopen(void **state)
{
	char copy[PATH_MAX], arg[PATH_MAX + 8];
	char *text;
	Dl_info info;

	(void)state;
	assert_true(dladdr(dlsym(dlopen("libm.so.6", RTLD_NOW), "cbrt"), &info));
	close(scratch__file(copy));
	make_exec_stack_copy(info.dli_fname, copy);
	snprintf(arg, sizeof(arg), "--code=%s", copy);
	text = output_of("stack_answers", arg, getenv("LD_PRELOAD"), 0);
	unlink(copy);
	assert_non_null(strstr(text, "\ncode on a stack: create=0 join=0 result=42\n"));
	free(text);
}

/* --- Policy and cache ------------------------------------------------------- */

static void calls_by_policy(void **state)
{
	uint64_t mapped = calls(ATM_KIND_MMAP_STACK), guarded = calls(ATM_KIND_MPROTECT_GUARD);

	(void)state;
	set_tune("stack_cache=0");
	set_policy(POLICY_ALL);
	for (int i = 0; i < 7; i++)
		create_and_join(86016, 1 << 20);
	assert_int_equal(calls(ATM_KIND_MMAP_STACK) - mapped, 7);
	assert_int_equal(calls(ATM_KIND_MPROTECT_GUARD) - guarded, 0);
	set_policy(POLICY_ALL & ~POLICY_STACK);
	for (int i = 0; i < 7; i++)
		create_and_join(86016, 1 << 20);
	assert_int_equal(calls(ATM_KIND_MMAP_STACK) - mapped, 14);
	assert_int_equal(calls(ATM_KIND_MPROTECT_GUARD) - guarded, 7);
	/* Without a guard there is nothing to protect, whatever the policy. */
	for (int i = 0; i < 7; i++)
		create_and_join(86016, 0);
	assert_int_equal(calls(ATM_KIND_MMAP_STACK) - mapped, 21);
	assert_int_equal(calls(ATM_KIND_MPROTECT_GUARD) - guarded, 7);
}

static void only_exact_matches_are_reused(void **state)
{
	uint64_t mapped = calls(ATM_KIND_MMAP_STACK);

	(void)state;
	for (int i = 0; i < 10; i++)
		create_and_join(65536, 4096);
	assert_int_equal(calls(ATM_KIND_MMAP_STACK) - mapped, 1);
	create_and_join(65536, 8192);
	create_and_join(65536 + 4096, 4096);
	create_and_join(65536 - 4096, 8192); /* the same mapping, another guard */
	assert_int_equal(calls(ATM_KIND_MMAP_STACK) - mapped, 4);
	create_and_join(65536 - 100, 4095); /* rounds to the first */
	create_and_join(65536, 4096);
	create_and_join(65536, 8192);
	assert_int_equal(calls(ATM_KIND_MMAP_STACK) - mapped, 4);
}

static void cache_keeps_its_limit(void **state)
{
	enum { CNT = 100 };
	pthread_t threads[CNT];
	uint64_t unmapped;
	int before = count_maps(), cached_cnt = 4;

	(void)state;
	/* 1 MiB of each stack in 4 MiB + a page of cache: 4 fit. */
	set_tune("stack_cache=4200K");
	for (int i = 0; i < CNT; i++)
		assert_int_equal(
			create(&threads[i], (1 << 20) - 4096, 4096, PTHREAD_CREATE_JOINABLE, return_at_once, NULL), 0);
	unmapped = calls(ATM_KIND_MUNMAP);
	for (int i = 0; i < CNT; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_true(calls(ATM_KIND_MUNMAP) - unmapped >= (uint64_t)(CNT - cached_cnt));
	assert_in_range(count_maps(), 0, before + 2 * cached_cnt + SLACK_LINES);
	malloc_trim(0);
	assert_in_range(count_maps(), 0, before + SLACK_LINES);
}

/* 10,000 threads, 200 at a time, of every way to end. */
static void churn(void *(*start)(void *), int detach_state, bool cancels)
{
	enum { BATCH = 200, BATCHES = 50 };
	const size_t map_bytes = (256 << 10) + 4096;
	pthread_t threads[BATCH];
	int before = count_maps();

	for (int batch = 0; batch < BATCHES; batch++) {
		for (int i = 0; i < BATCH; i++)
			assert_int_equal(create(&threads[i], map_bytes - 4096, 4096, detach_state, start, NULL), 0);
		for (int i = 0; i < BATCH && cancels; i++)
			assert_int_equal(pthread_cancel(threads[i]), 0);
		for (int i = 0; i < BATCH && detach_state == PTHREAD_CREATE_JOINABLE && start != detach_self; i++)
			assert_int_equal(pthread_join(threads[i], NULL), 0);
	}
	wait_for_threads();
	create_and_join(65536, 4096); /* what ended in the background is looked at now */
	assert_in_range(count_maps(), 0, before + 2 * (int)(CACHE_BYTES / map_bytes) + SLACK_LINES);
	malloc_trim(0);
	assert_in_range(count_maps(), 0, before + SLACK_LINES);
}

static void joined_threads_return_their_stacks(void **state)
{
	(void)state;
	churn(return_at_once, PTHREAD_CREATE_JOINABLE, false);
	churn(exit_at_once, PTHREAD_CREATE_JOINABLE, false);
}

static void detached_threads_return_their_stacks(void **state)
{
	(void)state;
	churn(return_at_once, PTHREAD_CREATE_DETACHED, false);
	churn(exit_at_once, PTHREAD_CREATE_DETACHED, false);
}

static void threads_that_detach_themselves_return_their_stacks(void **state)
{
	(void)state;
	churn(detach_self, PTHREAD_CREATE_JOINABLE, false);
}

static void cancelled_threads_return_their_stacks(void **state)
{
	(void)state;
	churn(sleep_forever, PTHREAD_CREATE_JOINABLE, true);
}

static void detached_by_another(void **state)
{
	int before = count_maps();

	(void)state;
	for (int i = 0; i < 2000; i++) {
		pthread_t thread;

		assert_int_equal(create(&thread, 65536, 4096, PTHREAD_CREATE_JOINABLE, return_at_once, NULL), 0);
		if (i % 3 == 0)
			usleep(100); /* it has ended already */
		assert_int_equal(pthread_detach(thread), 0);
	}
	wait_for_threads();
	malloc_trim(0);
	assert_in_range(count_maps(), 0, before + SLACK_LINES);
}

/* A failing creation leaves nothing mapped and the attributes alone. */
static void failures_leave_nothing(void **state)
{
	int before = count_maps();
	pthread_attr_t attr;
	pthread_t thread;
	cpu_set_t cpus;

	(void)state;
	CPU_ZERO(&cpus);
	CPU_SET(CPU_SETSIZE - 1, &cpus);
	pthread_attr_init(&attr);
	pthread_attr_setaffinity_np(&attr, sizeof(cpus), &cpus);
	for (int i = 0; i < 300; i++)
		assert_int_not_equal(pthread_create(&thread, &attr, return_at_once, NULL), 0);
	pthread_attr_destroy(&attr);
	for (int i = 0; i < 300; i++)
		assert_int_equal(create(&thread, (size_t)1 << 46, 4096, PTHREAD_CREATE_JOINABLE, return_at_once, NULL),
				 EAGAIN);
	malloc_trim(0);
	assert_in_range(count_maps(), 0, before + SLACK_LINES);
}

/* --- The caller's own stack --------------------------------------------------- */

static int lines_within(const char *from, size_t bytes)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uintptr_t start, end, low = (uintptr_t)from;
	char line[512];
	int lines = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx", &start, &end) == 2 && start < low + bytes && end > low)
			lines++;
	fclose(maps);
	return lines;
}

static void own_stacks_are_left_alone(void **state)
{
	const size_t bytes = 1 << 20, page = 4096;
	uint64_t mapped = calls(ATM_KIND_MMAP_STACK), guarded = calls(ATM_KIND_MPROTECT_GUARD);
	char *own;
	pthread_attr_t attr;
	pthread_t thread;

	(void)state;
	/* A page without access on both sides, so that the mapping stands alone. */
	own = mmap(NULL, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(own != MAP_FAILED);
	own += page;
	assert_int_equal(mprotect(own, bytes, PROT_READ | PROT_WRITE), 0);
	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, own, bytes);
	pthread_attr_setguardsize(&attr, 65536);
	for (int i = 0; i < 4; i++) {
		set_policy(i % 2 ? POLICY_ALL : POLICY_NONE);
		memset(own, 0x5a, bytes / 2);
		pthread_attr_setdetachstate(&attr, i < 2 ? PTHREAD_CREATE_JOINABLE : PTHREAD_CREATE_DETACHED);
		assert_int_equal(pthread_create(&thread, &attr, return_at_once, own), 0);
		if (i < 2)
			assert_int_equal(pthread_join(thread, NULL), 0);
		wait_for_threads();
		malloc_trim(0);
		for (size_t at = 0; at < bytes / 2; at++)
			assert_int_equal(own[at], 0x5a);
		assert_int_equal(lines_within(own, bytes), 1);
	}
	assert_int_equal(calls(ATM_KIND_MMAP_STACK) - mapped, 0);
	assert_int_equal(calls(ATM_KIND_MPROTECT_GUARD) - guarded, 0);
	pthread_attr_destroy(&attr);
	munmap(own - page, bytes + 2 * page);
}

/* --- Guards ------------------------------------------------------------------- */

static void *overflow(void *arg)
{
	pthread_attr_t attr;
	char *base;
	size_t bytes;

	pthread_getattr_np(pthread_self(), &attr);
	pthread_attr_getstack(&attr, (void **)&base, &bytes);
	*(volatile char *)base = 1; /* the last usable byte */
	if (write(*(int *)arg, "u", 1) != 1)
		_exit(3);
	*(volatile char *)(base - 1) = 1;
	_exit(4);
}

static void overflows_hit_the_guard(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		int ends[2], status;
		pthread_t thread;
		char byte = 0;
		pid_t child;

		assert_int_equal(pipe(ends), 0);
		child = fork();
		if (child == 0) {
			signal(SIGSEGV, SIG_DFL);
			set_policy(i % 2 ? POLICY_ALL : POLICY_NONE);
			if (i >= 2) /* a reused stack, mapped under the other setting */
				create_and_join(65536, 4096);
			set_policy(i % 2 ? POLICY_NONE : POLICY_ALL);
			create(&thread, 65536, 4096, PTHREAD_CREATE_JOINABLE, overflow, &ends[1]);
			pthread_join(thread, NULL);
			_exit(5);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(read(ends[0], &byte, 1), 1);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGSEGV);
		close(ends[0]);
		close(ends[1]);
	}
}

/* What lies directly below `addr`: "---p" for a guard; "" for nothing. */
static void get_protection_below(const char *addr, char protection[5])
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uintptr_t start, end;
	char line[512], found[5];

	assert_non_null(maps);
	protection[0] = '\0';
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %4s", &start, &end, found) == 3 && end == (uintptr_t)addr)
			strcpy(protection, found);
	fclose(maps);
}

/* Neighbours must not merge into one mapping, nor fill huge pages (openjdk/jdk#14105). */
static void every_stack_has_a_guard_of_its_own(void **state)
{
	enum { CNT = 50 };
	pthread_t threads[CNT];

	(void)state;
	for (int i = 0; i < CNT; i++) {
		set_policy(i % 3 ? POLICY_ALL : POLICY_NONE);
		assert_int_equal(create(&threads[i], 2 << 20, 4096, PTHREAD_CREATE_JOINABLE, sleep_forever, NULL), 0);
	}
	for (int i = 0; i < CNT; i++) {
		pthread_attr_t attr;
		char *base, protection[5];
		size_t bytes;

		assert_int_equal(pthread_getattr_np(threads[i], &attr), 0);
		pthread_attr_getstack(&attr, (void **)&base, &bytes);
		pthread_attr_destroy(&attr);
		assert_int_equal(lines_within(base, bytes), 1);
		get_protection_below(base, protection);
		assert_string_equal(protection, "---p");
	}
	for (int i = 0; i < CNT; i++) {
		assert_int_equal(pthread_cancel(threads[i]), 0);
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	}
}

/* --- Many threads, changing policies, fork, exit ------------------------------ */

static atomic_bool is_stopping;

static void *create_many(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	long created_cnt = 0;

	while (!atomic_load(&is_stopping)) {
		size_t stack_bytes = ((size_t)rand_r(&seed) % 8 + 8) * 4096,
		       guard_bytes = (size_t)rand_r(&seed) % 3 * 4096;
		bool is_detached = rand_r(&seed) % 2;
		pthread_t thread;

		if (create(&thread, stack_bytes, guard_bytes,
			   is_detached ? PTHREAD_CREATE_DETACHED : PTHREAD_CREATE_JOINABLE, return_at_once, NULL))
			abort();
		if (!is_detached && pthread_join(thread, NULL))
			abort();
		created_cnt++;
	}
	return (void *)created_cnt;
}

static void run_creators(void (*meanwhile)(void))
{
	enum { CNT = 3 };
	pthread_t threads[CNT];
	int before = count_maps();
	void *created_cnt;

	atomic_store(&is_stopping, false);
	for (int i = 0; i < CNT; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, create_many, (void *)(uintptr_t)(i + 1)), 0);
	meanwhile();
	atomic_store(&is_stopping, true);
	for (int i = 0; i < CNT; i++) {
		assert_int_equal(pthread_join(threads[i], &created_cnt), 0);
		assert_true((long)created_cnt > 0);
	}
	wait_for_threads();
	malloc_trim(0);
	assert_in_range(count_maps(), 0, before + SLACK_LINES);
}

static void flip_policies(void)
{
	for (int i = 0; i < 2000; i++) {
		set_policy((uint32_t)i % (POLICY_ALL + 1));
		if (i % 100 == 0)
			set_tune(i % 200 ? "stack_cache=0" : "stack_cache=1M");
		if (i % 50 == 0)
			malloc_trim(0);
		usleep(100);
	}
}

static void policy_flips_while_threads_come_and_go(void **state)
{
	(void)state;
	run_creators(flip_policies);
}

/* What a forked child does: its parent's threads are gone, new ones work. */
static void use_threads_in_child(void)
{
	pthread_t thread;
	void *result;

	alarm(20);
	for (int i = 0; i < 5; i++) {
		if (create(&thread, 65536, 4096, PTHREAD_CREATE_JOINABLE, return_at_once, &thread))
			_exit(2);
		if (pthread_join(thread, &result) || result != &thread)
			_exit(3);
		if (create(&thread, 65536, 4096, PTHREAD_CREATE_DETACHED, return_at_once, NULL))
			_exit(4);
	}
	malloc_trim(0);
	_exit(0);
}

static void fork_and_wait(int cnt)
{
	for (int i = 0; i < cnt; i++) {
		int status = 0;
		pid_t child = fork();

		if (child == 0)
			use_threads_in_child();
		if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
			fprintf(stderr, "child %d of a fork: wait status %x\n", i, status);
			abort();
		}
	}
}

static void *fork_in_thread(void *arg)
{
	fork_and_wait(100);
	return arg;
}

static void fork_from_main_and_thread(void)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, fork_in_thread, NULL), 0);
	fork_and_wait(100);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void fork_while_threads_come_and_go(void **state)
{
	(void)state;
	run_creators(fork_from_main_and_thread);
}

/* As with the C library's own stacks, joining what a fork left behind returns. */
static void orphans_can_be_joined_in_the_child(void **state)
{
	pthread_t waiting, ended;
	int status;
	pid_t child;

	(void)state;
	assert_int_equal(pthread_create(&waiting, NULL, sleep_forever, NULL), 0);
	assert_int_equal(pthread_create(&ended, NULL, return_at_once, NULL), 0);
	child = fork();
	if (child == 0) {
		alarm(10);
		if (pthread_join(waiting, NULL) || pthread_join(ended, NULL))
			_exit(2);
		use_threads_in_child();
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(pthread_cancel(waiting), 0);
	assert_int_equal(pthread_join(waiting, NULL), 0);
	assert_int_equal(pthread_join(ended, NULL), 0);
}

static void *end_the_process(void *arg)
{
	/* The main thread is a zombie by then. */
	usleep(20000);
	for (int i = 0; i < 50; i++) {
		pthread_t thread;

		if (create(&thread, 65536, 4096, PTHREAD_CREATE_JOINABLE, return_at_once, NULL) ||
		    pthread_join(thread, NULL))
			_exit(2);
		if (create(&thread, 65536, 4096, PTHREAD_CREATE_DETACHED, return_at_once, NULL))
			_exit(3);
	}
	_exit(*(int *)arg);
}

static void main_may_exit_before_its_threads(void **state)
{
	static int code = 42;
	pthread_t thread;
	int status;
	pid_t child = fork();

	(void)state;
	if (child == 0) {
		alarm(10);
		pthread_create(&thread, NULL, end_the_process, &code);
		pthread_exit(NULL);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), code);
}

static void *exec_true(void *arg)
{
	execl("/bin/true", "true", NULL);
	_exit(*(int *)arg);
}

static void a_thread_may_exec(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		static int code = 9;
		pthread_t thread;
		int status;
		pid_t child = fork();

		if (child == 0) {
			alarm(10);
			pthread_create(&thread, NULL, sleep_forever, NULL);
			pthread_create(&thread, NULL, exec_true, &code);
			sleep_forever(NULL);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, reset)
	const struct CMUnitTest tests[] = {
		TEST(answers_are_those_of_the_c_library),
		TEST(answers_with_large_tls_too),
		TEST(default_size_follows_the_limit),
		TEST(locked_memory_allows_what_it_did),
		TEST(executable_stacks_stay_executable),
		TEST(executable_stacks_by_dlopen),
		TEST(calls_by_policy),
		TEST(only_exact_matches_are_reused),
		TEST(cache_keeps_its_limit),
		TEST(joined_threads_return_their_stacks),
		TEST(detached_threads_return_their_stacks),
		TEST(threads_that_detach_themselves_return_their_stacks),
		TEST(cancelled_threads_return_their_stacks),
		TEST(detached_by_another),
		TEST(failures_leave_nothing),
		TEST(own_stacks_are_left_alone),
		TEST(overflows_hit_the_guard),
		TEST(every_stack_has_a_guard_of_its_own),
		TEST(policy_flips_while_threads_come_and_go),
		TEST(fork_while_threads_come_and_go),
		TEST(orphans_can_be_joined_in_the_child),
		TEST(main_may_exit_before_its_threads),
		TEST(a_thread_may_exec),
	};

	return cmocka_run_group_tests(tests, find_library, NULL);
}
