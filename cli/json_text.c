/* SPDX-License-Identifier: BSD-2-Clause */
/* Bytes as JSON text, and back; see json_text.h. */
#include "cli/json_text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 64 };

static bool is_utf8(const char *text)
{
	json_t *probe = json_string(text);

	json_decref(probe);
	return probe;
}

/* Bytes of the valid UTF-8 character at `at`, 0 when it is broken: by the JSON library's own judgement. */
static size_t character_bytes(const char *at)
{
	for (size_t bytes = 1; bytes <= strnlen(at, 4); bytes++) {
		json_t *probe = json_stringn(at, bytes);

		if (probe) {
			json_decref(probe);
			return bytes;
		}
	}
	return 0;
}

static json_t *text_replaced(const char *text)
{
	char *copy = malloc(3 * strlen(text) + 1), *to = copy;
	json_t *result;

	if (!copy)
		return NULL;
	while (*text) {
		size_t bytes = character_bytes(text);

		memcpy(to, bytes ? text : "\xef\xbf\xbd", bytes ? bytes : 3);
		to += bytes ? bytes : 3;
		text += bytes ? bytes : 1;
	}
	result = json_stringn(copy, to - copy);
	free(copy);
	return result;
}

static json_t *text_latin1(const char *text)
{
	char *copy = malloc(2 * strlen(text) + 1), *to = copy;
	json_t *result;

	if (!copy)
		return NULL;
	for (; *text; text++) {
		unsigned char byte = *text;

		if (byte >= 0x80)
			*to++ = 0xc0 | byte >> 6;
		*to++ = byte >= 0x80 ? 0x80 | (byte & 0x3f) : byte;
	}
	result = json_stringn(copy, to - copy);
	free(copy);
	return result;
}

static const char *second_key(const char *key, char buf[KEY_BYTES])
{
	snprintf(buf, KEY_BYTES, "%s_latin1", key);
	return buf;
}

void json_text__set(json_t *object, const char *key, const char *text)
{
	char second[KEY_BYTES];

	if (is_utf8(text)) {
		json_object_set_new(object, key, json_string(text));
		return;
	}
	json_object_set_new(object, key, text_replaced(text));
	json_object_set_new(object, second_key(key, second), text_latin1(text));
}

void json_text__set_array(json_t *object, const char *key, char *const *texts)
{
	json_t *array = json_array(), *latin1 = json_array();
	char second[KEY_BYTES];
	bool is_valid = true;

	for (char *const *text = texts; text && *text; text++) {
		is_valid &= is_utf8(*text);
		json_array_append_new(array, text_replaced(*text));
		json_array_append_new(latin1, text_latin1(*text));
	}
	json_object_set_new(object, key, array);
	if (is_valid)
		json_decref(latin1);
	else
		json_object_set_new(object, second_key(key, second), latin1);
}

/* text: valid UTF-8; false when a character is no byte. */
static bool decode_latin1(char *text)
{
	unsigned char *from = (unsigned char *)text, *to = from;

	while (*from) {
		if (*from < 0x80) {
			*to++ = *from++;
			continue;
		}
		if ((*from & 0xfc) != 0xc0)
			return false;
		*to++ = from[0] << 6 | (from[1] & 0x3f);
		from += 2;
	}
	*to = 0;
	return true;
}

/* One text of an original, or of its second form. */
static int copy_text(const json_t *value, bool is_latin1, char **text)
{
	if (!json_is_string(value))
		return -EINVAL;
	*text = strdup(json_string_value(value));
	if (!*text)
		return -ENOMEM;
	if (!is_latin1 || decode_latin1(*text))
		return 0;
	free(*text);
	*text = NULL;
	return -EINVAL;
}

/* The second form where there is one: it is the exact one. */
static const json_t *choose(const json_t *object, const char *key, bool *is_latin1)
{
	char second[KEY_BYTES];
	const json_t *exact = json_object_get(object, second_key(key, second));

	*is_latin1 = exact;
	return exact ? exact : json_object_get(object, key);
}

int json_text__get(const json_t *object, const char *key, char **text)
{
	bool is_latin1;
	const json_t *value = choose(object, key, &is_latin1);

	return value ? copy_text(value, is_latin1, text) : -ENOENT;
}

int json_text__get_array(const json_t *object, const char *key, char ***texts)
{
	bool is_latin1;
	const json_t *value = choose(object, key, &is_latin1);
	size_t cnt = json_array_size(value);
	char **all;
	int err = 0;

	if (!value)
		return -ENOENT;
	if (!json_is_array(value))
		return -EINVAL;
	all = calloc(cnt + 1, sizeof(*all));
	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < cnt && !err; i++)
		err = copy_text(json_array_get(value, i), is_latin1, &all[i]);
	if (!err) {
		*texts = all;
		return 0;
	}
	for (char **text = all; *text; text++)
		free(*text);
	free(all);
	return err;
}
