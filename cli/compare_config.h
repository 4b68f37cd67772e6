/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The configurations that are compared: those of --policy, --allocator and
 * --config in the order given, the 16 of --matrix, or the default ones. Owns
 * their texts. Functions return 0, or the exit status after saying what is
 * wrong.
 */
#ifndef ALLOCTRACE_CLI_COMPARE_CONFIG_H
#define ALLOCTRACE_CLI_COMPARE_CONFIG_H

#include <stddef.h>

enum { COMPARE_CONFIG_MAX = 64 };

struct compare_config {
	char *name;
	char *policy, *tune; /* NULL: not given */
	char *allocator;
	char **env; /* NULL-terminated NAME=VALUE; NULL = none */
};

struct compare_configs {
	struct compare_config all[COMPARE_CONFIG_MAX];
	size_t cnt;
};

int compare_config__add_policy(struct compare_configs *configs, const char *set);
int compare_config__add_allocator(struct compare_configs *configs, const char *name);
/* NAME:policy=SET,allocator=NAME,tune=LIST,env=VAR=VALUE; a part without one of these words goes on with the last. */
int compare_config__add_text(struct compare_configs *configs, const char *text);
/* All sets of policies; configuration i has those of the bits of i. */
int compare_config__add_matrix(struct compare_configs *configs);
/* none, each policy alone, all. */
int compare_config__add_default(struct compare_configs *configs);
/* For bundled configurations without tunables of their own; text may be NULL. */
int compare_config__set_tune(struct compare_configs *configs, const char *text);
/* The index of a name; the first for NULL. */
int compare_config__find(const struct compare_configs *configs, const char *name, size_t *index);
/* Frees what it holds; a zeroed one, too. */
void compare_config__free(struct compare_configs *configs);

#endif
