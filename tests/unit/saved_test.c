/* SPDX-License-Identifier: BSD-2-Clause */
/* Saved profiles: that nothing is forgotten, that all comes back, and that what is not ours is refused. */
#include <errno.h>
#include <linux/types.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "cli/callchain.h"
#include "cli/gz.h"
#include "cli/profile_fields.h"
#include "cli/render.h"
#include "cli/render_json.h"
#include "cli/render_plain.h"
#include "cli/saved.h"

/* Marks the bytes that the fields say they are about. */
static void cover(const struct field *fields, unsigned char *covered)
{
	for (const struct field *field = fields; field->key; field++) {
		size_t cnt = field->cnt && field->kind != FIELD_KIND_FLAGS ? field->cnt : 1;

		for (size_t i = 0; i < cnt; i++) {
			unsigned char *at = covered + field->offset + i * field->bytes;

			if (field->kind == FIELD_KIND_OBJECT)
				cover(field->fields, at);
			else
				memset(at, 1, field->bytes);
		}
	}
}

/* Every byte of the structure that is not padding belongs to a field. */
static void test_no_member_is_forgotten(void **state)
{
#if __has_builtin(__builtin_clear_padding)
	struct profile *probe = malloc(sizeof(*probe));
	unsigned char *covered = calloc(1, sizeof(*probe));

	(void)state;
	assert_non_null(probe);
	assert_non_null(covered);
	memset(probe, 0xff, sizeof(*probe));
	__builtin_clear_padding(probe);
	cover(profile_fields, covered);
	/* These are structures of their own, and saved as such. */
	memset(covered + offsetof(struct profile, processes), 1, sizeof(probe->processes));
	for (size_t i = 0; i < sizeof(*probe); i++)
		if (((unsigned char *)probe)[i] && !covered[i]) {
			print_error("byte %zu of struct profile has no line in profile_fields.c (members before it: "
				    "phases at %zu)\n",
				    i, offsetof(struct profile, phases));
			fail();
		}
	free(covered);
	free(probe);
#else
	(void)state;
	(void)cover;
	print_message("the compiler cannot tell padding\n");
	skip();
#endif
}

/* Every number of the structure gets a value of its own; texts are set by the caller. */
static void fill(const struct field *fields, void *data, uint64_t *next)
{
	for (const struct field *field = fields; field->key; field++) {
		size_t cnt = field->cnt && field->kind != FIELD_KIND_FLAGS ? field->cnt : 1;

		for (size_t i = 0; i < cnt; i++) {
			char *at = (char *)data + field->offset + i * field->bytes;

			/* an element without a name is never used */
			if (field->cnt && field->name && !field->name((int)i))
				continue;
			if (field->kind == FIELD_KIND_OBJECT)
				fill(field->fields, at, next);
			else if (field->kind == FIELD_KIND_U64)
				*(uint64_t *)at = (*next)++;
			else if (field->kind == FIELD_KIND_I64)
				*(int64_t *)at = -(int64_t)(*next)++;
			else if (field->kind == FIELD_KIND_INT)
				*(int *)at = (int)(*next)++;
			else if (field->kind == FIELD_KIND_BOOL)
				*(bool *)at = true;
			else if (field->kind == FIELD_KIND_FLAGS)
				*(uint32_t *)at = (1u << field->cnt) - 1;
		}
	}
}

static struct profile *full_profile(void)
{
	static const char *const words[] = {"a,b",          "\"quoted\"", "two\nlines", "", "gr\xc3\xbc\xc3\x9f",
					    "\xff\xfe raw", NULL};
	struct profile *profile = profile__new();
	uint64_t next = 1000003;

	assert_non_null(profile);
	fill(profile_fields, profile, &next);
	profile->tier = 1;
	profile->cpu_cnt = 2;
	profile->argv = calloc(sizeof(words) / sizeof(words[0]), sizeof(char *));
	for (size_t i = 0; words[i]; i++)
		profile->argv[i] = strdup(words[i]);
	profile->tune = strdup("trim_threshold=64K");
	strcpy(profile->kernel, "6.18");
	strcpy(profile->thp, "madvise");
	strcpy(profile->advice, "run it as root");
	strcpy(profile->allocator, "/lib/\xe9t\xe9.so");
	strcpy(profile->note, "a \"note\"\t\x80");
	profile->phases[1].classes[1].max_ns = UINT64_MAX;
	return profile;
}

static char *packed_text(const char *text, size_t *bytes)
{
	char *packed;

	assert_int_equal(gz__pack(text, strlen(text), &packed, bytes), 0);
	return packed;
}

static char *saved_text(const struct profile *profile)
{
	json_t *document = render_json__document(profile);
	char *text;

	json_object_set_new(document, "raw", fields__write(profile_fields, profile));
	text = json_dumps(document, JSON_COMPACT);
	json_decref(document);
	assert_non_null(text);
	return text;
}

static char *rendered(const struct profile *profile, bool is_json)
{
	struct render_opts opts = {.has_color = true};
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	assert_int_equal(render_plain__run(out, profile, is_json ? RENDER_JSON : RENDER_TABLE, &opts), 0);
	fclose(out);
	return text;
}

/* Texts behind the pointers; the pointers themselves differ. */
static void assert_same_texts(struct profile *a, struct profile *b)
{
	for (size_t i = 0; a->argv[i] || b->argv[i]; i++)
		assert_string_equal(a->argv[i], b->argv[i]);
	assert_string_equal(a->tune, b->tune);
}

static void test_all_comes_back(void **state)
{
	struct profile *profile = full_profile();
	char *text = saved_text(profile), why[SAVED_WHY_BYTES], *a, *b, *packed;
	struct saved saved;
	size_t bytes;

	(void)state;
	packed = packed_text(text, &bytes);
	assert_int_equal(saved__parse(packed, bytes, &saved, why), 0);
	assert_string_equal(why, "");
	assert_non_null(saved.profile);
	assert_same_texts(profile, saved.profile);
	for (int is_json = 0; is_json < 2; is_json++) {
		a = rendered(profile, is_json);
		b = rendered(saved.profile, is_json);
		assert_string_equal(a, b);
		free(a);
		free(b);
	}
	/* bit for bit, but for the two pointers */
	free(saved.profile->tune);
	for (char **arg = saved.profile->argv; *arg; arg++)
		free(*arg);
	free(saved.profile->argv);
	saved.profile->tune = profile->tune;
	saved.profile->argv = profile->argv;
	assert_memory_equal(profile, saved.profile, sizeof(*profile));
	saved.profile->tune = NULL;
	saved.profile->argv = NULL;
	saved__free(&saved);
	free(packed);
	free(text);
	profile__free(profile);
}

static struct callchains *new_callchains(void)
{
	struct callchains *chains = calloc(1, sizeof(*chains));
	static const uint32_t frame_of[] = {1, 0};

	assert_non_null(chains);
	chains->frames = calloc(2, sizeof(*chains->frames));
	chains->frames[0] = (struct callchain_frame){
		.word = UINT64_MAX, .function = strdup("grow<\"a\">"), .module = strdup("/\xff/lib.so"), .line = 7};
	chains->frames[1] = (struct callchain_frame){.word = 2, .address = 0x1234, .is_deleted = true};
	chains->frame_cnt = 2;
	chains->frame_of = memcpy(calloc(1, sizeof(frame_of)), frame_of, sizeof(frame_of));
	chains->frame_of_cnt = 2;
	chains->chains = calloc(2, sizeof(*chains->chains));
	chains->chains[0].end = chains->chains[1].end = 1;
	chains->chains[1].cnt = 2;
	chains->chains[1].guess_from = UINT32_MAX;
	chains->chain_cnt = 2;
	chains->paths = calloc(1, sizeof(*chains->paths));
	chains->paths[0] = (struct callchain_path){
		.chain = 1, .class = AT_CLASS_MUNMAP, .phase = 1, .tgid = 9, .call_cnt = 1021, .sum_ns = 5};
	chains->path_cnt = 1;
	chains->lost_cnt = 3;
	return chains;
}

static void test_callchains_come_back(void **state)
{
	struct profile *profile = full_profile();
	char *text, why[SAVED_WHY_BYTES], *a, *b;
	struct saved saved;

	(void)state;
	profile->callchains = new_callchains();
	text = saved_text(profile);
	if (saved__parse(text, strlen(text), &saved, why))
		fail_msg("%s", why);
	for (int is_json = 0; is_json < 2; is_json++) {
		a = rendered(profile, is_json);
		b = rendered(saved.profile, is_json);
		assert_string_equal(a, b);
		assert_non_null(strstr(a, "grow<"));
		free(a);
		free(b);
	}
	assert_memory_equal(saved.profile->callchains->paths, profile->callchains->paths,
			    sizeof(struct callchain_path));
	assert_true(saved.profile->callchains->frames[0].word == UINT64_MAX);
	assert_string_equal(saved.profile->callchains->frames[0].module, "/\xff/lib.so");
	saved__free(&saved);
	free(text);
	profile__free(profile);
}

/* Parses text, plain and packed; the outcome must be the same. */
static int parse(const char *text, struct saved *saved, char why[SAVED_WHY_BYTES])
{
	char *packed, second_why[SAVED_WHY_BYTES];
	struct saved second;
	size_t bytes;
	int err = saved__parse(text, strlen(text), saved, why);

	packed = packed_text(text, &bytes);
	assert_int_equal(saved__parse(packed, bytes, &second, second_why), err);
	saved__free(&second);
	free(packed);
	return err;
}

static void assert_refused(const char *text, const char *because)
{
	char why[SAVED_WHY_BYTES];
	struct saved saved;
	int err = parse(text, &saved, why);

	if (err >= 0 || !strstr(why, because)) {
		print_error("%.200s\nis %d, '%s'; wanted: '%s'\n", text, err, why, because);
		fail();
	}
	saved__free(&saved);
}

/* The saved text with the first occurrence of `from` replaced. */
static char *with(const char *text, const char *from, const char *to)
{
	const char *at = strstr(text, from);
	char *result = NULL;

	if (!at) {
		print_error("'%s' is not in the text\n", from);
		fail();
		return NULL;
	}
	assert_true(asprintf(&result, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
	return result;
}

static void test_foreign_and_newer(void **state)
{
	(void)state;
	assert_refused("{", "is not valid JSON");
	assert_refused("{}", "schema is missing");
	assert_refused("{\"schema\":1}", "schema is missing");
	assert_refused("{\"schema\":\"other/1\"}", "not a document of alloctrace");
	assert_refused("{\"schema\":\"alloctrace.profile\"}", "not a document of alloctrace");
	assert_refused("{\"schema\":\"alloctrace.attic/1\"}", "does not know");
	assert_refused("{\"schema\":\"alloctrace.profile/2\",\"tool\":{\"version\":\"9.1\"}}",
		       "of a newer alloctrace 9.1");
	assert_refused("{\"schema\":\"alloctrace.comparison/18446744073709551616\"}", "of a newer alloctrace");
	assert_refused("{\"schema\":\"alloctrace.profile/1x\"}", "which there never was");
	assert_refused("{\"schema\":\"alloctrace.profile/-1\"}", "of a newer");
	assert_refused("{\"schema\":\"alloctrace.profile/1\"}", "is a report (-j)");
	assert_refused("{\"schema\":\"alloctrace.profile/1\",\"raw\":[]}", "'raw' is not an object");
	assert_refused("{\"schema\":\"alloctrace.profile/1\",\"raw\":{}}", "'raw.argv' is missing");
	assert_refused("{\"schema\":\"alloctrace.comparison/1\",\"raw\":{}}", "'raw' is not an object");
	assert_refused("{\"schema\":\"alloctrace.profile/1\",\"schema\":\"x\"}", "duplicate");
}

static void test_wrong_values(void **state)
{
	static const struct {
		const char *from, *to, *why;
	} cases[] = {
		{"\"raw\":{\"version\":\"0.1.0\"", "\"raw\":{\"version\":7", "'raw.version' is not text"},
		{"\"raw\":{\"version\":\"0.1.0\"", "\"raw\":{\"version\":\"\\u001b[2J\"",
		 "'raw.version' is not a version"},
		{"\"kernel\":\"6.18\",\"cpu", "\"kernel\":\"\\u009b2J\",\"cpu", "'raw.kernel' has characters"},
		{"\"cpu_cnt\":2", "\"cpu_cnt\":0", "'raw.cpu_cnt' is not a number of CPUs"},
		{"\"cpu_cnt\":2", "\"cpu_cnt\":2.0", "'raw.cpu_cnt' is not a whole number"},
		{"\"cpu_cnt\":2", "\"cpu_cnt\":1e999", "real number overflow"},
		{"\"cpu_cnt\":2", "\"cpu_cnt\":NaN", "is not valid JSON"},
		{"\"cpu_cnt\":2", "\"cpu_cnt\":99999999999999999999", "too big integer"},
		{"\"cpu_cnt\":2", "\"cpu_cnt\":4294967296", "'raw.cpu_cnt' is too large"},
		{"\"cpu_cnt\":2", "\"cpu_cnt\":2,\"cpu_cnt\":2", "duplicate object key"},
		{"\"recursion_miss_cnt\":", "\"recursion_miss_cnt\":-", "'raw.recursion_miss_cnt' is negative"},
		{"\"recursion_miss_cnt\":", "\"recursion_miss_cnt\":true,\"x\":", "is not a whole number"},
		{"\"recursion_miss_cnt\":", "\"recursion_miss_cnt\":\"18446744073709551616\",\"x\":",
		 "fits into 64 bits"},
		{"\"recursion_miss_cnt\":", "\"recursion_miss_cnt\":\" 1\",\"x\":", "is not a whole number"},
		{"\"has_trace\":true", "\"has_trace\":1", "'raw.has_trace' is neither true nor false"},
		{"\"ledgers\":[", "\"ledgers\":[1,", "'raw.ledgers' has something else than names"},
		{"\"growth\":{\"mmap.anon\":-", "\"growth\":{\"mmap.anon\":-200000000000",
		 "'raw.phases.startup.vmas.growth.mmap.anon' is too large or too small"},
		{"\"raw\":{\"version\":\"0.1.0\",\"tier\":1", "\"raw\":{\"version\":\"0.1.0\",\"tier\":3",
		 "'raw.tier' is no tier"},
		{"\"tune\":\"trim_threshold=64K\"", "\"tune\":\"trim_threshold=many\"", "'raw.tune' is not a list"},
		{"\"note_latin1\":\"a", "\"note_latin1\":\"\\u0100", "'raw.note' is not text"},
	};
	struct profile *profile = full_profile();
	char *text = saved_text(profile);

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *raw = strstr(text, "\"raw\":"), *changed, *whole = NULL;

		assert_non_null(raw);
		changed = with(raw, cases[i].from, cases[i].to);
		assert_true(asprintf(&whole, "%.*s%s", (int)(raw - text), text, changed) > 0);
		assert_refused(whole, cases[i].why);
		free(changed);
		free(whole);
	}
	free(text);
	profile__free(profile);
}

static void test_wrong_callchains(void **state)
{
	static const char *const cases[][3] = {
		{"\"frame_of\":[1,", "\"frame_of\":[2,", "'raw.callchains' have a frame"},
		{"\"frame_of\":[1,", "\"frame_of\":[-1,", "'raw.callchains.frame_of' is too large or too small"},
		{"\"first\":0,\"cnt\":2", "\"first\":1,\"cnt\":2", "'raw.callchains' have a frame"},
		{"\"first\":0,\"cnt\":2", "\"first\":2,\"cnt\":4294967295", "'raw.callchains' have a frame"},
		{"\"paths\":[{\"chain\":1", "\"paths\":[{\"chain\":2", "'raw.callchains' have a frame"},
		{"\"class\":\"munmap\"", "\"class\":\"nonsense\"", "'raw.callchains.paths.class' is no name"},
		{"\"paths\":[", "\"ways\":[", "'raw.callchains' have a frame"},
	};
	struct profile *profile = full_profile();
	char *text;

	(void)state;
	profile->callchains = new_callchains();
	text = saved_text(profile);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *raw = strstr(text, "\"raw\":"), *changed, *whole = NULL;

		changed = with(raw, cases[i][0], cases[i][1]);
		assert_true(asprintf(&whole, "%.*s%s", (int)(raw - text), text, changed) > 0);
		assert_refused(whole, cases[i][2]);
		free(changed);
		free(whole);
	}
	free(text);
	profile__free(profile);
}

/* What a later version of the same schema adds is left out, and said. */
static void test_unknown_keys(void **state)
{
	struct profile *profile = full_profile();
	char *text = saved_text(profile), *changed = with(text, "\"raw\":{", "\"raw\":{\"karma\":{\"a\":1},"),
	     why[SAVED_WHY_BYTES];
	struct saved saved;

	(void)state;
	assert_int_equal(parse(changed, &saved, why), 0);
	assert_non_null(strstr(why, "1 values that this alloctrace"));
	assert_non_null(strstr(why, "'raw.karma'"));
	saved__free(&saved);
	free(changed);
	free(text);
	profile__free(profile);
}

static void assert_packed_refused(const char *packed, size_t bytes, const char *because)
{
	char why[SAVED_WHY_BYTES];
	struct saved saved;

	assert_true(saved__parse(packed, bytes, &saved, why) < 0);
	if (!strstr(why, because)) {
		print_error("'%s'; wanted: '%s'\n", why, because);
		fail();
	}
	saved__free(&saved);
}

/* Cut off anywhere, and with one byte more. */
static void test_truncated(void **state)
{
	struct profile *profile = full_profile();
	char *text = saved_text(profile), *packed, *longer;
	size_t bytes;

	(void)state;
	packed = packed_text(text, &bytes);
	assert_packed_refused("", 0, "is empty");
	assert_packed_refused("\x1f", 1, "is neither gzip nor JSON");
	for (size_t cut = 2; cut < bytes; cut += cut < 64 || cut + 64 > bytes ? 1 : 97)
		assert_packed_refused(packed, cut, "is cut off");
	longer = malloc(bytes + 1);
	memcpy(longer, packed, bytes);
	longer[bytes] = 0;
	assert_packed_refused(longer, bytes + 1, "is damaged");
	longer[bytes - 5] ^= 1; /* of the check sum */
	assert_packed_refused(longer, bytes, "is damaged");
	text[20] = 0; /* plain, and its length is not its string's */
	assert_packed_refused(text, strlen(text + 21) + 21, "is not valid JSON");
	free(longer);
	free(packed);
	free(text);
	profile__free(profile);
}

/* 80 MiB of zeros in less than 100 KiB; and many small values. */
static void test_bombs(void **state)
{
	enum { BOMB_BYTES = 80 << 20, MANY = 3 << 20, DEEP = 100000 };
	char *text = calloc(1, BOMB_BYTES), *packed;
	size_t bytes;

	(void)state;
	assert_non_null(text);
	assert_int_equal(gz__pack(text, BOMB_BYTES, &packed, &bytes), 0);
	assert_true(bytes < 100 << 10);
	assert_packed_refused(packed, bytes, "more than 64 MiB unpacked");
	free(packed);
	memset(text, '[', MANY);
	text[0] = '{';
	assert_int_equal(gz__pack(text, MANY, &packed, &bytes), 0);
	assert_packed_refused(packed, bytes, "more than 2097152 values");
	free(packed);
	strcpy(text, "{\"a\":");
	memset(text + 5, '[', DEEP);
	assert_int_equal(gz__pack(text, DEEP, &packed, &bytes), 0);
	assert_packed_refused(packed, bytes, "maximum parsing depth");
	free(packed);
	free(text);
}

static uint64_t random_word(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* Less text, so that a change hits more often what is read. */
static struct profile *small_profile(void)
{
	struct profile *profile = full_profile();

	for (int phase = 0; phase < AT_PHASE_CNT; phase++)
		for (int class = 3; class < AT_CLASS_CNT; class ++)
			profile->phases[phase].classes[class] = (struct class_stat){0};
	for (int class = 0; class < 3; class ++)
		for (int i = 8; i < AT_HIST_CNT; i++)
			profile->phases[1].classes[class].hist[i] = profile->phases[0].classes[class].hist[i] = 0;
	memset(profile->advice_cnt, 0, sizeof(profile->advice_cnt));
	return profile;
}

/* Whatever is changed: refused or rendered, and nothing worse (the sanitizers watch). */
static void test_mutated(void **state)
{
	enum { ROUNDS = 1200 };
	static const char *const pieces[] = {
		"-1",   "9223372036854775807", "1e308", "null", "[]", "{}", "\"\\u0000\"", "\"\"",
		"true", "4294967295",          ",",     "\"",   "\\"};
	struct profile *profile = small_profile();
	char *text = saved_text(profile), *copy = malloc(2 * strlen(text)), why[SAVED_WHY_BYTES];
	uint64_t seed = 20261130;
	int read_cnt = 0;

	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		struct saved saved;
		size_t bytes = strlen(text), at = random_word(&seed) % bytes;

		strcpy(copy, text);
		if (round % 3 == 0) {
			const char *piece = pieces[random_word(&seed) % (sizeof(pieces) / sizeof(pieces[0]))];
			size_t end = at + strcspn(copy + at, ",}");

			at += strcspn(copy + at, ":") + 1;
			if (at < bytes && end < bytes) {
				end = at + strcspn(text + at, ",}");
				strcpy(copy + at, piece);
				strcat(copy, text + end);
			}
		} else if (round % 3 == 1) {
			copy[at] = (char)(random_word(&seed) & 0xff);
		} else {
			memmove(copy + at, copy + at + 1 + random_word(&seed) % (bytes - at), 1);
		}
		if (saved__parse(copy, strlen(copy), &saved, why) == 0) {
			char *table = rendered(saved.profile, false), *json = rendered(saved.profile, true);

			read_cnt++;
			free(table);
			free(json);
		} else {
			assert_true(why[0]);
		}
		saved__free(&saved);
	}
	assert_true(read_cnt > 0 && read_cnt < ROUNDS);
	free(copy);
	free(text);
	profile__free(profile);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_member_is_forgotten),
		cmocka_unit_test(test_all_comes_back),
		cmocka_unit_test(test_callchains_come_back),
		cmocka_unit_test(test_wrong_callchains),
		cmocka_unit_test(test_foreign_and_newer),
		cmocka_unit_test(test_wrong_values),
		cmocka_unit_test(test_unknown_keys),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_bombs),
		cmocka_unit_test(test_mutated),
	};

	return cmocka_run_group_tests_name("saved", tests, NULL, NULL);
}
