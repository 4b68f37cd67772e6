/* SPDX-License-Identifier: BSD-2-Clause */
/* Calibration: what our programs add to a call and to a fault, on this process. */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cli/tracer_state.h"

enum { CALIB_BATCH_CNT = 10, CALIB_CALL_CNT = 100, CALIB_PAGE_CNT = 8, PAGE_BYTES = 4096 };

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* The cheapest traced call: an unaligned address is refused at once. */
static uint64_t calibrate_call_ns(void)
{
	uint64_t best_ns = UINT64_MAX, start_ns, ns;

	for (int batch = 0; batch < CALIB_BATCH_CNT; batch++) {
		start_ns = now_ns();
		for (int i = 0; i < CALIB_CALL_CNT; i++)
			syscall(SYS_madvise, 1, 0, MADV_DONTNEED);
		ns = (now_ns() - start_ns) / CALIB_CALL_CNT;
		if (ns < best_ns)
			best_ns = ns;
	}
	return best_ns;
}

static uint64_t calibrate_fault_ns(char *pages)
{
	uint64_t best_ns = UINT64_MAX, start_ns, ns;

	for (int batch = 0; batch < CALIB_BATCH_CNT; batch++) {
		madvise(pages, CALIB_PAGE_CNT * PAGE_BYTES, MADV_DONTNEED);
		start_ns = now_ns();
		for (int i = 0; i < CALIB_PAGE_CNT; i++)
			((volatile char *)pages)[i * PAGE_BYTES] = 1;
		ns = (now_ns() - start_ns) / CALIB_PAGE_CNT;
		if (ns < best_ns)
			best_ns = ns;
	}
	return best_ns;
}

void tracer__calibrate(struct tracer *tracer, bool is_traced)
{
	struct fault_fds fds;
	bool has_fds = false;
	uint64_t call_ns, fault_ns = 0;
	char *pages =
		mmap(NULL, CALIB_PAGE_CNT * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (is_traced && tracer->has_fault_events)
		has_fds = !tracer__open_faults(tracer, 0, -1, false, &fds);
	if (has_fds)
		tracer__switch_faults(&fds, true);
	call_ns = calibrate_call_ns();
	if (pages != MAP_FAILED) {
		madvise(pages, CALIB_PAGE_CNT * PAGE_BYTES, MADV_NOHUGEPAGE);
		fault_ns = calibrate_fault_ns(pages);
		munmap(pages, CALIB_PAGE_CNT * PAGE_BYTES);
	}
	if (has_fds)
		tracer__close_faults(&fds);
	if (is_traced) {
		tracer->added_call_ns = call_ns > tracer->added_call_ns ? call_ns - tracer->added_call_ns : 0;
		tracer->added_fault_ns = fault_ns > tracer->added_fault_ns ? fault_ns - tracer->added_fault_ns : 0;
	} else {
		tracer->added_call_ns = call_ns;
		tracer->added_fault_ns = fault_ns;
	}
}
