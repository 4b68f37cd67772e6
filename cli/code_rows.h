/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rows for functions that have no unwind table, as musl's: found by following what their instructions do to the
 * stack pointer, from each known start on. Whoever walks by them marks what comes of it as a guess.
 */
#ifndef ALLOCTRACE_CLI_CODE_ROWS_H
#define ALLOCTRACE_CLI_CODE_ROWS_H

#include "cli/unwind_table.h"

/* `rows`: those of the object's table, whose functions are left as they are. Adds to the draft; 0 or -errno. */
int code_rows__read(const struct elf_image *image, const struct at_unwind_row *rows, uint32_t row_cnt,
		    struct unwind_draft *draft);

#endif
