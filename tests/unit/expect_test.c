/* SPDX-License-Identifier: BSD-2-Clause */
/* Expectations: what is understood, what is refused and where, and whether they are met. */
#include <errno.h>
#include <linux/types.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/cmd.h"
#include "cli/expect.h"

static struct figures figures;
static struct compare_configs configs = {
	.all = {{.name = "none"}, {.name = "all"}, {.name = "odd)(name"}},
	.cnt = 3,
};

static int set_up(void **state)
{
	(void)state;
	return figures__list(&figures);
}

static int tear_down(void **state)
{
	(void)state;
	figures__free(&figures);
	return 0;
}

static struct expect understand(const char *text, const struct compare_configs *of)
{
	char why[EXPECT_WHY_BYTES];
	struct expect expect;

	if (expect__parse(text, &figures, of, &expect, why)) {
		print_error("'%s': %s\n", text, why);
		fail();
	}
	return expect;
}

static void refuse(const char *text, const struct compare_configs *of, int place, const char *because)
{
	char why[EXPECT_WHY_BYTES], where[32];
	struct expect expect;

	snprintf(where, sizeof(where), "at character %d: ", place);
	if (expect__parse(text, &figures, of, &expect, why) != -EINVAL || strncmp(why, where, strlen(where)) != 0 ||
	    !strstr(why, because)) {
		print_error("'%s': '%s', wanted: '%s%s'\n", text, why, where, because);
		fail();
	}
}

static void test_terms(void **state)
{
	struct expect expect = understand("madvise.dontneed<=2", NULL);

	(void)state;
	assert_string_equal(expect.terms[0].figure->name, "madvise.dontneed");
	assert_int_equal(expect.operator, EXPECT_AT_MOST);
	assert_null(expect.terms[1].figure);
	assert_true(expect.terms[1].number == 2);
	assert_int_equal(expect.terms[0].phase, EXPECT_PHASE_SHOWN);

	expect = understand(" 1.5 * kernel_ns(all) \t> 50%*kernel_ns (odd)(name) ", &configs);
	assert_int_equal(expect.operator, EXPECT_ABOVE);
	assert_true(expect.terms[0].number == 1.5);
	assert_true(expect.terms[1].number == 0.5);
	assert_int_equal(expect.terms[0].config, 1);

	expect = understand("calls@teardown!=-3", NULL);
	assert_int_equal(expect.terms[0].phase, AT_PHASE_TEARDOWN);
	assert_true(expect.terms[1].number == -3);
	expect = understand("munmap.errors@all<5%", NULL);
	assert_int_equal(expect.terms[0].phase, EXPECT_PHASE_ALL);
	assert_string_equal(expect.terms[1].whole->name, "munmap");
	assert_true(expect.terms[1].number == 0.05);
	expect = understand("refault.pages<=5%", NULL);
	assert_string_equal(expect.terms[0].figure->name, "refault.returned_pages");
	assert_string_equal(expect.terms[1].whole->name, "refault.released_pages");
	assert_string_equal(understand("stacks.calls<1", NULL).terms[0].figure->name, "stacks.calls");
}

static void test_units(void **state)
{
	static const struct {
		const char *text;
		double number;
	} cases[] = {
		{"kernel_ns<7", 7},
		{"kernel_ns<7ns", 7},
		{"kernel_ns<7us", 7e3},
		{"kernel_ns<7ms", 7e6},
		{"kernel_ns<1.5s", 1.5e9},
		{"max_rss<3K", 3072},
		{"max_rss<1.5M", 1572864},
		{"munmap.bytes<2G", 2147483648.0},
		{"munmap<3K", 3000},
		{"commit.peak_pages<2M", 2e6},
		{"wall_ns<999999999999999", 999999999999999.0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct expect expect = understand(cases[i].text, NULL);

		assert_true(expect.terms[1].number == cases[i].number);
	}
}

static void test_refused(void **state)
{
	(void)state;
	refuse("", NULL, 1, "a number or the name");
	refuse("munmap", NULL, 7, "one of <= < >= > == != is wanted");
	refuse("munmap=2", NULL, 7, "one of <=");
	refuse("munmap<", NULL, 8, "a number or the name");
	refuse("munmap<<2", NULL, 8, "a number or the name");
	refuse("munmap<2 munmap", NULL, 10, "the end is wanted, not 'munmap'");
	refuse("1<2", NULL, 1, "no figure in it");
	refuse("madvise.dontned<2", NULL, 1,
	       "known: madvise.dontneed, madvise.free, madvise.hugepage, madvise.nohugepage");
	refuse("munmap.error<2", NULL, 1, "known: munmap, munmap.errors, munmap.bytes, munmap.kernel_ns");
	refuse("2>=nonsense", NULL, 4, "unknown figure 'nonsense'; known: calls, kernel_ns, faults, lost, mmap.anon");
	refuse("munmap<2ms", NULL, 8, "'munmap' is no time");
	refuse("wall_ns<2K", NULL, 9, "'wall_ns' is a time");
	refuse("munmap<2%", NULL, 8, "no part of another figure");
	refuse("munmap<2x", NULL, 9, "unknown unit 'x'");
	refuse("munmap<2e9", NULL, 9, "unknown unit 'e9'");
	refuse("munmap<0x10", NULL, 9, "unknown unit 'x10'");
	refuse("munmap<2K*mmap", NULL, 8, "a factor has no unit but %");
	refuse("munmap<2*", NULL, 10, "the name of a figure is wanted");
	refuse("munmap<2*3", NULL, 10, "unknown figure '3'");
	refuse("munmap<1234567890123456", NULL, 8, "more than 15 digits");
	refuse("munmap<.5", NULL, 8, "unknown figure '.5'");
	refuse("munmap@middle<2", NULL, 8, "unknown phase 'middle'; known: startup, measured, teardown, all");
	refuse("max_rss@all<2", NULL, 9, "is of the whole run");
	refuse("munmap<max_rss", NULL, 8, "have not the same unit");
	refuse("munmap(all)<2", NULL, 7, "a run has one");
	refuse("munmap<2", &configs, 7, "which configuration? As munmap(none)");
	refuse("munmap(some)<2", &configs, 8, "unknown configuration 'some'; known: none, all, odd)(name");
	refuse("munmap(all<2", &configs, 8, "unknown configuration");
	refuse("requests.malloc(all)<2", &configs, 1, "not kept by compare");
}

/* Each name is one that the parser takes, and they are not few. */
static void test_names(void **state)
{
	char text[FIGURE_NAME_BYTES + 8];

	(void)state;
	assert_true(figures.cnt > 300);
	for (size_t i = 0; i < figures.cnt; i++) {
		snprintf(text, sizeof(text), "%s<1", figures.all[i].name);
		assert_string_equal(understand(text, NULL).terms[0].figure->name, figures.all[i].name);
	}
	for (int class = 1; class < AT_CLASS_CNT; class ++)
		assert_non_null(
			figures__find(&figures, profile__class_name(class), strlen(profile__class_name(class))));
}

static struct profile *new_profile(void)
{
	struct profile *profile = profile__new();
	struct class_stat *dontneed;

	assert_non_null(profile);
	profile->has_trace = true;
	profile->has_faults = true;
	profile->ledgers = LEDGER_VMAS;
	profile->phases_seen = 3;
	profile->max_map_cnt = 1000;
	profile->max_rss_bytes = 1 << 20;
	profile->phases[AT_PHASE_MEASURED].vmas = (struct vma_stat){.start_ns = 1, .peak_cnt = 50};
	dontneed = &profile->phases[AT_PHASE_MEASURED].classes[AT_CLASS_MADVISE_DONTNEED];
	dontneed->call_cnt = 1021;
	dontneed->sum_ns = 5000000;
	profile->phases[AT_PHASE_MEASURED].classes[AT_CLASS_MADVISE_PHASE].call_cnt = 2;
	profile->phases[AT_PHASE_STARTUP].classes[AT_CLASS_MADVISE_FREE].call_cnt = 7;
	profile->phases[AT_PHASE_STARTUP].classes[AT_CLASS_FAULT_MINOR].call_cnt = 11;
	profile->phases[AT_PHASE_STARTUP].classes[AT_CLASS_FAULT_MAJOR].call_cnt = 13;
	return profile;
}

static int judge(const struct profile *profile, const char *text)
{
	struct expects expects = {0};
	int status;

	assert_int_equal(expect__add(&expects, text), 0);
	assert_int_equal(expect__parse_all(&expects, NULL), 0);
	status = expect__check_profile(&expects, profile);
	expect__free(&expects);
	return status;
}

static void test_met(void **state)
{
	static const char *const met[] = {
		"madvise.dontneed==1021",
		"madvise.dontneed<=1021",
		"madvise.dontneed<1022",
		"1021>=madvise.dontneed",
		"madvise==1021",
		"madvise@all==1028",
		"calls==1021",
		"calls@startup==7",
		"kernel_ns==5ms",
		"kernel_ns>4.999ms",
		"faults@startup==24",
		"faults==0",
		"fault.minor@startup!=12",
		"max_rss==1M",
		"vmas.peak==5%",
		"vmas.peak<=5%",
		"munmap.p99_ns==0",
		"vmas.growth.munmap==0",
		"lost==0",
		"munmap<=0.5*munmap",
		"madvise.free@startup<1%*madvise.dontneed",
	};
	static const char *const unmet[] = {"madvise.dontneed<=1020",
					    "madvise.dontneed<1021",
					    "madvise.dontneed!=1021",
					    "vmas.peak<5%",
					    "max_rss<1M",
					    "munmap<0.5*munmap",
					    "kernel_ns>5ms"};
	static const char *const unknown[] = {"commit.peak_pages<=1", "requests.malloc<=1", "decisions.trim.taken==0",
					      "final_rss<=1G", "munmap<=commit.peak_pages"};
	struct profile *profile = new_profile();

	(void)state;
	for (size_t i = 0; i < sizeof(met) / sizeof(met[0]); i++)
		if (judge(profile, met[i]))
			fail_msg("'%s' is not met", met[i]);
	for (size_t i = 0; i < sizeof(unmet) / sizeof(unmet[0]); i++)
		if (judge(profile, unmet[i]) != AT_EXIT_UNMET)
			fail_msg("'%s' is met", unmet[i]);
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
		if (judge(profile, unknown[i]) != AT_EXIT_OWN)
			fail_msg("'%s' is judged, but was not measured", unknown[i]);
	profile__free(profile);
}

/* Not traced: what the allocator counted, and no more. */
static void test_counted(void **state)
{
	struct profile *profile = new_profile();

	(void)state;
	profile->has_trace = false;
	profile->ledgers = 0;
	assert_int_equal(judge(profile, "munmap<=1"), AT_EXIT_OWN);
	profile->has_self_counts = true;
	profile->phases[AT_PHASE_MEASURED].self.call_cnt[ATM_KIND_MUNMAP] = 5;
	profile->phases[AT_PHASE_MEASURED].self.call_cnt[ATM_KIND_MADVISE_PHASE] = 1;
	assert_int_equal(judge(profile, "munmap==5"), 0);
	assert_int_equal(judge(profile, "calls==5"), 0);
	assert_int_equal(judge(profile, "decisions.trim.taken==0"), 0);
	assert_int_equal(judge(profile, "kernel_ns<=1s"), AT_EXIT_OWN);
	assert_int_equal(judge(profile, "lost==0"), AT_EXIT_OWN);
	assert_int_equal(judge(profile, "munmap.errors==0"), AT_EXIT_OWN);
	profile__free(profile);
}

static uint64_t random_word(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* Pieces in any order: understood or refused, with a reason (the sanitizers watch). */
static void test_random(void **state)
{
	static const char *const pieces[] = {"munmap", "kernel_ns", "(all)", "(", ")",       "@",    "@all",
					     "<=",     "==",        "!",     "2", "-",       ".",    "%",
					     "*",      "ms",        "K",     " ", "max_rss", "\xff", "999999999999999"};
	uint64_t seed = 7;
	int understood_cnt = 0;

	(void)state;
	for (int round = 0; round < 200000; round++) {
		char text[256] = "", why[EXPECT_WHY_BYTES];
		struct expect expect;

		for (uint64_t i = random_word(&seed) % 9; i; i--)
			strcat(text, pieces[random_word(&seed) % (sizeof(pieces) / sizeof(pieces[0]))]);
		if (expect__parse(text, &figures, round % 2 ? &configs : NULL, &expect, why) == 0)
			understood_cnt++;
		else
			assert_true(strncmp(why, "at character ", 13) == 0);
	}
	assert_true(understood_cnt > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_terms),  cmocka_unit_test(test_units), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_names),  cmocka_unit_test(test_met),   cmocka_unit_test(test_counted),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests_name("expect", tests, set_up, tear_down);
}
