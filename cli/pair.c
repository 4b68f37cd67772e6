/* SPDX-License-Identifier: BSD-2-Clause */
/* Two saved files as one comparison; see pair.h. */
#include "cli/pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/msg.h"
#include "cli/render.h"

static bool is_plain(const char *text)
{
	for (const char *at = text; *at; at++)
		if (*at < ' ' || *at > '~')
			return false;
	return *text;
}

/* The files' names, or their paths where those are the same, or A and B. */
static int name_configs(struct compare_configs *configs, const char *const paths[2])
{
	const char *names[2];

	for (int i = 0; i < 2; i++)
		names[i] = strrchr(paths[i], '/') ? strrchr(paths[i], '/') + 1 : paths[i];
	if (strcmp(names[0], names[1]) == 0)
		memcpy(names, paths, sizeof(names));
	if (strcmp(names[0], names[1]) == 0 || !is_plain(names[0]) || !is_plain(names[1])) {
		names[0] = "A";
		names[1] = "B";
	}
	for (configs->cnt = 0; configs->cnt < 2; configs->cnt++) {
		struct compare_config *config = &configs->all[configs->cnt];

		config->name = strdup(names[configs->cnt]);
		config->allocator = strdup("");
		if (!config->name || !config->allocator)
			return -ENOMEM;
	}
	return 0;
}

/* A new program of the report, with two configurations. */
static int add_program(struct compare_report *report, const char *name, const char *config, bool has_phases)
{
	struct compare_program *program = &report->programs[report->program_cnt++];

	if (config ? asprintf(&program->name, "%s, %s", name, config) < 0 : !(program->name = strdup(name)))
		program->name = NULL;
	program->notes = calloc(2, sizeof(*program->notes));
	program->comparison = compare__new(2, 0, has_phases);
	return program->name && program->notes && program->comparison ? 0 : -ENOMEM;
}

static char *command_of(const struct profile *profile)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *memory = open_memstream(&text, &bytes);

	for (char **word = profile->argv; memory && *word; word++)
		fprintf(memory, word == profile->argv ? "%s" : " %s", *word);
	if (memory)
		fclose(memory);
	return text;
}

static int pair_profiles(struct saved saved[2], struct compare_report *report)
{
	const struct profile *a = saved[0].profile, *b = saved[1].profile;
	char *names[2] = {command_of(a), command_of(b)}, *name = NULL;
	int err = -ENOMEM;

	report->programs = calloc(1, sizeof(*report->programs));
	if (report->programs && names[0] && names[1] &&
	    (strcmp(names[0], names[1]) == 0 ? (name = strdup(names[0])) != NULL
					     : asprintf(&name, "%s / %s", names[0], names[1]) >= 0))
		err = add_program(report, name, NULL, render__has_phases(a) && render__has_phases(b));
	report->block_cnt = report->wanted_block_cnt = 1;
	for (int i = 0; i < 2 && !err; i++) {
		err = compare__add(report->programs[0].comparison, 0, i, saved[i].profile);
		memcpy(report->programs[0].notes[i], saved[i].profile->note, sizeof(saved[i].profile->note));
	}
	free(name);
	free(names[0]);
	free(names[1]);
	for (int i = 0; i < 2; i++) {
		report->shown[i] = saved[i].profile;
		saved[i].profile = NULL;
	}
	return err;
}

/* Puts the runs of one configuration of both into a program of the pair. */
static int copy_runs(struct compare_report *report, const struct comparison *from[2], const size_t config[2])
{
	struct comparison *to = report->programs[report->program_cnt - 1].comparison;

	if (compare__resize(to, report->block_cnt))
		return -ENOMEM;
	to->is_exact = from[0]->is_exact && from[1]->is_exact;
	for (int figure = 0; figure < COMPARE_FIGURE_CNT; figure++) {
		to->is_measured[figure] = from[0]->is_measured[figure] && from[1]->is_measured[figure];
		for (size_t block = 0; block < report->block_cnt; block++)
			for (int i = 0; i < 2; i++)
				compare__set_value(to, block, i, figure,
						   compare__value(from[i], block, config[i], figure));
	}
	for (int class = 1; class < AT_CLASS_CNT; class ++)
		for (int i = 0; i < 2; i++)
			compare__add_histogram(to, i, class, compare__histogram(from[i], config[i], class));
	return 0;
}

static int pair_programs(struct compare_report *report, const struct compare_report *from[2], size_t a, size_t b)
{
	const struct comparison *comparisons[2] = {from[0]->programs[a].comparison, from[1]->programs[b].comparison};
	int err = 0;

	for (size_t i = 0; i < from[0]->configs->cnt && !err; i++)
		for (size_t j = 0; j < from[1]->configs->cnt && !err; j++) {
			const char *name = from[0]->configs->all[i].name;
			const size_t config[2] = {i, j};

			if (strcmp(name, from[1]->configs->all[j].name) != 0)
				continue;
			err = add_program(report, from[0]->programs[a].name, name,
					  comparisons[0]->has_phases && comparisons[1]->has_phases);
			if (!err)
				err = copy_runs(report, comparisons, config);
		}
	return err;
}

static int pair_comparisons(struct saved saved[2], struct compare_report *report)
{
	const struct compare_report *from[2] = {&saved[0].comparison->report, &saved[1].comparison->report};
	int err = 0;

	report->block_cnt = from[0]->block_cnt < from[1]->block_cnt ? from[0]->block_cnt : from[1]->block_cnt;
	report->wanted_block_cnt = report->block_cnt;
	report->seed = from[0]->seed;
	report->programs = calloc(from[0]->program_cnt * from[0]->configs->cnt, sizeof(*report->programs));
	if (!report->programs)
		return -ENOMEM;
	for (size_t a = 0; a < from[0]->program_cnt && !err; a++)
		for (size_t b = 0; b < from[1]->program_cnt && !err; b++)
			if (strcmp(from[0]->programs[a].name, from[1]->programs[b].name) == 0)
				err = pair_programs(report, from, a, b);
	for (int i = 0; i < 2; i++) {
		struct profile *shown = (struct profile *)from[i]->shown[0];

		/* Each program of the pair has settings of its own: its name says which. */
		shown->has_policy = false;
		strcpy(shown->allocator, "configurations as named below");
		report->shown[i] = shown;
		saved[i].comparison->report.shown[0] = NULL;
	}
	return err;
}

int pair__make(struct saved saved[2], const char *const paths[2], struct saved *pair)
{
	bool is_of_runs = saved[0].profile && saved[1].profile;
	struct compare_report *report;
	int err;

	*pair = (struct saved){0};
	if (!is_of_runs && !(saved[0].comparison && saved[1].comparison)) {
		msg__error("report: '%s' is a run and '%s' a comparison: they cannot be set against each other",
			   paths[!saved[0].profile], paths[!!saved[0].profile]);
		return AT_EXIT_USAGE;
	}
	pair->comparison = calloc(1, sizeof(*pair->comparison));
	if (!pair->comparison)
		goto no_memory;
	report = &pair->comparison->report;
	report->configs = &pair->comparison->configs;
	report->is_apart = true;
	report->load = (struct compare_load){.start = -1, .others = -1, .stolen = -1};
	report->shown = calloc(2, sizeof(*report->shown));
	err = report->shown ? name_configs(&pair->comparison->configs, paths) : -ENOMEM;
	if (!err)
		err = is_of_runs ? pair_profiles(saved, report) : pair_comparisons(saved, report);
	if (!err && !report->program_cnt) {
		msg__error("report: '%s' and '%s' have no scenario with a configuration in common", paths[0], paths[1]);
		return AT_EXIT_OWN;
	}
	if (!err)
		err = render_compare__finish(report);
	if (!err)
		return 0;
no_memory:
	msg__error("out of memory");
	return AT_EXIT_OWN;
}
