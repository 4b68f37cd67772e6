/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The members of struct profile and its parts, one line each: what a saved
 * profile holds. A member that has no line here is not saved; a unit test finds
 * it.
 */
#ifndef ALLOCTRACE_CLI_PROFILE_FIELDS_H
#define ALLOCTRACE_CLI_PROFILE_FIELDS_H

#include "cli/fields.h"

/* Of struct profile. */
extern const struct field profile_fields[];
/* Of struct atm_sums, which processes have, too. */
extern const struct field profile_self_fields[];

#endif
