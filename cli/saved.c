/* SPDX-License-Identifier: BSD-2-Clause */
/* Saving profiles and reading them again; see saved.h. */
#include "cli/saved.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/settings.h"
#include "cli/callchain.h"
#include "cli/cmd.h"
#include "cli/gz.h"
#include "cli/msg.h"
#include "cli/processes_fields.h"
#include "cli/profile_fields.h"
#include "cli/render_json.h"
#include "cli/whole_file.h"

#define SCHEMA_PREFIX "alloctrace."

static int say_place(const char *path, int err)
{
	if (err == -EINVAL)
		msg__error("cannot save to '%s': it is there already and is not a regular file", path);
	else
		msg__error("cannot save to '%s': %s", path, strerror(-err));
	return AT_EXIT_OWN;
}

int saved__check(const char *path)
{
	int err = whole_file__check(path);

	return err ? say_place(path, err) : 0;
}

/* An upper bound of the values in a JSON text, found without parsing it. */
static size_t value_cnt(const char *text, size_t bytes)
{
	size_t cnt = 1;

	for (size_t i = 0; i < bytes; i++)
		cnt += text[i] == ',' || text[i] == '[' || text[i] == '{';
	return cnt;
}

/* The document is owned, and may be NULL for lack of memory. */
static int write_document(const char *path, json_t *document, json_t *raw)
{
	char *text, *packed = NULL;
	size_t bytes, packed_bytes;
	int err;

	if (!document || !raw || json_object_set_new(document, "raw", raw)) {
		json_decref(document);
		msg__error("out of memory");
		return AT_EXIT_OWN;
	}
	text = json_dumps(document, JSON_COMPACT);
	json_decref(document);
	bytes = text ? strlen(text) : 0;
	if (text && (bytes > SAVED_TEXT_MAX_BYTES || value_cnt(text, bytes) > SAVED_VALUE_MAX)) {
		msg__error("cannot save to '%s': more than %d MiB or %d values; compare less at once", path,
			   SAVED_TEXT_MAX_BYTES >> 20, SAVED_VALUE_MAX);
		free(text);
		return AT_EXIT_OWN;
	}
	err = text ? gz__pack(text, bytes, &packed, &packed_bytes) : -ENOMEM;
	if (!err)
		err = whole_file__write(path, packed, packed_bytes);
	free(packed);
	free(text);
	return err ? say_place(path, err) : 0;
}

int saved__write_profile(const char *path, const struct profile *profile)
{
	json_t *raw = fields__write(profile_fields, profile);

	if (profile->processes && json_object_set_new(raw, "processes", processes_fields__write(profile->processes))) {
		json_decref(raw);
		raw = NULL;
	}
	return write_document(path, render_json__document(profile), raw);
}

int saved__write_comparison(const char *path, const struct compare_report *report)
{
	return write_document(path, render_json__comparison(report), saved_compare__write(report));
}

static bool is_plain(const char *text)
{
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			return false;
	return true;
}

static int refuse(struct fields_reading *reading, const char *where, const char *why)
{
	size_t used = strlen(reading->where);

	snprintf(reading->where + used, sizeof(reading->where) - used, "%s%s", used ? "." : "", where);
	reading->why = why;
	return -EINVAL;
}

/* Every number of a frame or a chain is one that there is. */
static bool is_sound(const struct callchains *callchains)
{
	for (size_t i = 0; i < callchains->frame_of_cnt; i++)
		if (callchains->frame_of[i] >= callchains->frame_cnt)
			return false;
	for (size_t i = 0; i < callchains->chain_cnt; i++)
		if (callchains->chains[i].first > callchains->frame_of_cnt ||
		    callchains->chains[i].cnt > callchains->frame_of_cnt - callchains->chains[i].first)
			return false;
	for (size_t i = 0; i < callchains->path_cnt; i++)
		if (callchains->paths[i].chain >= callchains->chain_cnt || !callchains->paths[i].class)
			return false;
	return callchains->frames && callchains->frame_of && callchains->chains && callchains->paths;
}

/* What renderers take for granted. */
static int check_profile(const struct profile *profile, struct fields_reading *reading)
{
	uint64_t tune[ATM_TUNE_CNT];
	struct settings_error error;

	if (!profile->argv || !profile->argv[0])
		return refuse(reading, "argv", "is missing");
	if (!profile->version[0] || !is_plain(profile->version))
		return refuse(reading, "version", "is not a version");
	if (!is_plain(profile->kernel))
		return refuse(reading, "kernel", "has characters that are not printable");
	if (!is_plain(profile->thp))
		return refuse(reading, "thp", "has characters that are not printable");
	if (!is_plain(profile->advice))
		return refuse(reading, "advice", "has characters that are not printable");
	if (profile->tier < 0 || profile->tier > 2)
		return refuse(reading, "tier", "is no tier");
	if (profile->cpu_cnt < 1)
		return refuse(reading, "cpu_cnt", "is not a number of CPUs");
	if (profile->callchains && !is_sound(profile->callchains))
		return refuse(reading, "callchains", "have a frame or a chain that there is not");
	settings__tune_defaults(tune);
	if (profile->tune && settings__parse_tune(profile->tune, tune, &error))
		return refuse(reading, "tune", "is not a list of known tunables");
	return 0;
}

int saved__read_profile(const json_t *raw, struct profile **profile, struct fields_reading *reading)
{
	const json_t *processes = json_object_get(raw, "processes");
	json_t *rest = json_copy((json_t *)raw);
	int err;

	*profile = profile__new();
	if (!*profile || !rest) {
		json_decref(rest);
		return -ENOMEM;
	}
	(*profile)->version[0] = 0;
	json_object_del(rest, "processes");
	err = fields__read(profile_fields, rest, *profile, reading);
	json_decref(rest);
	if (!err && processes) {
		(*profile)->processes = calloc(1, sizeof(*(*profile)->processes));
		err = (*profile)->processes ? processes_fields__read(processes, (*profile)->processes, reading)
					    : -ENOMEM;
	}
	return err ? err : check_profile(*profile, reading);
}

static int __attribute__((format(printf, 3, 4))) because(char why[SAVED_WHY_BYTES], int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, SAVED_WHY_BYTES, fmt, args);
	va_end(args);
	return err;
}

/* The text of a file: packed, or as `zcat` gives it. */
static int unpack(const char *data, size_t bytes, char **text, size_t *text_bytes, char why[SAVED_WHY_BYTES])
{
	int err;

	if (!bytes)
		return because(why, -EINVAL, "is empty");
	if (!gz__is_packed(data, bytes) && *data != '{')
		return because(why, -EINVAL, "is neither gzip nor JSON: not a saved profile");
	if (gz__is_packed(data, bytes)) {
		err = gz__unpack(data, bytes, SAVED_TEXT_MAX_BYTES, text, text_bytes);
	} else {
		*text = bytes > SAVED_TEXT_MAX_BYTES ? NULL : malloc(bytes);
		*text_bytes = bytes;
		err = bytes > SAVED_TEXT_MAX_BYTES ? -EFBIG : *text ? 0 : -ENOMEM;
		if (!err)
			memcpy(*text, data, bytes);
	}
	if (err == -EFBIG)
		return because(why, err, "has more than %d MiB unpacked", SAVED_TEXT_MAX_BYTES >> 20);
	if (err == -ENODATA)
		return because(why, err, "is cut off: its end is missing");
	if (err == -EBADMSG)
		return because(why, err, "is damaged: gzip's checks fail, or something follows its end");
	if (err)
		return because(why, err, "out of memory");
	if (value_cnt(*text, *text_bytes) > SAVED_VALUE_MAX)
		return because(why, -EFBIG, "has more than %d values", SAVED_VALUE_MAX);
	return 0;
}

/* Which of the two a document is: alloctrace.KIND/1, and nothing else. */
static int choose_schema(const json_t *document, bool *is_comparison, char why[SAVED_WHY_BYTES])
{
	const char *schema = json_string_value(json_object_get(document, "schema"));
	const char *version = json_string_value(json_object_get(json_object_get(document, "tool"), "version"));
	const char *slash = schema ? strrchr(schema, '/') : NULL;
	unsigned long number = slash ? strtoul(slash + 1, NULL, 10) : 0;
	size_t kind_bytes = slash ? (size_t)(slash - schema) : 0;

	*is_comparison = false;
	if (!slash || strncmp(schema, SCHEMA_PREFIX, strlen(SCHEMA_PREFIX)) != 0)
		return because(why, -EINVAL, "is not a document of alloctrace: its schema is %s%.40s%s",
			       schema ? "'" : "missing", schema ? schema : "", schema ? "'" : "");
	*is_comparison = kind_bytes == strlen(RENDER_JSON_COMPARISON) - 2 &&
			 strncmp(schema, RENDER_JSON_COMPARISON, kind_bytes) == 0;
	if (!*is_comparison &&
	    (kind_bytes != strlen(RENDER_JSON_PROFILE) - 2 || strncmp(schema, RENDER_JSON_PROFILE, kind_bytes) != 0))
		return because(why, -EINVAL, "is of schema '%.40s', which this alloctrace %s does not know", schema,
			       AT_VERSION);
	if (number > 1)
		return because(why, -EINVAL, "is of schema '%.40s', of a newer alloctrace%s%.20s; this is %s", schema,
			       version ? " " : "", version ? version : "", AT_VERSION);
	if (strcmp(schema, *is_comparison ? RENDER_JSON_COMPARISON : RENDER_JSON_PROFILE) != 0)
		return because(why, -EINVAL, "is of schema '%.40s', which there never was", schema);
	return 0;
}

static int read_document(const json_t *document, struct saved *saved, char why[SAVED_WHY_BYTES])
{
	struct fields_reading reading = {.where = "raw"};
	const json_t *raw = json_object_get(document, "raw");
	bool is_comparison;
	int err = choose_schema(document, &is_comparison, why);

	if (err)
		return err;
	if (!raw)
		return because(why, -EINVAL, "is a report (-j), which has not all that was measured; --save has");
	if (is_comparison) {
		saved->comparison = calloc(1, sizeof(*saved->comparison));
		err = saved->comparison ? saved_compare__read(raw, saved->comparison, &reading) : -ENOMEM;
	} else {
		err = saved__read_profile(raw, &saved->profile, &reading);
	}
	if (err == -ENOMEM)
		return because(why, err, "out of memory");
	if (err)
		return because(why, err, "'%s' %s", reading.where, reading.why);
	if (reading.unknown_cnt)
		because(why, 0, "has %lu values that this alloctrace %s does not know and leaves out (the first: '%s')",
			reading.unknown_cnt, AT_VERSION, reading.unknown);
	return 0;
}

int saved__parse(const char *data, size_t bytes, struct saved *saved, char why[SAVED_WHY_BYTES])
{
	json_error_t error;
	json_t *document;
	char *text = NULL;
	size_t text_bytes = 0;
	int err;

	*saved = (struct saved){0};
	why[0] = 0;
	err = unpack(data, bytes, &text, &text_bytes, why);
	if (err) {
		free(text);
		return err;
	}
	document = json_loadb(text, text_bytes, JSON_REJECT_DUPLICATES, &error);
	free(text);
	if (!document)
		return because(why, -EINVAL, "is not valid JSON: %s, at byte %d", error.text, error.position);
	err = read_document(document, saved, why);
	json_decref(document);
	return err;
}

int saved__read(const char *path, struct saved *saved)
{
	char why[SAVED_WHY_BYTES] = "", *data;
	size_t bytes;
	int err = whole_file__read(path, SAVED_TEXT_MAX_BYTES, &data, &bytes);

	*saved = (struct saved){0};
	if (err) {
		msg__error("cannot read '%s': %s", path, strerror(-err));
		return AT_EXIT_OWN;
	}
	err = saved__parse(data, bytes, saved, why);
	free(data);
	if (!err && saved->comparison)
		/* The statistics of a comparison are not saved: they follow from its runs. */
		err = render_compare__finish(&saved->comparison->report);
	if (err) {
		msg__error("'%s' %s", path, why[0] ? why : "out of memory");
		return AT_EXIT_OWN;
	}
	if (why[0])
		msg__warn("'%s' %s", path, why);
	return 0;
}

void saved__free(struct saved *saved)
{
	profile__free(saved->profile);
	if (saved->comparison)
		saved_compare__free(saved->comparison);
	free(saved->comparison);
	*saved = (struct saved){0};
}
