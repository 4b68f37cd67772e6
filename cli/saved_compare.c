/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A comparison as it is saved, and read again; see saved.h. Its runs are saved,
 * by figure, and what they were; the statistics follow from them.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json_text.h"
#include "cli/profile_fields.h"
#include "cli/saved.h"

/* Values of all figures of all programs: 128 MiB. */
enum { ROOM_MAX = 16 << 20, BLOCK_MAX = 1 << 20, PROGRAM_MAX = 64 };

static const struct field load_fields[] = {
	FIELD(struct compare_load, start),  FIELD(struct compare_load, end),    FIELD(struct compare_load, own),
	FIELD(struct compare_load, others), FIELD(struct compare_load, stolen), FIELD_END,
};

static const struct field report_fields[] = {
	FIELD(struct compare_report, base),
	FIELD(struct compare_report, block_cnt),
	FIELD(struct compare_report, wanted_block_cnt),
	FIELD(struct compare_report, seed),
	FIELD(struct compare_report, is_matrix),
	FIELD(struct compare_report, signal),
	FIELD(struct compare_report, precision_percent),
	FIELD(struct compare_report, is_out_of_time),
	FIELD_TEXT(struct compare_report, governor),
	FIELD_OBJECT(struct compare_report, load, load_fields),
	FIELD_END,
};

static const struct field config_fields[] = {
	FIELD(struct compare_config, name), FIELD(struct compare_config, policy),
	FIELD(struct compare_config, tune), FIELD(struct compare_config, allocator),
	FIELD(struct compare_config, env),  FIELD_END,
};

static const struct field comparison_fields[] = {
	FIELD(struct comparison, has_phases),
	FIELD(struct comparison, is_exact),
	FIELD_END,
};

static json_t *write_values(const struct comparison *comparison, enum compare_figure figure)
{
	json_t *configs = json_array();

	for (size_t config = 0; config < comparison->config_cnt; config++) {
		json_t *runs = json_array();

		for (size_t block = 0; block < comparison->block_cnt; block++) {
			double value = compare__value(comparison, block, config, figure);
			bool is_whole = value == floor(value) && fabs(value) < 9e15;

			json_array_append_new(runs, is_whole ? json_integer((json_int_t)value) : json_real(value));
		}
		json_array_append_new(configs, runs);
	}
	return configs;
}

/* [bucket, calls] of every bucket that has any. */
static json_t *write_histogram(const uint64_t hist[AT_HIST_CNT])
{
	json_t *buckets = json_array();

	for (int i = 0; i < AT_HIST_CNT; i++)
		if (hist[i])
			json_array_append_new(buckets, json_pack("[i, I]", i, (json_int_t)hist[i]));
	return buckets;
}

/* Of each configuration, by class. */
static json_t *write_histograms(const struct comparison *comparison)
{
	json_t *configs = json_array();

	for (size_t config = 0; config < comparison->config_cnt; config++) {
		json_t *classes = json_object();

		for (int class = 1; class < AT_CLASS_CNT; class ++)
			json_object_set_new(classes, profile__class_name(class),
					    write_histogram(compare__histogram(comparison, config, class)));
		json_array_append_new(configs, classes);
	}
	return configs;
}

static json_t *write_program(const struct compare_report *report, const struct compare_program *program)
{
	json_t *object = json_object(), *figures = json_object(), *notes = json_array();
	char key[COMPARE_NAME_BYTES];

	json_text__set(object, "name", program->name);
	json_object_set_new(object, "comparison", fields__write(comparison_fields, program->comparison));
	for (size_t config = 0; config < report->configs->cnt; config++) {
		json_t *note = json_object();

		json_text__set(note, "note", program->notes[config]);
		json_array_append_new(notes, note);
	}
	for (int figure = 0; figure < COMPARE_FIGURE_CNT; figure++)
		if (program->comparison->is_measured[figure])
			json_object_set_new(figures, compare__key(figure, key),
					    write_values(program->comparison, figure));
	json_object_set_new(object, "notes", notes);
	json_object_set_new(object, "figures", figures);
	json_object_set_new(object, "histograms", write_histograms(program->comparison));
	return object;
}

json_t *saved_compare__write(const struct compare_report *report)
{
	json_t *raw = json_object(), *configs = json_array(), *shown = json_array(), *programs = json_array();

	for (size_t i = 0; i < report->configs->cnt; i++) {
		json_array_append_new(configs, fields__write(config_fields, &report->configs->all[i]));
		json_array_append_new(shown, fields__write(profile_fields, report->shown[i]));
	}
	for (size_t i = 0; i < report->program_cnt; i++)
		json_array_append_new(programs, write_program(report, &report->programs[i]));
	json_object_set_new(raw, "report", fields__write(report_fields, report));
	json_object_set_new(raw, "configurations", configs);
	json_object_set_new(raw, "shown", shown);
	json_object_set_new(raw, "programs", programs);
	return raw;
}

static int refuse(struct fields_reading *reading, const char *where, const char *why)
{
	snprintf(reading->where, sizeof(reading->where), "raw.%s", where);
	reading->why = why;
	return -EINVAL;
}

/* A name as the command line takes it, and no other's. */
static bool is_good_name(const struct compare_configs *configs, size_t index)
{
	const char *name = configs->all[index].name;

	if (!name || !*name)
		return false;
	for (const char *at = name; *at; at++)
		if (*at < ' ' || *at > '~')
			return false;
	for (size_t i = 0; i < index; i++)
		if (strcmp(configs->all[i].name, name) == 0)
			return false;
	return true;
}

static int read_configs(const json_t *raw, struct saved_comparison *saved, struct fields_reading *reading)
{
	const json_t *configs = json_object_get(raw, "configurations"), *shown = json_object_get(raw, "shown");
	size_t cnt = json_array_size(configs);
	int err = 0;

	if (cnt < 2 || cnt > COMPARE_CONFIG_MAX || json_array_size(shown) != cnt)
		return refuse(reading, "configurations", "are not two or more, each with a profile");
	saved->report.shown = calloc(cnt, sizeof(*saved->report.shown));
	if (!saved->report.shown)
		return -ENOMEM;
	for (size_t i = 0; i < cnt && !err; i++) {
		struct compare_config *config = &saved->configs.all[saved->configs.cnt++];

		snprintf(reading->where, sizeof(reading->where), "raw.configurations.%zu", i);
		err = fields__read(config_fields, json_array_get(configs, i), config, reading);
		if (!err && (!is_good_name(&saved->configs, i) || !config->allocator))
			return refuse(reading, "configurations",
				      "have a name that is missing, twice there or not printable");
		snprintf(reading->where, sizeof(reading->where), "raw.shown.%zu", i);
		if (!err)
			err = saved__read_profile(json_array_get(shown, i), (struct profile **)&saved->report.shown[i],
						  reading);
	}
	return err;
}

/* The figure of a key; -1 when it is not known. */
static int find_figure(const char *key)
{
	char buf[COMPARE_NAME_BYTES];

	for (int figure = 0; figure < COMPARE_FIGURE_CNT; figure++)
		if (strcmp(compare__key(figure, buf), key) == 0)
			return figure;
	return -1;
}

static int read_values(const json_t *configs, struct comparison *comparison, enum compare_figure figure,
		       struct fields_reading *reading)
{
	if (json_array_size(configs) != comparison->config_cnt)
		return refuse(reading, "programs.figures", "have not a list of runs for each configuration");
	for (size_t config = 0; config < comparison->config_cnt; config++) {
		const json_t *runs = json_array_get(configs, config);

		if (json_array_size(runs) != comparison->block_cnt)
			return refuse(reading, "programs.figures", "have not a value for each block");
		for (size_t block = 0; block < comparison->block_cnt; block++) {
			const json_t *value = json_array_get(runs, block);
			double number = json_number_value(value);

			if (!json_is_number(value) || !isfinite(number) || number < 0 || number > 1e19)
				return refuse(reading, "programs.figures",
					      "have a value that cannot have been measured");
			compare__set_value(comparison, block, config, figure, number);
		}
	}
	comparison->is_measured[figure] = true;
	return 0;
}

static int read_figures(const json_t *object, struct comparison *comparison, struct fields_reading *reading)
{
	const json_t *figures = json_object_get(object, "figures");
	const char *key;
	json_t *value;
	int err = 0;

	if (!json_is_object(figures))
		return refuse(reading, "programs.figures", "are not an object");
	json_object_foreach((json_t *)figures, key, value)
	{
		int figure = find_figure(key);

		if (figure >= 0)
			err = read_values(value, comparison, figure, reading);
		else if (!reading->unknown_cnt++)
			snprintf(reading->unknown, sizeof(reading->unknown), "raw.programs.figures.%.60s", key);
		if (err)
			break;
	}
	return err;
}

static int read_histogram(const json_t *buckets, struct comparison *comparison, size_t config, enum at_class class,
			  struct fields_reading *reading)
{
	uint64_t hist[AT_HIST_CNT] = {0};
	const json_t *pair;
	size_t i;

	json_array_foreach(buckets, i, pair)
	{
		const json_t *bucket = json_array_get(pair, 0), *calls = json_array_get(pair, 1);

		if (!json_is_integer(bucket) || json_integer_value(bucket) < 0 ||
		    json_integer_value(bucket) >= AT_HIST_CNT || !json_is_integer(calls) ||
		    json_integer_value(calls) < 0)
			return refuse(reading, "programs.histograms", "have a bucket that there cannot be");
		hist[json_integer_value(bucket)] = (uint64_t)json_integer_value(calls);
	}
	compare__add_histogram(comparison, config, class, hist);
	return 0;
}

/* A file of an earlier version has none. */
static int read_histograms(const json_t *object, struct comparison *comparison, struct fields_reading *reading)
{
	const json_t *configs = json_object_get(object, "histograms");
	int err = 0;

	if (configs && json_array_size(configs) != comparison->config_cnt)
		return refuse(reading, "programs.histograms", "are not one a configuration");
	for (size_t config = 0; configs && config < comparison->config_cnt; config++)
		for (int class = 1; class < AT_CLASS_CNT && !err; class ++)
			err = read_histogram(
				json_object_get(json_array_get(configs, config), profile__class_name(class)),
				comparison, config, class, reading);
	return err;
}

static int read_notes(const json_t *object, struct compare_program *program, size_t config_cnt,
		      struct fields_reading *reading)
{
	const json_t *notes = json_object_get(object, "notes");

	program->notes = calloc(config_cnt, sizeof(*program->notes));
	if (!program->notes)
		return -ENOMEM;
	if (json_array_size(notes) != config_cnt)
		return refuse(reading, "programs.notes", "are not one a configuration");
	for (size_t config = 0; config < config_cnt; config++) {
		char *text = NULL;
		int err = json_text__get(json_array_get(notes, config), "note", &text);

		if (err == -ENOMEM)
			return err;
		if (err || strlen(text) >= sizeof(*program->notes)) {
			free(text);
			return refuse(reading, "programs.notes", "are not short texts");
		}
		strcpy(program->notes[config], text);
		free(text);
	}
	return 0;
}

static int read_program(const json_t *object, struct saved_comparison *saved, struct compare_program *program,
			struct fields_reading *reading)
{
	struct comparison *comparison = compare__new(saved->configs.cnt, saved->report.base, false);
	int err;

	program->comparison = comparison;
	if (!comparison || compare__resize(comparison, saved->report.block_cnt))
		return -ENOMEM;
	memset(comparison->is_measured, 0, sizeof(comparison->is_measured));
	err = json_text__get(object, "name", &program->name);
	if (err == -EINVAL || err == -ENOENT)
		return refuse(reading, "programs.name", "is not text");
	if (!err)
		err = fields__read(comparison_fields, json_object_get(object, "comparison"), comparison, reading);
	if (!err)
		err = read_notes(object, program, saved->configs.cnt, reading);
	if (!err)
		err = read_histograms(object, comparison, reading);
	return err ? err : read_figures(object, comparison, reading);
}

static int read_programs(const json_t *raw, struct saved_comparison *saved, struct fields_reading *reading)
{
	const json_t *programs = json_object_get(raw, "programs");
	struct compare_report *report = &saved->report;
	size_t cnt = json_array_size(programs);
	int err = 0;

	if (!cnt || cnt > PROGRAM_MAX)
		return refuse(reading, "programs", "are none, or too many");
	if (cnt * report->block_cnt * saved->configs.cnt * COMPARE_FIGURE_CNT > ROOM_MAX)
		return refuse(reading, "block_cnt", "is too large");
	report->programs = calloc(cnt, sizeof(*report->programs));
	if (!report->programs)
		return -ENOMEM;
	for (size_t i = 0; i < cnt && !err; i++) {
		report->program_cnt++;
		snprintf(reading->where, sizeof(reading->where), "raw.programs.%zu", i);
		err = read_program(json_array_get(programs, i), saved, &report->programs[i], reading);
	}
	return err;
}

int saved_compare__read(const json_t *raw, struct saved_comparison *saved, struct fields_reading *reading)
{
	struct compare_report *report = &saved->report;
	int err;

	report->configs = &saved->configs;
	report->load = (struct compare_load){.start = -1, .others = -1, .stolen = -1};
	err = fields__read(report_fields, json_object_get(raw, "report"), report, reading);
	if (err)
		return err;
	err = read_configs(raw, saved, reading);
	if (err)
		return err;
	if (report->base >= saved->configs.cnt)
		return refuse(reading, "base", "is no configuration");
	if (!report->block_cnt || report->block_cnt > BLOCK_MAX)
		return refuse(reading, "block_cnt", "is not a number of blocks");
	if (report->is_matrix && saved->configs.cnt != POLICY_ALL + 1)
		return refuse(reading, "is_matrix", "is not so: there is not a configuration for each set of policies");
	for (const char *at = report->governor; *at; at++)
		if (*at < ' ' || *at > '~')
			return refuse(reading, "governor", "has characters that are not printable");
	return read_programs(raw, saved, reading);
}

void saved_compare__free(struct saved_comparison *saved)
{
	for (size_t i = 0; i < saved->report.program_cnt; i++) {
		compare__free(saved->report.programs[i].comparison);
		free(saved->report.programs[i].name);
		free(saved->report.programs[i].notes);
	}
	for (size_t config = 0; saved->report.shown && config < saved->configs.cnt; config++)
		profile__free((struct profile *)saved->report.shown[config]);
	free(saved->report.shown);
	free(saved->report.programs);
	compare_config__free(&saved->configs);
}
