/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A target whose releases, refaults, stacks and waits are known: place_calls
 * PATTERN [N]. The pattern's calls are made between the phase markers, and what
 * it found out itself is printed as NAME=VALUE. Exits with 0, 1 when a call did not
 * do what was planned, or 77 when the machine cannot show it (and says why).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/trace/phases.h"

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define PAGE 4096ul
#define MIB (1ul << 20)

/* A prime, so that areas lie across whatever the tracer divides memory into. */
enum { AREA_PAGE_CNT = 37, THREAD_CNT = 8, STACK_PAGE_CNT = 61, STACK_TOUCH_CNT = 7 };

static long n;
static char *area;

static char *map(void *at, size_t bytes, int prot, int flags)
{
	char *mem = (char *)syscall(SYS_mmap, at, bytes, prot, flags, -1, 0);

	expect(mem != MAP_FAILED);
	return mem;
}

/* Without huge pages: a fault is a page. */
static char *map_area(void)
{
	char *mem = map(NULL, AREA_PAGE_CNT * PAGE, RW, ANON);

	return mem;
}

static void unmap(void *at, size_t bytes)
{
	expect(!syscall(SYS_munmap, at, bytes));
}

static void advise(void *at, size_t bytes, int advice)
{
	expect(!syscall(SYS_madvise, at, bytes, advice));
}

static void touch(char *mem, long page_cnt)
{
	for (long i = 0; i < page_cnt; i++)
		((volatile char *)mem)[i * PAGE] = 1;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* Releases and refaults */

static void setup_area(void)
{
	area = map_area();
}

static void setup_touched(void)
{
	setup_area();
	touch(area, AREA_PAGE_CNT);
}

static void do_dontneed(void)
{
	for (long i = 0; i < n; i++) {
		advise(area, AREA_PAGE_CNT * PAGE, MADV_DONTNEED);
		touch(area, AREA_PAGE_CNT);
	}
}

/* A page at a time, every second one, in no order of addresses; 18 of 37 come back. */
static void do_scattered(void)
{
	for (long i = 0; i < n; i++) {
		for (long j = 1; j < AREA_PAGE_CNT; j += 2)
			advise(area + j * 19 % AREA_PAGE_CNT * PAGE, PAGE, MADV_DONTNEED);
		touch(area, AREA_PAGE_CNT);
	}
}

/* What was never there is not released, and its first fault brings nothing back. */
static void do_untouched(void)
{
	for (long i = 0; i < n; i++)
		advise(area, AREA_PAGE_CNT * PAGE, MADV_DONTNEED);
	touch(area, AREA_PAGE_CNT);
}

/* A page that is read first and then written takes two faults and comes back once. */
static void do_read_write(void)
{
	for (long i = 0; i < n; i++) {
		advise(area, AREA_PAGE_CNT * PAGE, MADV_DONTNEED);
		for (long j = 0; j < AREA_PAGE_CNT; j++)
			(void)((volatile char *)area)[j * PAGE];
		touch(area, AREA_PAGE_CNT);
	}
}

static void do_free(void)
{
	for (long i = 0; i < n; i++) {
		advise(area, AREA_PAGE_CNT * PAGE, MADV_FREE);
		touch(area, AREA_PAGE_CNT);
	}
}

static void do_unmap(void)
{
	for (long i = 0; i < n; i++) {
		char *mem = map_area();

		touch(mem, AREA_PAGE_CNT);
		unmap(mem, AREA_PAGE_CNT * PAGE);
	}
}

/* The place is taken by something else: the next mapping of that size lies elsewhere. */
static void do_unmap_elsewhere(void)
{
	char *mem = map_area(), *next;

	touch(mem, AREA_PAGE_CNT);
	for (long i = 0; i < n; i++) {
		unmap(mem, AREA_PAGE_CNT * PAGE);
		map(mem, AREA_PAGE_CNT * PAGE, PROT_NONE, ANON | MAP_FIXED);
		next = map_area();
		expect(next != mem);
		touch(next, AREA_PAGE_CNT);
		mem = next;
	}
}

/* A mapping of another size does not stand for it. */
static void do_unmap_other_size(void)
{
	char *mem = map_area(), *next;

	touch(mem, AREA_PAGE_CNT);
	for (long i = 0; i < n; i++) {
		unmap(mem, AREA_PAGE_CNT * PAGE);
		map(mem, AREA_PAGE_CNT * PAGE, PROT_NONE, ANON | MAP_FIXED);
		next = map(NULL, 2 * AREA_PAGE_CNT * PAGE, RW, ANON);
		touch(next, 2 * AREA_PAGE_CNT);
		mem = map_area();
		touch(mem, 0);
	}
}

static void do_fixed(void)
{
	for (long i = 0; i < n; i++) {
		map(area, AREA_PAGE_CNT * PAGE, RW, ANON | MAP_FIXED);
		touch(area, AREA_PAGE_CNT);
	}
}

static void do_brk(void)
{
	uint64_t start = (syscall(SYS_brk, 0) + PAGE - 1) & ~(PAGE - 1);

	expect((uint64_t)syscall(SYS_brk, start) == start);
	for (long i = 0; i < n; i++) {
		expect((uint64_t)syscall(SYS_brk, start + AREA_PAGE_CNT * PAGE) == start + AREA_PAGE_CNT * PAGE);
		touch((char *)start, AREA_PAGE_CNT);
		expect((uint64_t)syscall(SYS_brk, start) == start);
	}
}

/* Pages that move are there at their new place, and can be released there. */
static void do_move(void)
{
	char *to = map(NULL, (AREA_PAGE_CNT + 70) * PAGE, PROT_NONE, ANON) + 67 * PAGE;

	for (long i = 0; i < n; i++) {
		char *from = area;

		expect((char *)syscall(SYS_mremap, from, AREA_PAGE_CNT * PAGE, AREA_PAGE_CNT * PAGE,
				       MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
		advise(to, AREA_PAGE_CNT * PAGE, MADV_DONTNEED);
		touch(to, AREA_PAGE_CNT);
		map(from, AREA_PAGE_CNT * PAGE, PROT_NONE, ANON | MAP_FIXED_NOREPLACE);
		area = to;
		to = from;
	}
}

static void do_shrink(void)
{
	for (long i = 0; i < n; i++) {
		expect((char *)syscall(SYS_mremap, area, AREA_PAGE_CNT * PAGE, PAGE, 0) == area);
		expect((char *)syscall(SYS_mremap, area, PAGE, AREA_PAGE_CNT * PAGE, 0) == area);
		touch(area, AREA_PAGE_CNT);
	}
}

/* Calls that fail release nothing. */
static void do_fail(void)
{
	for (long i = 0; i < n; i++) {
		expect(syscall(SYS_madvise, area + 1, PAGE, MADV_DONTNEED) == -1);
		expect(syscall(SYS_munmap, area + 1, PAGE) == -1);
		expect(syscall(SYS_munmap, area, -PAGE) == -1);
	}
}

static void do_slow(void)
{
	struct timespec away = {.tv_nsec = 30000000};

	for (long i = 0; i < n; i++) {
		advise(area, AREA_PAGE_CNT * PAGE, MADV_DONTNEED);
		nanosleep(&away, NULL);
		touch(area, AREA_PAGE_CNT);
	}
}

static void *storm(void *arg)
{
	char *mem = (char *)arg;

	for (long i = 0; i < n; i++) {
		advise(mem, AREA_PAGE_CNT * PAGE, MADV_DONTNEED);
		touch(mem, AREA_PAGE_CNT);
	}
	return NULL;
}

/* Threads side by side in one mapping, so that they share what the tracer divides it into. */
static void do_storm(void)
{
	pthread_t threads[THREAD_CNT];
	char *mem = map(NULL, (size_t)THREAD_CNT * AREA_PAGE_CNT * PAGE, RW, ANON);

	touch(mem, (long)THREAD_CNT * AREA_PAGE_CNT);
	for (int i = 0; i < THREAD_CNT; i++)
		expect(!pthread_create(&threads[i], NULL, storm, mem + i * AREA_PAGE_CNT * PAGE));
	for (int i = 0; i < THREAD_CNT; i++)
		pthread_join(threads[i], NULL);
}

static void touch_far(char *mem, long cnt, size_t stride)
{
	for (long i = 0; i < cnt; i++)
		((volatile char *)mem)[i * stride] = 1;
}

/* Short processes that touch pages far apart: nothing of them may be left behind. */
static void do_forks(void)
{
	int status = 1;
	pid_t pid;

	area = map(NULL, 512 << 20, RW, ANON | MAP_NORESERVE);
	for (long i = 0; i < n; i++) {
		pid = (pid_t)syscall(SYS_fork);
		if (!pid) {
			touch_far(area, 128, 4 * MIB);
			syscall(SYS_exit_group, 0);
		}
		expect(waitpid(pid, &status, 0) == pid && !status);
	}
}

/* More places than there is room for. */
static void do_full(void)
{
	area = map(NULL, (size_t)n << 18, RW, ANON | MAP_NORESERVE);
	touch_far(area, n, 1 << 18);
}

/* Stacks */

static char *stack_low;
static int child_tid;

static int on_stack(void *arg)
{
	(void)arg;
	/* The top page is touched by being here; glibc's clone() has touched it before. */
	for (int i = 1; i <= STACK_TOUCH_CNT; i++)
		((volatile char *)stack_low)[(STACK_PAGE_CNT - i) * PAGE] = 1;
	syscall(SYS_exit, 0);
	return 0;
}

static void run_on(char *stack)
{
	int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
		    CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
	int tid;

	stack_low = stack;
	child_tid = 1;
	expect(clone(on_stack, stack + STACK_PAGE_CNT * PAGE, flags, NULL, &child_tid, NULL, &child_tid) > 0);
	while ((tid = __atomic_load_n(&child_tid, __ATOMIC_SEQ_CST)) != 0)
		syscall(SYS_futex, &child_tid, FUTEX_WAIT, tid, NULL, NULL, 0);
}

/* One after the other: mapped, guarded, run on, advised away, unmapped. */
static void do_stacks(void)
{
	for (long i = 0; i < n; i++) {
		char *stack = map(NULL, STACK_PAGE_CNT * PAGE, RW, ANON | MAP_STACK);

		expect(!syscall(SYS_mprotect, stack, PAGE, PROT_NONE));
		run_on(stack);
		advise(stack, STACK_PAGE_CNT * PAGE, MADV_DONTNEED);
		unmap(stack, STACK_PAGE_CNT * PAGE);
	}
}

/* All at once and of different sizes; then gone: calls on their addresses are no longer about stacks. */
static void do_many_stacks(void)
{
	enum { MANY = 97 };
	char *stacks[MANY];
	size_t bytes[MANY];

	for (int i = 0; i < MANY; i++) {
		bytes[i] = (size_t)(3 + i * 5) * PAGE;
		stacks[i] = map(NULL, bytes[i], RW, ANON | MAP_STACK);
	}
	for (int i = 0; i < MANY; i++) {
		touch(stacks[i], 2);
		((volatile char *)stacks[i])[bytes[i] - 1] = 1;
		advise(stacks[i], PAGE, MADV_DONTNEED);
		advise(stacks[i] + bytes[i] - PAGE, PAGE, MADV_DONTNEED);
	}
	for (int i = 0; i < MANY; i++)
		unmap(stacks[i], bytes[i]);
	for (int i = 0; i < MANY; i++)
		expect(syscall(SYS_madvise, stacks[i], PAGE, MADV_DONTNEED) == -1);
}

/* More than there is room for. */
static void do_full_stacks(void)
{
	for (long i = 0; i < n; i++)
		map(NULL, PAGE, RW, ANON | MAP_STACK);
}

/* Pages of a mapping that the kernel says are in huge ones. */
static long huge_pages_at(const char *mem)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	unsigned long start, end, kib = 0;
	bool is_here = false;
	char line[256];

	expect(file != NULL);
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			is_here = start == (unsigned long)mem;
		else if (is_here && sscanf(line, "AnonHugePages: %lu", &kib) == 1)
			break;
	}
	if (file)
		fclose(file);
	return (long)(kib * 1024 / PAGE);
}

/*
 * Stacks of 5 MiB, touched at HUGE_TOUCH_CNT places in each of the two parts where a huge page fits, and at as many
 * where none does. What the kernel made of it is printed.
 */
static void do_huge_stacks(void)
{
	enum { HUGE_TOUCH_CNT = 3 };
	long huge_pages = 0;

	for (long i = 0; i < n; i++) {
		char *place = map(NULL, 8 * MIB, PROT_NONE, ANON);
		size_t before = (-(uintptr_t)place & (2 * MIB - 1)) + MIB; /* half of a huge page */
		char *stack = map(place + before, 5 * MIB, RW, ANON | MAP_STACK | MAP_FIXED);

		advise(stack, 5 * MIB, MADV_HUGEPAGE);
		for (long j = 0; j < HUGE_TOUCH_CNT; j++) {
			((volatile char *)stack)[j * 7 * PAGE] = 1;
			((volatile char *)stack)[MIB + j * 7 * PAGE] = 1;
			((volatile char *)stack)[3 * MIB + j * 7 * PAGE] = 1;
		}
		huge_pages += huge_pages_at(stack);
		unmap(stack, 5 * MIB);
		unmap(place, 8 * MIB);
	}
	printf("huge_pages=%ld\n", huge_pages);
}

static void do_foreign_stacks(void)
{
	for (long i = 0; i < n; i++) {
		char *stack = map(NULL, STACK_PAGE_CNT * PAGE, RW, ANON);

		run_on(stack);
		unmap(stack, STACK_PAGE_CNT * PAGE);
	}
}

static pthread_barrier_t all_there;

static void *sleeper(void *arg)
{
	pthread_barrier_wait(&all_there);
	return arg;
}

static void setup_sleepers(void)
{
	pthread_barrier_init(&all_there, NULL, (unsigned)n + 1);
}

static void do_sleepers(void)
{
	pthread_t *threads = calloc((size_t)n, sizeof(*threads));

	for (long i = 0; i < n; i++)
		expect(!pthread_create(&threads[i], NULL, sleeper, NULL));
	pthread_barrier_wait(&all_there);
	for (long i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	free(threads);
}

static void *nothing_more(void *arg)
{
	return arg;
}

static void do_one_by_one(void)
{
	pthread_t thread;

	for (long i = 0; i < n; i++) {
		expect(!pthread_create(&thread, NULL, nothing_more, NULL));
		pthread_join(thread, NULL);
	}
}

/* Locks */

enum { SLOW_NS = 20000000, ROUND_MAX = 200 };

static int is_populating, is_over;
static uint64_t mapper_since_ns;

/* Holds mmap_lock for reading, a good while each time. */
static void *populate(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
		char *mem = map(NULL, 192 * MIB, RW, ANON);

		__atomic_store_n(&is_populating, 1, __ATOMIC_SEQ_CST);
		advise(mem, 192 * MIB, MADV_POPULATE_WRITE);
		__atomic_store_n(&is_populating, 0, __ATOMIC_SEQ_CST);
		unmap(mem, 192 * MIB);
	}
	return NULL;
}

static void wait_for_populate(void)
{
	struct timespec pause = {.tv_nsec = 1000000};

	while (!__atomic_load_n(&is_populating, __ATOMIC_SEQ_CST))
		sched_yield();
	nanosleep(&pause, NULL);
}

/* Makes calls that change mappings until one of them has been waiting for long. */
static void do_wait(void)
{
	uint64_t slowest_ns = 0, start_ns, ns;
	pthread_t thread;

	expect(!pthread_create(&thread, NULL, populate, NULL));
	for (int i = 0; i < ROUND_MAX && slowest_ns < SLOW_NS; i++) {
		wait_for_populate();
		start_ns = now_ns();
		expect(!syscall(SYS_mprotect, area, PAGE, i % 2 ? RW : PROT_READ));
		ns = now_ns() - start_ns;
		if (ns > slowest_ns)
			slowest_ns = ns;
	}
	__atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	expect(slowest_ns >= SLOW_NS);
	printf("slowest_ns=%lu\n", slowest_ns);
}

static void *mapper(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
		wait_for_populate();
		__atomic_store_n(&mapper_since_ns, now_ns(), __ATOMIC_SEQ_CST);
		expect(!syscall(SYS_mprotect, area, PAGE, PROT_READ));
		__atomic_store_n(&mapper_since_ns, 0, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

/*
 * One thread reads under mmap_lock, one waits to write: then the tracer cannot look
 * at mappings on behalf of a third, whose mprotect it must class by its arguments.
 */
static void do_assumed(void)
{
	enum { WAITING_NS = 3000000 };
	pthread_t threads[2];
	long call_cnt = 0;
	uint64_t since_ns;

	expect(!pthread_create(&threads[0], NULL, populate, NULL));
	expect(!pthread_create(&threads[1], NULL, mapper, NULL));
	while (call_cnt < n) {
		since_ns = __atomic_load_n(&mapper_since_ns, __ATOMIC_SEQ_CST);
		if (!since_ns || now_ns() - since_ns < WAITING_NS) {
			sched_yield();
			continue;
		}
		expect(!syscall(SYS_mprotect, area + PAGE, PAGE, RW));
		call_cnt++;
	}
	__atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
}

static void *map_unmap(void *arg)
{
	for (long i = 0; i < n; i++)
		unmap(map(NULL, 64 << 10, RW, ANON), 64 << 10);
	return arg;
}

static void do_lock_storm(void)
{
	pthread_t threads[THREAD_CNT];

	for (int i = 0; i < THREAD_CNT; i++)
		expect(!pthread_create(&threads[i], NULL, map_unmap, NULL));
	for (int i = 0; i < THREAD_CNT; i++)
		pthread_join(threads[i], NULL);
}

/* Major faults: pages of a file that are not in memory, one at a time. */
static char *cold;

static void setup_cold(void)
{
	char name[] = "alloctrace-cold-XXXXXX";
	unsigned char is_in[64];
	int fd = mkstemp(name);

	expect(fd >= 0 && n <= 64);
	unlink(name);
	for (long i = 0; i < n; i++)
		expect(pwrite(fd, name, sizeof(name), i * (long)PAGE) == sizeof(name));
	expect(!ftruncate(fd, n * (long)PAGE) && !fsync(fd) && !posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	cold = mmap(NULL, (size_t)n * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	expect(cold != MAP_FAILED && !madvise(cold, (size_t)n * PAGE, MADV_RANDOM));
	expect(!mincore(cold, (size_t)n * PAGE, is_in));
	for (long i = 0; i < n; i++)
		if (is_in[i] & 1) {
			printf("pages of a file in this directory cannot be dropped from memory\n");
			exit(77);
		}
	close(fd);
}

static void do_cold(void)
{
	for (long i = 0; i < n; i++)
		(void)((volatile char *)cold)[i * PAGE];
}

/* Huge pages by name, which are in no commit account. */
static void do_hugetlb(void)
{
	char *mem = (char *)syscall(SYS_mmap, NULL, n << 21, RW, ANON | MAP_HUGETLB, -1, 0);

	if (mem == MAP_FAILED) {
		printf("no huge pages\n");
		exit(77);
	}
	((volatile char *)mem)[0] = 1;
	unmap(mem, n << 21);
}

static void nothing(void) {}

static const struct {
	const char *name;
	void (*setup)(void);
	void (*calls)(void);
} patterns[] = {
	{"dontneed", setup_touched, do_dontneed},
	{"scattered", setup_touched, do_scattered},
	{"untouched", setup_area, do_untouched},
	{"read-write", setup_touched, do_read_write},
	{"free", setup_touched, do_free},
	{"unmap", nothing, do_unmap},
	{"unmap-elsewhere", nothing, do_unmap_elsewhere},
	{"unmap-other-size", nothing, do_unmap_other_size},
	{"fixed", setup_touched, do_fixed},
	{"brk", nothing, do_brk},
	{"move", setup_touched, do_move},
	{"shrink", setup_touched, do_shrink},
	{"fail", setup_touched, do_fail},
	{"slow", setup_touched, do_slow},
	{"storm", nothing, do_storm},
	{"forks", nothing, do_forks},
	{"full", nothing, do_full},
	{"stacks", nothing, do_stacks},
	{"many-stacks", nothing, do_many_stacks},
	{"full-stacks", nothing, do_full_stacks},
	{"huge-stacks", nothing, do_huge_stacks},
	{"foreign-stacks", nothing, do_foreign_stacks},
	{"sleepers", setup_sleepers, do_sleepers},
	{"one-by-one", nothing, do_one_by_one},
	{"wait", setup_touched, do_wait},
	{"assumed", setup_touched, do_assumed},
	{"lock-storm", nothing, do_lock_storm},
	{"cold", setup_cold, do_cold},
	{"hugetlb", nothing, do_hugetlb},
};

int main(int argc, char **argv)
{
	struct rusage before, after;

	n = argc > 2 ? atol(argv[2]) : 1;
	for (size_t i = 0; argc > 1 && i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		if (strcmp(argv[1], patterns[i].name) != 0)
			continue;
		patterns[i].setup();
		getrusage(RUSAGE_SELF, &before);
		mark(1);
		patterns[i].calls();
		mark(2);
		getrusage(RUSAGE_SELF, &after);
		printf("major_faults=%ld minor_faults=%ld\n", after.ru_majflt - before.ru_majflt,
		       after.ru_minflt - before.ru_minflt);
		fflush(stdout);
		_exit(failed);
	}
	return 2;
}
