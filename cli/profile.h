/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A finished measurement as pure data. Filled by the collectors (tracer,
 * counters, target), read by the renderers; knows neither. No I/O here.
 */
#ifndef ALLOCTRACE_CLI_PROFILE_H
#define ALLOCTRACE_CLI_PROFILE_H

#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "alloc/control.h"
#include "bpf/event.h"

/* One class in one phase, summed over CPUs. */
struct class_stat {
	uint64_t call_cnt, error_cnt;
	int last_errno;         /* positive, 0 = no error seen */
	uint64_t last_errno_ns; /* kernel's monotonic clock; orders last_errno when summing */
	uint64_t bytes;         /* of the calls that succeeded */
	uint64_t sum_ns, max_ns;
	uint64_t hist[AT_HIST_CNT];
};

/* The ledgers: X(id, name). */
#define LEDGERS(X)            \
	X(COMMIT, "commit")   \
	X(VMAS, "vmas")       \
	X(REFAULT, "refault") \
	X(LOCKS, "locks")     \
	X(STACKS, "stacks")

#define X(id, name) LEDGER_##id##_BIT,
enum { LEDGERS(X) LEDGER_CNT };
#undef X
#define X(id, name) LEDGER_##id = 1 << LEDGER_##id##_BIT,
enum { LEDGERS(X) LEDGER_ALL = (1 << LEDGER_CNT) - 1 };
#undef X

/* The commit ledger of one phase, in pages. */
struct commit_stat {
	uint64_t charged_pages, uncharged_pages;
	uint64_t update_cnt, past_cnt[AT_BATCH_CNT]; /* past: larger than the batch */
	uint64_t peak_pages;                         /* all targets together */
	uint64_t assumed_cnt, assumed_pages;         /* calls, and pages, that are in part a guess */
	uint64_t shared_pages;                       /* of shared anonymous mappings; in no other field */
	uint64_t checked_pages;                      /* of either kind, by the kernel's own check: only in tier 2 */
};

/* The VMA ledger of one phase. Times order start and end when summing. */
struct vma_stat {
	uint64_t start_ns, start_cnt, end_ns, end_cnt;
	uint64_t peak_cnt; /* of one process */
	int64_t growth[AT_CLASS_CNT];
};

/* What one phase, or the whole run, amounts to. */
struct phase_stat {
	struct class_stat classes[AT_CLASS_CNT];
	struct commit_stat commit; /* valid with LEDGER_COMMIT in profile.ledgers */
	struct vma_stat vmas;      /* valid with LEDGER_VMAS */
	/* Valid with LEDGER_REFAULT, _LOCKS and _STACKS: the kernel side's sums as they are. */
	struct at_refault_ledger refault;
	struct at_lock_ledger locks;
	struct at_stack_ledger stacks;
	struct atm_sums self; /* valid with profile.has_self_counts */
};

struct callchains;
struct processes;

struct profile {
	/* tool; each member has a line in profile_fields.c */
	char version[32];      /* of the alloctrace that measured */
	int tier;              /* 2, 1, 0 */
	bool has_trace;        /* classes are measured (tier >= 1) */
	bool has_faults;       /* the fault classes are measured, too */
	bool has_charge_check; /* commit_stat.checked_pages is */
	unsigned ledgers;      /* LEDGER_*: those that were kept */
	bool has_self_counts;
	uint64_t self_process_cnt; /* processes whose self-counts are in */
	uint64_t loss_cnt[AT_LOSS_CNT];
	uint64_t recursion_miss_cnt;           /* program runs that the kernel skipped */
	uint64_t early_flight_cnt[AT_SYS_CNT]; /* inside a call when tracing began; in no class */
	uint64_t in_flight_cnt[AT_SYS_CNT];    /* still inside a call at the end */
	uint64_t compat_cnt[AT_SYS_CNT];       /* 32-bit calls, not decoded */
	uint64_t advice_cnt[AT_ADVICE_CNT];    /* madvise.other by advice */
	uint64_t lock_miss_cnt;                /* waits that the lock ledger may lack */
	uint64_t commit_start_pages;           /* charged by targets before they were traced */
	uint64_t bpf_run_cnt, bpf_ns;          /* self cost; 0 runs = not known */
	bool is_bpf_measured;                  /* by BPF_ENABLE_STATS, not runs x calibration */
	char advice[256];                      /* how to get what is missing, "" = nothing to say */

	/* host */
	char kernel[128];
	int cpu_cnt;
	uint64_t page_bytes, ram_pages;
	char thp[16];          /* always, madvise, never; "" = not known */
	int overcommit_memory; /* -1 = not known */
	uint64_t batch_pages[AT_BATCH_CNT];
	uint64_t max_map_cnt; /* 0 = not known */

	/* target */
	char **argv; /* NULL-terminated, owned */
	pid_t pid;
	char allocator[64]; /* as given: bundled, system, ..., or a path */
	bool has_policy;    /* policy and tune are in force in the target */
	uint32_t policy;    /* POLICY_* */
	char *tune;         /* as given to --tune, owned; NULL = none */
	bool has_exit;
	int exit_status; /* valid when exit_signal == 0 */
	int exit_signal;
	char note[256]; /* why policies do not apply, "" = they do */

	struct processes *processes; /* of an attached target, owned; NULL = no breakdown */

	/* rusage of the child and its waited-for descendants */
	uint64_t wall_ns, user_ns, sys_ns;
	uint64_t max_rss_bytes, minor_fault_cnt, major_fault_cnt;
	uint64_t final_rss_bytes; /* most that one of them held when it asked to end; 0 = not known */

	bool is_tree_asked;            /* callchains belong to the table, too */
	struct callchains *callchains; /* owned; NULL = not kept. See cli/callchain.h */

	uint32_t phases_seen; /* bit p: some process marked or was in phase p */
	struct phase_stat phases[AT_PHASE_CNT];
};

/* Allocates a zeroed profile (it is large); NULL when out of memory. */
struct profile *profile__new(void);
/* Frees the profile and all it owns. NULL-safe. */
void profile__free(struct profile *profile);

/* Adds src to dst, histogram included. */
void profile__add_class(struct class_stat *dst, const struct class_stat *src);
void profile__add_commit(struct commit_stat *dst, const struct commit_stat *src);
void profile__add_vmas(struct vma_stat *dst, const struct vma_stat *src);
void profile__add_refault(struct at_refault_ledger *dst, const struct at_refault_ledger *src);
void profile__add_locks(struct at_lock_ledger *dst, const struct at_lock_ledger *src);
void profile__add_stacks(struct at_stack_ledger *dst, const struct at_stack_ledger *src);
/* Sum of all phases; dst is overwritten. */
void profile__total(const struct profile *profile, struct phase_stat *dst);
/*
 * Upper edge, in ns, of the histogram bucket that holds quantile q (0 < q <= 1),
 * never above max_ns; 0 when there are no calls. Relative error <= 12.5 %.
 */
uint64_t profile__quantile_ns(const struct class_stat *stat, double q);
/* The same for the times until released pages came back. */
uint64_t profile__away_ns(const struct at_refault_ledger *refault, double q);
/*
 * Sum over all kinds of release. Wasted is the time of the faults that brought
 * pages back, and of the calls that had released them as much as those pages are of
 * all that they released.
 */
struct refault_sum {
	uint64_t released_pages, returned_pages, wasted_ns;
};
struct refault_sum profile__refault_sum(const struct at_refault_ledger *refault);
/* Mean duration in ns, 0 when there are no calls. */
uint64_t profile__mean_ns(const struct class_stat *stat);
/* Nothing was lost: every loss but never_returned is 0, no recursion misses. */
bool profile__is_exact(const struct profile *profile);

/* Pages that the targets had charged at the end more than at the start. */
static inline int64_t profile__net_pages(const struct commit_stat *commit)
{
	return (int64_t)(commit->charged_pages - commit->uncharged_pages);
}

/* Names from the X-macro lists; NULL for an invalid number. */
const char *profile__class_name(enum at_class class);
const char *profile__syscall_name(enum at_syscall syscall);
const char *profile__phase_name(enum at_phase phase);
const char *profile__batch_name(enum at_batch batch);
const char *profile__kind_name(enum atm_kind kind);
const char *profile__lock_name(enum at_lock lock);
const char *profile__release_name(enum at_release release);
const char *profile__ledger_name(int bit);
/* The syscall that a class belongs to; AT_SYS_INVALID for faults. */
enum at_syscall profile__class_syscall(enum at_class class);

#endif
