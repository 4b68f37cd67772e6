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

static const size_t sizes[] = {64 * GIB, GIB, 64 * MIB, 3 * MIB, 600 * KIB, 60 * KIB, 5000, 100};
#define SIZE_CNT (sizeof(sizes) / sizeof(*sizes))

static void *blocks[SIZE_CNT][BLOCK_MAX_CNT];
static unsigned block_cnt[SIZE_CNT];

static bool is_refused(void *p)
{
	int err = errno;

	errno = 0;
	return !p && err == ENOMEM;
}

static void fill(size_t i)
{
	void *p;

	errno = 0;
	while ((p = malloc(sizes[i]))) {
		CHECK(block_cnt[i] < BLOCK_MAX_CNT);
		blocks[i][block_cnt[i]++] = p;
	}
	CHECK(is_refused(p));
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
	unsigned char *kept = malloc(100 * KIB);
	pthread_t thread;

	memset(kept, 7, 100 * KIB);
	for (size_t i = 0; i < SIZE_CNT; i++)
		fill(i);
	CHECK(block_cnt[1] > 0);
	CHECK(is_refused(calloc(1, 600 * KIB)));
	CHECK(is_refused(realloc(kept, 600 * KIB)));
	CHECK(is_refused(realloc(kept, GIB)));
	CHECK(is_refused(aligned_alloc(64 * KIB, 600 * KIB)));
	CHECK(kept[0] == 7 && kept[100 * KIB - 1] == 7);
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
	CHECK(kept && kept[0] == 7 && kept[100 * KIB - 1] == 7);
	for (size_t i = 0; i < SIZE_CNT; i++)
		while (block_cnt[i])
			free(blocks[i][--block_cnt[i]]);
	free(kept);
	puts("went on");
	return 0;
}
