/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages to the user on stderr. */
#include "cli/msg.h"

#include <stdarg.h>
#include <stdio.h>

static int msg_level;

/* One write for the whole line, so that lines of several processes do not mix. */
static void msg__print(const char *fmt, va_list args)
{
	char line[1024];
	size_t used;

	used = (size_t)snprintf(line, sizeof(line), "alloctrace: ");
	vsnprintf(line + used, sizeof(line) - used, fmt, args);
	fprintf(stderr, "%s\n", line);
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
