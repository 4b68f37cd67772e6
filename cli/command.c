/* SPDX-License-Identifier: BSD-2-Clause */
/* Finding what is to be run; see command.h. */
#include "cli/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/binary.h"
#include "cli/cmd.h"
#include "cli/install.h"
#include "cli/msg.h"
#include "cli/scenarios.h"

static int out_of_memory(void)
{
	msg__error("out of memory");
	return AT_EXIT_OWN;
}

static size_t count_words(char **words)
{
	size_t cnt = 0;

	while (words[cnt])
		cnt++;
	return cnt;
}

/* argv of a scenario: its default arguments, then those given; the later ones win. */
static int scenario_argv(struct command *command, const struct scenario *scenario, char **words)
{
	char **given = words + 1, *rest, *word;
	size_t cnt = 0, cap = strlen(scenario->arguments) / 2 + count_words(given) + 3;

	command->default_words = strdup(scenario->arguments);
	command->argv = calloc(cap, sizeof(*command->argv));
	if (!command->default_words || !command->argv)
		return out_of_memory();
	command->argv[cnt++] = words[0];
	rest = command->default_words;
	while ((word = strsep(&rest, " ")))
		if (*word)
			command->argv[cnt++] = word;
	memcpy(&command->argv[cnt], given, count_words(given) * sizeof(*given));
	return 0;
}

static int find_scenario(struct command *command, char **words)
{
	struct scenarios scenarios;
	const struct scenario *scenario;
	const char *name = words[0];
	char text[512], path[4096];
	int status = 0, err;

	if (scenarios__load(&scenarios))
		return AT_EXIT_OWN;
	scenario = scenarios__find(&scenarios, name);
	if (!scenario) {
		scenarios__names(&scenarios, text, sizeof(text));
		msg__error("unknown scenario '%s'; known: %s (a command follows --)", name, text);
		status = AT_EXIT_USAGE;
		goto out;
	}
	snprintf(text, sizeof(text), "scenarios/%s", name);
	err = install__path(text, path, sizeof(path));
	if (err) {
		msg__error("cannot find the program of scenario %s: %s; is the installation complete?", name,
			   strerror(-err));
		status = AT_EXIT_OWN;
		goto out;
	}
	command->paths = binary__paths(path);
	status = command->paths ? scenario_argv(command, scenario, words) : out_of_memory();
out:
	scenarios__free(&scenarios);
	return status;
}

static int find_command(struct command *command, char **words)
{
	size_t cnt = count_words(words);

	command->paths = binary__paths(words[0]);
	command->argv = calloc(cnt + 1, sizeof(*command->argv));
	if (!command->paths || !command->argv)
		return out_of_memory();
	memcpy(command->argv, words, cnt * sizeof(*words));
	if (command->paths[0])
		return 0;
	/* Said before anything is opened or started. */
	msg__error("cannot run '%s': not found in PATH", words[0]);
	return AT_EXIT_NOT_FOUND;
}

int command__find(struct command *command, char **words, bool is_scenario)
{
	return is_scenario ? find_scenario(command, words) : find_command(command, words);
}

const char *command__file(const struct command *command)
{
	for (char **path = command->paths; *path; path++)
		if (access(*path, X_OK) == 0)
			return *path;
	return command->paths[0];
}

void command__free(struct command *command)
{
	binary__free_paths(command->paths);
	free(command->argv);
	free(command->default_words);
}
