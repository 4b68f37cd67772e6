/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * glibc's side entries: parameters, statistics, giving memory back. Figures
 * count pages that blocks lie in, not the bytes asked for.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "alloc/heap.h"
#include "alloc/policy.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int malloc_trim(size_t pad_bytes)
{
	return atm_heap_trim_all(pad_bytes) > 0;
}

/*
 * M_TRIM_THRESHOLD is the tunable trim_threshold. The other parameters of glibc
 * have nothing to act on here: accepted, so that a program that tunes glibc runs.
 */
EXPORT int mallopt(int param, int value)
{
	switch (param) {
	case M_TRIM_THRESHOLD:
		__atomic_store_n(&atmalloc_control.tune[ATM_TUNE_TRIM_THRESHOLD],
				 value < 0 ? UINT64_MAX : (uint64_t)value, __ATOMIC_RELAXED);
		return 1;
	case M_MXFAST:
	case M_TOP_PAD:
	case M_MMAP_THRESHOLD:
	case M_MMAP_MAX:
	case M_CHECK_ACTION:
	case M_PERTURB:
	case M_ARENA_TEST:
	case M_ARENA_MAX: return 1;
	default: return 0;
	}
}

static size_t left_of(size_t all, size_t part)
{
	return all > part ? all - part : 0;
}

EXPORT struct mallinfo2 mallinfo2(void)
{
	struct mallinfo2 info = {0};
	struct heap_sums sums;

	atm_heap_sums(&sums);
	info.arena = sums.committed_page_cnt * atm_page_bytes;
	info.uordblks = sums.used_page_cnt * atm_page_bytes;
	info.fordblks = left_of(info.arena, info.uordblks);
	/* In use: what policy commit holds is free. Other threads may change the one before the other is read. */
	info.hblks = left_of(atm_large_cnt(), sums.held_cnt);
	info.hblkhd = left_of(atm_large_bytes(), sums.held_page_cnt * atm_page_bytes);
	info.keepcost = info.fordblks;
	return info;
}

static int as_int(size_t value)
{
	return value > INT32_MAX ? INT32_MAX : (int)value;
}

/* The old interface: ints, so large figures stay at INT_MAX instead of wrapping. */
EXPORT struct mallinfo mallinfo(void)
{
	struct mallinfo2 info = mallinfo2();

	return (struct mallinfo){.arena = as_int(info.arena),
				 .uordblks = as_int(info.uordblks),
				 .fordblks = as_int(info.fordblks),
				 .hblks = as_int(info.hblks),
				 .hblkhd = as_int(info.hblkhd),
				 .keepcost = as_int(info.keepcost)};
}

EXPORT int malloc_info(int options, FILE *stream)
{
	struct mallinfo2 info = mallinfo2();
	struct heap_sums sums;

	if (options != 0)
		return EINVAL;
	atm_heap_sums(&sums);
	return fprintf(stream,
		       "<malloc version=\"atmalloc-1\">\n<heaps count=\"%llu\" committed=\"%zu\" used=\"%zu\"/>\n"
		       "<mmap count=\"%zu\" size=\"%zu\"/>\n</malloc>\n",
		       (unsigned long long)sums.heap_cnt, info.arena, info.uordblks, info.hblks, info.hblkhd) < 0
		       ? errno
		       : 0;
}

/* No cancellation point, as glibc's. */
EXPORT void malloc_stats(void)
{
	struct mallinfo2 info = mallinfo2();
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	fprintf(stderr, "atmalloc: heaps: %zu bytes committed, %zu used; mappings of their own: %zu, %zu bytes\n",
		info.arena, info.uordblks, info.hblks, info.hblkhd);
	pthread_setcancelstate(state, &state);
}
