/* SPDX-License-Identifier: BSD-2-Clause */
/* What stress_calls counts in a file, for those who look into it. */
#ifndef ALLOCTRACE_TESTS_TRACE_STRESS_H
#define ALLOCTRACE_TESTS_TRACE_STRESS_H

#include <stdatomic.h>
#include <stdint.h>

enum { CALLER_CNT = 4 };

/* A call that has begun and not ended may have been made or not. */
struct stress_counts {
	_Atomic uint64_t protect_begun, protect_ended;   /* pkey_mprotect */
	_Atomic uint64_t populate_begun, populate_ended; /* madvise(MADV_POPULATE_READ) */
};

#endif
