/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A burst of small blocks is allocated and written, all are freed, and then the
 * process is idle: does its memory go back? The resident memory before, at the
 * peak and after the rest is printed. An allocator without a thread of its own
 * does nothing while the process is idle.
 *
 * Policy that matters: trim. Freeing all leaves one free top, which is released
 * at once, trim off or on, as it is above any threshold; trim_threshold=64M keeps
 * it. So with blocks that are runs of pages, --size 68K --blocks 300: one
 * madvise.dontneed, and all of the 5100 pages are gone.
 * By default (1000 bytes: 1024 in slabs, 5000 pages) the same: slabs and runs that
 * the heap keeps for the next request are no lid on what is free below them.
 * With --size 2M --blocks 16 blocks are mappings, and it is commit: off 16 munmap
 * and nothing stays; on none and all stays, up to the batch. stack and realloc
 * must make no difference.
 */
#include "scenarios/scenario.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static uint64_t block_cnt = 20000, block_bytes = 1000, idle_ms = 200;
static void **blocks;

/* By calls that allocate nothing. */
static uint64_t resident_bytes(void)
{
	char text[128];
	unsigned long pages = 0;
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	char *resident;

	if (got <= 0)
		scenario__fail("/proc/self/statm", errno);
	close(fd);
	text[got] = 0;
	strtoul(text, &resident, 10); /* all mapped pages stand before the resident ones */
	pages = strtoul(resident, NULL, 10);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void be_idle(void)
{
	struct timespec rest = {.tv_sec = (time_t)(idle_ms / 1000), .tv_nsec = (long)(idle_ms % 1000) * 1000000};

	while (nanosleep(&rest, &rest) < 0 && errno == EINTR)
		;
}

static void burst(uint64_t cnt)
{
	for (uint64_t i = 0; i < cnt; i++) {
		blocks[i] = scenario__malloc(block_bytes);
		scenario__touch(blocks[i], block_bytes);
	}
}

static void free_all(uint64_t cnt)
{
	for (uint64_t i = 0; i < cnt; i++)
		free(blocks[i]);
}

int main(int argc, char **argv)
{
	const struct scenario_option options[] = {
		{SCENARIO_COUNT, "--blocks", &block_cnt, 1, 1 << 28},
		{SCENARIO_BYTES, "--size", &block_bytes, 1, 1ull << 32},
		{SCENARIO_COUNT, "--idle-ms", &idle_ms, 0, 86400000},
		{SCENARIO_END, NULL, NULL, 0, 0},
	};
	struct scenario_requests requests = {0};
	uint64_t begin_ns, elapsed_ns, before_bytes, peak_bytes, idle_bytes;

	scenario__parse(argc, argv, options);
	blocks = scenario__malloc(block_cnt * sizeof(*blocks));
	scenario__touch(blocks, block_cnt * sizeof(*blocks));
	burst(1);
	free_all(1);
	before_bytes = resident_bytes();
	scenario__phase(SCENARIO_MEASURED);
	begin_ns = scenario__now_ns();
	burst(block_cnt);
	peak_bytes = resident_bytes();
	free_all(block_cnt);
	be_idle();
	elapsed_ns = scenario__now_ns() - begin_ns;
	scenario__phase(SCENARIO_TEARDOWN);
	idle_bytes = resident_bytes();
	free(blocks);
	requests.malloc_cnt = requests.free_cnt = block_cnt;
	printf("rss_before_bytes=%ju rss_peak_bytes=%ju rss_idle_bytes=%ju\n", (uintmax_t)before_bytes,
	       (uintmax_t)peak_bytes, (uintmax_t)idle_bytes);
	scenario__report(&requests, elapsed_ns, NULL, 0);
	return 0;
}
