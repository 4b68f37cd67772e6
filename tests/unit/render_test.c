/* SPDX-License-Identifier: BSD-2-Clause */
/* What the reports say of a profile with known contents; figures and texts for people. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli/format.h"
#include "cli/render.h"
#include "cli/scenarios.h"

static void test_format_count(void **state)
{
	char buf[FORMAT_BYTES];

	(void)state;
	assert_string_equal(format__count(0, buf), "0");
	assert_string_equal(format__count(999, buf), "999");
	assert_string_equal(format__count(1000, buf), "1,000");
	assert_string_equal(format__count(1234567, buf), "1,234,567");
	assert_string_equal(format__count(UINT64_MAX, buf), "18,446,744,073,709,551,615");
}

static void test_format_bytes(void **state)
{
	char buf[FORMAT_BYTES];

	(void)state;
	assert_string_equal(format__bytes(0, buf), "0 B");
	assert_string_equal(format__bytes(1023, buf), "1023 B");
	assert_string_equal(format__bytes(1024, buf), "1.0 KiB");
	assert_string_equal(format__bytes((1 << 20) - 1, buf), "1.0 MiB");
	assert_string_equal(format__bytes(1536 << 20, buf), "1.5 GiB");
	assert_string_equal(format__bytes(UINT64_MAX, buf), "16.0 EiB");
}

static void test_format_ns(void **state)
{
	char buf[FORMAT_BYTES];

	(void)state;
	assert_string_equal(format__ns(999, buf), "999 ns");
	assert_string_equal(format__ns(1500, buf), "1.50 us");
	assert_string_equal(format__ns(999999, buf), "1.00 ms");
	assert_string_equal(format__ns(2250000000ull, buf), "2.25 s");
}

static void test_escape(void **state)
{
	char buf[64];

	(void)state;
	assert_string_equal(format__escape("a\033[31mb\n", buf, sizeof(buf)), "a\\x1b[31mb\\x0a");
	assert_string_equal(format__escape("back\\slash", buf, sizeof(buf)), "back\\x5cslash");
	assert_string_equal(format__escape("gr\xc3\xbc\xc3\x9f", buf, sizeof(buf)), "gr\xc3\xbc\xc3\x9f");
	assert_string_equal(format__escape("\xff\xc3", buf, sizeof(buf)), "\\xff\\xc3");
	assert_string_equal(format__escape("\xc2\x9b"
					   "31m",
					   buf, sizeof(buf)),
			    "\\xc2\\x9b31m");                                                     /* C1's CSI */
	assert_string_equal(format__escape("\xc0\xaf", buf, sizeof(buf)), "\\xc0\\xaf");          /* overlong */
	assert_string_equal(format__escape("\xe2\x80\xae", buf, sizeof(buf)), "\\xe2\\x80\\xae"); /* right to left */
	assert_string_equal(format__escape("abc\001", buf, 6), "abc");
	assert_string_equal(format__escape("abcdef", buf, 4), "abc");
}

static void add_calls(struct class_stat *stat, uint64_t cnt, uint64_t ns)
{
	stat->call_cnt += cnt;
	stat->sum_ns += cnt * ns;
	stat->hist[at_hist_bucket(ns)] += cnt;
	if (ns > stat->max_ns)
		stat->max_ns = ns;
}

/* A run with phases: 1,024 releases in `measured`, 3 failed ones of another class. */
static struct profile *new_profile(const char *arg)
{
	struct profile *profile = profile__new();
	struct phase_stat *measured;

	assert_non_null(profile);
	profile->tier = 1;
	profile->has_trace = true;
	profile->has_faults = true;
	strcpy(profile->kernel, "6.1.0");
	strcpy(profile->allocator, "bundled");
	profile->has_policy = true;
	profile->policy = POLICY_STACK | POLICY_TRIM;
	profile->tune = strdup("grow=copy,trim_threshold=256K");
	profile->argv = calloc(3, sizeof(char *));
	profile->argv[0] = strdup("prog");
	profile->argv[1] = strdup(arg);
	profile->has_exit = true;
	profile->sys_ns = 4000000;
	profile->phases_seen = 7;
	measured = &profile->phases[AT_PHASE_MEASURED];
	add_calls(&measured->classes[AT_CLASS_MADVISE_DONTNEED], 1024, 1000);
	measured->classes[AT_CLASS_MADVISE_DONTNEED].bytes = 1 << 20;
	add_calls(&measured->classes[AT_CLASS_MMAP_ANON], 3, 500);
	measured->classes[AT_CLASS_MMAP_ANON].error_cnt = 3;
	measured->classes[AT_CLASS_MMAP_ANON].last_errno = ENOMEM;
	add_calls(&measured->classes[AT_CLASS_MADVISE_PHASE], 1, 100);
	add_calls(&profile->phases[AT_PHASE_STARTUP].classes[AT_CLASS_BRK_QUERY], 2, 100);
	return profile;
}

static char *render_table_text(const struct profile *profile, const struct render_opts *opts)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *memory = open_memstream(&text, &bytes);

	assert_int_equal(render__table(memory, profile, opts), 0);
	fclose(memory);
	return text;
}

static json_t *render_document(const struct profile *profile)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *memory = open_memstream(&text, &bytes);
	json_error_t error;
	json_t *document;

	assert_int_equal(render__json(memory, profile), 0);
	fclose(memory);
	document = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	assert_non_null(document);
	free(text);
	return document;
}

/* The value at "a/b/c"; NULL when it is absent. */
static json_t *at(json_t *document, const char *path)
{
	char copy[256], *rest = copy, *key;

	strcpy(copy, path);
	while ((key = strsep(&rest, "/")))
		document = json_object_get(document, key);
	return document;
}

static void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' is not in:\n%s", part, text);
}

static void test_table(void **state)
{
	struct profile *profile = new_profile("two words");
	struct render_opts opts = {0};
	char *text = render_table_text(profile, &opts);

	(void)state;
	assert_has(text, "prog 'two words'\n");
	assert_has(text, "policies stack,trim\n");
	assert_has(text, "tier 1, exact;");
	assert_has(text, "\nmeasured ");
	assert_has(text, "madvise.dontneed        1,024                0    1.0 MiB      1.024      1.00");
	assert_has(text, "3 ENOMEM");
	assert_has(text, "startup     2 calls, 200 ns; 0 faults, 0 ns\n");
	assert_has(text, "26 %\n"); /* 1,024,000 + 1,500 + 100 + 200 of 4,000,000 ns */
	assert_has(text, "ended       exit 0\n");
	assert_null(strstr(text, "munmap"));        /* no calls, no row */
	assert_null(strstr(text, "madvise.phase")); /* our own marker */
	assert_null(strchr(text, '\033'));
	free(text);
	profile__free(profile);
}

static void test_table_says_what_is_missing(void **state)
{
	struct profile *profile = new_profile("x");
	struct render_opts opts = {.has_color = true};
	char *text;

	(void)state;
	profile->loss_cnt[AT_LOSS_SLOT_FULL] = 4;
	profile->loss_cnt[AT_LOSS_NEVER_RETURNED] = 2;
	profile->compat_cnt[AT_SYS_BRK] = 100;
	profile->in_flight_cnt[AT_SYS_MUNMAP] = 1;
	profile->exit_signal = SIGABRT;
	text = render_table_text(profile, &opts);
	assert_has(text, "NOT EXACT");
	assert_has(text, "4 calls without room for their start time");
	assert_has(text, "2 calls that never returned");
	assert_has(text, "100 compat (32-bit) syscalls not decoded: brk 100\n");
	assert_has(text, "1 calls still running at the end: munmap 1\n");
	assert_has(text, "signal 6 (ABRT)\n");
	assert_has(text, "\033[1m");
	free(text);
	profile__free(profile);
}

static void test_table_without_tracing(void **state)
{
	struct profile *profile = new_profile("x");
	struct render_opts opts = {0};
	char *text;

	(void)state;
	strcpy(profile->advice, "run it with sudo");
	profile->tier = 0;
	profile->has_trace = false;
	profile->has_faults = false;
	profile->has_self_counts = true;
	profile->phases[AT_PHASE_MEASURED].self.call_cnt[ATM_KIND_MUNMAP] = 42;
	profile->phases[AT_PHASE_MEASURED].self.requests.malloc_cnt[2] = 1000;
	text = render_table_text(profile, &opts);
	assert_has(text, "not traced");
	assert_has(text, "run it with sudo");
	assert_has(text, "munmap                     42                0          -          -");
	assert_has(text, "42.00 memory syscalls per 1,000 requests");
	assert_null(strstr(text, "madvise.dontneed"));
	free(text);
	profile__free(profile);
}

static void test_table_all(void **state)
{
	struct profile *profile = new_profile("x");
	struct render_opts opts = {0};
	char *text;

	(void)state;
	profile->phases_seen = 1;
	text = render_table_text(profile, &opts);
	assert_has(text, "\nall ");
	assert_null(strstr(text, "startup"));
	free(text);
	profile__free(profile);
}

/* The allocator's own count above the tracer's is a contradiction, and said. */
static void test_table_contradiction(void **state)
{
	struct profile *profile = new_profile("x");
	struct render_opts opts = {0};
	char *text;

	(void)state;
	profile->has_self_counts = true;
	profile->phases[AT_PHASE_MEASURED].self.call_cnt[ATM_KIND_MADVISE_DONTNEED] = 1025;
	text = render_table_text(profile, &opts);
	assert_has(text, "madvise.dontneed: 1,024 traced, but the allocator counted 1,025");
	free(text);
	profile__free(profile);
}

static void test_json(void **state)
{
	struct profile *profile = new_profile("q\"uote\\ {}'\x01\x1f\033[31m");
	json_t *document, *class;

	(void)state;
	profile->has_self_counts = true;
	profile->self_process_cnt = 1;
	profile->phases[AT_PHASE_MEASURED].self.requests.malloc_cnt[0] = 3;
	profile->phases[AT_PHASE_MEASURED].self.requests.malloc_cnt[7] = 4;
	profile->phases[AT_PHASE_MEASURED].self.decision_cnt[ATM_DECISION_TRIM_TAKEN] = 1024;
	document = render_document(profile);
	assert_string_equal(json_string_value(at(document, "schema")), "alloctrace.profile/1");
	assert_true(json_is_true(at(document, "tool/exact")));
	assert_int_equal(json_integer_value(at(document, "tool/lost/map_full")), 0);
	assert_non_null(at(document, "tool/lost/map_full"));
	assert_string_equal(json_string_value(json_array_get(at(document, "target/command"), 1)),
			    "q\"uote\\ {}'\x01\x1f\033[31m");
	assert_null(at(document, "target/command_latin1"));
	assert_int_equal(json_array_size(at(document, "target/policy")), 2);
	assert_string_equal(json_string_value(at(document, "target/tune/grow")), "copy");
	assert_int_equal(json_integer_value(at(document, "target/tune/trim_threshold")), 256 << 10);
	assert_true(json_is_null(at(document, "target/exit/signal")));
	assert_null(at(document, "phases/all"));
	class = at(document, "phases/measured/classes/madvise.dontneed");
	assert_int_equal(json_integer_value(json_object_get(class, "calls")), 1024);
	assert_int_equal(json_integer_value(json_object_get(class, "kernel_ns")), 1024000);
	assert_int_equal(json_integer_value(json_object_get(class, "mean_ns")), 1000);
	assert_null(json_object_get(class, "lock_wait_ns"));
	class = at(document, "phases/measured/classes/mmap.anon");
	assert_string_equal(json_string_value(json_object_get(class, "last_errno")), "ENOMEM");
	class = at(document, "phases/measured/classes/munmap");
	assert_int_equal(json_integer_value(json_object_get(class, "calls")), 0);
	assert_null(json_object_get(class, "mean_ns"));
	assert_int_equal(json_integer_value(at(document, "total/syscalls/madvise/calls")), 1025);
	assert_int_equal(json_integer_value(at(document, "phases/measured/requests/malloc")), 7);
	assert_int_equal(json_integer_value(at(document, "phases/measured/decisions/trim.taken")), 1024);
	assert_non_null(at(document, "phases/measured/self_counts/madvise.dontneed"));
	assert_null(at(document, "compat"));
	assert_null(at(document, "phases/measured/commit"));
	json_decref(document);
	profile__free(profile);
}

static void test_json_not_utf8(void **state)
{
	struct profile *profile = new_profile("a\xff\xc3\xbc");
	json_t *document = render_document(profile);

	(void)state;
	assert_string_equal(json_string_value(json_array_get(at(document, "target/command"), 1)),
			    "a\xef\xbf\xbd\xc3\xbc");
	/* U+0061 U+00FF U+00C3 U+00BC: the bytes, one character each */
	assert_string_equal(json_string_value(json_array_get(at(document, "target/command_latin1"), 1)),
			    "a\xc3\xbf\xc3\x83\xc2\xbc");
	assert_string_equal(json_string_value(json_array_get(at(document, "target/command_latin1"), 0)), "prog");
	json_decref(document);
	profile__free(profile);
}

/* Absent means not measured. */
static void test_json_without_tracing(void **state)
{
	struct profile *profile = new_profile("x");
	json_t *document;

	(void)state;
	profile->tier = 0;
	profile->has_trace = false;
	profile->has_faults = false;
	profile->has_policy = false;
	profile->exit_signal = SIGKILL;
	document = render_document(profile);
	assert_null(at(document, "tool/exact"));
	assert_null(at(document, "tool/lost"));
	assert_null(at(document, "total/classes"));
	assert_null(at(document, "total/requests"));
	assert_null(at(document, "target/policy"));
	assert_true(json_is_null(at(document, "target/exit/status")));
	assert_int_equal(json_integer_value(at(document, "target/exit/signal")), SIGKILL);
	assert_string_equal(json_string_value(at(document, "target/exit/signal_name")), "KILL");
	json_decref(document);
	profile__free(profile);
}

static void test_scenarios(void **state)
{
	struct scenarios scenarios = {
		.text = strdup("# a comment\n\none\ttrim\t-\tfirst\ntwo\tstack\t--n 3\tthe second\n")};
	size_t line;
	char names[32];

	(void)state;
	assert_int_equal(scenarios__parse(&scenarios, &line), 0);
	assert_int_equal(scenarios.cnt, 2);
	assert_string_equal(scenarios__find(&scenarios, "one")->arguments, "");
	assert_string_equal(scenarios__find(&scenarios, "two")->arguments, "--n 3");
	assert_string_equal(scenarios__find(&scenarios, "two")->purpose, "the second");
	assert_null(scenarios__find(&scenarios, "three"));
	scenarios__names(&scenarios, names, sizeof(names));
	assert_string_equal(names, "one, two");
	scenarios__free(&scenarios);
	scenarios.text = strdup("one\ttrim\t-\tfirst\nno tabs\n");
	assert_int_equal(scenarios__parse(&scenarios, &line), -EINVAL);
	assert_int_equal(line, 2);
	scenarios__free(&scenarios);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_format_count),
		cmocka_unit_test(test_format_bytes),
		cmocka_unit_test(test_format_ns),
		cmocka_unit_test(test_escape),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_table_says_what_is_missing),
		cmocka_unit_test(test_table_without_tracing),
		cmocka_unit_test(test_table_all),
		cmocka_unit_test(test_table_contradiction),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_json_not_utf8),
		cmocka_unit_test(test_json_without_tracing),
		cmocka_unit_test(test_scenarios),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
