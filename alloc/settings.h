/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The grammar of policy sets and tunables, for the library and the CLI alike.
 * Pure: no allocation, no I/O, no state; safe in any thread and before main.
 */
#ifndef ALLOCTRACE_ALLOC_SETTINGS_H
#define ALLOCTRACE_ALLOC_SETTINGS_H

#include <stddef.h>
#include <stdint.h>

#include "alloc/control.h"

/* What was wrong, for the caller's message; points into the text parsed. */
struct settings_error {
	const char *at;  /* first character of the offending word */
	size_t bytes;    /* its length, may be 0 */
	const char *why; /* static text: "unknown policy", ... */
};

/*
 * Parses "all", "none", "trim,commit" (an exact list) or "+trim,-stack"
 * (changes to `dflt`). Returns 0 and writes *policy, or -EINVAL and fills
 * *error; *policy is then untouched.
 */
int settings__parse_policy(const char *set, uint32_t dflt, uint32_t *policy, struct settings_error *error);

/*
 * Parses "NAME=VALUE,..." into tune[ATM_TUNE_CNT]; entries not named keep what
 * they hold. Sizes take the suffixes K, M, G (powers of 1024). Returns 0, or
 * -EINVAL with *error filled and tune untouched.
 */
int settings__parse_tune(const char *list, uint64_t *tune, struct settings_error *error);

/* Writes the defaults of ATM_TUNABLES into tune[ATM_TUNE_CNT]. */
void settings__tune_defaults(uint64_t *tune);

/* "stack,trim", "none"; returns the full length, as snprintf does. */
size_t settings__format_policy(uint32_t policy, char *buf, size_t buf_bytes);

/* Comma-separated known names, for messages: static text. */
const char *settings__policy_names(void);
const char *settings__tune_names(void);

#endif
