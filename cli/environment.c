/* SPDX-License-Identifier: BSD-2-Clause */
/* The environment of a command; see environment.h. */
#include "cli/environment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int environment__copy(struct environment *environment, char *const *vars)
{
	size_t cnt = 0;

	*environment = (struct environment){0};
	while (vars[cnt])
		cnt++;
	environment->vars = calloc(cnt + 1, sizeof(*environment->vars));
	if (!environment->vars)
		return -ENOMEM;
	for (; environment->cnt < cnt; environment->cnt++) {
		environment->vars[environment->cnt] = strdup(vars[environment->cnt]);
		if (!environment->vars[environment->cnt])
			return -ENOMEM;
	}
	return 0;
}

/* The index of a variable; cnt when it is not set. */
static size_t find(const struct environment *environment, const char *name)
{
	size_t bytes = strlen(name), i;

	for (i = 0; i < environment->cnt; i++)
		if (strncmp(environment->vars[i], name, bytes) == 0 && environment->vars[i][bytes] == '=')
			break;
	return i;
}

const char *environment__get(const struct environment *environment, const char *name)
{
	size_t i = find(environment, name);

	return i < environment->cnt ? environment->vars[i] + strlen(name) + 1 : NULL;
}

int environment__set(struct environment *environment, const char *name, const char *value)
{
	size_t i = find(environment, name);
	char **vars, *var;

	if (asprintf(&var, "%s=%s", name, value) < 0)
		return -ENOMEM;
	if (i < environment->cnt) {
		free(environment->vars[i]);
		environment->vars[i] = var;
		return 0;
	}
	vars = reallocarray(environment->vars, environment->cnt + 2, sizeof(*vars));
	if (!vars) {
		free(var);
		return -ENOMEM;
	}
	vars[environment->cnt++] = var;
	vars[environment->cnt] = NULL;
	environment->vars = vars;
	return 0;
}

void environment__unset(struct environment *environment, const char *name)
{
	size_t i;

	/* Nothing keeps a name from being there twice. */
	while ((i = find(environment, name)) < environment->cnt) {
		free(environment->vars[i]);
		memmove(&environment->vars[i], &environment->vars[i + 1],
			(environment->cnt - i) * sizeof(*environment->vars));
		environment->cnt--;
	}
}

void environment__free(struct environment *environment)
{
	for (size_t i = 0; i < environment->cnt; i++)
		free(environment->vars[i]);
	free(environment->vars);
	*environment = (struct environment){0};
}
