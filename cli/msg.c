/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages to the user on stderr. */
#include "cli/msg.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli/format.h"

static int msg_level;

/* Names of files and processes may have anything in them, and go to a terminal. */
static bool is_plain(const char *text)
{
	for (; *text; text++)
		if (((unsigned char)*text < ' ' && *text != '\t') || (unsigned char)*text > '~')
			return false;
	return true;
}

/* One write for the whole line, so that lines of several processes do not mix. */
static void msg__print(const char *fmt, va_list args)
{
	char line[1024], escaped[4096];

	vsnprintf(line, sizeof(line), fmt, args);
	fprintf(stderr, "alloctrace: %s\n", is_plain(line) ? line : format__escape(line, escaped, sizeof(escaped)));
}

void msg__error(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	msg__print(fmt, args);
	va_end(args);
}

void msg__warn(const char *fmt, ...)
{
	va_list args;

	if (msg_level < 0)
		return;
	va_start(args, fmt);
	msg__print(fmt, args);
	va_end(args);
}

void msg__info(const char *fmt, ...)
{
	va_list args;

	if (msg_level < 1)
		return;
	va_start(args, fmt);
	msg__print(fmt, args);
	va_end(args);
}

void msg__set_level(int level)
{
	msg_level = level;
}

bool msg__is_quiet(void)
{
	return msg_level < 0;
}
