/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The list of bundled scenarios: scenarios.tsv, one a line, four fields
 * separated by tabs: name, policy that matters, default arguments (separated
 * by spaces, "-" for none), purpose. Lines that start with # are comments.
 */
#ifndef ALLOCTRACE_CLI_SCENARIOS_H
#define ALLOCTRACE_CLI_SCENARIOS_H

#include <stddef.h>

struct scenario {
	char *name, *policy, *arguments, *purpose; /* inside scenarios.text */
};

struct scenarios {
	char *text;
	struct scenario *all;
	size_t cnt;
};

/* Reads the list; 0, or -errno after saying why. */
int scenarios__load(struct scenarios *scenarios);
void scenarios__free(struct scenarios *scenarios);
/* Splits the list's text; scenarios->text is set by the caller. 0 or -errno, *line is then the faulty one. */
int scenarios__parse(struct scenarios *scenarios, size_t *line);
/* NULL when there is none of that name. */
const struct scenario *scenarios__find(const struct scenarios *scenarios, const char *name);
/* Writes the names, comma-separated, cut to fit. */
void scenarios__names(const struct scenarios *scenarios, char *buf, size_t buf_bytes);

#endif
