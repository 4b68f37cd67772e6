/* SPDX-License-Identifier: BSD-2-Clause */
/* Parsing a verb's options with argp, and the settings that several verbs take. */
#ifndef ALLOCTRACE_CLI_OPTIONS_H
#define ALLOCTRACE_CLI_OPTIONS_H

#include <argp.h>
#include <errno.h>
#include <stdint.h>

/* What a parser returns after it has itself said what is wrong. */
#define OPTIONS_SAID ECANCELED

/* The options that every verb has: --help, -q, -v. For argp.children. */
extern const struct argp_child options_common[];

/*
 * argp_parse with errors in one line that names the known options. Returns 0
 * or AT_EXIT_USAGE. Words from the first non-option on are left to the parser.
 */
int options__parse(const struct argp *argp, int argc, char **argv, void *input);

/* settings.h with the error said in one line; 0 or -EINVAL. */
int options__policy(const char *set, uint32_t dflt, uint32_t *policy);
int options__tune(const char *list, uint64_t *tune);

/* The index of word in NULL-terminated words; -1 after saying what is known. */
int options__choose(const char *option, const char *word, const char *const *words);
/* --tier: the number; --color: an enum color. -1 after saying what is known. */
int options__tier(const char *word);
int options__color(const char *word);
int options__plot(const char *word);

#endif
