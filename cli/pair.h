/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two saved files as one comparison: two runs against each other, or the
 * configurations that two comparisons have in common. What was measured apart is
 * never taken for measured in turn: the report says so.
 */
#ifndef ALLOCTRACE_CLI_PAIR_H
#define ALLOCTRACE_CLI_PAIR_H

#include "cli/saved.h"

/*
 * saved, paths: of the two; their contents are moved, or freed. 0, or the exit
 * status after saying why they cannot be compared. saved__free(pair) in any
 * case.
 */
int pair__make(struct saved saved[2], const char *const paths[2], struct saved *pair);

#endif
