/* SPDX-License-Identifier: BSD-2-Clause */
/* Figures and texts for people. What takes a buf returns it. */
#ifndef ALLOCTRACE_CLI_FORMAT_H
#define ALLOCTRACE_CLI_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define FORMAT_BYTES 32

/* Width of the label column of all lines outside the tables. */
enum { FORMAT_LABEL_WIDTH = 12 };

/* "1,234,567" */
const char *format__count(uint64_t cnt, char buf[FORMAT_BYTES]);
/* "512 B", "4.0 KiB", "1.5 GiB" */
const char *format__bytes(uint64_t bytes, char buf[FORMAT_BYTES]);
/* "12 ns", "1.50 us", "2.25 ms", "3.00 s" */
const char *format__ns(uint64_t ns, char buf[FORMAT_BYTES]);

/*
 * Makes text safe for a terminal: control characters, broken UTF-8 and the
 * backslash itself become \xNN. Cut to fit, never inside an escape.
 */
const char *format__escape(const char *text, char *buf, size_t buf_bytes);

/* A line of a report: the label in its column, then the text. */
void __attribute__((format(printf, 3, 4))) format__line(FILE *out, const char *label, const char *fmt, ...);

#endif
