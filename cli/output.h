/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a report goes: opened before the work begins, written whole at its end. */
#ifndef ALLOCTRACE_CLI_OUTPUT_H
#define ALLOCTRACE_CLI_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

enum color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };

/* How a table may look. */
struct look_opts {
	enum color color, plot;
	bool is_ascii; /* though the locale has UTF-8 */
};
struct look {
	bool has_color, is_ascii;
	int plot_columns; /* width of small pictures; 0 = none */
};

struct output {
	const char *name; /* --output; NULL = stderr, "-" = stdout */
	FILE *file;
};

/* 0, or the exit status after saying why. */
int output__open(struct output *output, const char *name);
/* Colour is for terminals, unless asked for. */
bool output__wants_color(const struct output *output, enum color color);
/* Pictures, too, are for terminals, that are wide enough, unless asked for. */
struct look output__look(const struct output *output, const struct look_opts *opts);
/*
 * Has the report rendered (0 or -errno) in memory, writes it at once, and closes
 * the file: a report is whole, or its end is an error that is seen. 0, or the
 * exit status after saying why.
 */
int output__write(struct output *output, int (*render)(FILE *out, const void *data), const void *data);
/* The same for a part that is seen at once, with more to come: the file stays open. */
int output__write_part(struct output *output, int (*render)(FILE *out, const void *data), const void *data);

#endif
