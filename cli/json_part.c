/* SPDX-License-Identifier: BSD-2-Clause */
/* See json_part.h. */
#include "cli/json_part.h"

json_t *json_part__number(uint64_t value)
{
	return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

void json_part__set_number(json_t *object, const char *key, uint64_t value)
{
	json_object_set_new(object, key, json_part__number(value));
}

void json_part__set_if_any(json_t *object, const char *key, json_t *part)
{
	if (json_object_size(part))
		json_object_set_new(object, key, part);
	else
		json_decref(part);
}
