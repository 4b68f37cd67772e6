/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A place in a buffer of unknown origin, with the numbers that .eh_frame is made of: LEB128 (DWARF 5 section 7.6)
 * and encoded pointers (Linux Standard Base, "Exception Frames").
 */
#ifndef ALLOCTRACE_CLI_EH_CURSOR_H
#define ALLOCTRACE_CLI_EH_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pointer_encoding {
	PE_ABSPTR = 0x00,
	PE_UDATA2 = 0x02,
	PE_UDATA4 = 0x03,
	PE_UDATA8 = 0x04,
	PE_SDATA2 = 0x0a,
	PE_SDATA4 = 0x0b,
	PE_SDATA8 = 0x0c,
	PE_FORMAT = 0x0f,
	PE_PCREL = 0x10,
	PE_APPLICATION = 0x70,
	PE_OMIT = 0xff,
};

/* Reading beyond the end gives 0 and sets is_bad. */
struct eh_cursor {
	const uint8_t *start, *at, *end;
	uint64_t address; /* of start, in the object */
	bool is_bad;
};

uint64_t eh_cursor__bytes(struct eh_cursor *cursor, size_t bytes);
uint64_t eh_cursor__uleb(struct eh_cursor *cursor);
int64_t eh_cursor__sleb(struct eh_cursor *cursor);
void eh_cursor__skip(struct eh_cursor *cursor, uint64_t bytes);
/* What is neither absolute nor relative to its place is not used for code. */
uint64_t eh_cursor__pointer(struct eh_cursor *cursor, uint8_t encoding);

#endif
