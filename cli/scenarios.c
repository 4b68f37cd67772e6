/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading the list of scenarios; see scenarios.h. */
#include "cli/scenarios.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/install.h"
#include "cli/msg.h"

static char *read_text(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t bytes = 0;
	ssize_t got;

	if (!file)
		return NULL;
	got = getdelim(&text, &bytes, 0, file); /* a text file: all of it */
	if (got < 0) {
		free(text);
		text = feof(file) ? strdup("") : NULL;
	}
	fclose(file);
	return text;
}

/* Cuts a line into the four fields; anything else is -EINVAL. */
static int parse_line(char *line, struct scenario *scenario)
{
	char **fields[] = {&scenario->name, &scenario->policy, &scenario->arguments, &scenario->purpose};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		*fields[i] = strsep(&line, "\t");
		if (!*fields[i] || !**fields[i])
			return -EINVAL;
	}
	if (strcmp(scenario->arguments, "-") == 0)
		scenario->arguments += 1;
	return line ? -EINVAL : 0;
}

int scenarios__parse(struct scenarios *scenarios, size_t *line_nr)
{
	char *rest = scenarios->text, *line;

	for (*line_nr = 1; (line = strsep(&rest, "\n")); ++*line_nr) {
		struct scenario *all;

		if (!*line || *line == '#')
			continue;
		all = reallocarray(scenarios->all, scenarios->cnt + 1, sizeof(*all));
		if (!all)
			return -ENOMEM;
		scenarios->all = all;
		if (parse_line(line, &all[scenarios->cnt]))
			return -EINVAL;
		scenarios->cnt++;
	}
	return 0;
}

int scenarios__load(struct scenarios *scenarios)
{
	char path[PATH_MAX];
	size_t line_nr = 0;
	int err = install__path("scenarios/scenarios.tsv", path, sizeof(path));

	memset(scenarios, 0, sizeof(*scenarios));
	if (err) {
		msg__error("cannot find scenarios/scenarios.tsv beside the program or in ../lib/alloctrace: %s; is the "
			   "installation complete?",
			   strerror(-err));
		return err;
	}
	scenarios->text = read_text(path);
	if (!scenarios->text) {
		err = -errno;
		msg__error("cannot read the list of scenarios %s: %s", path, strerror(-err));
		return err;
	}
	err = scenarios__parse(scenarios, &line_nr);
	if (err) {
		msg__error("%s:%zu: %s", path, line_nr,
			   err == -EINVAL ? "not four fields separated by tabs" : strerror(-err));
		scenarios__free(scenarios);
	}
	return err;
}

void scenarios__free(struct scenarios *scenarios)
{
	free(scenarios->text);
	free(scenarios->all);
	memset(scenarios, 0, sizeof(*scenarios));
}

const struct scenario *scenarios__find(const struct scenarios *scenarios, const char *name)
{
	for (size_t i = 0; i < scenarios->cnt; i++)
		if (strcmp(scenarios->all[i].name, name) == 0)
			return &scenarios->all[i];
	return NULL;
}

void scenarios__names(const struct scenarios *scenarios, char *buf, size_t buf_bytes)
{
	size_t used = 0;

	buf[0] = 0;
	for (size_t i = 0; i < scenarios->cnt && used < buf_bytes; i++)
		used += snprintf(buf + used, buf_bytes - used, "%s%s", i ? ", " : "", scenarios->all[i].name);
}
