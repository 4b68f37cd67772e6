/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Code paths as pprof's profile.proto, packed with gzip. The messages are few and
 * flat, so that the wire format (protobuf.dev/programming-guides/encoding) is
 * written here, without a generator. Field numbers: profile.proto of pprof.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/settings.h"
#include "cli/callchain.h"
#include "cli/format.h"
#include "cli/gz.h"
#include "cli/render_callchain.h"

enum { TEXT_BYTES = 4096 };

enum profile_field {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE = 2,
	PROFILE_MAPPING = 3,
	PROFILE_LOCATION = 4,
	PROFILE_FUNCTION = 5,
	PROFILE_STRING = 6,
	PROFILE_DURATION_NS = 10,
	PROFILE_DEFAULT_TYPE = 14,
};
enum { TYPE_NAME = 1, TYPE_UNIT = 2 };
enum { SAMPLE_LOCATIONS = 1, SAMPLE_VALUES = 2, SAMPLE_LABEL = 3 };
enum { LABEL_KEY = 1, LABEL_TEXT = 2, LABEL_NUMBER = 3 };
enum { MAPPING_ID = 1, MAPPING_FILE = 5, MAPPING_HAS_FUNCTIONS = 7, MAPPING_HAS_FILES = 8, MAPPING_HAS_LINES = 9 };
enum { LOCATION_ID = 1, LOCATION_MAPPING = 2, LOCATION_ADDRESS = 3, LOCATION_LINE = 4 };
enum { LINE_FUNCTION = 1, LINE_NUMBER = 2 };
enum { FUNCTION_ID = 1, FUNCTION_NAME = 2, FUNCTION_SYSTEM_NAME = 3, FUNCTION_FILE = 4 };

/* What a sample counts: X(name, unit). */
#define VALUES(X)                       \
	X("calls", "count")             \
	X("kernel_time", "nanoseconds") \
	X("pages", "count")

/* A growing message. After a failure adding does nothing. */
struct message {
	char *data;
	size_t bytes, max;
	bool has_failed;
};

struct pprof {
	const struct profile *profile;
	struct message out;
	char **texts; /* the string table so far: texts[0] is "" */
	size_t text_cnt, text_max;
	uint32_t *text_slots; /* open hash: number + 1 */
	size_t slot_cnt;
	char policy[128];
};

static void put_bytes(struct message *message, const void *data, size_t bytes)
{
	size_t max = message->max ? message->max : 256;
	char *grown;

	if (message->has_failed)
		return;
	while (max - message->bytes < bytes)
		max *= 2;
	if (max != message->max) {
		grown = realloc(message->data, max);
		if (!grown) {
			message->has_failed = true;
			return;
		}
		message->data = grown;
		message->max = max;
	}
	memcpy(message->data + message->bytes, data, bytes);
	message->bytes += bytes;
}

static void put_varint(struct message *message, uint64_t value)
{
	char bytes[10];
	size_t cnt = 0;

	do {
		bytes[cnt++] = (char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
		value >>= 7;
	} while (value);
	put_bytes(message, bytes, cnt);
}

static void put_number(struct message *message, int field, uint64_t value)
{
	put_varint(message, (uint64_t)field << 3);
	put_varint(message, value);
}

static void put_data(struct message *message, int field, const void *data, size_t bytes)
{
	put_varint(message, (uint64_t)field << 3 | 2);
	put_varint(message, bytes);
	put_bytes(message, data, bytes);
}

/* Adds a message to another as a field, and frees it. */
static void put_message(struct message *message, int field, struct message *part)
{
	message->has_failed |= part->has_failed;
	put_data(message, field, part->data, part->bytes);
	free(part->data);
	*part = (struct message){0};
}

static size_t hash_of(const char *text)
{
	size_t hash = 5381;

	for (; *text; text++)
		hash = hash * 33 ^ (unsigned char)*text;
	return hash;
}

static int grow_texts(struct pprof *pprof)
{
	size_t max = pprof->text_max ? 2 * pprof->text_max : 256, cnt = 4 * max;
	char **texts = reallocarray(pprof->texts, max, sizeof(char *));
	uint32_t *slots;

	if (!texts)
		return -ENOMEM;
	pprof->texts = texts;
	slots = calloc(cnt, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < pprof->text_cnt; i++) {
		size_t at = hash_of(texts[i]) % cnt;

		while (slots[at])
			at = (at + 1) % cnt;
		slots[at] = (uint32_t)i + 1;
	}
	free(pprof->text_slots);
	pprof->text_slots = slots;
	pprof->slot_cnt = cnt;
	pprof->text_max = max;
	return 0;
}

/* The number of a text in the string table, which must be UTF-8. 0 is "". */
static uint64_t text(struct pprof *pprof, const char *plain)
{
	char escaped[TEXT_BYTES];
	size_t at;

	format__escape(plain, escaped, sizeof(escaped));
	if (pprof->text_cnt == pprof->text_max && grow_texts(pprof)) {
		pprof->out.has_failed = true;
		return 0;
	}
	for (at = hash_of(escaped) % pprof->slot_cnt; pprof->text_slots[at]; at = (at + 1) % pprof->slot_cnt)
		if (strcmp(pprof->texts[pprof->text_slots[at] - 1], escaped) == 0)
			return pprof->text_slots[at] - 1;
	pprof->texts[pprof->text_cnt] = strdup(escaped);
	if (!pprof->texts[pprof->text_cnt]) {
		pprof->out.has_failed = true;
		return 0;
	}
	pprof->text_slots[at] = (uint32_t)++pprof->text_cnt;
	return pprof->text_cnt - 1;
}

static void put_types(struct pprof *pprof)
{
	static const char *const types[][2] = {
#define X(name, unit) {name, unit},
		VALUES(X)
#undef X
	};
	struct message type = {0};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		put_number(&type, TYPE_NAME, text(pprof, types[i][0]));
		put_number(&type, TYPE_UNIT, text(pprof, types[i][1]));
		put_message(&pprof->out, PROFILE_SAMPLE_TYPE, &type);
	}
	put_number(&pprof->out, PROFILE_DEFAULT_TYPE, text(pprof, "kernel_time"));
}

static void put_label(struct pprof *pprof, struct message *sample, const char *key, const char *value, uint64_t number)
{
	struct message label = {0};

	put_number(&label, LABEL_KEY, text(pprof, key));
	if (value)
		put_number(&label, LABEL_TEXT, text(pprof, value));
	else
		put_number(&label, LABEL_NUMBER, number);
	put_message(sample, SAMPLE_LABEL, &label);
}

/*
 * Locations: a frame's number + 1, guesses as such of their own behind them, and
 * then the reasons of cut chains.
 */
static uint64_t location_of(const struct callchains *chains, uint32_t frame, bool is_guess)
{
	return frame + 1 + (is_guess ? chains->frame_cnt : 0);
}

static void put_sample(struct pprof *pprof, const struct callchain_path *path)
{
	const struct callchains *chains = pprof->profile->callchains;
	const struct callchain_chain *chain = &chains->chains[path->chain];
	struct message sample = {0}, locations = {0}, values = {0};

	for (uint32_t i = 0; i < chain->cnt; i++)
		put_varint(&locations, location_of(chains, chains->frame_of[chain->first + i], i >= chain->guess_from));
	if (callchain__end_text(chain->end)[0])
		put_varint(&locations, 2 * chains->frame_cnt + 1 + path->chain);
	put_message(&sample, SAMPLE_LOCATIONS, &locations);
	put_varint(&values, path->call_cnt);
	put_varint(&values, path->sum_ns);
	put_varint(&values, path->bytes / pprof->profile->page_bytes);
	put_message(&sample, SAMPLE_VALUES, &values);
	put_label(pprof, &sample, "class", profile__class_name(path->class), 0);
	put_label(pprof, &sample, "phase", profile__phase_name(path->phase), 0);
	put_label(pprof, &sample, "policy", pprof->policy, 0);
	put_label(pprof, &sample, "origin", callchain__origin_name(chain->origin), 0);
	put_label(pprof, &sample, "pid", NULL, (uint64_t)path->tgid);
	if (path->tid)
		put_label(pprof, &sample, "thread", NULL, (uint64_t)path->tid);
	put_message(&pprof->out, PROFILE_SAMPLE, &sample);
}

static void put_function(struct pprof *pprof, uint64_t id, const char *name, const char *file)
{
	struct message function = {0};

	put_number(&function, FUNCTION_ID, id);
	put_number(&function, FUNCTION_NAME, text(pprof, name));
	put_number(&function, FUNCTION_SYSTEM_NAME, text(pprof, name));
	if (file)
		put_number(&function, FUNCTION_FILE, text(pprof, file));
	put_message(&pprof->out, PROFILE_FUNCTION, &function);
}

/* A location and its function have the same number. */
static void put_location(struct pprof *pprof, uint64_t id, uint64_t mapping, uint64_t address, uint32_t line_number)
{
	struct message location = {0}, line = {0};

	put_number(&location, LOCATION_ID, id);
	if (mapping)
		put_number(&location, LOCATION_MAPPING, mapping);
	put_number(&location, LOCATION_ADDRESS, address);
	put_number(&line, LINE_FUNCTION, id);
	put_number(&line, LINE_NUMBER, line_number);
	put_message(&location, LOCATION_LINE, &line);
	put_message(&pprof->out, PROFILE_LOCATION, &location);
}

static void put_mapping(struct pprof *pprof, uint64_t id, const char *file)
{
	struct message mapping = {0};

	put_number(&mapping, MAPPING_ID, id);
	put_number(&mapping, MAPPING_FILE, text(pprof, file));
	put_number(&mapping, MAPPING_HAS_FUNCTIONS, 1);
	put_number(&mapping, MAPPING_HAS_FILES, 1);
	put_number(&mapping, MAPPING_HAS_LINES, 1);
	put_message(&pprof->out, PROFILE_MAPPING, &mapping);
}

static void put_frames(struct pprof *pprof)
{
	const struct callchains *chains = pprof->profile->callchains;
	uint64_t mapping = 0, *mapping_of = calloc((1u << 16) + 1, sizeof(*mapping_of)); /* by object */
	char name[TEXT_BYTES], guess[TEXT_BYTES + 16];

	if (!mapping_of) {
		pprof->out.has_failed = true;
		return;
	}
	for (uint32_t i = 0; i < chains->frame_cnt; i++) {
		const struct callchain_frame *frame = &chains->frames[i];
		uint64_t *number = &mapping_of[frame->word >> AT_FRAME_BITS];
		const char *plain = callchain__name(frame, name, sizeof(name));

		if (frame->module && !*number) {
			*number = ++mapping;
			put_mapping(pprof, mapping, frame->module);
		}
		snprintf(guess, sizeof(guess), "%s (guess)", plain);
		for (int is_guess = 0; is_guess < 2; is_guess++) {
			put_function(pprof, location_of(chains, i, is_guess), is_guess ? guess : plain, frame->file);
			put_location(pprof, location_of(chains, i, is_guess), *number, frame->address, frame->line);
		}
	}
	free(mapping_of);
}

/* The outermost frame of a cut chain says why it is cut. */
static void put_marks(struct pprof *pprof)
{
	const struct callchains *chains = pprof->profile->callchains;
	char name[TEXT_BYTES];

	for (uint32_t i = 0; i < chains->chain_cnt; i++) {
		const char *mark = callchain__end(chains, &chains->chains[i], name, sizeof(name));

		if (!mark[0])
			continue;
		put_function(pprof, 2 * chains->frame_cnt + 1 + i, mark, NULL);
		put_location(pprof, 2 * chains->frame_cnt + 1 + i, 0, 0, 0);
	}
}

static int write_packed(FILE *out, const struct message *message)
{
	size_t packed_bytes;
	char *packed;
	int err = gz__pack(message->data, message->bytes, &packed, &packed_bytes);

	if (err)
		return err;
	fwrite(packed, 1, packed_bytes, out);
	free(packed);
	return 0;
}

int render_callchain__pprof(FILE *out, const void *data)
{
	const struct profile *profile = data;
	struct pprof pprof = {.profile = profile};
	int err;

	snprintf(pprof.policy, sizeof(pprof.policy), "none");
	if (profile->has_policy)
		settings__format_policy(profile->policy, pprof.policy, sizeof(pprof.policy));
	text(&pprof, "");
	put_types(&pprof);
	for (size_t i = 0; i < profile->callchains->path_cnt; i++)
		put_sample(&pprof, &profile->callchains->paths[i]);
	put_frames(&pprof);
	put_marks(&pprof);
	put_number(&pprof.out, PROFILE_DURATION_NS, profile->wall_ns);
	for (size_t i = 0; i < pprof.text_cnt; i++)
		put_data(&pprof.out, PROFILE_STRING, pprof.texts[i], strlen(pprof.texts[i]));
	err = pprof.out.has_failed ? -ENOMEM : write_packed(out, &pprof.out);
	for (size_t i = 0; i < pprof.text_cnt; i++)
		free(pprof.texts[i]);
	free(pprof.texts);
	free(pprof.text_slots);
	free(pprof.out.data);
	return err;
}
