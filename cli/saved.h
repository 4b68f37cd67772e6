/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Saved profiles and comparisons: the JSON document of the report with one key
 * more, "raw", which has every figure as it was measured; packed with gzip.
 * Reading takes "raw" alone. The fields are described in profile_fields.c and
 * saved_compare.c.
 */
#ifndef ALLOCTRACE_CLI_SAVED_H
#define ALLOCTRACE_CLI_SAVED_H

#include <jansson.h>

#include "cli/fields.h"
#include "cli/profile.h"
#include "cli/render_compare.h"

/* A comparison that owns what its report points to. */
struct saved_comparison {
	struct compare_configs configs;
	struct compare_report report;
};

/* One of the two. */
struct saved {
	struct profile *profile;
	struct saved_comparison *comparison;
};

enum { SAVED_WHY_BYTES = 320 };

/* Before the work begins: can the file be written? 0, or the exit status after saying why not. */
int saved__check(const char *path);
/* Whole or not at all. 0, or the exit status after saying why. */
int saved__write_profile(const char *path, const struct profile *profile);
int saved__write_comparison(const char *path, const struct compare_report *report);

/*
 * Reads a file that was saved; the statistics of a comparison are computed
 * again. 0, or the exit status after saying why. saved__free in any case.
 */
int saved__read(const char *path, struct saved *saved);
void saved__free(struct saved *saved);

/*
 * The content of a file, which may be anything: 0, or -errno and the reason in
 * `why`. With 0 `why` is a warning, or "". Takes memory within bounds: about
 * 100 bytes a value, of at most SAVED_VALUE_MAX.
 */
enum { SAVED_TEXT_MAX_BYTES = 64 << 20, SAVED_VALUE_MAX = 2 << 20 };
int saved__parse(const char *data, size_t bytes, struct saved *saved, char why[SAVED_WHY_BYTES]);

/* Of saved_compare.c: the object "raw" of a comparison. 0, -EINVAL with `reading` filled, or -ENOMEM. */
json_t *saved_compare__write(const struct compare_report *report);
int saved_compare__read(const json_t *raw, struct saved_comparison *comparison, struct fields_reading *reading);
void saved_compare__free(struct saved_comparison *comparison);
/* As read, with the same words, a profile that renderers can take. */
int saved__read_profile(const json_t *raw, struct profile **profile, struct fields_reading *reading);

#endif
