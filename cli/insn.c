/* SPDX-License-Identifier: BSD-2-Clause */
/* See insn.h. The opcode maps are those of the processor manuals. */
#include "cli/insn.h"

#include <string.h>

enum { INSN_MAX_BYTES = 15, PREFIX_OPERAND = 0x66, PREFIX_ADDRESS = 0x67, REX_W = 8 };

/*
 * What follows an opcode: . nothing, m ModRM, b imm8, w imm16, z imm32 (imm16 with 66), j rel32, v imm32 or imm64,
 * o address, e imm16 and imm8, B = m and b, Z = m and z, g and G: m, and for /0 and /1 also b or z. p prefix, r REX,
 * 2 map 0F, 8 map 0F38, 3 map 0F3A, V and W VEX, x no such instruction.
 */
static const char map_one[] = "mmmmbzxxmmmmbzx2"
			      "mmmmbzxxmmmmbzxx"
			      "mmmmbzpxmmmmbzpx"
			      "mmmmbzpxmmmmbzpx"
			      "rrrrrrrrrrrrrrrr"
			      "................"
			      "xxxmppppzZbB...."
			      "bbbbbbbbbbbbbbbb"
			      "BZxBmmmmmmmmmmmm"
			      "..........x....."
			      "oooo....bz......"
			      "bbbbbbbbvvvvvvvv"
			      "BBw.VWBZe.w..bx."
			      "mmmmxxx.mmmmmmmm"
			      "bbbbbbbbjjxb...."
			      "p.pp..gG......mm";
static const char map_0f[] = "mmmmx.....x.xmxx"
			     "mmmmmmmmmmmmmmmm"
			     "mmmmxxxxmmmmmmmm"
			     "......x.8x3xxxxx"
			     "mmmmmmmmmmmmmmmm"
			     "mmmmmmmmmmmmmmmm"
			     "mmmmmmmmmmmmmmmm"
			     "BBBBmmm.mmxxmmmm"
			     "jjjjjjjjjjjjjjjj"
			     "mmmmmmmmmmmmmmmm"
			     "...mBmxx...mBmmm"
			     "mmmmmmmmmmBmmmmm"
			     "mmBmBBBm........"
			     "mmmmmmmmmmmmmmmm"
			     "mmmmmmmmmmmmmmmm"
			     "mmmmmmmmmmmmmmmm";
_Static_assert(sizeof(map_one) == 257 && sizeof(map_0f) == 257, "an entry for each opcode");

struct reader {
	const uint8_t *code;
	size_t at, bytes;
	bool is_short, is_address_short; /* prefixes 66 and 67 */
	bool is_bad;
};

static uint8_t get(struct reader *reader)
{
	if (reader->at >= reader->bytes || reader->at >= INSN_MAX_BYTES) {
		reader->is_bad = true;
		return 0;
	}
	return reader->code[reader->at++];
}

static int64_t get_signed(struct reader *reader, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)get(reader) << 8 * i;
	if (bytes && bytes < 8 && value >> (8 * bytes - 1))
		value |= ~0ull << 8 * bytes;
	return (int64_t)value;
}

static char kind_of(const struct insn *insn)
{
	switch (insn->map) {
	case INSN_MAP_ONE: return map_one[insn->opcode];
	case INSN_MAP_0F: return map_0f[insn->opcode];
	case INSN_MAP_0F38: return 'm';
	default: return 'B';
	}
}

/* The two or three bytes of a VEX prefix, and the opcode. */
static char read_vex(struct reader *reader, struct insn *insn, char kind)
{
	uint8_t first = get(reader), map = INSN_MAP_0F;

	insn->rex = first & 0x80 ? 0 : 4;
	if (kind == 'V') {
		map = first & 0x1f;
		insn->rex = (uint8_t)(~first >> 5 & 7);
		get(reader);
	}
	if (map < INSN_MAP_0F || map > INSN_MAP_0F3A)
		return 'x';
	insn->is_vex = true;
	insn->map = map;
	insn->opcode = get(reader);
	return kind_of(insn);
}

/* Prefixes and opcode; returns what follows. */
static char read_opcode(struct reader *reader, struct insn *insn)
{
	char kind = 'p';

	while (kind == 'p' || kind == 'r') {
		insn->opcode = get(reader);
		kind = reader->is_bad ? 'x' : map_one[insn->opcode];
		if (kind == 'p')
			insn->rex = 0; /* it counts only right before the opcode */
		reader->is_short |= kind == 'p' && insn->opcode == PREFIX_OPERAND;
		reader->is_address_short |= kind == 'p' && insn->opcode == PREFIX_ADDRESS;
		if (kind == 'r')
			insn->rex = insn->opcode;
	}
	if (kind == '2') {
		insn->map = INSN_MAP_0F;
		insn->opcode = get(reader);
		kind = kind_of(insn);
		if (kind == '8' || kind == '3') {
			insn->map = kind == '8' ? INSN_MAP_0F38 : INSN_MAP_0F3A;
			insn->opcode = get(reader);
			kind = kind_of(insn);
		}
	} else if (kind == 'V' || kind == 'W') {
		kind = read_vex(reader, insn, kind);
	}
	return kind;
}

static void read_modrm(struct reader *reader, struct insn *insn)
{
	uint8_t modrm = get(reader), sib, disp_bytes;

	insn->has_modrm = true;
	insn->mod = modrm >> 6;
	insn->reg = (modrm >> 3 & 7) | (insn->rex & 4) << 1;
	insn->rm = modrm & 7;
	if (insn->mod == 3) {
		insn->rm |= (insn->rex & 1) << 3;
		return;
	}
	insn->is_pc_relative = !insn->mod && insn->rm == 5;
	disp_bytes = insn->mod == 1 ? 1 : insn->mod == 2 || insn->rm == 5 ? 4 : 0;
	if (insn->rm == 4) {
		sib = get(reader);
		insn->base = (sib & 7) | (insn->rex & 1) << 3;
		insn->has_index = (sib >> 3 & 7) != 4 || insn->rex & 2;
		if (!insn->mod && (sib & 7) == 5)
			disp_bytes = 4;
	}
	insn->disp = (int32_t)get_signed(reader, disp_bytes);
}

static unsigned imm_bytes(const struct reader *reader, const struct insn *insn, char kind)
{
	unsigned z = reader->is_short && !(insn->rex & REX_W) ? 2 : 4;

	switch (kind) {
	case 'b':
	case 'B': return 1;
	case 'w': return 2;
	case 'e': return 3;
	case 'j': return 4;
	case 'z':
	case 'Z': return z;
	case 'v': return insn->rex & REX_W ? 8 : z;
	case 'o': return reader->is_address_short ? 4 : 8;
	case 'g': return (insn->reg & 6) == 0 ? 1 : 0;
	case 'G': return (insn->reg & 6) == 0 ? z : 0;
	default: return 0;
	}
}

bool insn__decode(struct insn *insn, const uint8_t *code, size_t bytes)
{
	struct reader reader = {.code = code, .bytes = bytes};
	char kind;

	*insn = (struct insn){.base = 0xff};
	kind = read_opcode(&reader, insn);
	if (kind == 'x' || reader.is_bad)
		return false;
	if (strchr("mBZgG", kind))
		read_modrm(&reader, insn);
	insn->imm = get_signed(&reader, imm_bytes(&reader, insn, kind));
	insn->bytes = (uint8_t)reader.at;
	return !reader.is_bad;
}
