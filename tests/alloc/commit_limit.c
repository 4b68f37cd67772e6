/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asks for blocks of each size, the longest first, until the kernel will commit
 * no more (vm.overcommit_memory=2), and goes on in what is left: each refusal is
 * ENOMEM and changes nothing, and what is freed serves again. Writes to no block
 * but the shortest: it takes no memory, only the account's.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/atmalloc.h"

#pragma weak atmalloc_get_counter

#define CHECK(condition)                                               \
	do {                                                           \
		if (!(condition)) {                                    \
			printf("line %d: %s\n", __LINE__, #condition); \
			exit(1);                                       \
		}                                                      \
	} while (0)

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define BLOCK_MAX_CNT 20000
#define KEPT_SIZE (100 * KIB)
#define TRY_CNT 100

static const size_t sizes[] = {64 * GIB, GIB, 64 * MIB, 3 * MIB, 600 * KIB, 60 * KIB, 5000, 100};
#define SIZE_CNT (sizeof(sizes) / sizeof(*sizes))

static void *blocks[SIZE_CNT][BLOCK_MAX_CNT];
static unsigned block_cnt[SIZE_CNT];
static unsigned char *kept;

static void fill(void)
{
	for (size_t i = 0; i < SIZE_CNT; i++) {
		void *p;

		errno = 0;
		while ((p = malloc(sizes[i]))) {
			CHECK(block_cnt[i] < BLOCK_MAX_CNT);
			blocks[i][block_cnt[i]++] = p;
		}
		CHECK(errno == ENOMEM);
	}
}

static bool is_calloc_refused(void)
{
	void *p = calloc(1, 600 * KIB);

	free(p);
	return !p;
}

static bool is_aligned_refused(void)
{
	void *p = aligned_alloc(64 * KIB, 600 * KIB);

	free(p);
	return !p;
}

static bool is_realloc_refused(size_t size)
{
	unsigned char *grown = realloc(kept, size);

	if (!grown)
		return true;
	kept = realloc(grown, KEPT_SIZE);
	CHECK(kept);
	return false;
}

static bool is_growth_refused(void)
{
	return is_realloc_refused(600 * KIB);
}

static bool is_large_growth_refused(void)
{
	return is_realloc_refused(GIB);
}

/*
 * What is committed counts for the whole machine, and each CPU adds its part late
 * (vm_committed_as, a percpu_counter): what ends elsewhere may make room after all
 * was full. Then that is filled too, and the request made again.
 */
static bool is_refused_when_full(bool (*is_refused)(void))
{
	for (int k = 0; k < TRY_CNT; k++) {
		fill();
		errno = 0;
		if (is_refused())
			return errno == ENOMEM;
	}
	return false;
}

static void *allocate(void *arg)
{
	void *p = malloc(MIB / 2);

	memset(p, 3, MIB / 2);
	free(p);
	return arg;
}

int main(void)
{
	uint64_t refused_cnt;
	pthread_t thread;

	kept = malloc(KEPT_SIZE);
	CHECK(kept);
	memset(kept, 7, KEPT_SIZE);
	fill();
	CHECK(block_cnt[1] > 0);
	CHECK(is_refused_when_full(is_calloc_refused));
	CHECK(is_refused_when_full(is_growth_refused));
	CHECK(is_refused_when_full(is_large_growth_refused));
	CHECK(is_refused_when_full(is_aligned_refused));
	CHECK(kept[0] == 7 && kept[KEPT_SIZE - 1] == 7);
	CHECK(atmalloc_get_counter("error.mprotect.commit", &refused_cnt) == 0 && refused_cnt > 0);

	/* One of the long ones makes room for some of each kind. */
	free(blocks[1][--block_cnt[1]]);
	for (size_t i = 2; i < SIZE_CNT; i++)
		for (int k = 0; k < 5; k++) {
			void *p = malloc(sizes[i]);

			CHECK(p);
			memset(p, 1, 100);
			CHECK(block_cnt[i] < BLOCK_MAX_CNT);
			blocks[i][block_cnt[i]++] = p;
		}
	CHECK(pthread_create(&thread, NULL, allocate, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	kept = realloc(kept, 600 * KIB);
	CHECK(kept && kept[0] == 7 && kept[KEPT_SIZE - 1] == 7);
	for (size_t i = 0; i < SIZE_CNT; i++)
		while (block_cnt[i])
			free(blocks[i][--block_cnt[i]]);
	free(kept);
	puts("went on");
	return 0;
}
