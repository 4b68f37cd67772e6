/* SPDX-License-Identifier: BSD-2-Clause */
/* Structures as JSON and back, by their descriptions; see fields.h. */
#include "cli/fields.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json_text.h"

static const char *element_name(const struct field *field, int index, char buf[16])
{
	if (field->name)
		return field->name(index);
	snprintf(buf, 16, "%d", index);
	return buf;
}

static bool is_zero(const void *data, size_t bytes)
{
	const char *at = data;

	return !bytes || (!*at && memcmp(at, at + 1, bytes - 1) == 0);
}

static bool is_pointer(const struct field *field)
{
	return field->kind == FIELD_KIND_STRING || field->kind == FIELD_KIND_STRINGS ||
	       field->kind == FIELD_KIND_OWNED || field->kind == FIELD_KIND_LIST;
}

static bool is_array(const struct field *field)
{
	return field->cnt && field->kind != FIELD_KIND_FLAGS && field->kind != FIELD_KIND_ENUM;
}

/* JSON's integers are signed here: what does not fit is text. */
static json_t *write_u64(uint64_t value)
{
	return value > INT64_MAX ? json_sprintf("%llu", (unsigned long long)value) : json_integer((json_int_t)value);
}

static json_t *write_double(double value)
{
	return value == floor(value) && fabs(value) < 9e15 ? json_integer((json_int_t)value) : json_real(value);
}

static json_t *write_flags(const struct field *field, uint32_t flags)
{
	json_t *array = json_array();
	char buf[16];

	for (size_t bit = 0; bit < field->cnt; bit++)
		if (flags & 1u << bit)
			json_array_append_new(array, json_string(element_name(field, (int)bit, buf)));
	return array;
}

static json_t *write_enum(const struct field *field, const void *at)
{
	uint32_t value = field->bytes == sizeof(uint16_t) ? *(const uint16_t *)at : *(const uint32_t *)at;
	char buf[16];
	const char *name = value < field->cnt ? element_name(field, (int)value, buf) : NULL;

	return name ? json_string(name) : json_null();
}

/* data: what the list is a member of. */
static json_t *write_list(const struct field *field, const char *data)
{
	const char *at = *(char *const *)(data + field->offset);
	size_t cnt = *(const size_t *)(data + field->cnt_offset);
	json_t *array = json_array();

	for (size_t i = 0; i < cnt; i++, at += field->bytes)
		json_array_append_new(array, field->fields ? fields__write(field->fields, at)
							   : json_integer(*(const uint32_t *)at));
	return array;
}

static json_t *write_element(const struct field *field, const void *at)
{
	switch (field->kind) {
	case FIELD_KIND_U64: return write_u64(*(const uint64_t *)at);
	case FIELD_KIND_I64: return json_integer(*(const int64_t *)at);
	case FIELD_KIND_U32: return json_integer(*(const uint32_t *)at);
	case FIELD_KIND_INT: return json_integer(*(const int *)at);
	case FIELD_KIND_BOOL: return json_boolean(*(const bool *)at);
	case FIELD_KIND_DOUBLE: return write_double(*(const double *)at);
	case FIELD_KIND_FLAGS: return write_flags(field, *(const uint32_t *)at);
	case FIELD_KIND_ENUM: return write_enum(field, at);
	case FIELD_KIND_OBJECT: return fields__write(field->fields, at);
	default: return NULL;
	}
}

static json_t *write_array(const struct field *field, const char *at)
{
	json_t *object = json_object();
	char buf[16];

	for (size_t i = 0; i < field->cnt; i++) {
		const char *name = element_name(field, (int)i, buf);

		if (name && !is_zero(at + i * field->bytes, field->bytes))
			json_object_set_new(object, name, write_element(field, at + i * field->bytes));
	}
	return object;
}

json_t *fields__write(const struct field *fields, const void *data)
{
	json_t *object = json_object();

	for (const struct field *field = fields; field->key; field++) {
		const char *at = (const char *)data + field->offset;

		if (field->kind == FIELD_KIND_TEXT)
			json_text__set(object, field->key, at);
		else if (field->kind == FIELD_KIND_STRING && *(char *const *)at)
			json_text__set(object, field->key, *(char *const *)at);
		else if (field->kind == FIELD_KIND_STRINGS && *(char **const *)at)
			json_text__set_array(object, field->key, *(char **const *)at);
		else if (field->kind == FIELD_KIND_OWNED && *(char *const *)at)
			json_object_set_new(object, field->key, fields__write(field->fields, *(char *const *)at));
		else if (field->kind == FIELD_KIND_LIST)
			json_object_set_new(object, field->key, write_list(field, data));
		else if (is_pointer(field))
			continue;
		else if (is_array(field))
			json_object_set_new(object, field->key, write_array(field, at));
		else
			json_object_set_new(object, field->key, write_element(field, at));
	}
	return object;
}

/* The path of a key inside `where`, which is put back when the key has been read. */
struct place {
	struct fields_reading *reading;
	size_t used;
};

static struct place enter(struct fields_reading *reading, const char *key)
{
	struct place place = {.reading = reading, .used = strlen(reading->where)};

	snprintf(reading->where + place.used, sizeof(reading->where) - place.used, "%s%s", place.used ? "." : "", key);
	return place;
}

static void leave(struct place place, int err)
{
	if (!err)
		place.reading->where[place.used] = 0;
}

static int wrong(struct fields_reading *reading, const char *why)
{
	reading->why = why;
	return -EINVAL;
}

static void note_unknown(struct fields_reading *reading, const char *key)
{
	if (!reading->unknown_cnt++)
		snprintf(reading->unknown, sizeof(reading->unknown), "%.*s%s%.60s", 60, reading->where,
			 reading->where[0] ? "." : "", key);
}

static int read_u64(const json_t *value, uint64_t *number, struct fields_reading *reading)
{
	const char *text = json_string_value(value);
	char *end;

	if (json_is_integer(value)) {
		if (json_integer_value(value) < 0)
			return wrong(reading, "is negative");
		*number = (uint64_t)json_integer_value(value);
		return 0;
	}
	if (!text || *text < '0' || *text > '9')
		return wrong(reading, "is not a whole number");
	errno = 0;
	*number = strtoull(text, &end, 10);
	return errno || *end ? wrong(reading, "is not a whole number that fits into 64 bits") : 0;
}

static int read_signed(const json_t *value, int64_t least, int64_t most, int64_t *number,
		       struct fields_reading *reading)
{
	if (!json_is_integer(value))
		return wrong(reading, "is not a whole number");
	*number = json_integer_value(value);
	return *number < least || *number > most ? wrong(reading, "is too large or too small") : 0;
}

static int read_double(const json_t *value, double *number, struct fields_reading *reading)
{
	if (!json_is_number(value))
		return wrong(reading, "is not a number");
	*number = json_number_value(value);
	return isfinite(*number) ? 0 : wrong(reading, "is not a finite number");
}

static int read_flags(const struct field *field, const json_t *value, uint32_t *flags, struct fields_reading *reading)
{
	char buf[16];

	if (!json_is_array(value))
		return wrong(reading, "is not a list");
	*flags = 0;
	for (size_t i = 0; i < json_array_size(value); i++) {
		const char *word = json_string_value(json_array_get(value, i));
		size_t bit = 0;

		if (!word)
			return wrong(reading, "has something else than names in it");
		while (bit < field->cnt && strcmp(element_name(field, (int)bit, buf), word) != 0)
			bit++;
		if (bit < field->cnt)
			*flags |= 1u << bit;
		else
			note_unknown(reading, word);
	}
	return 0;
}

static int read_text(const struct field *field, const json_t *object, char *at, struct fields_reading *reading)
{
	char *text = NULL;
	int err = json_text__get(object, field->key, &text);

	if (err == -ENOMEM)
		return err;
	if (err)
		return wrong(reading, "is not text");
	if (field->kind == FIELD_KIND_STRING) {
		free(*(char **)at);
		*(char **)at = text;
		return 0;
	}
	if (strlen(text) >= field->bytes)
		err = wrong(reading, "is too long");
	else
		strcpy(at, text);
	free(text);
	return err;
}

static int read_strings(const struct field *field, const json_t *object, char ***at, struct fields_reading *reading)
{
	int err;

	if (*at)
		return wrong(reading, "is there twice");
	err = json_text__get_array(object, field->key, at);
	return err == -EINVAL || err == -ENOENT ? wrong(reading, "is not a list of texts") : err;
}

static int read_enum(const struct field *field, const json_t *value, void *at, struct fields_reading *reading)
{
	const char *word = json_string_value(value);
	char buf[16];

	for (size_t i = 0; word && i < field->cnt; i++) {
		const char *name = element_name(field, (int)i, buf);

		if (!name || strcmp(name, word) != 0)
			continue;
		if (field->bytes == sizeof(uint16_t))
			*(uint16_t *)at = (uint16_t)i;
		else
			*(uint32_t *)at = (uint32_t)i;
		return 0;
	}
	return wrong(reading, "is no name that is known");
}

/* The structure is owned by data as soon as it is there. */
static int read_owned(const struct field *field, const json_t *value, void **at, struct fields_reading *reading)
{
	if (*at)
		return wrong(reading, "is there twice");
	*at = calloc(1, field->bytes);
	return *at ? fields__read(field->fields, value, *at, reading) : -ENOMEM;
}

static int read_list(const struct field *field, const json_t *value, char *data, struct fields_reading *reading)
{
	char **list = (char **)(data + field->offset);
	size_t cnt = json_array_size(value), *list_cnt = (size_t *)(data + field->cnt_offset);
	int64_t number = 0;
	int err = 0;

	if (!json_is_array(value) || *list)
		return wrong(reading, "is not a list");
	*list = calloc(cnt ? cnt : 1, field->bytes);
	if (!*list)
		return -ENOMEM;
	for (*list_cnt = 0; *list_cnt < cnt && !err;) {
		char *at = *list + *list_cnt * field->bytes;
		const json_t *element = json_array_get(value, (*list_cnt)++);

		if (field->fields) {
			err = fields__read(field->fields, element, at, reading);
			continue;
		}
		err = read_signed(element, 0, UINT32_MAX, &number, reading);
		*(uint32_t *)at = (uint32_t)number;
	}
	return err;
}

static int read_element(const struct field *field, const json_t *value, void *at, struct fields_reading *reading)
{
	int64_t number = 0;
	int err;

	switch (field->kind) {
	case FIELD_KIND_U64: return read_u64(value, at, reading);
	case FIELD_KIND_I64: return read_signed(value, -FIELDS_SIGNED_MAX, FIELDS_SIGNED_MAX, at, reading);
	case FIELD_KIND_U32:
		err = read_signed(value, 0, UINT32_MAX, &number, reading);
		*(uint32_t *)at = (uint32_t)number;
		return err;
	case FIELD_KIND_INT:
		err = read_signed(value, INT32_MIN, INT32_MAX, &number, reading);
		*(int *)at = (int)number;
		return err;
	case FIELD_KIND_BOOL:
		if (!json_is_boolean(value))
			return wrong(reading, "is neither true nor false");
		*(bool *)at = json_is_true(value);
		return 0;
	case FIELD_KIND_DOUBLE: return read_double(value, at, reading);
	case FIELD_KIND_FLAGS: return read_flags(field, value, at, reading);
	case FIELD_KIND_ENUM: return read_enum(field, value, at, reading);
	case FIELD_KIND_OWNED: return read_owned(field, value, at, reading);
	default: return fields__read(field->fields, value, at, reading);
	}
}

/* The index of an element's name; -1 when there is none. */
static int find_element(const struct field *field, const char *key)
{
	char *end;
	unsigned long index;

	for (size_t i = 0; i < field->cnt && field->name; i++) {
		const char *name = field->name((int)i);

		if (name && strcmp(name, key) == 0)
			return (int)i;
	}
	if (field->name || *key < '0' || *key > '9')
		return -1;
	index = strtoul(key, &end, 10);
	return *end || index >= field->cnt ? -1 : (int)index;
}

static int read_array(const struct field *field, const json_t *value, char *at, struct fields_reading *reading)
{
	const char *key;
	json_t *element;
	int err = 0;

	if (!json_is_object(value))
		return wrong(reading, "is not an object");
	json_object_foreach((json_t *)value, key, element)
	{
		struct place place;
		int index = find_element(field, key);

		if (index < 0) {
			note_unknown(reading, key);
			continue;
		}
		place = enter(reading, key);
		err = read_element(field, element, at + (size_t)index * field->bytes, reading);
		leave(place, err);
		if (err)
			break;
	}
	return err;
}

/* "tune_latin1" belongs to "tune". */
static bool is_key_of(const struct field *field, const char *key)
{
	size_t bytes = strlen(field->key);
	bool is_text =
		field->kind == FIELD_KIND_TEXT || field->kind == FIELD_KIND_STRING || field->kind == FIELD_KIND_STRINGS;

	return strncmp(field->key, key, bytes) == 0 &&
	       (!key[bytes] || (is_text && strcmp(key + bytes, "_latin1") == 0));
}

/* data: what the field is a member of. */
static int read_field(const struct field *field, const json_t *object, char *data, struct fields_reading *reading)
{
	const json_t *value = json_object_get(object, field->key);
	char *at = data + field->offset;

	if (!value)
		return 0;
	if (field->kind == FIELD_KIND_TEXT || field->kind == FIELD_KIND_STRING)
		return read_text(field, object, at, reading);
	if (field->kind == FIELD_KIND_LIST)
		return read_list(field, value, data, reading);
	if (field->kind == FIELD_KIND_STRINGS)
		return read_strings(field, object, (char ***)at, reading);
	if (is_array(field))
		return read_array(field, value, at, reading);
	return read_element(field, value, at, reading);
}

int fields__read(const struct field *fields, const json_t *object, void *data, struct fields_reading *reading)
{
	const struct field *field;
	const char *key;
	json_t *value;
	int err = 0;

	if (!json_is_object(object))
		return wrong(reading, "is not an object");
	json_object_foreach((json_t *)object, key, value)
	{
		for (field = fields; field->key && !is_key_of(field, key); field++)
			;
		if (!field->key)
			note_unknown(reading, key);
	}
	for (field = fields; field->key && !err; field++) {
		struct place place = enter(reading, field->key);

		err = read_field(field, object, data, reading);
		leave(place, err);
	}
	return err;
}

static void set_element(const struct field *field, void *at)
{
	switch (field->kind) {
	case FIELD_KIND_U64:
	case FIELD_KIND_I64: *(uint64_t *)at = 1; break;
	case FIELD_KIND_U32:
	case FIELD_KIND_INT: *(uint32_t *)at = 1; break;
	case FIELD_KIND_BOOL: *(bool *)at = true; break;
	case FIELD_KIND_DOUBLE: *(double *)at = 1; break;
	case FIELD_KIND_FLAGS: *(uint32_t *)at = (uint32_t)((1ull << field->cnt) - 1); break;
	case FIELD_KIND_OBJECT: fields__set_all(field->fields, at); break;
	default: break;
	}
}

void fields__set_all(const struct field *fields, void *data)
{
	for (const struct field *field = fields; field->key; field++) {
		size_t cnt = is_array(field) ? field->cnt : 1;

		for (size_t i = 0; i < cnt; i++)
			set_element(field, (char *)data + field->offset + i * field->bytes);
	}
}
