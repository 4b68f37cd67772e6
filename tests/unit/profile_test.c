/* SPDX-License-Identifier: BSD-2-Clause */
/* The histogram's buckets and the arithmetic of finished profiles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/profile.h"

/* Adds one event as the kernel side does. */
static void add(struct class_stat *stat, uint64_t ns)
{
	stat->call_cnt++;
	stat->sum_ns += ns;
	if (ns > stat->max_ns)
		stat->max_ns = ns;
	stat->hist[at_hist_bucket(ns)]++;
}

static void test_buckets_are_contiguous(void **state)
{
	(void)state;
	for (uint32_t bucket = 0; bucket < AT_HIST_CNT - 1; bucket++) {
		uint64_t upper_ns = at_hist_upper_ns(bucket);

		assert_int_equal(at_hist_bucket(upper_ns), bucket);
		assert_int_equal(at_hist_bucket(upper_ns + 1), bucket + 1);
	}
	for (uint64_t ns = 0; ns < 16; ns++)
		assert_int_equal(at_hist_bucket(ns), ns);
}

static void test_bucket_width(void **state)
{
	(void)state;
	for (uint32_t bucket = 8; bucket < AT_HIST_CNT - 1; bucket++) {
		uint64_t lower_ns = at_hist_upper_ns(bucket - 1) + 1, upper_ns = at_hist_upper_ns(bucket);

		assert_true((upper_ns - lower_ns) * 8 <= lower_ns);
	}
}

static void test_last_bucket_is_open(void **state)
{
	(void)state;
	assert_int_equal(at_hist_bucket((1ull << AT_HIST_MAX_BIT) - 1), AT_HIST_CNT - 1);
	assert_int_equal(at_hist_bucket(1ull << AT_HIST_MAX_BIT), AT_HIST_CNT - 1);
	assert_int_equal(at_hist_bucket(UINT64_MAX), AT_HIST_CNT - 1);
}

static void test_clock_that_goes_back(void **state)
{
	(void)state;
	assert_int_equal(at_duration_ns(1000, 1000), 0);
	assert_int_equal(at_duration_ns(1000, 999), 0);
	assert_int_equal(at_duration_ns(UINT64_MAX, 0), 0);
	assert_int_equal(at_duration_ns(999, 1000), 1);
	assert_int_equal(at_hist_bucket(at_duration_ns(1000, 999)), 0);
}

static void test_quantiles_of_nothing(void **state)
{
	struct class_stat stat = {0};

	(void)state;
	assert_int_equal(profile__quantile_ns(&stat, 0.5), 0);
	assert_int_equal(profile__quantile_ns(&stat, 1), 0);
	assert_int_equal(profile__mean_ns(&stat), 0);
}

static void test_quantiles_of_one(void **state)
{
	struct class_stat stat = {0};

	(void)state;
	add(&stat, 1000003);
	assert_int_equal(profile__quantile_ns(&stat, 0.01), 1000003);
	assert_int_equal(profile__quantile_ns(&stat, 0.5), 1000003);
	assert_int_equal(profile__quantile_ns(&stat, 1), 1000003);
	assert_int_equal(profile__mean_ns(&stat), 1000003);
}

static void test_quantile_error(void **state)
{
	struct class_stat stat = {0};

	(void)state;
	for (uint64_t ns = 1; ns <= 100000; ns++)
		add(&stat, ns);
	for (int percent = 1; percent <= 100; percent++) {
		uint64_t exact_ns = (uint64_t)percent * 1000, ns = profile__quantile_ns(&stat, percent / 100.0);

		assert_in_range(ns, exact_ns, exact_ns + exact_ns / 8);
	}
	assert_int_equal(profile__quantile_ns(&stat, 1), 100000);
	assert_int_equal(profile__mean_ns(&stat), 50000);
}

static void test_quantile_edges(void **state)
{
	struct class_stat stat = {0};

	(void)state;
	/* 99 calls of 5 ns and one of 1 ms: p99 is the 99th smallest. */
	for (int i = 0; i < 99; i++)
		add(&stat, 5);
	add(&stat, 1000000);
	assert_int_equal(profile__quantile_ns(&stat, 0.5), 5);
	assert_int_equal(profile__quantile_ns(&stat, 0.99), 5);
	assert_int_equal(profile__quantile_ns(&stat, 0.999), 1000000);
	/* Longer than the histogram reaches: the maximum stands in. */
	add(&stat, 1ull << 40);
	assert_int_equal(profile__quantile_ns(&stat, 1), 1ull << 40);
}

static void test_zero_durations(void **state)
{
	struct class_stat stat = {0};

	(void)state;
	add(&stat, 0);
	add(&stat, 0);
	assert_int_equal(profile__quantile_ns(&stat, 0.5), 0);
	assert_int_equal(profile__quantile_ns(&stat, 1), 0);
}

static void test_adding_classes(void **state)
{
	struct class_stat a = {0}, b = {0};

	(void)state;
	add(&a, 100);
	add(&b, 3);
	add(&b, 700);
	a.bytes = 4096;
	b.bytes = 8192;
	a.error_cnt = 1;
	a.last_errno = ENOMEM;
	a.last_errno_ns = 50;
	b.error_cnt = 2;
	b.last_errno = EINVAL;
	b.last_errno_ns = 40;
	profile__add_class(&a, &b);
	assert_int_equal(a.call_cnt, 3);
	assert_int_equal(a.error_cnt, 3);
	assert_int_equal(a.bytes, 12288);
	assert_int_equal(a.sum_ns, 803);
	assert_int_equal(a.max_ns, 700);
	assert_int_equal(a.last_errno, ENOMEM); /* the later one, whatever the order of adding */
	assert_int_equal(a.hist[3], 1);
	b.last_errno_ns = 60;
	profile__add_class(&a, &b);
	assert_int_equal(a.last_errno, EINVAL);
	/* A part without errors changes nothing about them. */
	memset(&b, 0, sizeof(b));
	profile__add_class(&a, &b);
	assert_int_equal(a.last_errno, EINVAL);
	assert_int_equal(a.last_errno_ns, 60);
}

static void test_total(void **state)
{
	struct profile *profile = profile__new();
	struct phase_stat *total = malloc(sizeof(*total));

	(void)state;
	assert_non_null(profile);
	assert_non_null(total);
	assert_int_equal(profile->overcommit_memory, -1);
	memset(total, 0xff, sizeof(*total));
	for (int phase = 0; phase < AT_PHASE_CNT; phase++) {
		for (int i = 0; i <= phase; i++)
			add(&profile->phases[phase].classes[AT_CLASS_MUNMAP], 10);
		profile->phases[phase].self.call_cnt[ATM_KIND_MUNMAP] = 7;
		profile->phases[phase].self.decision_cnt[ATM_DECISION_TRIM_TAKEN] = 11;
		profile->phases[phase].self.requests.free_cnt[ATM_BAND_CNT - 1] = 13;
	}
	profile__total(profile, total);
	assert_int_equal(total->classes[AT_CLASS_MUNMAP].call_cnt, 6);
	assert_int_equal(total->classes[AT_CLASS_MUNMAP].sum_ns, 60);
	assert_int_equal(total->classes[AT_CLASS_MMAP_ANON].call_cnt, 0);
	assert_int_equal(total->self.call_cnt[ATM_KIND_MUNMAP], 21);
	assert_int_equal(total->self.decision_cnt[ATM_DECISION_TRIM_TAKEN], 33);
	assert_int_equal(total->self.requests.free_cnt[ATM_BAND_CNT - 1], 39);
	free(total);
	profile__free(profile);
}

/* By hand: 700 + 5000 * 250 / 1000; 90, of releases before the phase; 60 + 300, as no more than all was in vain. */
static void test_refault_sum(void **state)
{
	struct at_refault_ledger refault = {
		.kinds = {[AT_RELEASE_DONTNEED] = {1000, 5000, 250, 700},
			  [AT_RELEASE_FREE] = {0, 0, 40, 90},
			  [AT_RELEASE_UNMAP] = {10, 300, 30, 60}},
		.max_ns = 1000,
		.hist = {[7] = 160, [15] = 160}, /* half of them were away for 7 ns, half for 15 */
	};
	struct refault_sum sum = profile__refault_sum(&refault);

	(void)state;
	assert_int_equal(sum.released_pages, 1010);
	assert_int_equal(sum.returned_pages, 320);
	assert_int_equal(sum.wasted_ns, 1950 + 90 + 360);
	assert_int_equal(profile__away_ns(&refault, 0.5), 7);
	assert_int_equal(profile__away_ns(&refault, 0.99), 15);
	refault = (struct at_refault_ledger){0};
	sum = profile__refault_sum(&refault);
	assert_int_equal(sum.released_pages + sum.returned_pages + sum.wasted_ns, 0);
	assert_int_equal(profile__away_ns(&refault, 0.5), 0);
}

static void test_exactness(void **state)
{
	struct profile *profile = profile__new();

	(void)state;
	assert_true(profile__is_exact(profile));
	profile->loss_cnt[AT_LOSS_NEVER_RETURNED] = 1;
	assert_true(profile__is_exact(profile));
	for (int i = 1; i < AT_LOSS_CNT; i++) {
		if (i == AT_LOSS_NEVER_RETURNED)
			continue;
		profile->loss_cnt[i] = 1;
		assert_false(profile__is_exact(profile));
		profile->loss_cnt[i] = 0;
	}
	profile->recursion_miss_cnt = 1;
	assert_false(profile__is_exact(profile));
	profile__free(profile);
}

static void test_names(void **state)
{
	(void)state;
	assert_null(profile__class_name(AT_CLASS_INVALID));
	assert_null(profile__class_name(AT_CLASS_CNT));
	assert_null(profile__class_name((enum at_class) - 1));
	assert_null(profile__syscall_name(AT_SYS_INVALID));
	assert_null(profile__syscall_name(AT_SYS_CNT));
	assert_null(profile__phase_name(AT_PHASE_CNT));
	assert_null(profile__kind_name(ATM_KIND_CNT));
	assert_string_equal(profile__phase_name(AT_PHASE_STARTUP), "startup");
	for (int i = 1; i < AT_CLASS_CNT; i++) {
		const char *class = profile__class_name(i), *syscall = profile__syscall_name(profile__class_syscall(i));

		assert_non_null(class);
		if (syscall)
			assert_memory_equal(class, syscall, strlen(syscall));
		else
			assert_memory_equal(class, "fault.", 6);
	}
	assert_int_equal(profile__class_syscall(AT_CLASS_CNT), AT_SYS_INVALID);
	assert_int_equal(profile__class_syscall(AT_CLASS_BRK_QUERY), AT_SYS_BRK);
}

static void test_ownership(void **state)
{
	struct profile *profile = profile__new();

	(void)state;
	profile__free(NULL);
	profile->argv = calloc(3, sizeof(char *));
	profile->argv[0] = strdup("a");
	profile->argv[1] = strdup("b");
	profile->tune = strdup("check=full");
	profile__free(profile); /* AddressSanitizer would tell of a leak */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buckets_are_contiguous),
		cmocka_unit_test(test_bucket_width),
		cmocka_unit_test(test_last_bucket_is_open),
		cmocka_unit_test(test_clock_that_goes_back),
		cmocka_unit_test(test_quantiles_of_nothing),
		cmocka_unit_test(test_quantiles_of_one),
		cmocka_unit_test(test_quantile_error),
		cmocka_unit_test(test_quantile_edges),
		cmocka_unit_test(test_zero_durations),
		cmocka_unit_test(test_adding_classes),
		cmocka_unit_test(test_total),
		cmocka_unit_test(test_refault_sum),
		cmocka_unit_test(test_exactness),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_ownership),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
