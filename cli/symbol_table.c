/* SPDX-License-Identifier: BSD-2-Clause */
/* See symbol_table.h. */
#include "cli/symbol_table.h"

#include <stdlib.h>
#include <string.h>

#include "cli/gopclntab.h"

enum { SYMBOL_MAX = 1 << 23 };

static bool add_symbol(struct symbol_table *table, const struct symbol *symbol)
{
	struct symbol *symbols;

	if (table->cnt == SYMBOL_MAX)
		return false;
	if (table->cnt == table->max) {
		size_t max = table->max ? 2 * table->max : 1024;

		symbols = reallocarray(table->symbols, max, sizeof(*symbols));
		if (!symbols)
			return false;
		table->symbols = symbols;
		table->max = max;
	}
	table->symbols[table->cnt++] = *symbol;
	return true;
}

/* Keeps the text for as long as the table, which frees it. */
static bool own_text(struct symbol_table *table, char *text)
{
	char **texts = reallocarray(table->texts, table->text_cnt + 1, sizeof(*texts));

	if (!texts)
		return false;
	table->texts = texts;
	texts[table->text_cnt++] = text;
	return true;
}

/* The strings of a section, with a 0 behind them; owned by the table. */
static char *load_names(struct symbol_table *table, const struct elf_image *image, uint32_t number, size_t *bytes)
{
	char *names, *terminated;

	if (number >= image->section_cnt)
		return NULL;
	names = (char *)elf_image__load_section(image, &image->sections[number], bytes);
	if (!names)
		return NULL;
	terminated = realloc(names, *bytes + 1);
	if (!terminated || !own_text(table, terminated)) {
		free(terminated ? terminated : names);
		return NULL;
	}
	terminated[*bytes] = '\0';
	return terminated;
}

/* Where the section ends that a symbol is in. */
static uint64_t section_end(const struct elf_image *image, const Elf64_Sym *symbol)
{
	const Elf64_Shdr *section;

	if (!symbol->st_shndx || symbol->st_shndx >= image->section_cnt)
		return symbol->st_value;
	section = &image->sections[symbol->st_shndx];
	return section->sh_flags & SHF_EXECINSTR ? section->sh_addr + section->sh_size : symbol->st_value;
}

static void add_elf_symbol(struct symbol_table *table, const struct elf_image *image, const Elf64_Sym *from,
			   const char *name, bool is_complete)
{
	unsigned type = ELF64_ST_TYPE(from->st_info), bind = ELF64_ST_BIND(from->st_info);
	struct symbol symbol = {.start = from->st_value, .end = from->st_value + from->st_size, .name = name};

	if (!name[0] || from->st_shndx == SHN_UNDEF || from->st_shndx == SHN_ABS ||
	    (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE))
		return;
	if (type == STT_NOTYPE && (!is_complete || section_end(image, from) <= from->st_value))
		return;
	if (!from->st_size) {
		if (!is_complete)
			return;
		symbol.end = section_end(image, from);
	}
	/* Of aliases: functions, those with a size, global ones, names without leading underscores. */
	symbol.rank = (type != STT_NOTYPE ? 8 : 0) + (from->st_size ? 4 : 0) + (bind != STB_LOCAL ? 2 : 0) +
		      (name[0] != '_' ? 1 : 0);
	if (symbol.end > symbol.start)
		add_symbol(table, &symbol);
}

bool symbol_table__add(struct symbol_table *table, const struct elf_image *image, uint32_t section_type)
{
	size_t before = table->cnt, bytes, name_bytes;

	for (size_t i = 0; i < image->section_cnt; i++) {
		const Elf64_Shdr *section = &image->sections[i];
		uint8_t *data;
		char *names;
		Elf64_Sym symbol;

		if (section->sh_type != section_type || section->sh_entsize != sizeof(symbol))
			continue;
		names = load_names(table, image, section->sh_link, &name_bytes);
		data = names ? elf_image__load_section(image, section, &bytes) : NULL;
		for (size_t at = 0; data && bytes - at >= sizeof(symbol); at += sizeof(symbol)) {
			memcpy(&symbol, data + at, sizeof(symbol));
			if (symbol.st_name < name_bytes)
				add_elf_symbol(table, image, &symbol, names + symbol.st_name,
					       section_type == SHT_SYMTAB);
		}
		free(data);
	}
	return table->cnt > before;
}

static void add_go_function(void *data, uint64_t start, uint64_t end, const char *name)
{
	struct symbol_table *table = data;
	struct symbol symbol = {.start = start, .end = end, .name = strdup(name), .rank = 16};

	if (symbol.name && own_text(table, (char *)symbol.name))
		add_symbol(table, &symbol);
	else
		free((char *)symbol.name);
}

bool symbol_table__add_go(struct symbol_table *table, const struct elf_image *image)
{
	size_t before = table->cnt;

	gopclntab__functions(image, add_go_function, table);
	return table->cnt > before;
}

static int compare_symbols(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	/* The last one stays: the shortest name, which is that in the manual. */
	if (strlen(x->name) != strlen(y->name))
		return strlen(x->name) < strlen(y->name) ? 1 : -1;
	return strcmp(y->name, x->name);
}

void symbol_table__sort(struct symbol_table *table)
{
	size_t cnt = 0;

	if (!table->cnt)
		return;
	qsort(table->symbols, table->cnt, sizeof(*table->symbols), compare_symbols);
	for (size_t i = 0; i < table->cnt; i++)
		if (i + 1 == table->cnt || table->symbols[i + 1].start != table->symbols[i].start)
			table->symbols[cnt++] = table->symbols[i];
	table->cnt = cnt;
}

const struct symbol *symbol_table__find(const struct symbol_table *table, uint64_t address)
{
	enum { LOOK_BACK = 16 };
	size_t lo = 0, hi = table->cnt;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (table->symbols[mid].start <= address)
			lo = mid + 1;
		else
			hi = mid;
	}
	/* A function may have labels within. */
	for (size_t back = 0; back < LOOK_BACK && lo > back; back++)
		if (address < table->symbols[lo - 1 - back].end)
			return &table->symbols[lo - 1 - back];
	return NULL;
}

void symbol_table__free(struct symbol_table *table)
{
	for (size_t i = 0; i < table->text_cnt; i++)
		free(table->texts[i]);
	free(table->texts);
	free(table->symbols);
	*table = (struct symbol_table){0};
}
