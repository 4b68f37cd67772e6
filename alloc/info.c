/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * glibc's side entries: parameters, statistics, giving memory back. Figures
 * count pages that blocks lie in, not the bytes asked for.
 */
#include <errno.h>
#include <malloc.h>
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

EXPORT struct mallinfo2 mallinfo2(void)
{
	struct mallinfo2 info = {0};
	uint64_t committed_pages, used_pages, heap_cnt;

	atm_heap_sums(&committed_pages, &used_pages, &heap_cnt);
	info.arena = committed_pages * atm_page_bytes;
	info.uordblks = used_pages * atm_page_bytes;
	info.fordblks = (committed_pages - used_pages) * atm_page_bytes;
	info.hblks = atm_large_cnt();
	info.hblkhd = atm_large_bytes();
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
	uint64_t committed_pages, used_pages, heap_cnt;

	if (options != 0)
		return EINVAL;
	atm_heap_sums(&committed_pages, &used_pages, &heap_cnt);
	return fprintf(stream,
		       "<malloc version=\"atmalloc-1\">\n<heaps count=\"%llu\" committed=\"%zu\" used=\"%zu\"/>\n"
		       "<mmap count=\"%zu\" size=\"%zu\"/>\n</malloc>\n",
		       (unsigned long long)heap_cnt, info.arena, info.uordblks, info.hblks, info.hblkhd) < 0
		       ? errno
		       : 0;
}

EXPORT void malloc_stats(void)
{
	struct mallinfo2 info = mallinfo2();

	fprintf(stderr, "atmalloc: heaps: %zu bytes committed, %zu used; mappings of their own: %zu, %zu bytes\n",
		info.arena, info.uordblks, info.hblks, info.hblkhd);
}
