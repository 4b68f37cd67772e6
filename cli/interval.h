/* SPDX-License-Identifier: BSD-2-Clause */
/* The part of a growing profile that came since an earlier look at it. Pure arithmetic. */
#ifndef ALLOCTRACE_CLI_INTERVAL_H
#define ALLOCTRACE_CLI_INTERVAL_H

#include "cli/profile.h"

/*
 * Takes from `now` what `before` had, in place: classes, ledgers, counters, and
 * losses. Figures that are no sums are those of now (peaks, longest waits), but for a class's
 * longest call: that is the upper edge of its histogram's last bucket, if lower.
 */
void interval__since(struct profile *now, const struct profile *before);

#endif
