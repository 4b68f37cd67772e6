/* SPDX-License-Identifier: BSD-2-Clause */
/* The functions of atmalloc.h: settings and counters from inside the process. */
#include "alloc/atmalloc.h"

#include <errno.h>
#include <string.h>

#include "alloc/heap.h"
#include "alloc/policy.h"
#include "alloc/settings.h"
#include "alloc/stack.h"

#define EXPORT __attribute__((visibility("default")))

/* ---- settings ---- */

EXPORT int atmalloc_set_policy(const char *set)
{
	struct settings_error error;
	uint32_t policy;
	int err = settings__parse_policy(set, atmalloc_control.policy_default, &policy, &error);

	if (!err)
		__atomic_store_n(&atmalloc_control.policy, policy, __ATOMIC_RELAXED);
	return err;
}

EXPORT size_t atmalloc_get_policy(char *buf, size_t buf_bytes)
{
	return settings__format_policy(atm_policy(), buf, buf_bytes);
}

/* Only what has changed is stored: another thread may set something else. */
EXPORT int atmalloc_set_tune(const char *list)
{
	struct settings_error error;
	uint64_t before[ATM_TUNE_CNT], after[ATM_TUNE_CNT];
	int err;

	for (unsigned i = 0; i < ATM_TUNE_CNT; i++)
		before[i] = after[i] = atm_tune((enum atm_tunable)i);
	err = settings__parse_tune(list, after, &error);
	for (unsigned i = 0; !err && i < ATM_TUNE_CNT; i++)
		if (after[i] != before[i])
			__atomic_store_n(&atmalloc_control.tune[i], after[i], __ATOMIC_RELAXED);
	return err;
}

EXPORT int atmalloc_get_tune(const char *name, uint64_t *value)
{
	static const char *const names[] = {
#define X(id, name, unit, dflt, help) #name,
		ATM_TUNABLES(X)
#undef X
	};

	for (unsigned i = 0; i < ATM_TUNE_CNT; i++)
		if (strcmp(name, names[i]) == 0) {
			*value = atm_tune((enum atm_tunable)i);
			return 0;
		}
	return -EINVAL;
}

/* ---- counters ---- */

/* What is now, after what has been counted: X(name, value). */
#define GAUGES(X)                                                           \
	X("heaps", heaps.heap_cnt)                                          \
	X("heap.committed_bytes", heaps.committed_page_cnt *atm_page_bytes) \
	X("heap.used_bytes", heaps.used_page_cnt *atm_page_bytes)           \
	X("large.mapped_bytes", atm_large_bytes())                          \
	X("held.now_bytes", heaps.held_page_cnt *atm_page_bytes)            \
	X("stack.cached_bytes", atm_stack_cached_bytes())

/* As they lie in struct atm_sums, which is numbers only. */
static const char *const counter_names[] = {
#define X(id, name) "call." name,
	ATM_KINDS(X)
#undef X
#define X(id, name) "error." name,
		ATM_KINDS(X)
#undef X
#define X(id, name, help) name,
			ATM_DECISIONS(X)
#undef X
#define BANDS(request)                                                                                        \
	request ".64", request ".256", request ".1024", request ".4096", request ".16384", request ".131072", \
		request ".1048576", request ".inf"
				BANDS("malloc"),
	BANDS("free"), BANDS("realloc"),
#define X(name, value) name,
	GAUGES(X)
#undef X
};
#define COUNTER_CNT (sizeof(counter_names) / sizeof(counter_names[0]))
#define X(name, value) +1
enum { GAUGE_CNT = 0 GAUGES(X), SUM_CNT = sizeof(struct atm_sums) / sizeof(uint64_t) };
#undef X
_Static_assert(COUNTER_CNT == (size_t)SUM_CNT + GAUGE_CNT && ATM_BAND_CNT == 8, "a name for every number");

static void read_gauges(uint64_t *values)
{
	struct heap_sums heaps;

	atm_heap_sums(&heaps);
#define X(name, value) *values++ = value;
	GAUGES(X)
#undef X
}

EXPORT const char *atmalloc_counter_name(size_t index)
{
	return index < COUNTER_CNT ? counter_names[index] : NULL;
}

EXPORT size_t atmalloc_read_counters(uint64_t *values, size_t cnt)
{
	struct {
		struct atm_sums sums;
		uint64_t gauges[GAUGE_CNT];
	} all;

	if (cnt == 0)
		return COUNTER_CNT;
	atm_control_sum(&all.sums);
	read_gauges(all.gauges);
	memcpy(values, &all, (cnt < COUNTER_CNT ? cnt : COUNTER_CNT) * sizeof(*values));
	return COUNTER_CNT;
}

EXPORT int atmalloc_get_counter(const char *name, uint64_t *value)
{
	uint64_t values[COUNTER_CNT];

	for (size_t i = 0; i < COUNTER_CNT; i++)
		if (strcmp(name, counter_names[i]) == 0) {
			atmalloc_read_counters(values, i + 1);
			*value = values[i];
			return 0;
		}
	return -EINVAL;
}
