/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long an instruction of 64-bit x86 code is, and its parts. Knows what
 * compilers and hand-written code for any such CPU use, and VEX; not EVEX.
 */
#ifndef ALLOCTRACE_CLI_INSN_H
#define ALLOCTRACE_CLI_INSN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum insn_map { INSN_MAP_ONE, INSN_MAP_0F, INSN_MAP_0F38, INSN_MAP_0F3A };

struct insn {
	uint8_t bytes;
	uint8_t map; /* enum insn_map */
	uint8_t opcode;
	uint8_t rex; /* 0: none */
	bool has_modrm, is_vex;
	uint8_t mod, reg, rm; /* reg and rm with the bits of REX */
	uint8_t base;         /* of a memory operand with SIB; else 0xff */
	bool has_index, is_pc_relative;
	int32_t disp;
	int64_t imm;
};

/* False: not an instruction that we know, or it does not end within the buffer. */
bool insn__decode(struct insn *insn, const uint8_t *code, size_t bytes);

#endif
