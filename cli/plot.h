/* SPDX-License-Identifier: BSD-2-Clause */
/* Small pictures of one line, for a table on a terminal. */
#ifndef ALLOCTRACE_CLI_PLOT_H
#define ALLOCTRACE_CLI_PLOT_H

#include <stdbool.h>
#include <stdio.h>

/* A bar from 0, and the interval in which its end is. The right edge of the picture is `most` (> 0). */
struct plot_bar {
	double low, median, high; /* 0 <= low <= median <= high <= most */
	double most;
};

/*
 * Writes it, `width` columns wide: solid to the interval's low end, shaded to
 * its high end, with a mark at the median. A value above 0 is never nothing.
 */
void plot__bar(FILE *out, const struct plot_bar *bar, int width, bool is_ascii);

/* Whether the locale of the environment writes UTF-8. Changes the process' LC_CTYPE to it. */
bool plot__is_utf8(void);
/* Columns of the terminal that the stream is; 0 when it is none, or does not say. */
int plot__columns(FILE *out);

#endif
