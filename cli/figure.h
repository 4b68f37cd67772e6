/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The figures of a report by name, for expectations. Names are those of the
 * JSON document: what it has, is here, and what is absent there was not
 * measured. Classes and syscalls stand for their calls.
 */
#ifndef ALLOCTRACE_CLI_FIGURE_H
#define ALLOCTRACE_CLI_FIGURE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "cli/compare.h"

enum { FIGURE_NAME_BYTES = 64, FIGURE_PATH_BYTES = 96 };

struct figure {
	char name[FIGURE_NAME_BYTES];
	char path[FIGURE_PATH_BYTES]; /* of JSON keys with / between, from the phase, or from the document; "": computed
				       */
	enum compare_unit unit;
	bool is_of_run; /* of the whole run: not by phase */
};

struct figures {
	struct figure *all;
	size_t cnt;
};

/* All that a report may have. 0 or -ENOMEM; figures__free in any case. */
int figures__list(struct figures *figures);
void figures__free(struct figures *figures);
/* By its name, or by a short one; NULL when there is none. */
const struct figure *figures__find(const struct figures *figures, const char *name, size_t bytes);
/* What a figure is a part of, for percents; NULL: of nothing. */
const struct figure *figures__whole(const struct figures *figures, const struct figure *figure);
/*
 * The names that `name` may have been meant to be, with ", " between, into buf:
 * those of its family, or of all families.
 */
const char *figures__known(const struct figures *figures, const char *name, size_t bytes, char *buf, size_t buf_bytes);

/* In a phase object of a document of a run. False: it was not measured. */
bool figure__in_phase(const struct figure *figure, const json_t *document, const json_t *phase, double *value);
/* The figures of a comparison that make it up, added: how many there are; 0: compare does not keep it. */
enum { FIGURE_PART_MAX = AT_CLASS_CNT };
size_t figure__parts(const struct figure *figure, enum compare_figure parts[FIGURE_PART_MAX]);

#endif
