/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Go's .gopclntab to rows: for each function its table of stack depths (pcsp)
 * says where the return address is at each pc, also in stripped programs. The
 * formats are those of Go 1.2 to 1.15, 1.16, 1.18 and 1.20, told apart by their
 * magic numbers (runtime/symtab.go).
 */
#include "cli/gopclntab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/insn.h"

enum go_magic {
	GO_1_2 = 0xfffffffb,
	GO_1_16 = 0xfffffffa,
	GO_1_18 = 0xfffffff0,
	GO_1_20 = 0xfffffff1,
};

/* Words of the header behind its first 8 bytes. */
enum { GO_HEADER_BYTES = 8, GO_WORD_CNT = 8, GO_FUNC_MAX = 1 << 22 };

struct gopclntab {
	const uint8_t *data;
	size_t bytes;
	enum go_magic magic;
	uint8_t quantum;
	uint64_t func_cnt, text;
	uint64_t names_at, pcs_at, funcs_at; /* offsets in data */
	uint64_t base;
	uint64_t switch_start, switch_end; /* runtime.systemstack */
};

/* What a function is to the unwinder. */
enum go_role { GO_ORDINARY, GO_OUTERMOST, GO_SWITCH, GO_CALL_C, GO_SIGNAL };

static uint64_t get(const struct gopclntab *tab, uint64_t at, size_t bytes, bool *is_bad)
{
	uint64_t value = 0;

	if (bytes > tab->bytes || at > tab->bytes - bytes)
		*is_bad = true;
	else
		memcpy(&value, tab->data + at, bytes);
	return value;
}

static uint64_t get_word(const struct gopclntab *tab, unsigned number, bool *is_bad)
{
	return get(tab, GO_HEADER_BYTES + number * 8ull, 8, is_bad);
}

/* Finds the parts of the table. False: not one that we know. */
static bool read_header(struct gopclntab *tab)
{
	bool is_bad = false;

	tab->magic = (enum go_magic)get(tab, 0, 4, &is_bad);
	tab->quantum = (uint8_t)get(tab, 6, 1, &is_bad);
	if (is_bad || tab->quantum != 1 || get(tab, 7, 1, &is_bad) != 8)
		return false;
	tab->func_cnt = get_word(tab, 0, &is_bad);
	switch (tab->magic) {
	case GO_1_2: tab->funcs_at = GO_HEADER_BYTES + 8; break;
	case GO_1_16:
		tab->names_at = get_word(tab, 2, &is_bad);
		tab->pcs_at = get_word(tab, 5, &is_bad);
		tab->funcs_at = get_word(tab, 6, &is_bad);
		break;
	case GO_1_18:
	case GO_1_20:
		/* In a position-independent program it is left to a relocation; from 1.26 on it is nowhere. */
		tab->text = get_word(tab, 2, &is_bad);
		tab->names_at = get_word(tab, 3, &is_bad);
		tab->pcs_at = get_word(tab, 6, &is_bad);
		tab->funcs_at = get_word(tab, 7, &is_bad);
		break;
	default: return false;
	}
	return !is_bad && tab->func_cnt && tab->func_cnt < GO_FUNC_MAX;
}

static bool has_offsets(const struct gopclntab *tab)
{
	return tab->magic == GO_1_18 || tab->magic == GO_1_20;
}

/* Start of a function, and where its record is. */
static uint64_t func_start(const struct gopclntab *tab, uint64_t number, uint64_t *record_at, bool *is_bad)
{
	size_t field = has_offsets(tab) ? 4 : 8;
	uint64_t at = tab->funcs_at + number * 2 * field, start = get(tab, at, field, is_bad);

	/* The last entry has a start only: the end of the text. */
	*record_at = number < tab->func_cnt ? get(tab, at + field, field, is_bad) : 0;
	if (tab->magic != GO_1_2)
		*record_at += tab->funcs_at;
	return start + (has_offsets(tab) ? tab->text : 0);
}

/* Cut to fit; "" when it is not there. */
static void get_name(const struct gopclntab *tab, uint64_t name_at, char *name, size_t bytes)
{
	bool is_bad = false;
	size_t cnt = 0;

	do
		name[cnt] = (char)get(tab, tab->names_at + name_at + cnt, 1, &is_bad);
	while (!is_bad && name[cnt] && ++cnt < bytes - 1);
	name[cnt] = '\0';
}

static enum go_role role_of(const struct gopclntab *tab, uint64_t name_at)
{
	static const char *const outermost[] = {"runtime.goexit",      "runtime.mstart",    "runtime.rt0_go",
						"runtime.mcall",       "runtime.morestack", "runtime.mstart0",
						"runtime.goexit.abi0", "_rt0_amd64_linux",  "_rt0_amd64"};
	char name[32];

	get_name(tab, name_at, name, sizeof(name));
	if (strcmp(name, "runtime.systemstack") == 0 || strcmp(name, "runtime.systemstack.abi0") == 0)
		return GO_SWITCH;
	/* Calls of C, on the system stack as well; the goroutine is left in the same way. */
	if (strcmp(name, "runtime.asmcgocall") == 0 || strcmp(name, "runtime.asmcgocall.abi0") == 0)
		return GO_CALL_C;
	if (strncmp(name, "runtime.sigreturn", strlen("runtime.sigreturn")) == 0)
		return GO_SIGNAL;
	for (size_t i = 0; i < sizeof(outermost) / sizeof(outermost[0]); i++)
		if (strcmp(name, outermost[i]) == 0)
			return GO_OUTERMOST;
	return GO_ORDINARY;
}

static uint64_t get_varint(const struct gopclntab *tab, uint64_t *at, bool *is_bad)
{
	uint64_t value = 0, byte;
	unsigned shift = 0;

	do {
		byte = get(tab, (*at)++, 1, is_bad);
		if (shift < 64)
			value |= (byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	return value;
}

static uint32_t encode_depth(int64_t depth)
{
	int64_t words = depth / 8 + 1;
	uint32_t rbp = depth >= 8 ? 2 : 0;

	if (depth < 0 || depth % 8 || words > AT_FAR_MAX)
		return AT_RULE_NONE;
	/* A function with a frame keeps its caller's rbp right below the return address. */
	return words <= AT_OFFSET_MAX ? AT_RULE(AT_RULE_SP, words, rbp, AT_RBX_LOST) : AT_RULE_FAR(words, rbp);
}

/* The stack depths of one function: pairs of a change of the value and how many pcs it holds for. */
static bool read_depths(const struct gopclntab *tab, uint64_t at, uint64_t start, uint64_t end,
			struct unwind_draft *draft)
{
	uint64_t pc = start, change;
	int64_t depth = -1;
	bool is_bad = false;

	while (pc < end) {
		change = get_varint(tab, &at, &is_bad);
		if (is_bad || (!change && pc != start))
			break;
		depth += (int64_t)(change >> 1 ^ (0 - (change & 1)));
		unwind_draft__add(draft, pc - tab->base, encode_depth(depth), false);
		pc += get_varint(tab, &at, &is_bad) * tab->quantum;
	}
	return !is_bad;
}

static void read_func(struct gopclntab *tab, uint64_t number, struct unwind_draft *draft)
{
	uint64_t record_at, ignored, field = has_offsets(tab) ? 4 : 8, name_at, depths_at;
	bool is_bad = false;
	uint64_t start = func_start(tab, number, &record_at, &is_bad),
		 end = func_start(tab, number + 1, &ignored, &is_bad);

	/* entry, name, args, deferreturn (before 1.9: frame), pcsp */
	name_at = get(tab, record_at + field, 4, &is_bad);
	depths_at = get(tab, record_at + field + 12, 4, &is_bad);
	if (is_bad || start < tab->base || end <= start || end - tab->base > UINT32_MAX)
		return;
	switch (role_of(tab, name_at)) {
	case GO_OUTERMOST: unwind_draft__add(draft, start - tab->base, AT_RULE_END, false); break;
	/* Nobody calls it: a handler returns to its first byte, and return addresses are looked up a byte before. */
	case GO_SIGNAL:
		unwind_draft__add(draft, start - 1 - tab->base, AT_RULE_SIGNAL, false);
		unwind_draft__add(draft, start - tab->base, AT_RULE_SIGNAL, false);
		break;
	case GO_SWITCH:
		tab->switch_start = start;
		tab->switch_end = end;
		/* fall through */
	case GO_CALL_C:
		unwind_draft__add(draft, start - tab->base, AT_RULE_OF_SPECIAL(AT_SPECIAL_GO, 0, 0, 0), false);
		break;
	default:
		/* 0: assembly that says nothing of its stack */
		if (!depths_at || !read_depths(tab, tab->pcs_at + depths_at, start, end, draft))
			unwind_draft__add(draft, start - tab->base, AT_RULE_NONE, false);
	}
	unwind_draft__add(draft, end - tab->base, AT_RULE_NONE, true);
}

/*
 * Offsets in the runtime's structures g, m and gobuf (runtime/runtime2.go), from what runtime.systemstack itself does,
 * so that no version needs to be known: rax is g, rbx is m. It loads m from g, compares g with m's current one, and
 * restores rsp. From Go 1.21 on it restores rbp, too; before, that was the seventh word of what is saved.
 */
bool gopclntab__layout(const uint8_t *code, size_t bytes, struct at_go *go)
{
	enum { RAX = 0, RBX = 3, RSP = 4, RBP = 5, LOAD = 0x8b, COMPARE = 0x3b, LAYOUT_MAX = 4096, OLD_BP_AT = 48 };
	struct insn insn;

	*go = (struct at_go){0};
	for (size_t at = 0; at < bytes && insn__decode(&insn, code + at, bytes - at); at += insn.bytes) {
		if (insn.map != INSN_MAP_ONE || !insn.has_modrm || insn.mod == 3 || insn.disp <= 0 ||
		    insn.disp >= LAYOUT_MAX)
			continue;
		if (insn.opcode == LOAD && insn.reg == RBX && insn.rm == RAX && !go->g_m)
			go->g_m = (uint16_t)insn.disp;
		/* m's signal stack comes before its current goroutine. */
		else if (insn.opcode == COMPARE && insn.reg == RAX && insn.rm == RBX)
			go->m_curg = (uint16_t)insn.disp;
		else if (insn.opcode == LOAD && insn.reg == RSP && insn.rm == RAX)
			go->sched_sp = (uint16_t)insn.disp;
		else if (insn.opcode == LOAD && insn.reg == RBP && insn.rm == RAX)
			go->sched_bp = (uint16_t)insn.disp;
	}
	go->sched_pc = go->sched_sp + 8;
	if (!go->sched_bp)
		go->sched_bp = go->sched_sp + OLD_BP_AT;
	return go->g_m && go->m_curg && go->sched_sp;
}

static bool read_layout(const struct elf_image *image, const struct gopclntab *tab, struct at_go *go)
{
	enum { SWITCH_MAX_BYTES = 512 };
	uint64_t bytes = tab->switch_end - tab->switch_start, offset, left_bytes;
	uint8_t code[SWITCH_MAX_BYTES];

	return bytes && bytes <= sizeof(code) && elf_image__offset(image, tab->switch_start, &offset, &left_bytes) &&
	       bytes <= left_bytes && !elf_image__read(image, offset, code, bytes) &&
	       gopclntab__layout(code, bytes, go);
}

/* Whether functions start where the table then says: Go fills the room before them with int3; one in 32 has none. */
static bool is_text_right(const struct elf_image *image, const struct gopclntab *tab)
{
	enum { SAMPLE_CNT = 256, LEAST_CNT = 16, INT3 = 0xcc };
	uint64_t cnt = tab->func_cnt < SAMPLE_CNT ? tab->func_cnt : SAMPLE_CNT;
	uint64_t record_at, offset, left_bytes, good_cnt = 0;
	bool is_bad = false;

	for (uint64_t i = 1; i < cnt; i++) {
		uint64_t start = func_start(tab, i, &record_at, &is_bad);
		uint8_t before;

		if (is_bad || !elf_image__offset(image, start - 1, &offset, &left_bytes) ||
		    elf_image__read(image, offset, &before, 1))
			return false;
		good_cnt += before == INT3;
		if (4 * good_cnt < 3 * i && i >= LEAST_CNT)
			return false;
	}
	return cnt > LEAST_CNT;
}

/* Where Go's code starts in .text: with cgo, C's comes first. False: not found. */
static bool find_text(const struct elf_image *image, struct gopclntab *tab)
{
	enum { FUNC_ALIGN = 32, SEARCH_BYTES = 64 << 10 };
	const Elf64_Shdr *section = elf_image__section(image, ".text");

	for (uint64_t at = 0; section && at < SEARCH_BYTES; at += FUNC_ALIGN) {
		tab->text = section->sh_addr + at;
		if (is_text_right(image, tab))
			return true;
	}
	return false;
}

/* The section's contents, to be freed; NULL when there is no table that we know. */
static uint8_t *open_table(const struct elf_image *image, struct gopclntab *tab)
{
	const Elf64_Shdr *section = elf_image__section(image, ".gopclntab");
	uint8_t *data;

	*tab = (struct gopclntab){.base = image->base};
	if (!section)
		section = elf_image__section(image, ".data.rel.ro.gopclntab");
	data = elf_image__load_section(image, section, &tab->bytes);
	tab->data = data;
	if (data && read_header(tab) && (!has_offsets(tab) || tab->text || find_text(image, tab)))
		return data;
	free(data);
	return NULL;
}

int gopclntab__read(const struct elf_image *image, struct unwind_draft *draft, struct at_go *go)
{
	struct gopclntab tab;
	uint8_t *data = open_table(image, &tab);

	*go = (struct at_go){0};
	if (!data)
		return -ENODATA;
	for (uint64_t i = 0; i < tab.func_cnt && !draft->err; i++)
		read_func(&tab, i, draft);
	free(data);
	if (!read_layout(image, &tab, go))
		*go = (struct at_go){0};
	return draft->err ? draft->err : draft->cnt ? 0 : -ENODATA;
}

void gopclntab__functions(const struct elf_image *image,
			  void (*found)(void *data, uint64_t start, uint64_t end, const char *name), void *data)
{
	struct gopclntab tab;
	uint8_t *table = open_table(image, &tab);
	char name[512];

	for (uint64_t i = 0; table && i < tab.func_cnt; i++) {
		bool is_bad = false;
		uint64_t record_at, ignored, start = func_start(&tab, i, &record_at, &is_bad);
		uint64_t end = func_start(&tab, i + 1, &ignored, &is_bad);
		uint64_t name_at = get(&tab, record_at + (has_offsets(&tab) ? 4 : 8), 4, &is_bad);

		get_name(&tab, name_at, name, sizeof(name));
		if (!is_bad && name[0] && end > start)
			found(data, start, end, name);
	}
	free(table);
}
