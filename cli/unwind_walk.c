/* SPDX-License-Identifier: BSD-2-Clause */
/* See unwind_walk.h. */
#include "cli/unwind_walk.h"

#include <string.h>
#include <sys/uio.h>

#include "cli/insn.h"

enum { GUESS_MAX_BYTES = 1 << 20, ADDRESS_MAX_BIT = 47, CALL_MAX_BYTES = 8 };

struct walk {
	const struct unwind_objects *objects;
	const struct at_cut *cut;
	uint64_t ip, sp, bp, bx;
	bool is_return, has_bx;
	struct at_piece piece; /* of the latest frame */
	struct unwind_chain *chain;
};

static bool ends(struct walk *walk, enum at_end end)
{
	walk->chain->end = end;
	return false;
}

static bool read_word(const struct walk *walk, uint64_t at, uint64_t *word)
{
	uint64_t offset = at - walk->cut->stack_at;
	uint32_t bytes = walk->cut->stack_bytes < AT_STACK_BYTES ? walk->cut->stack_bytes : AT_STACK_BYTES;

	if (at & 7 || bytes < 8 || offset > bytes - 8)
		return false;
	memcpy(word, walk->cut->stack + offset, 8);
	return true;
}

/* The mapping that the kernel side saw, of an object that is known: also when the process is gone. */
static bool find_seen_mapping(const struct walk *walk, uint64_t pc, struct at_piece *found)
{
	const struct at_cut *cut = walk->cut;
	const struct unwind_object *object = unwind_objects__find(walk->objects, &cut->file);
	uint64_t offset = cut->vm_file_offset + (pc - cut->vm_start);

	for (uint32_t i = 0; object && i < object->kernel.segment_cnt; i++) {
		const struct at_segment *segment = &object->kernel.segments[i];

		if (offset - segment->file_offset >= segment->bytes)
			continue;
		*found = (struct at_piece){.start = pc,
					   .bytes = 1,
					   .pc0 = segment->pc0 + (uint32_t)(offset - segment->file_offset),
					   .object = (uint16_t)object->kernel.object,
					   .go = object->kernel.go};
		return true;
	}
	return false;
}

static bool find_piece(const struct walk *walk, uint64_t pc, struct at_piece *found)
{
	const struct at_cut *cut = walk->cut;
	const struct at_piece *piece;

	/* Where the kernel side saw a file, only that one is meant: by now another may lie there. */
	if (cut->file.inode && pc >= cut->vm_start && pc < cut->vm_end)
		return find_seen_mapping(walk, pc, found);
	piece = unwind_objects__piece(walk->objects, cut->note.tgid, pc);
	if (piece)
		*found = *piece;
	return piece != NULL;
}

/* The code before an address, from the file that is mapped there; without one, from the memory of the process. */
static bool read_code(const struct walk *walk, uint64_t ip, uint8_t code[CALL_MAX_BYTES])
{
	struct iovec local = {.iov_base = code, .iov_len = CALL_MAX_BYTES};
	struct iovec remote = {.iov_base = (void *)(uintptr_t)(ip - CALL_MAX_BYTES), .iov_len = CALL_MAX_BYTES};
	const struct unwind_object *object;
	struct at_piece piece;

	if (ip < CALL_MAX_BYTES || !find_piece(walk, ip - 1, &piece))
		return false;
	object = unwind_objects__get(walk->objects, piece.object);
	if (object)
		return unwind_objects__read_code(object, piece.pc0 + (uint32_t)(ip - 1 - piece.start) + 1, code,
						 CALL_MAX_BYTES);
	return process_vm_readv((pid_t)walk->cut->note.pid, &local, 1, &remote, 1, 0) == CALL_MAX_BYTES;
}

/* A return address comes right after a call: e8 and 4 bytes, or ff /2 and 1 to 6 bytes. */
static bool is_after_call(const struct walk *walk, uint64_t ip)
{
	uint8_t code[CALL_MAX_BYTES];
	struct insn insn;

	if (!read_code(walk, ip, code))
		return false;
	for (size_t at = 0; at < CALL_MAX_BYTES; at++)
		if (insn__decode(&insn, code + at, CALL_MAX_BYTES - at) && insn.bytes == CALL_MAX_BYTES - at &&
		    insn.map == INSN_MAP_ONE && (insn.opcode == 0xe8 || (insn.opcode == 0xff && (insn.reg & 7) == 2)))
			return true;
	return false;
}

static void mark_guess(struct walk *walk)
{
	if (walk->chain->guess_from > walk->chain->cnt)
		walk->chain->guess_from = walk->chain->cnt;
}

static bool step_guess(struct walk *walk)
{
	uint64_t next_bp, ip;

	if (!walk->bp)
		return ends(walk, walk->piece.object ? AT_END_OUTERMOST : AT_END_NO_TABLE);
	if (walk->bp - walk->sp >= GUESS_MAX_BYTES || !read_word(walk, walk->bp, &next_bp) ||
	    !read_word(walk, walk->bp + 8, &ip))
		return ends(walk, AT_END_NO_TABLE);
	if (!ip)
		return ends(walk, AT_END_OUTERMOST);
	if (!is_after_call(walk, ip))
		return ends(walk, AT_END_NO_TABLE);
	mark_guess(walk);
	walk->sp = walk->bp + 16;
	walk->bp = next_bp;
	walk->has_bx = false;
	walk->ip = ip;
	walk->is_return = true;
	return true;
}

static bool step_signal(struct walk *walk)
{
	uint64_t sp = walk->sp;

	if (!read_word(walk, sp + AT_UCONTEXT_RIP, &walk->ip) || !read_word(walk, sp + AT_UCONTEXT_RBP, &walk->bp) ||
	    !read_word(walk, sp + AT_UCONTEXT_RSP, &walk->sp))
		return ends(walk, AT_END_STACK);
	walk->has_bx = read_word(walk, sp + AT_UCONTEXT_RBX, &walk->bx);
	walk->is_return = false;
	return true;
}

static bool find_cfa(struct walk *walk, uint32_t rule, uint64_t pc, uint64_t *cfa)
{
	uint64_t bytes = AT_RULE_OFFSET(rule) * 8ull;

	switch (AT_RULE_TYPE(rule)) {
	case AT_RULE_SP: *cfa = walk->sp + bytes; return true;
	case AT_RULE_BP: *cfa = walk->bp + bytes; return true;
	case AT_RULE_SP_FAR: *cfa = walk->sp + AT_RULE_FAR_OFFSET(rule) * 8ull; return true;
	case AT_RULE_DEREF: return read_word(walk, walk->bp - bytes, cfa) || ends(walk, AT_END_STACK);
	default: break;
	}
	switch (AT_RULE_SPECIAL_TYPE(rule)) {
	case AT_SPECIAL_PLT: *cfa = walk->sp + 8 + ((pc & 15) >= AT_RULE_SPECIAL_OFFSET(rule) ? 8 : 0); return true;
	case AT_SPECIAL_CODE: *cfa = walk->sp + AT_RULE_SPECIAL_OFFSET(rule) * 8ull; return true;
	case AT_SPECIAL_BX:
		*cfa = walk->bx + AT_RULE_SPECIAL_OFFSET(rule) * 8ull;
		return walk->has_bx || ends(walk, AT_END_NO_TABLE);
	default: return ends(walk, AT_END_NO_TABLE); /* Go's structures are not on the stack */
	}
}

static void restore_bx(struct walk *walk, uint32_t rule, uint64_t cfa)
{
	uint32_t saved = AT_RULE_TYPE(rule) == AT_RULE_SP_FAR ? AT_RBX_LOST : AT_RULE_RBX(rule);

	if (saved == AT_RBX_LOST)
		walk->has_bx = false;
	else if (saved)
		walk->has_bx = read_word(walk, cfa - saved * 8ull, &walk->bx);
}

static bool step_cfa(struct walk *walk, uint32_t rule, uint64_t pc)
{
	bool is_guess = AT_RULE_TYPE(rule) == AT_RULE_SPECIAL && AT_RULE_SPECIAL_TYPE(rule) == AT_SPECIAL_CODE;
	uint64_t cfa, ip, bp = walk->bp;
	uint32_t saved = AT_RULE_RBP(rule);

	if (!find_cfa(walk, rule, pc, &cfa))
		return false;
	if (cfa <= walk->sp)
		return ends(walk, AT_END_STUCK);
	if (!read_word(walk, cfa - 8, &ip))
		return ends(walk, AT_END_STACK);
	if (is_guess && ip && !is_after_call(walk, ip))
		return ends(walk, AT_END_NO_TABLE);
	if (saved && !read_word(walk, saved == AT_RBP_AT_RBP ? bp : cfa - saved * 8ull, &walk->bp))
		return ends(walk, AT_END_STACK);
	if (is_guess)
		mark_guess(walk);
	restore_bx(walk, rule, cfa);
	walk->sp = cfa;
	walk->ip = ip;
	walk->is_return = true;
	return ip ? true : ends(walk, AT_END_OUTERMOST);
}

static bool step(struct walk *walk)
{
	uint64_t pc = walk->ip - walk->is_return;
	const struct unwind_object *object;
	uint32_t object_pc, rule;

	if (walk->chain->cnt >= AT_CHAIN_FRAMES)
		return ends(walk, AT_END_DEEP);
	if (pc >> ADDRESS_MAX_BIT)
		return ends(walk, AT_END_BAD_ADDRESS);
	if (!find_piece(walk, pc, &walk->piece))
		return ends(walk, AT_END_NO_MAPPING);
	object = unwind_objects__get(walk->objects, walk->piece.object);
	if (!object) {
		walk->chain->frames[walk->chain->cnt++] = walk->ip;
		return step_guess(walk);
	}
	object_pc = walk->piece.pc0 + (uint32_t)(pc - walk->piece.start);
	rule = unwind_objects__rule(walk->objects, object, object_pc);
	/* No call leads to what a signal handler returns to. */
	if (AT_RULE_TYPE(rule) == AT_RULE_SIGNAL)
		object_pc += walk->is_return;
	walk->chain->frames[walk->chain->cnt++] = (uint64_t)walk->piece.object << AT_FRAME_BITS | object_pc;
	switch (AT_RULE_TYPE(rule)) {
	case AT_RULE_NONE: return step_guess(walk);
	case AT_RULE_SIGNAL: return step_signal(walk);
	case AT_RULE_END: return ends(walk, AT_END_OUTERMOST);
	default: return step_cfa(walk, rule, pc);
	}
}

void unwind_walk__resume(const struct unwind_objects *objects, const struct at_cut *cut, struct unwind_chain *chain)
{
	struct walk walk = {.objects = objects,
			    .cut = cut,
			    .ip = cut->ip,
			    .sp = cut->sp,
			    .bp = cut->bp,
			    .bx = cut->bx,
			    .has_bx = cut->has_bx,
			    .is_return = cut->is_return,
			    .chain = chain};

	chain->cnt = cut->cnt < AT_CHAIN_FRAMES ? cut->cnt : AT_CHAIN_FRAMES;
	chain->guess_from = cut->guess_from;
	chain->end = AT_END_DEEP;
	memcpy(chain->frames, cut->frames, chain->cnt * sizeof(chain->frames[0]));
	while (step(&walk))
		;
}
