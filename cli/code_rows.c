/* SPDX-License-Identifier: BSD-2-Clause */
/* See code_rows.h. */
#include "cli/code_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/insn.h"

/* Larger programs come with unwind tables, or are generated code, which keeps frame pointers. */
enum { TEXT_MAX_BYTES = 16 << 20, DEPTH_MAX = AT_SPECIAL_OFFSET_MAX - 1 };
enum { RBX = 3, RSP = 4, RBP = 5 };

/*
 * What is known at an instruction, in a word: the bytes pushed since the function's start in words of 8, and where rbp
 * and rbx were saved, as in a row. Each byte of the code has one.
 */
struct state {
	uint32_t depth, rbp, rbx;
	uint32_t is_outermost; /* the program begins there: no caller */
};
enum {
	STATE_NONE = 0,
	STATE_KNOWN = 1 << 30,    /* that of a struct state */
	STATE_UNSURE = 1 << 29,   /* two ways lead there with different depths */
	STATE_OTHER = 1 << 28,    /* has a row */
	STATE_BARRIER = 1u << 31, /* a function begins or ends: no way leads there but a call */
	STATE_VALUE = (1 << 28) - 1,
};

struct offsets {
	uint32_t *at;
	size_t cnt, max;
};

struct text {
	const uint8_t *code;
	uint64_t pc, bytes; /* pc: of its first byte */
	uint32_t *states;
	struct offsets todo;    /* to go on from */
	struct offsets pointed; /* at which code points: they may be functions that are called so */
	bool has_any;
	int err;
};

static uint32_t pack(const struct state *state)
{
	return STATE_KNOWN | state->depth | state->rbp << 14 | state->rbx << 22 | state->is_outermost << 26;
}

static struct state unpack(uint32_t word)
{
	return (struct state){.depth = word & 0x3fff,
			      .rbp = word >> 14 & 0xff,
			      .rbx = word >> 22 & 0xf,
			      .is_outermost = word >> 26 & 1};
}

static void add_offset(struct text *text, struct offsets *list, uint64_t at)
{
	size_t max;
	uint32_t *all;

	if (list->cnt == list->max) {
		max = list->max ? 2 * list->max : 1024;
		all = reallocarray(list->at, max, sizeof(*all));
		if (!all) {
			text->err = -ENOMEM;
			return;
		}
		list->at = all;
		list->max = max;
	}
	list->at[list->cnt++] = (uint32_t)at;
}

/* A function begins there: at depth 0, whatever seemed to lead there. */
static void add_entry(struct text *text, uint64_t at, bool is_outermost)
{
	const struct state state = {.is_outermost = is_outermost};

	if (at >= text->bytes || text->states[at] & STATE_OTHER ||
	    (text->states[at] & STATE_BARRIER && text->states[at] & STATE_KNOWN))
		return;
	text->states[at] = STATE_BARRIER | pack(&state);
	text->has_any = true;
	add_offset(text, &text->todo, at);
}

/* A way within a function. */
static void reach(struct text *text, uint64_t at, const struct state *state)
{
	uint32_t *there;

	if (at >= text->bytes)
		return;
	there = &text->states[at];
	if (*there & (STATE_BARRIER | STATE_OTHER | STATE_UNSURE) || *there == pack(state))
		return;
	*there = *there & STATE_KNOWN ? (uint32_t)STATE_UNSURE : pack(state);
	if (*there & STATE_KNOWN)
		add_offset(text, &text->todo, at);
}

static bool push(struct state *state, int reg)
{
	if (++state->depth > DEPTH_MAX)
		return false;
	if (reg == RBP && !state->rbp && state->depth + 1 <= AT_RBP_MAX)
		state->rbp = state->depth + 1;
	if (reg == RBX && !state->rbx && state->depth + 1 <= AT_RBX_MAX)
		state->rbx = state->depth + 1;
	return true;
}

/* rsp moves by so many bytes. What lies below is no longer saved. */
static bool move_rsp(struct state *state, int64_t bytes)
{
	int64_t depth = (int64_t)state->depth - bytes / 8;

	if (bytes % 8 || depth < 0 || depth > DEPTH_MAX)
		return false;
	state->depth = (uint32_t)depth;
	if (state->rbp > state->depth + 1)
		state->rbp = 0;
	if (state->rbx > state->depth + 1)
		state->rbx = 0;
	return true;
}

/* add, sub and cmp of a number, lea of an address by rsp itself. 1: that is what it was, 0: something else, -1: lost.
 */
static int follow_arithmetic(const struct insn *insn, struct state *state)
{
	bool is_immediate = insn->opcode == 0x81 || insn->opcode == 0x83;

	if (is_immediate && insn->mod == 3 && insn->rm == RSP && (insn->reg & 7) == 0)
		return move_rsp(state, insn->imm) ? 1 : -1;
	if (is_immediate && insn->mod == 3 && insn->rm == RSP && (insn->reg & 7) == 5)
		return move_rsp(state, -insn->imm) ? 1 : -1;
	if (is_immediate && (insn->reg & 7) == 7)
		return 1;
	if (insn->opcode == 0x8d && insn->reg == RSP)
		return insn->mod != 3 && insn->base == RSP && !insn->has_index && move_rsp(state, insn->disp) ? 1 : -1;
	return 0;
}

/* Instructions of two operands that write their first or their second one. */
static bool writes_rsp(const struct insn *insn)
{
	uint8_t op = insn->opcode;
	bool is_rm_rsp = insn->mod == 3 && insn->rm == RSP, is_reg_rsp = insn->reg == RSP;

	if (insn->map != INSN_MAP_ONE)
		/* cmov, bsf, bsr, popcnt, movzx, movsx */
		return insn->map == INSN_MAP_0F && !insn->is_vex && is_reg_rsp &&
		       ((op >= 0x40 && op <= 0x4f) || op == 0xaf || (op >= 0xb6 && op <= 0xbe));
	if (op == 0x81 || op == 0x83 || op == 0x87 || op == 0x89 || op == 0x8f || op == 0xc1 || op == 0xc7 ||
	    op == 0xd1 || op == 0xd3 || op == 0xf7 || op == 0xff)
		return is_rm_rsp && !(op == 0xff && (insn->reg & 7) >= 2) && !(op == 0xf7 && (insn->reg & 7) < 2);
	if (op < 0x40 && (op & 7) == 1 && op != 0x39)
		return is_rm_rsp;
	return is_reg_rsp && ((op < 0x40 && (op & 7) == 3 && op != 0x3b) || op == 0x63 || op == 0x69 || op == 0x6b ||
			      op == 0x87 || op == 0x8b);
}

/* The stack pointer after the instruction, where that is no branch. False: it is not known any more. */
static bool follow_stack(const struct insn *insn, struct state *state)
{
	uint8_t op = insn->opcode;
	int reg = (op & 7) | (insn->rex & 1) << 3, known;

	if (insn->map == INSN_MAP_ONE) {
		if (op >= 0x50 && op <= 0x57)
			return push(state, reg);
		if (op >= 0x58 && op <= 0x5f)
			return reg != RSP && move_rsp(state, 8);
		if (op == 0x68 || op == 0x6a || op == 0x9c || (op == 0xff && (insn->reg & 7) == 6))
			return push(state, -1);
		if (op == 0x9d || (op == 0x8f && insn->mod != 3))
			return move_rsp(state, 8);
		if (op == 0xc8 || op == 0xc9 || (op >= 0xb8 && op <= 0xbf && reg == RSP))
			return false;
		/* xor %ebp,%ebp where the caller's rbp was not saved: there is no caller. */
		if ((op == 0x31 || op == 0x33) && insn->mod == 3 && insn->reg == RBP && insn->rm == RBP && !state->rbp)
			return false;
		known = insn->has_modrm ? follow_arithmetic(insn, state) : 0;
		if (known)
			return known > 0;
	}
	return !(insn->has_modrm && writes_rsp(insn));
}

/* ret, iret, hlt, int3, ud */
static bool is_last(const struct insn *insn)
{
	uint8_t op = insn->opcode;

	if (insn->map == INSN_MAP_ONE)
		return op == 0xc2 || op == 0xc3 || op == 0xca || op == 0xcb || op == 0xcc || op == 0xcf || op == 0xf4;
	return insn->map == INSN_MAP_0F && (op == 0x0b || op == 0xb9 || op == 0xff);
}

static bool is_conditional(const struct insn *insn)
{
	uint8_t op = insn->opcode;

	if (insn->map == INSN_MAP_ONE)
		return (op >= 0x70 && op <= 0x7f) || (op >= 0xe0 && op <= 0xe3);
	return insn->map == INSN_MAP_0F && !insn->is_vex && op >= 0x80 && op <= 0x8f;
}

/*
 * Nothing but instructions that do nothing, up to where functions begin: what was called does not return. If it does,
 * the code there is left out unless something else leads there.
 */
static bool is_padding(const struct text *text, uint64_t at)
{
	struct insn insn;
	uint64_t end = at;

	while (end < text->bytes && insn__decode(&insn, text->code + end, text->bytes - end) &&
	       ((insn.map == INSN_MAP_ONE && insn.opcode == 0x90) || (insn.map == INSN_MAP_0F && insn.opcode == 0x1f)))
		end += insn.bytes;
	return end > at && (text->pc + end) % 16 == 0;
}

/* One instruction, and where it leads. */
static void follow(struct text *text, uint64_t at)
{
	struct state state = unpack(text->states[at] & STATE_VALUE);
	struct insn insn;
	uint64_t next;
	uint8_t op;
	bool is_one;

	if (!insn__decode(&insn, text->code + at, text->bytes - at))
		return;
	next = at + insn.bytes;
	op = insn.opcode;
	is_one = insn.map == INSN_MAP_ONE;
	for (uint64_t byte = at; byte < next; byte++)
		if (text->states[byte] & STATE_OTHER)
			return;
	if (is_one && (op == 0xe9 || op == 0xeb)) {
		reach(text, next + (uint64_t)insn.imm, &state);
		return;
	}
	if (is_one && op == 0xff && (insn.reg & 7) == 4) {
		/* Out of the function, or by a table of cases: then the first of them mostly follows. */
		if (state.depth)
			reach(text, next, &state);
		return;
	}
	if (is_last(&insn))
		return;
	if (is_one && op == 0x8d && insn.is_pc_relative && next + (uint64_t)(int64_t)insn.disp < text->bytes)
		add_offset(text, &text->pointed, next + (uint64_t)(int64_t)insn.disp);
	if (is_one && op == 0xe8) {
		add_entry(text, next + (uint64_t)insn.imm, false);
		if (is_padding(text, next))
			return;
	}
	if (is_conditional(&insn))
		reach(text, next + (uint64_t)insn.imm, &state);
	else if (!follow_stack(&insn, &state))
		return;
	reach(text, next, &state);
}

/* What code only points at counts when nothing else leads there: it may be the middle of a function. */
static void follow_all(struct text *text)
{
	uint32_t at;

	while (!text->err && (text->todo.cnt || text->pointed.cnt)) {
		if (text->todo.cnt) {
			follow(text, text->todo.at[--text->todo.cnt]);
			continue;
		}
		at = text->pointed.at[--text->pointed.cnt];
		if (text->states[at] == STATE_NONE)
			add_entry(text, at, false);
	}
}

static uint32_t rule_of(uint32_t word)
{
	struct state state = unpack(word & STATE_VALUE);

	if (state.is_outermost)
		return AT_RULE_END;
	return AT_RULE_OF_SPECIAL(AT_SPECIAL_CODE, state.depth + 1, state.rbp, state.rbx);
}

static void write_rows(const struct text *text, struct unwind_draft *draft)
{
	uint64_t end = 0;
	uint32_t rule, last = AT_RULE_NONE;
	struct insn insn;

	for (uint64_t at = 0; at < text->bytes; at++) {
		if (!(text->states[at] & STATE_KNOWN) || !insn__decode(&insn, text->code + at, text->bytes - at))
			continue;
		rule = rule_of(text->states[at]);
		if (end && end < at)
			unwind_draft__add(draft, text->pc + end, AT_RULE_NONE, true);
		if (end < at || rule != last || text->states[at] & STATE_BARRIER)
			unwind_draft__add(draft, text->pc + at, rule, false);
		last = rule;
		end = at + insn.bytes;
	}
	if (end)
		unwind_draft__add(draft, text->pc + end, AT_RULE_NONE, true);
}

/* What has a row is left alone. */
static void mark_rows(struct text *text, const struct at_unwind_row *rows, uint32_t row_cnt)
{
	for (uint32_t i = 0; i < row_cnt; i++) {
		uint64_t from = rows[i].pc > text->pc ? rows[i].pc - text->pc : 0;
		uint64_t to = i + 1 < row_cnt ? rows[i + 1].pc : UINT32_MAX;

		if (rows[i].rule == AT_RULE_NONE || to <= text->pc)
			continue;
		to = to - text->pc < text->bytes ? to - text->pc : text->bytes;
		for (uint64_t at = from; at < to; at++)
			text->states[at] = STATE_OTHER;
	}
}

static void add_function(void *data, uint64_t pc, uint64_t bytes)
{
	struct text *text = data;
	uint64_t end = pc - text->pc + bytes;

	if (pc - text->pc >= text->bytes)
		return;
	if (bytes && end < text->bytes && !(text->states[end] & (STATE_OTHER | STATE_KNOWN)))
		text->states[end] |= STATE_BARRIER;
	add_entry(text, pc - text->pc, false);
}

/* Calls `found` with the pc and the size of each function that has a symbol. */
static void each_function(const struct elf_image *image, void (*found)(void *data, uint64_t pc, uint64_t bytes),
			  void *data)
{
	Elf64_Sym symbol;
	size_t bytes;

	for (size_t i = 0; i < image->section_cnt; i++) {
		const Elf64_Shdr *section = &image->sections[i];
		uint8_t *symbols = section->sh_type == SHT_SYMTAB || section->sh_type == SHT_DYNSYM
					   ? elf_image__load_section(image, section, &bytes)
					   : NULL;

		for (size_t at = 0; symbols && bytes - at >= sizeof(symbol); at += sizeof(symbol)) {
			memcpy(&symbol, symbols + at, sizeof(symbol));
			if (symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC)
				found(data, symbol.st_value - image->base, symbol.st_size);
		}
		free(symbols);
	}
}

static int read_segment(const struct elf_image *image, const Elf64_Phdr *segment, const struct at_unwind_row *rows,
			uint32_t row_cnt, struct unwind_draft *draft)
{
	struct text text = {.pc = segment->p_vaddr - image->base, .bytes = segment->p_filesz};
	uint8_t *code = elf_image__load(image, segment->p_offset, segment->p_filesz);

	text.code = code;
	text.states = code ? calloc(text.bytes, sizeof(*text.states)) : NULL;
	if (code && !text.states)
		text.err = -ENOMEM;
	if (text.states) {
		mark_rows(&text, rows, row_cnt);
		if (image->header.e_entry)
			add_entry(&text, image->header.e_entry - image->base - text.pc, true);
		each_function(image, add_function, &text);
		follow_all(&text);
		if (!text.err && text.has_any)
			write_rows(&text, draft);
	}
	free(text.todo.at);
	free(text.pointed.at);
	free(text.states);
	free(code);
	return text.err ? text.err : draft->err;
}

struct search {
	const struct elf_image *image;
	const struct at_unwind_row *rows;
	uint32_t row_cnt;
	bool has_found;
};

/* Without a size, as the C library's own _init: not worth looking at the code of every library. */
static void find_without_row(void *data, uint64_t pc, uint64_t bytes)
{
	struct search *search = data;
	uint64_t offset, left_bytes;

	search->has_found |= bytes && pc <= UINT32_MAX &&
			     unwind_table__rule(search->rows, search->row_cnt, (uint32_t)pc) == AT_RULE_NONE &&
			     elf_image__offset(search->image, search->image->base + pc, &offset, &left_bytes);
}

int code_rows__read(const struct elf_image *image, const struct at_unwind_row *rows, uint32_t row_cnt,
		    struct unwind_draft *draft)
{
	struct search search = {.image = image, .rows = rows, .row_cnt = row_cnt};
	uint64_t left_bytes = TEXT_MAX_BYTES;
	int err = 0;

	each_function(image, find_without_row, &search);
	if (image->header.e_entry)
		find_without_row(&search, image->header.e_entry - image->base, 1);
	for (size_t i = 0; search.has_found && !err && i < image->segment_cnt; i++) {
		const Elf64_Phdr *segment = &image->segments[i];

		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X) || segment->p_filesz > left_bytes ||
		    segment->p_vaddr < image->base)
			continue;
		left_bytes -= segment->p_filesz;
		err = read_segment(image, segment, rows, row_cnt, draft);
	}
	return err;
}
