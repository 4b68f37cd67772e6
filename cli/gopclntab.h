/* SPDX-License-Identifier: BSD-2-Clause */
/* Go's table of functions, .gopclntab, which also stripped programs have. Reads files that nobody vouches for. */
#ifndef ALLOCTRACE_CLI_GOPCLNTAB_H
#define ALLOCTRACE_CLI_GOPCLNTAB_H

#include "cli/unwind_table.h"

/* Adds its rows; -ENODATA: there is none that we know. go: zero where the version's layout is not known. */
int gopclntab__read(const struct elf_image *image, struct unwind_draft *draft, struct at_go *go);
/* How the code of runtime.systemstack uses the runtime's structures; false: not as we know it. */
bool gopclntab__layout(const uint8_t *code, size_t bytes, struct at_go *go);
/* Calls `found` for each function; the name is valid until it returns. */
void gopclntab__functions(const struct elf_image *image,
			  void (*found)(void *data, uint64_t start, uint64_t end, const char *name), void *data);

#endif
