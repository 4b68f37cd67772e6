/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reports for spreadsheets and documents: CSV (RFC 4180's quoting, lines end
 * with a line feed, texts are the bytes as they are) and Markdown (GitHub's
 * tables). They look at nothing but the data. 0, or -ENOMEM; errors of the
 * stream are left in the stream.
 */
#ifndef ALLOCTRACE_CLI_RENDER_PLAIN_H
#define ALLOCTRACE_CLI_RENDER_PLAIN_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/output.h"
#include "cli/profile.h"
#include "cli/render.h"
#include "cli/render_compare.h"

/* --format: X(id, word). */
#define RENDER_FORMATS(X) \
	X(TABLE, "table") \
	X(JSON, "json")   \
	X(CSV, "csv")     \
	X(MARKDOWN, "markdown")

#define X(id, word) RENDER_##id,
enum render_format { RENDER_FORMATS(X) RENDER_FORMAT_CNT };
#undef X

/* A --format; false after saying what is known. */
bool render_plain__choose(const char *word, enum render_format *format);
/* In any of them; opts and look are of the tables. */
int render_plain__run(FILE *out, const struct profile *profile, enum render_format format,
		      const struct render_opts *opts);
int render_plain__comparison(FILE *out, const struct compare_report *report, enum render_format format,
			     const struct look *look);

/* A line a figure: command, allocator, policy, phase, part, name, figure, value. */
int render_plain__csv(FILE *out, const struct profile *profile);
int render_plain__markdown(FILE *out, const struct profile *profile);
/* A line a figure of each configuration of each program. */
int render_plain__compare_csv(FILE *out, const struct compare_report *report);
int render_plain__compare_markdown(FILE *out, const struct compare_report *report);

/* One field of CSV, quoted where it must be; text: any bytes. */
void render_plain__field(FILE *out, const char *text);
/* Text inside a Markdown table: one line, and nothing in it means anything. */
void render_plain__text(FILE *out, const char *text);

#endif
