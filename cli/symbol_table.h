/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions of an ELF file by address, out of its symbol tables. Reads files that nobody vouches for. */
#ifndef ALLOCTRACE_CLI_SYMBOL_TABLE_H
#define ALLOCTRACE_CLI_SYMBOL_TABLE_H

#include <stdbool.h>

#include "cli/elf_image.h"

struct symbol {
	uint64_t start, end; /* addresses in the file */
	const char *name;
	uint32_t rank; /* of two for one address the higher counts */
};

struct symbol_table {
	struct symbol *symbols; /* sorted by start */
	size_t cnt, max;
	char **texts; /* that the names are in; owned */
	size_t text_cnt;
};

/*
 * Adds the symbols of a section type (SHT_SYMTAB, SHT_DYNSYM); false: it has none.
 * Symbols without a size reach to the next one, but only in a .symtab, which has all of them.
 */
bool symbol_table__add(struct symbol_table *table, const struct elf_image *image, uint32_t section_type);
/* From .gopclntab. */
bool symbol_table__add_go(struct symbol_table *table, const struct elf_image *image);
/* After all were added. */
void symbol_table__sort(struct symbol_table *table);
const struct symbol *symbol_table__find(const struct symbol_table *table, uint64_t address);
void symbol_table__free(struct symbol_table *table);

#endif
