/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of the library: one line on stderr each, without allocating. */
#include <stdlib.h>
#include <string.h>

#include "alloc/heap.h"
#include "alloc/syscall.h"

struct line {
	char text[256];
	size_t bytes;
};

static void add(struct line *line, const char *text, size_t bytes)
{
	size_t room = sizeof(line->text) - line->bytes;

	if (bytes > room)
		bytes = room;
	memcpy(line->text + line->bytes, text, bytes);
	line->bytes += bytes;
}

static void add_text(struct line *line, const char *text)
{
	add(line, text, strlen(text));
}

static void put(const struct line *line)
{
	atm_syscall(SYS_write, 2, (long)line->text, (long)line->bytes, 0, 0, 0);
}

_Noreturn void atm_misuse(const char *what, const void *p)
{
	struct line line = {.bytes = 0};
	char hex[16];
	size_t digit_cnt = 0;

	for (uintptr_t value = (uintptr_t)p; value; value >>= 4)
		hex[sizeof(hex) - ++digit_cnt] = "0123456789abcdef"[value & 15];
	add_text(&line, "atmalloc: ");
	add_text(&line, what);
	add_text(&line, ": 0x");
	add(&line, hex + sizeof(hex) - digit_cnt, digit_cnt);
	add_text(&line, "; aborting\n");
	put(&line);
	abort();
}

void atm_warn(const char *what, const char *detail, size_t detail_bytes)
{
	struct line line = {.bytes = 0};

	add_text(&line, "atmalloc: ");
	add_text(&line, what);
	add(&line, detail, detail_bytes > 64 ? 64 : detail_bytes);
	add_text(&line, "\n");
	put(&line);
}
