/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * .eh_frame to rows; see eh_frame.h. The format: System V ABI, AMD64
 * supplement, and DWARF 5 section 6.4.
 */
#include "cli/eh_frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/eh_cursor.h"

enum { REMEMBER_MAX = 64 };

/* DWARF numbers of registers. */
enum { REG_RBX = 3, REG_RBP = 6, REG_RSP = 7, REG_RA = 16 };

enum cfa_op {
	CFA_NOP = 0x00,
	CFA_SET_LOC = 0x01,
	CFA_ADVANCE_LOC1 = 0x02,
	CFA_ADVANCE_LOC2 = 0x03,
	CFA_ADVANCE_LOC4 = 0x04,
	CFA_OFFSET_EXTENDED = 0x05,
	CFA_RESTORE_EXTENDED = 0x06,
	CFA_UNDEFINED = 0x07,
	CFA_SAME_VALUE = 0x08,
	CFA_REGISTER = 0x09,
	CFA_REMEMBER_STATE = 0x0a,
	CFA_RESTORE_STATE = 0x0b,
	CFA_DEF_CFA = 0x0c,
	CFA_DEF_CFA_REGISTER = 0x0d,
	CFA_DEF_CFA_OFFSET = 0x0e,
	CFA_DEF_CFA_EXPRESSION = 0x0f,
	CFA_EXPRESSION = 0x10,
	CFA_OFFSET_EXTENDED_SF = 0x11,
	CFA_DEF_CFA_SF = 0x12,
	CFA_DEF_CFA_OFFSET_SF = 0x13,
	CFA_VAL_OFFSET = 0x14,
	CFA_VAL_OFFSET_SF = 0x15,
	CFA_VAL_EXPRESSION = 0x16,
	CFA_GNU_ARGS_SIZE = 0x2e,
	CFA_GNU_NEGATIVE_OFFSET_EXTENDED = 0x2f,
	/* In the upper two bits, with an operand in the rest. */
	CFA_ADVANCE_LOC = 0x40,
	CFA_OFFSET = 0x80,
	CFA_RESTORE = 0xc0,
	CFA_PRIMARY = 0xc0,
};

enum saved { SAVED_SAME, SAVED_UNDEFINED, SAVED_AT_CFA, SAVED_AT_RBP, SAVED_OTHER };
struct reg_rule {
	enum saved saved;
	int64_t offset;
};
enum cfa_kind { CFA_IS_REG, CFA_IS_PLT, CFA_IS_DEREF, CFA_IS_OTHER };
struct frame_rule {
	enum cfa_kind cfa;
	uint64_t cfa_reg;
	int64_t cfa_offset; /* in bytes; of CFA_IS_PLT the threshold */
	struct reg_rule rbx, rbp, ra;
};

struct cie {
	uint64_t code_align;
	int64_t data_align;
	uint64_t ra_reg;
	uint8_t encoding;
	bool has_augmentation, is_signal;
	const uint8_t *program, *end;
};

struct fde {
	const struct cie *cie;
	struct frame_rule initial, now, stack[REMEMBER_MAX];
	unsigned depth;
	uint64_t pc, end; /* in the object */
	uint64_t base;
	struct unwind_draft *draft;
};

/* The expressions that gcc and linkers write: see enum at_rule. */
static void read_cfa_expression(struct frame_rule *rule, const uint8_t *code, uint64_t bytes)
{
	/* breg7 8, breg16 0, lit15, and, lit<threshold>, ge, lit3, shl, plus */
	enum { PLT_BYTES = 11, PLT_THRESHOLD_AT = 6, LIT0 = 0x30, LIT31 = 0x4f };
	static const uint8_t plt[PLT_BYTES] = {0x77, 8, 0x80, 0, 0x3f, 0x1a, LIT0, 0x2a, 0x33, 0x24, 0x22};
	struct eh_cursor cursor = {.at = code, .end = code + bytes};
	uint8_t op = bytes ? code[0] : 0;

	rule->cfa = CFA_IS_OTHER;
	if (bytes == PLT_BYTES && memcmp(code, plt, PLT_THRESHOLD_AT) == 0 && code[PLT_THRESHOLD_AT] >= LIT0 &&
	    code[PLT_THRESHOLD_AT] <= LIT31 &&
	    memcmp(code + PLT_THRESHOLD_AT + 1, plt + PLT_THRESHOLD_AT + 1, PLT_BYTES - PLT_THRESHOLD_AT - 1) == 0) {
		rule->cfa = CFA_IS_PLT;
		rule->cfa_offset = code[PLT_THRESHOLD_AT] - LIT0;
	} else if (op == 0x70 + REG_RBP) { /* breg6 N, deref */
		eh_cursor__bytes(&cursor, 1);
		rule->cfa_offset = eh_cursor__sleb(&cursor);
		if (eh_cursor__bytes(&cursor, 1) == 0x06 && !cursor.is_bad && cursor.at == cursor.end)
			rule->cfa = CFA_IS_DEREF;
	}
}

static struct reg_rule read_reg_expression(const uint8_t *code, uint64_t bytes)
{
	bool is_rbp = bytes == 2 && code[0] == 0x70 + REG_RBP && code[1] == 0;

	return (struct reg_rule){.saved = is_rbp ? SAVED_AT_RBP : SAVED_OTHER};
}

/* NULL for registers that do not matter. */
static struct reg_rule *reg_of(struct fde *fde, struct frame_rule *rule, uint64_t reg)
{
	if (reg == fde->cie->ra_reg)
		return &rule->ra;
	if (reg == REG_RBX)
		return &rule->rbx;
	return reg == REG_RBP ? &rule->rbp : NULL;
}

static void set_reg(struct fde *fde, uint64_t reg, enum saved saved, int64_t offset)
{
	struct reg_rule *rule = reg_of(fde, &fde->now, reg);

	if (rule)
		*rule = (struct reg_rule){.saved = saved, .offset = offset};
}

static void restore_reg(struct fde *fde, uint64_t reg)
{
	struct reg_rule *rule = reg_of(fde, &fde->now, reg), *initial = reg_of(fde, &fde->initial, reg);

	if (rule)
		*rule = *initial;
}

static bool encode_rbp(const struct reg_rule *rbp, uint32_t *field)
{
	*field = 0;
	if (rbp->saved == SAVED_SAME || rbp->saved == SAVED_UNDEFINED)
		return true;
	if (rbp->saved == SAVED_AT_RBP) {
		*field = AT_RBP_AT_RBP;
		return true;
	}
	if (rbp->saved != SAVED_AT_CFA || rbp->offset >= 0 || rbp->offset % 8 || rbp->offset < -8ll * AT_RBP_MAX)
		return false;
	*field = (uint32_t)(-rbp->offset / 8);
	return true;
}

/* Only what needs rbx is lost where it cannot be told. */
static uint32_t encode_rbx(const struct reg_rule *rbx)
{
	if (rbx->saved == SAVED_SAME)
		return 0;
	if (rbx->saved != SAVED_AT_CFA || rbx->offset >= 0 || rbx->offset % 8 || rbx->offset < -8ll * AT_RBX_MAX)
		return AT_RBX_LOST;
	return (uint32_t)(-rbx->offset / 8);
}

/* A CFA by a register. */
static uint32_t encode_cfa(const struct frame_rule *rule, uint32_t rbp, uint32_t rbx)
{
	int64_t words = rule->cfa_offset / 8;

	if (rule->cfa_offset < 0 || rule->cfa_offset % 8)
		return AT_RULE_NONE;
	switch (rule->cfa_reg) {
	case REG_RSP:
		if (words <= AT_OFFSET_MAX)
			return AT_RULE(AT_RULE_SP, words, rbp, rbx);
		return words <= AT_FAR_MAX ? AT_RULE_FAR(words, rbp) : AT_RULE_NONE;
	case REG_RBP: return words <= AT_OFFSET_MAX ? AT_RULE(AT_RULE_BP, words, rbp, rbx) : AT_RULE_NONE;
	case REG_RBX:
		return words <= AT_SPECIAL_OFFSET_MAX ? AT_RULE_OF_SPECIAL(AT_SPECIAL_BX, words, rbp, rbx)
						      : AT_RULE_NONE;
	default: return AT_RULE_NONE;
	}
}

static uint32_t encode(const struct fde *fde)
{
	const struct frame_rule *rule = &fde->now;
	uint32_t rbp, rbx = encode_rbx(&rule->rbx);

	if (fde->cie->is_signal)
		return AT_RULE_SIGNAL;
	if (rule->ra.saved == SAVED_UNDEFINED)
		return AT_RULE_END;
	if (rule->ra.saved != SAVED_AT_CFA || rule->ra.offset != -8 || !encode_rbp(&rule->rbp, &rbp))
		return AT_RULE_NONE;
	switch (rule->cfa) {
	case CFA_IS_REG: return encode_cfa(rule, rbp, rbx);
	case CFA_IS_PLT: return AT_RULE_OF_SPECIAL(AT_SPECIAL_PLT, rule->cfa_offset, rbp, rbx);
	case CFA_IS_DEREF:
		if (rule->cfa_offset > 0 || rule->cfa_offset % 8 || rule->cfa_offset < -8ll * AT_OFFSET_MAX)
			return AT_RULE_NONE;
		return AT_RULE(AT_RULE_DEREF, -rule->cfa_offset / 8, rbp, rbx);
	default: return AT_RULE_NONE;
	}
}

/* The rule so far holds up to the new pc. */
static void advance(struct fde *fde, uint64_t bytes)
{
	if (!bytes)
		return;
	if (fde->draft && fde->pc < fde->end)
		unwind_draft__add(fde->draft, fde->pc - fde->base, encode(fde), false);
	fde->pc = bytes > UINT64_MAX - fde->pc ? UINT64_MAX : fde->pc + bytes;
}

static void remember(struct fde *fde, struct eh_cursor *cursor)
{
	if (fde->depth == REMEMBER_MAX)
		cursor->is_bad = true;
	else
		fde->stack[fde->depth++] = fde->now;
}

static void restore(struct fde *fde, struct eh_cursor *cursor)
{
	if (!fde->depth)
		cursor->is_bad = true;
	else
		fde->now = fde->stack[--fde->depth];
}

static void run_expression(struct fde *fde, struct eh_cursor *cursor, uint8_t op)
{
	uint64_t reg = op == CFA_DEF_CFA_EXPRESSION ? 0 : eh_cursor__uleb(cursor), bytes = eh_cursor__uleb(cursor);
	const uint8_t *code = cursor->at;
	struct reg_rule *rule;

	eh_cursor__skip(cursor, bytes);
	if (cursor->is_bad)
		return;
	if (op == CFA_DEF_CFA_EXPRESSION) {
		read_cfa_expression(&fde->now, code, bytes);
		return;
	}
	rule = reg_of(fde, &fde->now, reg);
	if (rule)
		*rule = op == CFA_EXPRESSION ? read_reg_expression(code, bytes)
					     : (struct reg_rule){.saved = SAVED_OTHER};
}

static void set_cfa(struct fde *fde, uint64_t reg, int64_t offset)
{
	fde->now.cfa = CFA_IS_REG;
	fde->now.cfa_reg = reg;
	fde->now.cfa_offset = offset;
}

/* Instructions about the CFA. False: it is not one. */
static bool run_cfa(struct fde *fde, struct eh_cursor *cursor, uint8_t op)
{
	uint64_t reg;

	switch (op) {
	case CFA_DEF_CFA:
		reg = eh_cursor__uleb(cursor);
		set_cfa(fde, reg, (int64_t)eh_cursor__uleb(cursor));
		return true;
	case CFA_DEF_CFA_SF:
		reg = eh_cursor__uleb(cursor);
		set_cfa(fde, reg, (int64_t)((uint64_t)eh_cursor__sleb(cursor) * (uint64_t)fde->cie->data_align));
		return true;
	case CFA_DEF_CFA_REGISTER: fde->now.cfa_reg = eh_cursor__uleb(cursor); return true;
	case CFA_DEF_CFA_OFFSET: fde->now.cfa_offset = (int64_t)eh_cursor__uleb(cursor); return true;
	case CFA_DEF_CFA_OFFSET_SF:
		fde->now.cfa_offset = (int64_t)((uint64_t)eh_cursor__sleb(cursor) * (uint64_t)fde->cie->data_align);
		return true;
	case CFA_DEF_CFA_EXPRESSION: run_expression(fde, cursor, op); return true;
	default: return false;
	}
}

/* Instructions about registers and the rest. */
static void run_other(struct fde *fde, struct eh_cursor *cursor, uint8_t op)
{
	const uint64_t align = (uint64_t)fde->cie->data_align;
	uint64_t reg;

	switch (op) {
	case CFA_NOP: break;
	case CFA_ADVANCE_LOC1: advance(fde, eh_cursor__bytes(cursor, 1) * fde->cie->code_align); break;
	case CFA_ADVANCE_LOC2: advance(fde, eh_cursor__bytes(cursor, 2) * fde->cie->code_align); break;
	case CFA_ADVANCE_LOC4: advance(fde, eh_cursor__bytes(cursor, 4) * fde->cie->code_align); break;
	case CFA_SET_LOC: {
		uint64_t pc = eh_cursor__pointer(cursor, fde->cie->encoding);

		if (pc < fde->pc)
			cursor->is_bad = true;
		else if (!cursor->is_bad)
			advance(fde, pc - fde->pc);
		break;
	}
	case CFA_OFFSET_EXTENDED:
		reg = eh_cursor__uleb(cursor);
		set_reg(fde, reg, SAVED_AT_CFA, (int64_t)(eh_cursor__uleb(cursor) * align));
		break;
	case CFA_OFFSET_EXTENDED_SF:
		reg = eh_cursor__uleb(cursor);
		set_reg(fde, reg, SAVED_AT_CFA, (int64_t)((uint64_t)eh_cursor__sleb(cursor) * align));
		break;
	case CFA_GNU_NEGATIVE_OFFSET_EXTENDED:
		reg = eh_cursor__uleb(cursor);
		set_reg(fde, reg, SAVED_AT_CFA, (int64_t)(0 - eh_cursor__uleb(cursor) * align));
		break;
	case CFA_RESTORE_EXTENDED: restore_reg(fde, eh_cursor__uleb(cursor)); break;
	case CFA_UNDEFINED: set_reg(fde, eh_cursor__uleb(cursor), SAVED_UNDEFINED, 0); break;
	case CFA_SAME_VALUE: set_reg(fde, eh_cursor__uleb(cursor), SAVED_SAME, 0); break;
	case CFA_REGISTER:
	case CFA_VAL_OFFSET:
	case CFA_VAL_OFFSET_SF:
		set_reg(fde, eh_cursor__uleb(cursor), SAVED_OTHER, 0);
		eh_cursor__uleb(cursor);
		break;
	case CFA_REMEMBER_STATE: remember(fde, cursor); break;
	case CFA_RESTORE_STATE: restore(fde, cursor); break;
	case CFA_EXPRESSION:
	case CFA_VAL_EXPRESSION: run_expression(fde, cursor, op); break;
	case CFA_GNU_ARGS_SIZE: eh_cursor__uleb(cursor); break;
	default: cursor->is_bad = true;
	}
}

static void run_program(struct fde *fde, struct eh_cursor *cursor)
{
	while (!cursor->is_bad && cursor->at < cursor->end) {
		uint8_t op = (uint8_t)eh_cursor__bytes(cursor, 1), operand = op & ~CFA_PRIMARY;

		switch (op & CFA_PRIMARY) {
		case CFA_ADVANCE_LOC: advance(fde, operand * fde->cie->code_align); break;
		case CFA_OFFSET:
			set_reg(fde, operand, SAVED_AT_CFA,
				(int64_t)(eh_cursor__uleb(cursor) * (uint64_t)fde->cie->data_align));
			break;
		case CFA_RESTORE: restore_reg(fde, operand); break;
		default:
			if (!run_cfa(fde, cursor, op))
				run_other(fde, cursor, op);
		}
	}
}

/* The letters of the augmentation string that say how the rest is to be read. */
static void read_augmentation(struct cie *cie, struct eh_cursor *cursor, const char *letters)
{
	cie->has_augmentation = *letters == 'z';
	if (!cie->has_augmentation) {
		cursor->is_bad |= *letters != '\0';
		return;
	}
	eh_cursor__uleb(cursor);
	for (letters++; *letters && !cursor->is_bad; letters++)
		switch (*letters) {
		case 'R': cie->encoding = (uint8_t)eh_cursor__bytes(cursor, 1); break;
		case 'P': {
			uint8_t encoding = (uint8_t)eh_cursor__bytes(cursor, 1);

			/* The personality is not needed; its place in memory does not matter. */
			if (encoding != PE_OMIT)
				eh_cursor__pointer(cursor, encoding & PE_FORMAT);
			break;
		}
		case 'L': eh_cursor__bytes(cursor, 1); break;
		case 'S': cie->is_signal = true; break;
		case 'B':
		case 'G': break;
		default: cursor->is_bad = true;
		}
}

/* A length, of 4 or of 12 bytes; the record's end is put into record->end. False at the end of all. */
static bool next_record(struct eh_cursor *all, struct eh_cursor *record)
{
	uint64_t bytes = eh_cursor__bytes(all, 4);

	if (bytes == UINT32_MAX)
		bytes = eh_cursor__bytes(all, 8);
	if (!bytes || all->is_bad || bytes > (uint64_t)(all->end - all->at))
		return false;
	*record = *all;
	record->end = all->at + bytes;
	all->at = record->end;
	return true;
}

/* The CIE that starts at `at`. */
static bool read_cie(const struct eh_cursor *all, const uint8_t *at, struct cie *cie)
{
	struct eh_cursor rest = *all, cursor;
	const char *letters;
	const uint8_t *data;
	uint64_t data_bytes;
	uint8_t version;

	*cie = (struct cie){.encoding = PE_ABSPTR};
	rest.at = at;
	rest.is_bad = false;
	if (!next_record(&rest, &cursor) || eh_cursor__bytes(&cursor, 4))
		return false;
	version = (uint8_t)eh_cursor__bytes(&cursor, 1);
	letters = (const char *)cursor.at;
	data = memchr(cursor.at, '\0', (size_t)(cursor.end - cursor.at));
	if ((version != 1 && version != 3) || !data)
		return false;
	cursor.at = data + 1;
	cie->code_align = eh_cursor__uleb(&cursor);
	cie->data_align = eh_cursor__sleb(&cursor);
	cie->ra_reg = version == 1 ? eh_cursor__bytes(&cursor, 1) : eh_cursor__uleb(&cursor);
	data = cursor.at;
	data_bytes = letters[0] == 'z' ? eh_cursor__uleb(&cursor) : 0;
	rest = cursor;
	cursor.at = data;
	read_augmentation(cie, &cursor, letters);
	eh_cursor__skip(&rest, data_bytes);
	cie->program = rest.at;
	cie->end = rest.end;
	return !cursor.is_bad && !rest.is_bad && cie->code_align <= 16 && cie->ra_reg == REG_RA;
}

/* One function. What is broken in it is left out; the others are not touched by it. */
static void read_fde(const struct cie *cie, struct eh_cursor cursor, uint64_t base, struct unwind_draft *draft)
{
	struct fde fde = {.cie = cie, .base = base};
	struct eh_cursor program = cursor;
	uint64_t start, bytes;
	size_t first = draft->cnt;

	start = eh_cursor__pointer(&cursor, cie->encoding);
	bytes = eh_cursor__pointer(&cursor, cie->encoding & PE_FORMAT);
	if (cie->has_augmentation)
		eh_cursor__skip(&cursor, eh_cursor__uleb(&cursor));
	if (cursor.is_bad || !bytes || start < base || bytes > UINT32_MAX || start - base > UINT32_MAX - bytes)
		return;
	fde.now.ra.saved = SAVED_AT_CFA;
	fde.now.ra.offset = -8;
	program.at = cie->program;
	program.end = cie->end;
	run_program(&fde, &program);
	if (program.is_bad)
		return;
	fde.initial = fde.now;
	fde.pc = start;
	fde.end = start + bytes;
	fde.draft = draft;
	run_program(&fde, &cursor);
	if (cursor.is_bad) {
		draft->cnt = first < draft->cnt ? first : draft->cnt;
		return;
	}
	if (fde.pc < fde.end)
		unwind_draft__add(draft, fde.pc - base, encode(&fde), false);
	unwind_draft__add(draft, fde.end - base, AT_RULE_NONE, true);
}

static void read_eh_frame(struct eh_cursor *all, uint64_t base, struct unwind_draft *draft)
{
	const uint8_t *known = NULL; /* the CIE that is in `cie` */
	struct eh_cursor record;
	struct cie cie = {0};
	bool is_good = false;

	while (all->at < all->end && !draft->err && next_record(all, &record)) {
		const uint8_t *place = record.at;
		uint64_t back = eh_cursor__bytes(&record, 4);

		if (record.is_bad || !back) /* a CIE */
			continue;
		if (back > (uint64_t)(place - all->start))
			continue;
		if (place - back != known) {
			known = place - back;
			is_good = read_cie(all, known, &cie);
		}
		if (is_good)
			read_fde(&cie, record, base, draft);
	}
}

/* Without sections, the header that the C library finds .eh_frame by. */
static uint8_t *load_by_header(const struct elf_image *image, struct eh_cursor *all)
{
	uint64_t offset, left;
	uint8_t head[12];

	for (size_t i = 0; i < image->segment_cnt; i++) {
		struct eh_cursor cursor = {.start = head, .at = head, .end = head + sizeof(head)};
		uint8_t encoding, *frames;

		if (image->segments[i].p_type != PT_GNU_EH_FRAME ||
		    elf_image__read(image, image->segments[i].p_offset, head, sizeof(head)))
			continue;
		cursor.address = image->segments[i].p_vaddr;
		if (eh_cursor__bytes(&cursor, 1) != 1)
			continue;
		encoding = (uint8_t)eh_cursor__bytes(&cursor, 1);
		eh_cursor__bytes(&cursor, 2);
		all->address = eh_cursor__pointer(&cursor, encoding);
		if (cursor.is_bad || !elf_image__offset(image, all->address, &offset, &left))
			continue;
		frames = elf_image__load(image, offset, left);
		all->start = all->at = frames;
		all->end = frames ? frames + left : NULL;
		return frames;
	}
	return NULL;
}

int eh_frame__read(const struct elf_image *image, struct unwind_draft *draft)
{
	const Elf64_Shdr *section = elf_image__section(image, ".eh_frame");
	struct eh_cursor all = {0};
	size_t bytes;
	uint8_t *frames = elf_image__load_section(image, section, &bytes);

	if (frames)
		all = (struct eh_cursor){
			.start = frames, .at = frames, .end = frames + bytes, .address = section->sh_addr};
	else
		frames = load_by_header(image, &all);
	if (!frames)
		return -ENODATA;
	read_eh_frame(&all, image->base, draft);
	free(frames);
	return draft->err;
}
