/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Makes every decision of the allocator that has a probe, some prime number of
 * times, after it has read a byte from stdin, and prints what was counted: for
 * probes_test.py, which preloads the library.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc/atmalloc.h"

#pragma weak atmalloc_set_policy
#pragma weak atmalloc_set_tune
#pragma weak atmalloc_read_counters
#pragma weak atmalloc_counter_name

#define MIB ((size_t)1 << 20)

static void *run_thread(void *arg)
{
	return arg;
}

static void make_threads(int cnt)
{
	pthread_t thread;

	for (int i = 0; i < cnt; i++)
		if (pthread_create(&thread, NULL, run_thread, NULL) == 0)
			pthread_join(thread, NULL);
}

static void resize(size_t from, size_t to, int cnt)
{
	for (int i = 0; i < cnt; i++) {
		void *volatile p = malloc(from), *volatile q = realloc(p, to);

		free(q);
	}
}

static void allocate_and_free(size_t bytes, int cnt)
{
	for (int i = 0; i < cnt; i++) {
		void *volatile p = malloc(bytes), *volatile lid = malloc(bytes);

		memset(p, 1, bytes);
		free(p);
		free(lid);
	}
}

int main(void)
{
	uint64_t before[256], values[256];
	size_t cnt = atmalloc_read_counters(before, 256);
	static char out[16384]; /* so that printing allocates nothing */
	char byte;

	setvbuf(stdout, out, _IOFBF, sizeof(out));
	if (cnt > 256 || read(STDIN_FILENO, &byte, 1) != 1)
		return 1;
	make_threads(7);                    /* stack: mapped once, reused 6 times */
	allocate_and_free(3 * MIB, 11);     /* commit: held, reused */
	resize(4 * MIB, 4 * MIB - 8192, 3); /* realloc: kept */
	resize(4 * MIB, MIB, 5);            /* realloc: unmapped */
	resize(2 * MIB, 9 * MIB, 5);        /* realloc: in place or moved */
	allocate_and_free(200000, 13);      /* trim: avoided; the heap grows */
	allocate_and_free(4096, 17);        /* page cache */
	atmalloc_set_policy("none");
	resize(4 * MIB, 4 * MIB - 8192, 3); /* realloc: cached */
	allocate_and_free(200000, 13);      /* trim: taken */
	allocate_and_free(3 * MIB, 2);      /* commit: released */
	atmalloc_set_tune("grow=copy");
	resize(2 * MIB, 9 * MIB, 5);
	malloc_trim(0);
	atmalloc_read_counters(values, cnt);
	for (size_t i = 0; i < cnt; i++)
		printf("%s %lld\n", atmalloc_counter_name(i), (long long)(values[i] - before[i]));
	return 0;
}
