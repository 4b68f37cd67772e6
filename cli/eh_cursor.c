/* SPDX-License-Identifier: BSD-2-Clause */
/* See eh_cursor.h. */
#include "cli/eh_cursor.h"

#include <string.h>

uint64_t eh_cursor__bytes(struct eh_cursor *cursor, size_t bytes)
{
	uint64_t value = 0;

	if ((size_t)(cursor->end - cursor->at) < bytes) {
		cursor->is_bad = true;
		cursor->at = cursor->end;
		return 0;
	}
	memcpy(&value, cursor->at, bytes);
	cursor->at += bytes;
	return value;
}

/* *shift: the bits that it has; those beyond 64 say nothing. */
static uint64_t read_leb(struct eh_cursor *cursor, unsigned *shift, uint8_t *last)
{
	uint64_t value = 0;

	*shift = 0;
	do {
		*last = (uint8_t)eh_cursor__bytes(cursor, 1);
		if (*shift < 64) {
			value |= (uint64_t)(*last & 0x7f) << *shift;
			*shift += 7;
		}
	} while (*last & 0x80);
	return value;
}

uint64_t eh_cursor__uleb(struct eh_cursor *cursor)
{
	unsigned shift;
	uint8_t last;

	return read_leb(cursor, &shift, &last);
}

int64_t eh_cursor__sleb(struct eh_cursor *cursor)
{
	unsigned shift;
	uint8_t last;
	uint64_t value = read_leb(cursor, &shift, &last);

	if (shift < 64 && last & 0x40)
		value |= ~0ull << shift;
	return (int64_t)value;
}

void eh_cursor__skip(struct eh_cursor *cursor, uint64_t bytes)
{
	if (bytes > (uint64_t)(cursor->end - cursor->at)) {
		cursor->is_bad = true;
		cursor->at = cursor->end;
	} else {
		cursor->at += bytes;
	}
}

uint64_t eh_cursor__pointer(struct eh_cursor *cursor, uint8_t encoding)
{
	uint64_t place = cursor->address + (uint64_t)(cursor->at - cursor->start), value;

	switch (encoding & PE_FORMAT) {
	case PE_UDATA2: value = eh_cursor__bytes(cursor, 2); break;
	case PE_UDATA4: value = eh_cursor__bytes(cursor, 4); break;
	case PE_SDATA2: value = (uint64_t)(int16_t)eh_cursor__bytes(cursor, 2); break;
	case PE_SDATA4: value = (uint64_t)(int32_t)eh_cursor__bytes(cursor, 4); break;
	case PE_ABSPTR:
	case PE_UDATA8:
	case PE_SDATA8: value = eh_cursor__bytes(cursor, 8); break;
	default: cursor->is_bad = true; return 0;
	}
	if ((encoding & PE_APPLICATION) == PE_PCREL)
		return value + place;
	if (encoding & PE_APPLICATION)
		cursor->is_bad = true;
	return value;
}
