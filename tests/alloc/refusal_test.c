/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel refuses munmap, mprotect, madvise, mremap or mmap (a seccomp
 * filter that answers ENOMEM): nothing is lost, free keeps errno (B41), a
 * reservation stays one (A29), memory that could not go serves again.
 */
#include "tests/alloc/preload.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static const size_t sizes[] = {24, 1000, 4096, 5000, 20000, 100000, 600000, 1 << 20, 2 << 20, 8 << 20, (12 << 20) + 1};
#define SIZE_CNT (sizeof(sizes) / sizeof(*sizes))

/* From here on the process's calls of this number end with ENOMEM. */
static void refuse(unsigned nr)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(filter) / sizeof(*filter), .filter = filter};

	CHILD_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHILD_CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void fill(unsigned char *p, size_t bytes, unsigned char with)
{
	for (size_t i = 0; i < bytes; i += i + 509 < bytes || i + 1 == bytes ? 509 : bytes - 1 - i)
		p[i] = with;
}

static bool is_full_of(const unsigned char *p, size_t bytes, unsigned char with)
{
	for (size_t i = 0; i < bytes; i += 509)
		if (p[i] != with)
			return false;
	return p[bytes - 1] == with;
}

static void free_keeping_errno(void *p)
{
	errno = 4711;
	free(p);
	CHILD_CHECK(errno == 4711);
}

/* The policies in force, and the call that is refused. */
struct refusal {
	const char *policy;
	unsigned nr;
};

/* Frees, shrinks and grows in every size, then requests again: all contents right, all errno kept. */
static void use_all(void *arg)
{
	const struct refusal *refusal = arg;
	unsigned char *freed[SIZE_CNT], *shrunk[SIZE_CNT], *grown[SIZE_CNT], *p;

	CHILD_CHECK(preload.set_policy(refusal->policy) == 0);
	for (size_t i = 0; i < SIZE_CNT; i++) {
		freed[i] = malloc(sizes[i]);
		shrunk[i] = malloc(sizes[i]);
		grown[i] = malloc(sizes[i]);
		CHILD_CHECK(freed[i] && shrunk[i] && grown[i]);
		fill(freed[i], sizes[i], 0xaa);
		fill(shrunk[i], sizes[i], 0xbb);
		fill(grown[i], sizes[i], 0xcc);
	}
	refuse(refusal->nr);
	for (size_t i = 0; i < SIZE_CNT; i++) {
		size_t less_bytes = sizes[i] / 3, more_bytes = sizes[i] + sizes[i] / 2;

		free_keeping_errno(freed[i]);
		p = realloc(shrunk[i], less_bytes);
		CHILD_CHECK(p && malloc_usable_size(p) >= less_bytes);
		CHILD_CHECK(is_full_of(p, 1, 0xbb) && p[less_bytes / 509 * 509] == 0xbb);
		fill(p, malloc_usable_size(p), 1); /* honest, too */
		free_keeping_errno(p);
		errno = 0;
		p = realloc(grown[i], more_bytes);
		CHILD_CHECK(p || errno == ENOMEM);
		CHILD_CHECK(is_full_of(p ? p : grown[i], sizes[i], 0xcc));
		free_keeping_errno(p ? p : grown[i]);
	}
	malloc_trim(0);
	for (size_t i = 0; i < SIZE_CNT; i++) {
		/* What could not be given back still holds the old contents. */
		p = calloc(1, sizes[i]);
		CHILD_CHECK(p || refusal->nr == SYS_mprotect || refusal->nr == SYS_mmap);
		for (size_t j = 0; p && j < sizes[i]; j += sizes[i] <= 8192 ? 1 : 509)
			CHILD_CHECK(p[j] == 0);
		free(p);
	}
}

static void every_call_may_be_refused(void **state)
{
	static const char *const policies[] = {"none", "all", "trim"};
	static const unsigned calls[] = {SYS_munmap, SYS_mprotect, SYS_madvise, SYS_mremap, SYS_mmap};

	(void)state;
	for (size_t i = 0; i < sizeof(policies) / sizeof(*policies); i++)
		for (size_t j = 0; j < sizeof(calls) / sizeof(*calls); j++) {
			struct refusal refusal = {policies[i], calls[j]};
			int status = child__run(use_all, &refusal);

			if (status)
				fail_msg("policies %s, syscall %u refused: status %#x", policies[i], calls[j], status);
		}
}

static size_t mapped_bytes(void)
{
	FILE *statm = fopen("/proc/self/statm", "re");
	size_t page_cnt = 0;

	CHILD_CHECK(statm && fscanf(statm, "%zu", &page_cnt) == 1);
	fclose(statm);
	return page_cnt * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t inaccessible_bytes(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long start, end;
	char line[512], mode[8];
	size_t sum = 0;

	CHILD_CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %7s", &start, &end, mode) == 3 && strcmp(mode, "---p") == 0)
			sum += end - start;
	fclose(maps);
	return sum;
}

/*
 * A29: what is reserved and cannot be committed stays reserved, and nothing was mapped over it. Blocks are mappings of
 * their own then, as far as the limit of address space allows.
 */
static void exhaust_committed(void *arg)
{
	static void *blocks[100000];
	uint64_t over_cnt = preload__calls(ATM_KIND_MMAP_FIXED);
	size_t cnt = 0, before_bytes;
	struct rlimit limit;

	(void)arg;
	free(malloc(1));
	limit.rlim_cur = limit.rlim_max = mapped_bytes() + (8 << 20);
	CHILD_CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	before_bytes = inaccessible_bytes();
	CHILD_CHECK(before_bytes > 1 << 20);
	refuse(SYS_mprotect);
	errno = 0;
	while (cnt < 100000 && (blocks[cnt] = malloc(1000)))
		cnt++;
	CHILD_CHECK(cnt < 100000 && errno == ENOMEM);
	CHILD_CHECK(inaccessible_bytes() >= before_bytes);
	CHILD_CHECK(preload__calls(ATM_KIND_MMAP_FIXED) == over_cnt);
	/* What there is can still be had. */
	for (size_t i = 0; i < cnt; i++)
		free_keeping_errno(blocks[i]);
	for (size_t i = 0; i < cnt; i++)
		CHILD_CHECK((blocks[i] = malloc(1000)));
}

static void refused_commit_keeps_the_reservation(void **state)
{
	(void)state;
	assert_int_equal(child__run(exhaust_committed, NULL), 0);
}

static void *return_arg(void *arg)
{
	return arg;
}

/* pthread_create says EAGAIN as the C library does, and works with a stack that is there. */
static void create_threads(void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;
	static _Alignas(4096) char stack[1 << 18];

	refuse(*(unsigned *)arg);
	CHILD_CHECK(pthread_create(&thread, NULL, return_arg, NULL) == EAGAIN);
	CHILD_CHECK(pthread_attr_init(&attr) == 0);
	CHILD_CHECK(pthread_attr_setstack(&attr, stack, sizeof(stack)) == 0);
	CHILD_CHECK(pthread_create(&thread, &attr, return_arg, NULL) == 0);
	CHILD_CHECK(pthread_join(thread, NULL) == 0);
}

static void refused_stacks(void **state)
{
	unsigned calls[] = {SYS_mmap, SYS_mprotect};

	(void)state;
	malloc_trim(0);
	assert_int_equal(child__run(create_threads, &calls[0]), 0);
	assert_int_equal(child__run(create_threads, &calls[1]), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_may_be_refused),
		cmocka_unit_test(refused_commit_keeps_the_reservation),
		cmocka_unit_test(refused_stacks),
	};

	return cmocka_run_group_tests(tests, preload__find, NULL);
}
