/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A target whose charges to the commit account are known: commit_calls PATTERN FD
 * [N]. The pattern's calls are made between the phase markers. Just before and
 * after them it sums the accounted mappings of its own /proc/self/smaps, without
 * any memory call, and leaves the two sums, in pages, in the file FD. Exits with
 * 0, or 1 when a call did not do what was planned.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/trace/phases.h"

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define PAGE 4096ul
#define MIB (1ul << 20)

static char *self, *area, *other;
static int file, thread_cnt;
static long n;

static char *map(void *at, size_t bytes, int prot, int flags, int fd)
{
	char *mem = (char *)syscall(SYS_mmap, at, bytes, prot, flags, fd, 0);

	expect(mem != MAP_FAILED);
	return mem;
}

static void unmap(void *at, size_t bytes)
{
	expect(!syscall(SYS_munmap, at, bytes));
}

static void protect(void *at, size_t bytes, int prot)
{
	expect(!syscall(SYS_mprotect, at, bytes, prot));
}

/* Pages of the mappings whose VmFlags have "ac". */
static uint64_t accounted_pages(void)
{
	static char text[1 << 16];
	uint64_t sum = 0, pages = 0;
	size_t used = 0;
	ssize_t got;
	int fd = open("/proc/self/smaps", O_RDONLY);

	while ((got = read(fd, text + used, sizeof(text) - 1 - used)) > 0) {
		char *line = text, *end;

		text[used + got] = '\0';
		for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
			*end = '\0';
			if (!strncmp(line, "Size:", 5))
				pages = strtoull(line + 5, NULL, 10) * 1024 / PAGE;
			if (!strncmp(line, "VmFlags:", 8) && strstr(line, " ac"))
				sum += pages;
		}
		used = strlen(line);
		memmove(text, line, used);
	}
	close(fd);
	return sum;
}

static void setup_rw(void)
{
	area = map(NULL, n * MIB, RW, ANON, -1);
}

static void setup_none(void)
{
	area = map(NULL, n * MIB, PROT_NONE, ANON, -1);
}

static void setup_touched(void)
{
	setup_rw();
	area[n * MIB / 2] = 1;
}

static void do_rw(void)
{
	setup_rw();
}

static void do_none(void)
{
	setup_none();
}

static void do_noreserve(void)
{
	map(NULL, n * MIB, RW, ANON | MAP_NORESERVE, -1);
}

static void do_shared(void)
{
	map(NULL, n * MIB, RW, MAP_SHARED | MAP_ANONYMOUS, -1);
	map(NULL, n * MIB, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1);
}

static void do_to_rw(void)
{
	protect(area, n * MIB, RW);
}

static void do_to_none(void)
{
	protect(area, n * MIB, PROT_NONE);
}

static void do_dontneed(void)
{
	expect(!syscall(SYS_madvise, area, n * MIB, MADV_DONTNEED));
}

static void do_fixed_none(void)
{
	map(area, n * MIB, PROT_NONE, ANON | MAP_FIXED, -1);
}

/* Half of it lies on what is charged already. */
static void do_fixed_rw(void)
{
	map(area, n * MIB / 2, RW, ANON | MAP_FIXED, -1);
}

static void do_shrink(void)
{
	expect((char *)syscall(SYS_mremap, area, n * MIB, n * MIB / 2, 0) == area);
}

static void do_grow(void)
{
	expect(syscall(SYS_mremap, area, n * MIB, 2 * n * MIB, MREMAP_MAYMOVE) != -1);
}

static void setup_two(void)
{
	setup_rw();
	other = map(NULL, n * MIB, RW, ANON, -1);
}

/* What lies at the new place, half as large, is given back. */
static void do_move_over(void)
{
	expect((char *)syscall(SYS_mremap, area, n * MIB / 2, n * MIB / 2, MREMAP_MAYMOVE | MREMAP_FIXED, other) ==
	       other);
}

static void do_grow_none(void)
{
	expect(syscall(SYS_mremap, area, n * MIB, 2 * n * MIB, MREMAP_MAYMOVE) != -1);
}

static void do_tail(void)
{
	unmap(area + 3 * n * MIB / 4, n * MIB / 4);
}

/* Every second page is charged, every fourth a hole. */
static void setup_comb(void)
{
	area = map(NULL, n * 4 * PAGE, PROT_NONE, ANON, -1);
	for (long i = 0; i < n; i++) {
		protect(area + i * 4 * PAGE, PAGE, RW);
		protect(area + (i * 4 + 2) * PAGE, PAGE, RW);
		unmap(area + (i * 4 + 3) * PAGE, PAGE);
	}
}

static void do_uncomb(void)
{
	unmap(area, n * 4 * PAGE);
}

static void do_comb_rw(void)
{
	/* Fails at the first hole, after it has changed what is before. */
	expect(syscall(SYS_mprotect, area, n * 4 * PAGE, RW) == -1 && errno == ENOMEM);
}

static void do_brk(void)
{
	uint64_t old_brk = syscall(SYS_brk, 0);

	expect((uint64_t)syscall(SYS_brk, old_brk + n * MIB) == old_brk + n * MIB);
	expect((uint64_t)syscall(SYS_brk, old_brk + n * MIB / 4) == old_brk + n * MIB / 4);
}

static void do_file(void)
{
	char *mem = map(NULL, 7 * PAGE, PROT_READ, MAP_PRIVATE, file);

	map(NULL, 11 * PAGE, RW, MAP_PRIVATE, file);
	protect(mem, 5 * PAGE, RW);
}

/* Calls that fail change nothing. */
static void do_fail(void)
{
	struct rlimit limit = {256 * MIB, 256 * MIB};

	expect(!setrlimit(RLIMIT_AS, &limit));
	for (int i = 0; i < 100; i++) {
		expect(syscall(SYS_mmap, NULL, 1024 * MIB, RW, ANON, -1, 0) == -1 && errno == ENOMEM);
		expect(syscall(SYS_munmap, area, (size_t)-4096) == -1);
		expect(syscall(SYS_munmap, area + 1, PAGE) == -1);
		expect(syscall(SYS_mremap, area, n * MIB, 1024 * MIB, MREMAP_MAYMOVE) == -1);
	}
	for (int i = 0; i < 10; i++)
		map(NULL, MIB, RW, ANON, -1);
}

static void do_stack(void)
{
	volatile char deep[1 << 20];

	for (size_t i = sizeof(deep); i > 0; i -= PAGE)
		deep[i - 1] = 1;
	unmap(map(NULL, PAGE, PROT_NONE, ANON, -1), PAGE);
}

static void do_fork(void)
{
	int status = 1;
	pid_t pid;

	for (long i = 0; i < n; i++) {
		pid = (pid_t)syscall(SYS_fork);
		if (!pid)
			syscall(SYS_exit_group, 0);
		expect(waitpid(pid, &status, 0) == pid && !status);
	}
}

/* The child of a vfork maps in its parent's memory. */
static void do_vfork(void)
{
	int status = 1;
	pid_t pid = vfork();

	if (!pid) {
		syscall(SYS_mmap, NULL, n * MIB, RW, ANON, -1, 0);
		syscall(SYS_exit_group, 0);
	}
	expect(waitpid(pid, &status, 0) == pid && !status);
}

static void spawn(void)
{
	int status = 1;
	pid_t pid = vfork();

	if (!pid) {
		execl(self, self, "nothing", "-1", NULL);
		_exit(127);
	}
	expect(waitpid(pid, &status, 0) == pid && !status);
}

static void do_spawn(void)
{
	for (long i = 0; i < n; i++)
		spawn();
}

static void *storm(void *bytes)
{
	for (long i = 0; i < n; i++) {
		char *mem = map(NULL, (size_t)bytes, RW, ANON, -1);

		unmap(mem, (size_t)bytes);
	}
	return NULL;
}

static void *storm_none(void *bytes)
{
	for (long i = 0; i < n; i++) {
		char *mem = map(NULL, (size_t)bytes, PROT_NONE, ANON, -1);

		unmap(mem, (size_t)bytes);
	}
	return NULL;
}

/* Threads that start together, between the markers, on stacks that they had before. */
static pthread_barrier_t start_barrier, end_barrier;
static void *(*work)(void *);
static size_t work_bytes;
static pthread_t threads[64];

static void *worker(void *arg)
{
	(void)arg;
	pthread_barrier_wait(&start_barrier);
	work((void *)work_bytes);
	pthread_barrier_wait(&end_barrier);
	pause();
	return NULL;
}

static void setup_threads(void)
{
	pthread_barrier_init(&start_barrier, NULL, thread_cnt + 1);
	pthread_barrier_init(&end_barrier, NULL, thread_cnt + 1);
	for (int i = 0; i < thread_cnt; i++)
		expect(!pthread_create(&threads[i], NULL, worker, NULL));
}

static void do_threads(void)
{
	pthread_barrier_wait(&start_barrier);
	pthread_barrier_wait(&end_barrier);
}

static void do_large(void)
{
	storm((void *)(128 * MIB));
}

static void do_small(void)
{
	storm((void *)(64 << 10));
}

static void setup_storm(void)
{
	work = storm;
	work_bytes = 128 * MIB;
	setup_threads();
}

static void setup_storm_none(void)
{
	work = storm_none;
	work_bytes = 128 * MIB;
	setup_threads();
}

static void setup_storm_small(void)
{
	work = storm;
	work_bytes = 64 << 10;
	setup_threads();
}

/* One page of two becomes inaccessible: two VMAs more each time, one the last time. Nothing merges at the ends. */
static void setup_pages(void)
{
	area = map(NULL, (2 * n + 2) * PAGE, PROT_READ, ANON, -1) + PAGE;
	protect(area, 2 * n * PAGE, RW);
}

static void do_split(void)
{
	for (long i = 0; i < n; i++)
		protect(area + (2 * i + 1) * PAGE, PAGE, PROT_NONE);
}

/* As many as the kernel allows; the first call that fails ends it. */
static void do_exhaust(void)
{
	for (long i = 0; i < n; i++)
		if (syscall(SYS_mprotect, area + (2 * i + 1) * PAGE, PAGE, PROT_NONE)) {
			expect(errno == ENOMEM);
			return;
		}
	expect(0);
}

/* 84 KiB live, 8 KiB released by mapping over them. */
static void do_decommit(void)
{
	for (size_t at = 84 << 10; at + (8 << 10) <= n * MIB; at += 92 << 10)
		map(area + at, 8 << 10, PROT_NONE, ANON | MAP_FIXED, -1);
}

static void do_decommit_advice(void)
{
	for (size_t at = 84 << 10; at + (8 << 10) <= n * MIB; at += 92 << 10)
		expect(!syscall(SYS_madvise, area + at, 8 << 10, MADV_DONTNEED));
}

static void nothing(void) {}

static const struct {
	const char *name;
	void (*setup)(void);
	void (*calls)(void);
} patterns[] = {
	{"nothing", nothing, nothing},
	{"rw", nothing, do_rw},
	{"none", nothing, do_none},
	{"noreserve", nothing, do_noreserve},
	{"shared", nothing, do_shared},
	{"none-rw", setup_none, do_to_rw},
	{"rw-rw", setup_rw, do_to_rw},
	{"rw-none", setup_rw, do_to_none},
	{"touched-none", setup_touched, do_to_none},
	{"dontneed", setup_touched, do_dontneed},
	{"fixed-none", setup_rw, do_fixed_none},
	{"fixed-rw", setup_rw, do_fixed_rw},
	{"fixed-on-none", setup_none, do_fixed_rw},
	{"shrink", setup_rw, do_shrink},
	{"grow", setup_rw, do_grow},
	{"grow-none", setup_none, do_grow_none},
	{"move-over", setup_two, do_move_over},
	{"tail", setup_rw, do_tail},
	{"comb", setup_comb, do_uncomb},
	{"comb-rw", setup_comb, do_comb_rw},
	{"brk", nothing, do_brk},
	{"file", nothing, do_file},
	{"fail", setup_rw, do_fail},
	{"stack", nothing, do_stack},
	{"fork", nothing, do_fork},
	{"vfork", nothing, do_vfork},
	{"spawn", nothing, do_spawn},
	{"large", nothing, do_large},
	{"small", nothing, do_small},
	{"storm", setup_storm, do_threads},
	{"storm-none", setup_storm_none, do_threads},
	{"storm-small", setup_storm_small, do_threads},
	{"split", setup_pages, do_split},
	{"exhaust", setup_pages, do_exhaust},
	{"decommit", setup_rw, do_decommit},
	{"decommit-advice", setup_rw, do_decommit_advice},
};

int main(int argc, char **argv)
{
	uint64_t sums[2] = {0};
	int fd = argc > 2 ? atoi(argv[2]) : -1;

	self = argv[0];
	n = argc > 3 ? atol(argv[3]) : 1;
	thread_cnt = argc > 4 ? atoi(argv[4]) : 0;
	file = open(argv[0], O_RDONLY);
	for (size_t i = 0; argc > 2 && i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		if (strcmp(argv[1], patterns[i].name) != 0)
			continue;
		accounted_pages();
		patterns[i].setup();
		sums[0] = accounted_pages();
		mark(1);
		patterns[i].calls();
		mark(2);
		sums[1] = accounted_pages();
		if (fd >= 0)
			expect(pwrite(fd, sums, sizeof(sums), 0) == sizeof(sums));
		/* Held alive by a lock on the file, if somebody has one. */
		if (fd >= 0)
			expect(!lockf(fd, F_LOCK, 0));
		_exit(failed);
	}
	return 2;
}
