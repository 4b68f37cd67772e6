/* SPDX-License-Identifier: BSD-2-Clause */
/* Rows of .eh_frame. Reads files that nobody vouches for: what is broken in a function's part is left out. */
#ifndef ALLOCTRACE_CLI_EH_FRAME_H
#define ALLOCTRACE_CLI_EH_FRAME_H

#include "cli/unwind_table.h"

/* Adds its rows; -ENODATA: there is none. */
int eh_frame__read(const struct elf_image *image, struct unwind_draft *draft);

#endif
