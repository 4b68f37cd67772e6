/* SPDX-License-Identifier: BSD-2-Clause */
/* What is to be run: a bundled scenario by name, or a command by its words. */
#ifndef ALLOCTRACE_CLI_COMMAND_H
#define ALLOCTRACE_CLI_COMMAND_H

#include <stdbool.h>

struct command {
	char **paths; /* files to try in order, as binary__paths gives them */
	char **argv;  /* NULL-terminated; the words are the caller's, or in default_words */
	char *default_words;
};

/* words: a name and its arguments, NULL-terminated, kept. 0, or the exit status after saying what is wrong. */
int command__find(struct command *command, char **words, bool is_scenario);
/* The file that will be run, as far as can be said beforehand. */
const char *command__file(const struct command *command);
/* Frees what it holds; a zeroed one, too. */
void command__free(struct command *command);

#endif
