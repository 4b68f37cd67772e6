/* SPDX-License-Identifier: BSD-2-Clause */
/* What the ledgers know of a thread or a process of an attached target: sums and differences. Pure arithmetic. */
#ifndef ALLOCTRACE_CLI_ROW_LEDGER_H
#define ALLOCTRACE_CLI_ROW_LEDGER_H

#include <linux/types.h>
#include <stdbool.h>

#include "bpf/event.h"

/* Of another thread of the process, or of the same one at another time. */
void row_ledger__add(struct at_row_ledger *dst, const struct at_row_ledger *src);
/* Takes from `now` what `before` had; peaks, longest waits and counts of VMAs are those of now. */
void row_ledger__since(struct at_row_ledger *now, const struct at_row_ledger *before);
/* There is something to show. */
bool row_ledger__has_any(const struct at_row_ledger *ledger);
/* All kinds of locks together. */
struct at_wait row_ledger__waits(const struct at_row_ledger *ledger);

#endif
