/* SPDX-License-Identifier: BSD-2-Clause */
/* Pictures of known bars, column by column. */
#include <linux/types.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cli/plot.h"

static void is_drawn(const char *expected, double low, double median, double high, bool is_ascii)
{
	struct plot_bar bar = {low, median, high, 80};
	char *text;
	size_t bytes;
	FILE *memory = open_memstream(&text, &bytes);

	assert_non_null(memory);
	plot__bar(memory, &bar, 8, is_ascii);
	fclose(memory);
	assert_string_equal(text, expected);
	free(text);
}

/* 8 columns of 10 each. */
static void test_bars(void **state)
{
	(void)state;
	is_drawn("########", 80, 80, 80, true);
	is_drawn("        ", 0, 0, 0, true);
	is_drawn("#       ", 0.001, 0.001, 0.001, true); /* little is not nothing */
	is_drawn("####    ", 40, 40, 40, true);
	is_drawn("##--|---", 20, 45, 80, true);
	is_drawn("##|-----", 20, 20, 80, true);
	is_drawn("|-------", 0, 0, 80, true);
	is_drawn("#####   ", 41, 44, 48, true); /* an interval within a column has no room */
}

static void test_unicode(void **state)
{
	(void)state;
	is_drawn("████    ", 40, 40, 40, false);
	is_drawn("████▌   ", 45, 45, 45, false);
	is_drawn("████▏   ", 41.25, 41.25, 41.25, false);
	is_drawn("█████   ", 49.9, 49.9, 49.9, false);
	is_drawn("▏       ", 0.001, 0.001, 0.001, false);
	is_drawn("██▒▒┃▒▒▒", 20, 45, 80, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bars),
		cmocka_unit_test(test_unicode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
