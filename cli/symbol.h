/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names of functions and source lines for frames of callchains, from the very
 * files that were mapped: .symtab, .dynsym, .gnu_debugdata, .gopclntab, and
 * separate debug files by build id, or by debuglink when the CRC is right. What
 * has no name stays without one.
 */
#ifndef ALLOCTRACE_CLI_SYMBOL_H
#define ALLOCTRACE_CLI_SYMBOL_H

#include "cli/callchain.h"
#include "cli/unwind_objects.h"

/* Fills in the frames. */
void symbol__resolve(const struct unwind_objects *objects, struct callchains *chains);

#endif
