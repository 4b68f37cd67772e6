/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finished runs of several configurations of one program, compared. Pure
 * arithmetic on profiles: starts nothing, reads nothing, writes nothing.
 *
 * Runs come in blocks: a block has one run of every configuration, so that what
 * the machine did in the meantime touches all of them, and changes are taken
 * within a block. Functions return 0 or -errno.
 */
#ifndef ALLOCTRACE_CLI_COMPARE_H
#define ALLOCTRACE_CLI_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/profile.h"
#include "cli/stats.h"

/* From rusage, and of the ledgers: X(id, JSON key, name, unit), best evidence first. */
#define COMPARE_PROCESS_FIGURES(X)                                                 \
	X(SYS, "sys_ns", "system time", NS)                                        \
	X(USER, "user_ns", "user time", NS)                                        \
	X(WALL, "wall_ns", "wall time", NS)                                        \
	X(MAX_RSS, "max_rss_bytes", "peak RSS", BYTES)                             \
	X(FINAL_RSS, "final_rss_bytes", "final RSS", BYTES)                        \
	X(COMMIT_PEAK, "commit_peak_pages", "commit peak, pages", CNT)             \
	X(COMMIT_CHARGED, "commit_charged_pages", "pages charged", CNT)            \
	X(VMAS_PEAK, "vmas_peak", "VMAs at most", CNT)                             \
	X(REFAULT, "refault_returned_pages", "pages given up and taken back", CNT) \
	X(REFAULT_WASTED, "refault_wasted_ns", "time for pages given up", NS)      \
	X(LOCK_WAIT, "lock_wait_ns", "waits for locks", NS)                        \
	X(MINOR_FAULTS, "minor_faults", "minor faults", CNT)                       \
	X(MAJOR_FAULTS, "major_faults", "major faults", CNT)

/*
 * In the order of their weight as evidence: counts, which repeat; time in the
 * kernel; the process as a whole. The sums leave out the phase marker; that of
 * the calls leaves out faults, too.
 */
enum compare_figure {
	COMPARE_CALLS,                                         /* of all memory syscalls */
	COMPARE_CLASS_CALLS,                                   /* + class */
	COMPARE_KERNEL = COMPARE_CLASS_CALLS + AT_CLASS_CNT,   /* time in all classes */
	COMPARE_CLASS_KERNEL,                                  /* + class */
	COMPARE_PROCESS = COMPARE_CLASS_KERNEL + AT_CLASS_CNT, /* the first of those above */
	COMPARE_BEFORE_PROCESS = COMPARE_PROCESS - 1,
#define X(id, key, name, unit) COMPARE_##id,
	COMPARE_PROCESS_FIGURES(X)
#undef X
		COMPARE_FIGURE_CNT
};

enum compare_unit { COMPARE_UNIT_CNT, COMPARE_UNIT_NS, COMPARE_UNIT_BYTES };

/* Shorter times are noise by nature. */
enum { COMPARE_NOISY_MIN_NS = 1000000 };

/* p from which on two samples cannot be told apart. */
#define COMPARE_ALPHA 0.05

struct compare_stat {
	struct stats_interval value;
	double min, max, spread; /* spread: stats__spread */
	size_t outlier_cnt;
	/* Against the base; of the base itself all are 0 and is_same is true. */
	struct stats_interval difference; /* paired, in the figure's unit */
	struct stats_interval ratio;      /* paired; valid with has_ratio: the base was never 0 */
	bool has_ratio;
	double p;     /* Mann-Whitney, two-sided */
	bool is_same; /* p >= COMPARE_ALPHA: "~" */
};

struct comparison {
	size_t config_cnt, block_cnt, base;
	bool has_phases;                      /* counts and kernel times are of the phase "measured" */
	bool is_measured[COMPARE_FIGURE_CNT]; /* in every run */
	bool is_exact;                        /* every run that was traced */
	double *values;                       /* [block][config][figure] */
	struct compare_stat *stats;           /* [config][figure], after compare__finish */
	uint64_t *hists, *last_hists;         /* [config][class][bucket]: of all blocks but the last, and of that */
};

/* NULL when out of memory. */
struct comparison *compare__new(size_t config_cnt, size_t base, bool has_phases);
void compare__free(struct comparison *comparison);
/* Takes over the figures of a run; blocks begin in order, and may be added to in any. */
int compare__add(struct comparison *comparison, size_t block, size_t config, const struct profile *profile);
/* Forgets an unfinished last block and computes the statistics; there must be a block left. */
int compare__finish(struct comparison *comparison, size_t block_cnt, uint64_t seed);

/* For a comparison whose runs are known already: room for them, all 0; and each value. */
int compare__resize(struct comparison *comparison, size_t block_cnt);
void compare__set_value(struct comparison *comparison, size_t block, size_t config, enum compare_figure figure,
			double value);

/*
 * Whether the intervals of kernel time and wall time of every configuration
 * reach at most `percent` of the median to either side, as far as times are
 * long enough to mean something (COMPARE_NOISY_MIN_NS). 0 or -ENOMEM. Asks for no
 * differences: to stop when one is seen would find some where there are none.
 */
int compare__is_precise(const struct comparison *comparison, double percent, uint64_t seed, bool *is_precise);

double compare__value(const struct comparison *comparison, size_t block, size_t config, enum compare_figure figure);
const struct compare_stat *compare__stat(const struct comparison *comparison, size_t config,
					 enum compare_figure figure);
/* Durations of a class's calls, of all blocks and of the same phase as the counts; all 0 when they are not known. */
const uint64_t *compare__histogram(const struct comparison *comparison, size_t config, enum at_class class);
/* Adds durations of calls to them. */
void compare__add_histogram(struct comparison *comparison, size_t config, enum at_class class,
			    const uint64_t hist[AT_HIST_CNT]);
/* Measured, and not 0 in every run of every configuration. */
bool compare__occurs(const struct comparison *comparison, enum compare_figure figure);
/* No configuration can be told from the base. */
bool compare__is_same_in_all(const struct comparison *comparison, enum compare_figure figure);
/* Every run of every configuration gave the same value. */
bool compare__is_constant(const struct comparison *comparison, enum compare_figure figure);

/* -1 less, 1 more than the base, 0 when that is not certain: the test and the interval must agree. */
int compare__direction(const struct comparison *comparison, size_t config, enum compare_figure figure);
/* Configurations by rising median of a figure; equal ones in their own order. */
void compare__rank(const struct comparison *comparison, enum compare_figure figure, size_t *order);

/*
 * Effects in a full matrix, where configuration i has the policies of the bits
 * of i. Main effect of a policy: mean of the configurations with it minus mean
 * of those without. Interaction of two: half of what the second changes in the
 * first's effect. Median of the blocks, with its interval; first == second is
 * the main effect.
 */
int compare__effect(const struct comparison *comparison, enum compare_figure figure, uint32_t first, uint32_t second,
		    struct stats_interval *effect);

/* JSON key, name for people, and unit of a figure. Both texts are written to buf where they are composed. */
enum { COMPARE_NAME_BYTES = 64 };
const char *compare__key(enum compare_figure figure, char buf[COMPARE_NAME_BYTES]);
const char *compare__name(enum compare_figure figure, char buf[COMPARE_NAME_BYTES]);
enum compare_unit compare__unit(enum compare_figure figure);

#endif
