/* SPDX-License-Identifier: BSD-2-Clause */
/* The symbols that an ELF file defines, by libelf. Prints nothing. */
#ifndef ALLOCTRACE_CLI_ELF_SYMBOLS_H
#define ALLOCTRACE_CLI_ELF_SYMBOLS_H

#include <gelf.h>
#include <stdbool.h>

/* True: seen enough. */
typedef bool elf_symbol_fn(void *data, const char *name, const GElf_Sym *symbol);

/* Calls `found` with every symbol that is defined, of both tables, until it has seen enough: true then. */
bool elf_symbols__each(Elf *elf, elf_symbol_fn *found, void *data);

#endif
