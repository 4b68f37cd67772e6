/* SPDX-License-Identifier: BSD-2-Clause */
/* The configurations that are compared; see compare_config.h. */
#include "cli/compare_config.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/settings.h"
#include "cli/cmd.h"
#include "cli/msg.h"
#include "cli/preload.h"

static int out_of_memory(void)
{
	msg__error("out of memory");
	return AT_EXIT_OWN;
}

/* A new configuration of that name under the bundled allocator. */
static int add(struct compare_configs *configs, const char *name, size_t name_bytes, struct compare_config **added)
{
	struct compare_config *config = &configs->all[configs->cnt];

	if (configs->cnt == COMPARE_CONFIG_MAX) {
		msg__error("more than %d configurations", COMPARE_CONFIG_MAX);
		return AT_EXIT_USAGE;
	}
	for (size_t i = 0; i < name_bytes || !name_bytes; i++)
		if (!name_bytes || name[i] < ' ' || name[i] > '~') {
			msg__error("the name of a configuration must be printable ASCII; --config gives it one");
			return AT_EXIT_USAGE;
		}
	for (size_t i = 0; i < configs->cnt; i++)
		if (strlen(configs->all[i].name) == name_bytes && memcmp(configs->all[i].name, name, name_bytes) == 0) {
			msg__error("two configurations are named '%s'; --config gives one a name of its own",
				   configs->all[i].name);
			return AT_EXIT_USAGE;
		}
	*config = (struct compare_config){.name = strndup(name, name_bytes), .allocator = strdup(PRELOAD_BUNDLED)};
	configs->cnt++;
	*added = config;
	return config->name && config->allocator ? 0 : out_of_memory();
}

int compare_config__add_policy(struct compare_configs *configs, const char *set)
{
	struct compare_config *config;
	int status = add(configs, set, strlen(set), &config);

	if (status)
		return status;
	config->policy = strdup(set);
	return config->policy ? 0 : out_of_memory();
}

int compare_config__add_allocator(struct compare_configs *configs, const char *name)
{
	const char *slash = strrchr(name, '/');
	const char *shown = slash && slash[1] ? slash + 1 : name;
	struct compare_config *config;
	int status = add(configs, shown, strlen(shown), &config);

	if (status)
		return status;
	free(config->allocator);
	config->allocator = strdup(name);
	return config->allocator ? 0 : out_of_memory();
}

static int add_env(struct compare_config *config, const char *value, size_t bytes)
{
	const char *equals = memchr(value, '=', bytes);
	size_t cnt = 0;
	char **env;

	if (!equals || equals == value) {
		msg__error("--config %s: env is NAME=VALUE, not '%.*s'", config->name, (int)bytes, value);
		return AT_EXIT_USAGE;
	}
	while (config->env && config->env[cnt])
		cnt++;
	env = reallocarray(config->env, cnt + 2, sizeof(*env));
	if (!env)
		return out_of_memory();
	config->env = env;
	env[cnt] = strndup(value, bytes);
	env[cnt + 1] = NULL;
	return env[cnt] ? 0 : out_of_memory();
}

static const char *const words[] = {"policy", "allocator", "tune", "env", NULL};
enum word { WORD_POLICY, WORD_ALLOCATOR, WORD_TUNE, WORD_ENV, WORD_CNT };

/* Which word a part begins with, followed by '='; WORD_CNT when with none. */
static enum word word_of(const char *part)
{
	int word;

	for (word = 0; words[word]; word++) {
		size_t bytes = strlen(words[word]);

		if (strncmp(part, words[word], bytes) == 0 && part[bytes] == '=')
			break;
	}
	return word;
}

/* The bytes of a part: up to the comma before the next word, for values have commas, too. */
static size_t part_bytes(const char *part)
{
	size_t bytes = strcspn(part, ",");

	while (part[bytes] == ',' && word_of(part + bytes + 1) == WORD_CNT)
		bytes += 1 + strcspn(part + bytes + 1, ",");
	return bytes;
}

static int set_part(struct compare_config *config, enum word word, const char *value, size_t bytes)
{
	char **field = word == WORD_POLICY ? &config->policy : word == WORD_TUNE ? &config->tune : &config->allocator;

	if (word == WORD_ENV)
		return add_env(config, value, bytes);
	free(*field);
	*field = strndup(value, bytes);
	return *field ? 0 : out_of_memory();
}

int compare_config__add_text(struct compare_configs *configs, const char *text)
{
	const char *colon = strchr(text, ':'), *part;
	struct compare_config *config;
	int status;

	if (!colon || colon == text) {
		msg__error(
			"--config '%s': NAME:SETTING=VALUE,... is wanted; known settings: policy, allocator, tune, env",
			text);
		return AT_EXIT_USAGE;
	}
	status = add(configs, text, colon - text, &config);
	for (part = colon + 1; !status && *part; part += *part == ',') {
		enum word word = word_of(part);
		size_t bytes = part_bytes(part), skip;

		if (word == WORD_CNT) {
			msg__error("--config %s: unknown setting '%.*s'; known: policy, allocator, tune, env",
				   config->name, (int)strcspn(part, "=,"), part);
			return AT_EXIT_USAGE;
		}
		skip = strlen(words[word]) + 1;
		status = set_part(config, word, part + skip, bytes - skip);
		part += bytes;
	}
	return status;
}

int compare_config__add_matrix(struct compare_configs *configs)
{
	char name[128];
	int status = 0;

	for (uint32_t policy = 0; policy <= POLICY_ALL && !status; policy++) {
		settings__format_policy(policy, name, sizeof(name));
		status = compare_config__add_policy(configs, name);
	}
	return status;
}

int compare_config__add_default(struct compare_configs *configs)
{
	int status = compare_config__add_policy(configs, "none");

#define X(id, name)  \
	if (!status) \
		status = compare_config__add_policy(configs, #name);
	ATM_POLICIES(X)
#undef X
	return status ? status : compare_config__add_policy(configs, "all");
}

int compare_config__set_tune(struct compare_configs *configs, const char *text)
{
	for (size_t i = 0; text && i < configs->cnt; i++) {
		struct compare_config *config = &configs->all[i];

		if (config->tune || strcmp(config->allocator, PRELOAD_BUNDLED) != 0)
			continue;
		config->tune = strdup(text);
		if (!config->tune)
			return out_of_memory();
	}
	return 0;
}

int compare_config__find(const struct compare_configs *configs, const char *name, size_t *index)
{
	char known[512] = "";
	size_t used = 0;

	*index = 0;
	if (!name)
		return 0;
	for (size_t i = 0; i < configs->cnt; i++) {
		if (strcmp(configs->all[i].name, name) == 0) {
			*index = i;
			return 0;
		}
		if (used < sizeof(known))
			used += snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
					 configs->all[i].name);
	}
	msg__error("--base: unknown configuration '%s'; known: %s", name, known);
	return AT_EXIT_USAGE;
}

void compare_config__free(struct compare_configs *configs)
{
	for (size_t i = 0; i < configs->cnt; i++) {
		struct compare_config *config = &configs->all[i];

		for (char **var = config->env; var && *var; var++)
			free(*var);
		free(config->env);
		free(config->name);
		free(config->policy);
		free(config->tune);
		free(config->allocator);
	}
	configs->cnt = 0;
}
