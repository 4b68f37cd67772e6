/* SPDX-License-Identifier: BSD-2-Clause */
/* See elf_symbols.h. */
#include "cli/elf_symbols.h"

#include <libelf.h>
#include <stddef.h>

bool elf_symbols__each(Elf *elf, elf_symbol_fn *found, void *data)
{
	for (Elf_Scn *section = NULL; (section = elf_nextscn(elf, section));) {
		GElf_Shdr header;
		Elf_Data *table;

		if (!gelf_getshdr(section, &header) || (header.sh_type != SHT_SYMTAB && header.sh_type != SHT_DYNSYM) ||
		    !header.sh_entsize)
			continue;
		table = elf_getdata(section, NULL);
		for (size_t i = 0; table && i < header.sh_size / header.sh_entsize; i++) {
			GElf_Sym symbol;
			const char *name;

			if (!gelf_getsym(table, (int)i, &symbol) || symbol.st_shndx == SHN_UNDEF)
				continue;
			name = elf_strptr(elf, header.sh_link, symbol.st_name);
			if (name && found(data, name, &symbol))
				return true;
		}
	}
	return false;
}
