/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An object's unwind table, made from its .eh_frame or, for Go, .gopclntab, or where both lack, from the code itself:
 * rows of bpf/callchain.h, sorted by pc, each with another rule than the one before. Reads files that nobody vouches
 * for. Rules that a row cannot express become AT_RULE_NONE, never a wrong one.
 */
#ifndef ALLOCTRACE_CLI_UNWIND_TABLE_H
#define ALLOCTRACE_CLI_UNWIND_TABLE_H

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/callchain.h"
#include "cli/elf_image.h"

/* Rows as they are found: unsorted, with the ends of functions as rows of AT_RULE_NONE. */
struct unwind_draft {
	struct unwind_draft_row {
		uint32_t pc, rule;
		uint32_t rank; /* among rows of one pc the highest counts */
	} * rows;
	size_t cnt, max;
	int err; /* the first failure; adding does nothing then */
};

struct unwind_table {
	struct at_unwind_row *rows;
	uint32_t row_cnt;
	bool is_go;
	struct at_go go;
};

/*
 * 0 or -errno; -ENODATA: there is nothing to unwind by; -E2BIG: more rows than an object
 * may have. Free in any case.
 */
int unwind_table__build(struct unwind_table *table, const struct elf_image *image);
void unwind_table__free(struct unwind_table *table);

/* The rule for a pc. */
uint32_t unwind_table__rule(const struct at_unwind_row *rows, uint32_t row_cnt, uint32_t pc);

/* For the parsers of other formats. is_end: of a function, so that it yields to one that begins there. */
void unwind_draft__add(struct unwind_draft *draft, uint64_t pc, uint32_t rule, bool is_end);

#endif
