/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The target of tracer_bench.py: calls WORKLOAD MS. Waits for a byte on standard
 * input, repeats the workload on the first CPU for MS milliseconds in batches
 * and prints the 10th percentile of the batches' means, in ns an operation; a
 * batch is short, so that other load on the machine hits few of them.
 */
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { OP_CNT = 64, BATCH_MAX = 100000, PAGE_BYTES = 4096 };

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void madvises(char *pages)
{
	(void)pages;
	for (int i = 0; i < OP_CNT; i++)
		syscall(SYS_madvise, 1, 0, MADV_DONTNEED);
}

static void pairs(char *pages)
{
	(void)pages;
	for (int i = 0; i < OP_CNT; i++) {
		long mem = syscall(SYS_mmap, 0, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		syscall(SYS_munmap, mem, PAGE_BYTES);
	}
}

static void faults(char *pages)
{
	for (int i = 0; i < OP_CNT; i++)
		((volatile char *)pages)[i * PAGE_BYTES] = 1;
}

static void getppids(char *pages)
{
	(void)pages;
	for (int i = 0; i < OP_CNT; i++)
		syscall(SYS_getppid);
}

static const struct {
	const char *name;
	void (*batch)(char *pages);
} workloads[] = {{"madvise", madvises}, {"pair", pairs}, {"fault", faults}, {"getppid", getppids}};

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static double percentile10_ns(void (*batch)(char *pages), char *pages, uint64_t limit_ns)
{
	static uint64_t ns[BATCH_MAX];
	uint64_t end_ns = now_ns() + limit_ns, start_ns;
	size_t cnt = 0;

	do {
		if (batch == faults)
			madvise(pages, (size_t)OP_CNT * PAGE_BYTES, MADV_DONTNEED);
		start_ns = now_ns();
		batch(pages);
		ns[cnt++] = now_ns() - start_ns;
	} while (cnt < BATCH_MAX && now_ns() < end_ns);
	qsort(ns, cnt, sizeof(*ns), by_value);
	cnt /= 10;
	return (double)ns[cnt] / OP_CNT;
}

int main(int argc, char **argv)
{
	char *pages =
		mmap(NULL, (size_t)OP_CNT * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cpu_set_t cpus;
	char byte;

	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	if (argc != 3 || pages == MAP_FAILED || sched_setaffinity(0, sizeof(cpus), &cpus) || read(0, &byte, 1) != 1)
		return 1;
	madvise(pages, (size_t)OP_CNT * PAGE_BYTES, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < sizeof(workloads) / sizeof(*workloads); i++)
		if (!strcmp(argv[1], workloads[i].name)) {
			printf("%.1f\n",
			       percentile10_ns(workloads[i].batch, pages, strtoull(argv[2], NULL, 10) * 1000000));
			return 0;
		}
	return 1;
}
