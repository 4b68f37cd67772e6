/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libFuzzer target: a file of unknown origin, of which alloctrace makes an
 * unwind table and a symbol table as root. Whatever is in it: no crash, no
 * access outside, and rows in order.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lzma_text.h"
#include "cli/symbol_table.h"
#include "cli/unwind_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct symbol_table symbols = {0};
	struct unwind_table table;
	struct elf_image image;
	char link[ELF_IMAGE_NAME_MAX];
	uint8_t id[64], *packed, *plain;
	size_t packed_bytes, plain_bytes;
	uint32_t crc;

	if (!elf_image__open_memory(&image, data, bytes)) {
		elf_image__build_id(&image, id, sizeof(id));
		if (elf_image__debuglink(&image, link, &crc) && (!link[0] || strchr(link, '/')))
			abort();
		packed = elf_image__load_section(&image, elf_image__section(&image, ".gnu_debugdata"), &packed_bytes);
		plain = packed ? lzma_text__unpack(packed, packed_bytes, &plain_bytes) : NULL;
		free(plain);
		free(packed);
		if (!unwind_table__build(&table, &image)) {
			for (uint32_t i = 1; i < table.row_cnt; i++)
				if (table.rows[i].pc <= table.rows[i - 1].pc ||
				    table.rows[i].rule == table.rows[i - 1].rule)
					abort();
			unwind_table__free(&table);
		}
		symbol_table__add(&symbols, &image, SHT_SYMTAB);
		symbol_table__add(&symbols, &image, SHT_DYNSYM);
		symbol_table__add_go(&symbols, &image);
		symbol_table__sort(&symbols);
		symbol_table__find(&symbols, image.base + 0x1000);
		symbol_table__free(&symbols);
	}
	elf_image__free(&image);
	return 0;
}
