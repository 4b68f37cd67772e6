/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The loader of saved files, and the renderers of what it lets through, fed by
 * libFuzzer; so is the parser of expectations. What is packed is unpacked by the
 * loader itself: a fuzzer that works on plain JSON gets further. See Makefile,
 * target fuzz.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/expect.h"
#include "cli/gz.h"
#include "cli/profile_fields.h"
#include "cli/render.h"
#include "cli/render_json.h"
#include "cli/render_plain.h"
#include "cli/saved.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerInitialize(int *argc, char ***argv);
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t max_bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes, unsigned seed);

enum { RUN_MAX = 64 };

static struct figures figures;
static char *good[2]; /* a saved profile and a saved comparison that are right, as text */
static FILE *null;

static struct profile *new_profile(void)
{
	struct profile *profile = profile__new();

	if (!profile)
		abort();
	profile->argv = calloc(2, sizeof(char *));
	profile->argv[0] = strdup("a \"b\"");
	profile->cpu_cnt = 2;
	profile->has_trace = true;
	profile->ledgers = LEDGER_ALL;
	profile->tune = strdup("trim_threshold=64K");
	profile->phases[1].classes[AT_CLASS_MUNMAP].call_cnt = 3;
	profile->phases[1].classes[AT_CLASS_MUNMAP].hist[40] = 3;
	profile->phases[1].vmas.growth[AT_CLASS_MUNMAP] = -2;
	return profile;
}

/* A text with the schema, and "raw": all that the loader reads. */
static char *new_text(const char *schema, json_t *raw)
{
	json_t *document = json_pack("{s:s, s:o}", "schema", schema, "raw", raw);
	char *text = json_dumps(document, JSON_COMPACT);

	json_decref(document);
	if (!text)
		abort();
	return text;
}

static char *new_comparison(const struct profile *profile)
{
	static const struct compare_configs configs = {
		.all = {{.name = "none", .allocator = "bundled"}, {.name = "all", .allocator = "bundled"}}, .cnt = 2};
	static char name[] = "program", notes[2][256];
	const struct profile *shown[2] = {profile, profile};
	struct compare_program program = {.name = name, .notes = notes, .comparison = compare__new(2, 0, true)};
	struct compare_report report = {.configs = &configs, .shown = shown, .programs = &program, .program_cnt = 1};
	char *text;

	for (report.block_cnt = 0; report.block_cnt < 2; report.block_cnt++)
		for (size_t config = 0; config < 2; config++)
			if (compare__add(program.comparison, report.block_cnt, config, profile))
				abort();
	text = new_text(RENDER_JSON_COMPARISON, saved_compare__write(&report));
	compare__free(program.comparison);
	return text;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct profile *profile = new_profile();

	(void)argc;
	(void)argv;
	null = fopen("/dev/null", "we");
	if (!null || figures__list(&figures))
		abort();
	good[0] = new_text(RENDER_JSON_PROFILE, fields__write(profile_fields, profile));
	good[1] = new_comparison(profile);
	profile__free(profile);
	for (int i = 0; i < 2; i++) {
		char why[SAVED_WHY_BYTES];
		struct saved saved;

		/* a target whose good texts are refused would test little */
		if (saved__parse(good[i], strlen(good[i]), &saved, why)) {
			fprintf(stderr, "good text %d is refused: %s\n", i, why);
			abort();
		}
		saved__free(&saved);
	}
	return 0;
}

/* Half of the time one value of what is right is changed: bytes that are changed at random are seldom JSON. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes, unsigned seed)
{
	static const char *const pieces[] = {"0",
					     "-1",
					     "7",
					     "4294967295",
					     "9223372036854775807",
					     "1e18",
					     "\"18446744073709551615\"",
					     "null",
					     "true",
					     "[]",
					     "{}",
					     "\"\"",
					     "\"x\"",
					     "[[1,2],[3,4]]",
					     "{\"5\":1}"};
	const char *text = good[seed & 1], *piece = pieces[seed / 4 % (sizeof(pieces) / sizeof(pieces[0]))];
	size_t at = seed / 64 % strlen(text), end;

	if (seed & 2)
		return LLVMFuzzerMutate(data, bytes, max_bytes);
	at += strcspn(text + at, ":[");
	if (!text[at])
		return LLVMFuzzerMutate(data, bytes, max_bytes);
	at++;
	end = at + strcspn(text + at, ",]}");
	bytes = (size_t)snprintf((char *)data, max_bytes, "%.*s%s%s", (int)at, text, piece, text + end);
	return bytes < max_bytes ? bytes : max_bytes;
}

static void render_all(struct saved *saved)
{
	struct render_opts opts = {0};
	struct look look = {0};
	struct compare_report *report;

	if (saved->profile) {
		render__table(null, saved->profile, &opts);
		render__json(null, saved->profile);
		render_plain__csv(null, saved->profile);
		render_plain__markdown(null, saved->profile);
		return;
	}
	report = &saved->comparison->report;
	if (report->block_cnt * report->configs->cnt > RUN_MAX)
		return;
	render_compare__finish(report);
	render_compare__table(null, report, &look);
	render_compare__json(null, report);
	render_plain__compare_csv(null, report);
	render_plain__compare_markdown(null, report);
}

static void parse_expectation(const uint8_t *data, size_t bytes)
{
	static const struct compare_configs configs = {.all = {{.name = "none"}, {.name = "all"}}, .cnt = 2};
	char why[EXPECT_WHY_BYTES], *text = strndup((const char *)data, bytes);
	struct expect expect;

	if (text && expect__parse(text, &figures, NULL, &expect, why) && !why[0])
		abort(); /* refused without a reason */
	if (text && expect__parse(text, &figures, &configs, &expect, why) && !why[0])
		abort();
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char why[SAVED_WHY_BYTES];
	struct saved saved;

	if (saved__parse((const char *)data, bytes, &saved, why) == 0)
		render_all(&saved);
	else if (!why[0])
		abort(); /* refused without a reason */
	saved__free(&saved);
	if (bytes < 200)
		parse_expectation(data, bytes);
	return 0;
}
