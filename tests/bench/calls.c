/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The target of tracer_bench.py. Answers each line of standard input, WORKLOAD
 * MS, with one of standard output: it repeats the workload for MS milliseconds in
 * batches and gives the first percentile of the batches' means, in ns an
 * operation; a batch is short, so that other load on the machine hits few of
 * them. Of several threads, spread over the CPUs, it is the mean of theirs.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OP_CNT = 64, BATCH_MAX = 20000, PAGE_BYTES = 4096, PAGES_BYTES = OP_CNT * PAGE_BYTES, THREAD_MAX = 8 };

/* What the workloads touch: fresh memory, and a file that is read from its disk. */
static char *pages, *file_pages;
static int file_fd = -1;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void madvises(void)
{
	for (int i = 0; i < OP_CNT; i++)
		syscall(SYS_madvise, 1, 0, MADV_DONTNEED);
}

static void pairs(void)
{
	for (int i = 0; i < OP_CNT; i++) {
		long mem = syscall(SYS_mmap, 0, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		syscall(SYS_munmap, mem, PAGE_BYTES);
	}
}

static void forget_pages(void)
{
	madvise(pages, PAGES_BYTES, MADV_DONTNEED);
}

static void faults(void)
{
	for (int i = 0; i < OP_CNT; i++)
		((volatile char *)pages)[i * PAGE_BYTES] = 1;
}

static void forget_file(void)
{
	madvise(file_pages, PAGES_BYTES, MADV_DONTNEED);
	posix_fadvise(file_fd, 0, PAGES_BYTES, POSIX_FADV_DONTNEED);
}

static void major_faults(void)
{
	for (int i = 0; i < OP_CNT; i++)
		(void)((volatile char *)file_pages)[i * PAGE_BYTES];
}

static void getppids(void)
{
	for (int i = 0; i < OP_CNT; i++)
		syscall(SYS_getppid);
}

static void forks(void)
{
	for (int i = 0; i < OP_CNT; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
}

static const struct workload {
	const char *name;
	void (*batch)(void);
	void (*prepare)(void);
	int thread_cnt;
} workloads[] = {
	{"madvise", madvises, NULL, 1},          {"pair", pairs, NULL, 1},        {"fault", faults, forget_pages, 1},
	{"major", major_faults, forget_file, 1}, {"getppid", getppids, NULL, 1},  {"fork", forks, NULL, 1},
	{"madvise2", madvises, NULL, 2},         {"madvise4", madvises, NULL, 4}, {"madvise8", madvises, NULL, 8},
};

struct worker {
	pthread_t thread;
	const struct workload *workload;
	uint64_t limit_ns;
	int number;
	double op_ns;
	uint64_t ns[BATCH_MAX];
};

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	const struct workload *workload = worker->workload;
	uint64_t end_ns = now_ns() + worker->limit_ns, start_ns;
	cpu_set_t cpus;
	size_t cnt = 0;

	CPU_ZERO(&cpus);
	CPU_SET(worker->number % sysconf(_SC_NPROCESSORS_ONLN), &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	do {
		if (workload->prepare)
			workload->prepare();
		start_ns = now_ns();
		workload->batch();
		worker->ns[cnt++] = now_ns() - start_ns;
	} while (cnt < BATCH_MAX && now_ns() < end_ns);
	qsort(worker->ns, cnt, sizeof(worker->ns[0]), by_value);
	cnt /= 100;
	worker->op_ns = (double)worker->ns[cnt] / OP_CNT;
	return NULL;
}

/* The first worker is this thread. Negative: there are not so many threads. */
static double measure(const struct workload *workload, uint64_t limit_ns)
{
	static struct worker workers[THREAD_MAX];
	double sum_ns = 0;

	for (int i = 0; i < workload->thread_cnt; i++) {
		workers[i].workload = workload;
		workers[i].limit_ns = limit_ns;
		workers[i].number = i;
		if (i && pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			return -1;
	}
	work(&workers[0]);
	for (int i = 0; i < workload->thread_cnt; i++) {
		if (i)
			pthread_join(workers[i].thread, NULL);
		sum_ns += workers[i].op_ns;
	}
	return sum_ns / workload->thread_cnt;
}

/* Away from the kernel's reading ahead. False: no such file can be had. */
static bool map_file(void)
{
	static char zeroes[PAGES_BYTES];

	file_fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (file_fd < 0 || write(file_fd, zeroes, PAGES_BYTES) != PAGES_BYTES || fsync(file_fd))
		return false;
	file_pages = mmap(NULL, PAGES_BYTES, PROT_READ, MAP_SHARED, file_fd, 0);
	return file_pages != MAP_FAILED && !madvise(file_pages, PAGES_BYTES, MADV_RANDOM) &&
	       !posix_fadvise(file_fd, 0, 0, POSIX_FADV_RANDOM);
}

int main(void)
{
	char line[64], name[32];
	unsigned ms;

	pages = mmap(NULL, PAGES_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED || !map_file())
		return 1;
	madvise(pages, PAGES_BYTES, MADV_NOHUGEPAGE);
	while (fgets(line, sizeof(line), stdin)) {
		const struct workload *workload = workloads,
				      *end = workloads + sizeof(workloads) / sizeof(workloads[0]);

		if (sscanf(line, "%31s %u", name, &ms) != 2)
			return 1;
		while (workload < end && strcmp(name, workload->name) != 0)
			workload++;
		if (workload == end)
			return 1;
		printf("%.1f\n", measure(workload, (uint64_t)ms * 1000000));
		fflush(stdout);
	}
	return 0;
}
