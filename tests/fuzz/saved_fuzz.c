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
#include "cli/saved.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerInitialize(int *argc, char ***argv);
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t max_bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes, unsigned seed);

enum { RUN_MAX = 64 };

static struct figures figures;
static char *good; /* a saved profile that is right, as text */
static FILE *null;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct profile *profile = profile__new();
	json_t *document;

	(void)argc;
	(void)argv;
	null = fopen("/dev/null", "we");
	if (!null || !profile || figures__list(&figures))
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
	document = render_json__document(profile);
	json_object_clear(json_object_get(document, "phases"));
	json_object_clear(json_object_get(document, "total"));
	json_object_set_new(document, "raw", fields__write(profile_fields, profile));
	good = json_dumps(document, JSON_COMPACT);
	json_decref(document);
	profile__free(profile);
	return good ? 0 : 1;
}

/* Now and then begins with what is right, so that changes reach the fields. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes, unsigned seed)
{
	size_t good_bytes = strlen(good);

	if (seed % 64 == 0 && good_bytes <= max_bytes) {
		memcpy(data, good, good_bytes);
		bytes = good_bytes;
	}
	return LLVMFuzzerMutate(data, bytes, max_bytes);
}

static void render_all(struct saved *saved)
{
	struct render_opts opts = {0};
	struct look look = {0};
	struct compare_report *report;

	if (saved->profile) {
		render__table(null, saved->profile, &opts);
		render__json(null, saved->profile);
		return;
	}
	report = &saved->comparison->report;
	if (report->block_cnt * report->configs->cnt > RUN_MAX)
		return;
	for (size_t i = 0; i < report->program_cnt; i++)
		compare__finish(report->programs[i].comparison, report->block_cnt, report->seed);
	render_compare__warn(report);
	render_compare__table(null, report, &look);
	render_compare__json(null, report);
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
