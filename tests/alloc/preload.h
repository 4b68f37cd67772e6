/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What tests of the preloaded library share: its own entries, found at run time
 * as a program under any malloc would, and work done in a child process. The
 * header brings cmocka with what that wants included before it.
 */
#ifndef ALLOCTRACE_TESTS_ALLOC_PRELOAD_H
#define ALLOCTRACE_TESTS_ALLOC_PRELOAD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc/control.h"

static struct preload {
	struct atm_control *control;
	struct atm_counters *counters;
	int (*set_policy)(const char *set);
	int (*set_tune)(const char *list);
} preload;

/* A setup for a group of tests; fails when the library is not there. */
static inline int preload__find(void **state)
{
	(void)state;
	preload.control = dlsym(RTLD_DEFAULT, "atmalloc_control");
	preload.counters = dlsym(RTLD_DEFAULT, "atmalloc_counters");
	*(void **)&preload.set_policy = dlsym(RTLD_DEFAULT, "atmalloc_set_policy");
	*(void **)&preload.set_tune = dlsym(RTLD_DEFAULT, "atmalloc_set_tune");
	if (preload.control && preload.counters && preload.set_policy && preload.set_tune)
		return 0;
	fprintf(stderr, "this test must run with LD_PRELOAD=.../libatmalloc.so\n");
	return -1;
}

/* Memory syscalls of a kind that the library has made, by its own count. */
static inline uint64_t preload__calls(enum atm_kind kind)
{
	return __atomic_load_n(&preload.counters->live.call_cnt[kind], __ATOMIC_RELAXED);
}

/* Requests counted so far in one size band: of malloc and its like, of free, or of realloc. */
static inline uint64_t preload__band(size_t offset, int band)
{
	uint64_t sum = 0;

	for (uint32_t cell = 0; cell <= ATM_CELL_CNT; cell++) {
		const struct atm_requests *requests = cell == ATM_CELL_CNT ? &preload.counters->live.requests
									   : &preload.counters->cells[cell].requests;
		const uint64_t *band_cnt = (const void *)((const char *)requests + offset);

		sum += band_cnt[band];
	}
	return sum;
}

/* The same in all bands. */
static inline uint64_t preload__requests(size_t offset)
{
	uint64_t sum = 0;

	for (int band = 0; band < ATM_BAND_CNT; band++)
		sum += preload__band(offset, band);
	return sum;
}

/* Runs work(arg) in a child that then ends with status 0; returns its wait status, -1 when there was no child. */
static inline int child__run(void (*work)(void *arg), void *arg)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		alarm(100);
		work(arg);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return status;
}

/* Ends a child with this line's number as its status, and says why. */
#define CHILD_CHECK(condition)                                                                   \
	do {                                                                                     \
		if (!(condition)) {                                                              \
			dprintf(2, "%s:%d: in the child: %s\n", __FILE__, __LINE__, #condition); \
			_exit(99);                                                               \
		}                                                                                \
	} while (0)

#endif
