/* SPDX-License-Identifier: BSD-2-Clause */
/* The members of the ledgers that the whole run, its phases, processes and threads have in common, one line each. */
#ifndef ALLOCTRACE_CLI_LEDGER_FIELDS_H
#define ALLOCTRACE_CLI_LEDGER_FIELDS_H

#include "cli/fields.h"

/* Of struct at_refault, at_wait, at_stack_ledger. */
extern const struct field ledger_fields__release[], ledger_fields__wait[], ledger_fields__stacks[];

/* Of AT_RELEASE_*, AT_LOCK_*, for arrays of the first two. */
const char *ledger_fields__release_name(int release);
const char *ledger_fields__lock_name(int lock);

#endif
