/* SPDX-License-Identifier: BSD-2-Clause */
/* The grammar of policy sets and tunables; see settings.h. */
#include "alloc/settings.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static int fail(struct settings_error *error, const char *at, size_t bytes, const char *why)
{
	error->at = at;
	error->bytes = bytes;
	error->why = why;
	return -EINVAL;
}

static bool is_word(const char *at, size_t bytes, const char *word)
{
	return strlen(word) == bytes && memcmp(at, word, bytes) == 0;
}

static uint32_t policy_bit(const char *at, size_t bytes)
{
#define X(id, name)                    \
	if (is_word(at, bytes, #name)) \
		return POLICY_##id;
	ATM_POLICIES(X)
#undef X
	return 0;
}

int settings__parse_policy(const char *set, uint32_t dflt, uint32_t *policy, struct settings_error *error)
{
	uint32_t result = 0;
	bool has_changes = false, has_names = false;

	if (!*set)
		return fail(error, set, 0, "empty policy set");
	if (strcmp(set, "all") == 0 || strcmp(set, "none") == 0) {
		*policy = set[0] == 'a' ? POLICY_ALL : POLICY_NONE;
		return 0;
	}
	for (const char *at = set;; at++) {
		size_t bytes = strcspn(at, ",");
		bool is_change = *at == '+' || *at == '-';
		uint32_t bit = policy_bit(at + is_change, bytes - is_change);

		if (!bit)
			return fail(error, at, bytes, "unknown policy");
		if (is_change ? has_names : has_changes)
			return fail(error, at, bytes,
				    "a set is either an exact list or changes (+NAME, -NAME), not both");
		if (is_change && !has_changes)
			result = dflt;
		has_changes |= is_change;
		has_names |= !is_change;
		result = *at == '-' ? result & ~bit : result | bit;
		at += bytes;
		if (!*at)
			break;
	}
	*policy = result;
	return 0;
}

/* A decimal number, with K, M, G when is_size; 0 or -EINVAL. */
static int parse_number(const char *at, size_t bytes, bool is_size, uint64_t *value)
{
	uint64_t number = 0;
	unsigned shift = 0;
	size_t i = 0;

	for (; i < bytes && at[i] >= '0' && at[i] <= '9'; i++)
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, (uint64_t)(at[i] - '0'), &number))
			return -EINVAL;
	if (i == 0)
		return -EINVAL;
	if (is_size && i + 1 == bytes) {
		switch (at[i]) {
		case 'K':
		case 'k': shift = 10; break;
		case 'M':
		case 'm': shift = 20; break;
		case 'G':
		case 'g': shift = 30; break;
		default: return -EINVAL;
		}
		i++;
	}
	if (i != bytes || (number << shift) >> shift != number)
		return -EINVAL;
	*value = number << shift;
	return 0;
}

static int parse_word(enum atm_unit unit, const char *at, size_t bytes, uint64_t *value)
{
#define X(u, word, number)                                       \
	if (unit == ATM_UNIT_##u && is_word(at, bytes, #word)) { \
		*value = number;                                 \
		return 0;                                        \
	}
	ATM_TUNE_WORDS(X)
#undef X
	return -EINVAL;
}

int settings__parse_tune(const char *list, uint64_t *tune, struct settings_error *error)
{
	static const struct {
		const char *name;
		enum atm_unit unit;
	} tunables[] = {
#define X(id, name, unit, dflt, help) {#name, ATM_UNIT_##unit},
		ATM_TUNABLES(X)
#undef X
	};
	uint64_t result[ATM_TUNE_CNT];

	memcpy(result, tune, sizeof(result));
	for (const char *at = list;; at++) {
		size_t bytes = strcspn(at, ","), name_bytes = strcspn(at, "=,");
		const char *value = at + name_bytes + 1;
		unsigned i = 0;
		int err;

		if (name_bytes == bytes)
			return fail(error, at, bytes, "not NAME=VALUE");
		while (i < ATM_TUNE_CNT && !is_word(at, name_bytes, tunables[i].name))
			i++;
		if (i == ATM_TUNE_CNT)
			return fail(error, at, name_bytes, "unknown tunable");
		if (tunables[i].unit < ATM_UNIT_GROW)
			err = parse_number(value, bytes - name_bytes - 1, tunables[i].unit == ATM_UNIT_BYTES,
					   &result[i]);
		else
			err = parse_word(tunables[i].unit, value, bytes - name_bytes - 1, &result[i]);
		if (err)
			return fail(error, at, bytes, "malformed value");
		at += bytes;
		if (!*at)
			break;
	}
	memcpy(tune, result, sizeof(result));
	return 0;
}

void settings__tune_defaults(uint64_t *tune)
{
#define X(id, name, unit, dflt, help) tune[ATM_TUNE_##id] = dflt;
	ATM_TUNABLES(X)
#undef X
}

size_t settings__format_policy(uint32_t policy, char *buf, size_t buf_bytes)
{
	static const char *const names[] = {
#define X(id, name) #name,
		ATM_POLICIES(X)
#undef X
	};
	size_t length = 0;

	for (int i = -1; i < POLICY_CNT; i++) {
		const char *word = i < 0 ? "none" : names[i];

		if (i < 0 ? policy & POLICY_ALL : !(policy & 1u << i))
			continue;
		for (const char *c = length ? "," : ""; *c; c++, length++)
			if (length + 1 < buf_bytes)
				buf[length] = *c;
		for (const char *c = word; *c; c++, length++)
			if (length + 1 < buf_bytes)
				buf[length] = *c;
	}
	if (buf_bytes)
		buf[length < buf_bytes ? length : buf_bytes - 1] = '\0';
	return length;
}

const char *settings__policy_names(void)
{
#define X(id, name) ", " #name
	return "all, none" ATM_POLICIES(X);
#undef X
}

const char *settings__tune_names(void)
{
#define X(id, name, unit, dflt, help) ", " #name
	return &(ATM_TUNABLES(X))[2];
#undef X
}
