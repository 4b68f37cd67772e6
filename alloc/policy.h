/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The settings in force and the counters, as the rest of the allocator sees
 * them. A decision takes one snapshot of the policy word and passes it on.
 */
#ifndef ALLOCTRACE_ALLOC_POLICY_H
#define ALLOCTRACE_ALLOC_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/control.h"

extern struct atm_control atmalloc_control;
extern struct atm_counters atmalloc_counters;

/* Written from other processes and threads, so always one relaxed load. */
static inline uint32_t atm_policy(void)
{
	return __atomic_load_n(&atmalloc_control.policy, __ATOMIC_RELAXED);
}

static inline uint64_t atm_tune(enum atm_tunable tunable)
{
	return __atomic_load_n(&atmalloc_control.tune[tunable], __ATOMIC_RELAXED);
}

/* For decisions that no heap takes; a heap's own go to its cell. */
static inline void atm_count_decision(enum atm_decision decision)
{
	__atomic_fetch_add(&atmalloc_counters.live.decision_cnt[decision], 1, __ATOMIC_RELAXED);
}

static inline void atm_count_call(enum atm_kind kind, long ret)
{
	__atomic_fetch_add(&atmalloc_counters.live.call_cnt[kind], 1, __ATOMIC_RELAXED);
	if (ret < 0)
		__atomic_fetch_add(&atmalloc_counters.live.error_cnt[kind], 1, __ATOMIC_RELAXED);
}

struct heap;
/* Walks the heap's invariants at each 16th call; check.c. */
void atm_check_now_and_then(struct heap *heap);

/* A walk of the invariants at some of the slow operations, when check=full. */
static inline void atm_check_sometimes(struct heap *heap)
{
	if (__builtin_expect(atm_tune(ATM_TUNE_CHECK) != 0, 0))
		atm_check_now_and_then(heap);
}

#endif
