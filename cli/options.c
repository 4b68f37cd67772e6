/* SPDX-License-Identifier: BSD-2-Clause */
/* Parsing options with argp; see options.h. */
#include "cli/options.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/settings.h"
#include "cli/cmd.h"
#include "cli/msg.h"

static const struct argp_option common_options[] = {
	{"quiet", 'q', NULL, 0, "Errors only", 100},
	{"verbose", 'v', NULL, 0, "Say what is being done", 100},
	{"help", 'h', NULL, 0, "This text", 100},
	{0},
};

/* Where the last parse stopped: argp itself tells only on success. */
static int stopped_at;

static error_t parse_common(int key, char *arg, struct argp_state *state)
{
	(void)arg;
	switch (key) {
	case 'q': msg__set_level(-1); return 0;
	case 'v': msg__set_level(1); return 0;
	case 'h':
		argp_help(state->root_argp, stdout,
			  ARGP_HELP_SHORT_USAGE | ARGP_HELP_PRE_DOC | ARGP_HELP_LONG | ARGP_HELP_POST_DOC, state->name);
		exit(fflush(stdout) ? AT_EXIT_OWN : 0);
	case ARGP_KEY_ERROR: stopped_at = state->next; return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp common_argp = {.options = common_options, .parser = parse_common};

const struct argp_child options_common[] = {{&common_argp, 0, NULL, 0}, {0}};

/* Calls each(option, data) for the options of the verb and the common ones, until it returns true. */
static bool any_option(const struct argp *argp, bool (*each)(const struct argp_option *option, void *data), void *data)
{
	const struct argp_option *tables[] = {argp->options, common_options};

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct argp_option *option = tables[i]; option && option->name; option++)
			if (each(option, data))
				return true;
	return false;
}

struct known {
	char text[1024];
	size_t used;
};

static bool append_known(const struct argp_option *option, void *data)
{
	struct known *known = data;
	size_t left = sizeof(known->text) - known->used;
	int bytes = snprintf(known->text + known->used, left, "%s--%s", known->used ? ", " : "", option->name);

	if ((size_t)bytes >= left)
		return true;
	known->used += bytes;
	return false;
}

/* Is `data` this option in full, and does it want a value? */
static bool wants_value(const struct argp_option *option, void *data)
{
	const char *word = data;

	if (!option->arg)
		return false;
	if (word[1] == '-')
		return strcmp(word + 2, option->name) == 0;
	return word[1] && !word[2] && word[1] == option->key;
}

static bool is_letter(const struct argp_option *option, void *data)
{
	return option->key == *(const char *)data;
}

/* "-jq": letters that all are options. */
static bool is_known_cluster(const struct argp *argp, char *word)
{
	if (word[0] != '-' || word[1] == '-')
		return false;
	for (char *letter = word + 1; *letter; letter++)
		if (!any_option(argp, is_letter, letter))
			return false;
	return true;
}

/* Is `data` "--NAME=..." of an option without a value? */
static bool takes_no_value(const struct argp_option *option, void *data)
{
	const char *word = data;
	size_t bytes = strlen(option->name);

	return !option->arg && strncmp(word, "--", 2) == 0 && strncmp(word + 2, option->name, bytes) == 0 &&
	       word[2 + bytes] == '=';
}

int options__parse(const struct argp *argp, int argc, char **argv, void *input)
{
	struct known known = {.used = 0};
	error_t err = argp_parse(argp, argc, argv, ARGP_IN_ORDER | ARGP_NO_HELP | ARGP_NO_ERRS, NULL, input);
	char *word;

	if (!err)
		return 0;
	if (err == OPTIONS_SAID)
		return AT_EXIT_USAGE;
	/* It stops behind the word that it could not take, or on it inside a cluster of letters. */
	word = argv[stopped_at > 0 && stopped_at <= argc ? stopped_at - 1 : argc - 1];
	if (stopped_at < argc &&
	    (word[0] != '-' || (is_known_cluster(argp, word) && !any_option(argp, wants_value, word))))
		word = argv[stopped_at];
	any_option(argp, append_known, &known);
	if (any_option(argp, wants_value, word))
		msg__error("option '%s' needs a value", word);
	else if (any_option(argp, takes_no_value, word))
		msg__error("option '%s' takes no value", word);
	else
		msg__error("unknown option '%s'; known: %s", word, known.text);
	return AT_EXIT_USAGE;
}

int options__policy(const char *set, uint32_t dflt, uint32_t *policy)
{
	struct settings_error error;
	int err = settings__parse_policy(set, dflt, policy, &error);

	if (err)
		msg__error("policy set '%s': %s '%.*s'; known: %s (+NAME and -NAME change the default)", set, error.why,
			   (int)error.bytes, error.at, settings__policy_names());
	return err;
}

int options__tune(const char *list, uint64_t *tune)
{
	struct settings_error error;
	int err = settings__parse_tune(list, tune, &error);

	if (err)
		msg__error("tunables '%s': %s '%.*s'; known: %s", list, error.why, (int)error.bytes, error.at,
			   settings__tune_names());
	return err;
}

int options__choose(const char *option, const char *word, const char *const *words)
{
	char known[128] = "";
	size_t used = 0;

	for (int i = 0; words[i]; i++) {
		if (strcmp(word, words[i]) == 0)
			return i;
		used += snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", words[i]);
	}
	msg__error("%s: unknown '%s'; known: %s", option, word, known);
	return -1;
}

int options__tier(const char *word)
{
	static const char *const tiers[] = {"0", "1", "2", NULL};

	return options__choose("--tier", word, tiers);
}

static const char *const whens[] = {"auto", "always", "never", NULL}; /* in the order of enum color */

int options__color(const char *word)
{
	return options__choose("--color", word, whens);
}

int options__plot(const char *word)
{
	return options__choose("--plot", word, whens);
}
