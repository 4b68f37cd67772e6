/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What this kernel and these privileges allow, found by trying, asked once.
 * Never compares version numbers.
 */
#ifndef ALLOCTRACE_CLI_FEATURE_H
#define ALLOCTRACE_CLI_FEATURE_H

#include <stdbool.h>
#include <stddef.h>

struct feature {
	bool is_ok;
	int err;       /* positive errno of the attempt when !is_ok */
	char why[160]; /* "" when is_ok; else the reason in words */
};

struct features {
	struct feature btf;             /* /sys/kernel/btf/vmlinux is readable */
	struct feature bpf;             /* a trivial program loads */
	struct feature kernel_read;     /* programs may read kernel memory */
	struct feature tp_btf;          /* BTF tracepoints load */
	struct feature fault_event;     /* software perf events take a BPF program */
	struct feature fentry;          /* programs attach to kernel functions (tier 2), and these are there: */
	struct feature fault_function;  /* handle_mm_fault() */
	struct feature charge_function; /* __vm_enough_memory() */
	struct feature task_storage;
	struct feature vma_iter;      /* programs can walk over VMAs */
	struct feature lock_events;   /* waits for locks have tracepoints */
	struct feature task_iter;     /* programs can walk over tasks */
	struct feature pid_namespace; /* our process numbers are the kernel's own, or can be translated */
	bool is_own_pid_namespace;    /* they are not: they must be */
	int pid_max;
	int best_tier;
};

/* Groups of a report's columns: X(id, name). */
#define FEATURE_COLUMNS(X)                          \
	X(CALLS, "memory syscalls by class")        \
	X(FAULTS, "page faults")                    \
	X(COMMIT, "commit, VMA, stack ledgers")     \
	X(REFAULT, "refault ledger")                \
	X(LOCKS, "lock ledger")                     \
	X(CHECK, "charges, as the kernel checks")   \
	X(BYSTANDERS, "no cost for other programs") \
	X(REQUESTS, "the allocator's own counts")

#define X(id, name) FEATURE_COLUMN_##id,
enum feature_column { FEATURE_COLUMNS(X) FEATURE_COLUMN_CNT };
#undef X

/* Tries everything. Prints nothing; cannot fail (a failure is a finding). */
void feature__probe(struct features *features);

/* has[i] = the kernel has a function of that name that programs may attach to, as far as BTF says. 0 or -errno. */
int feature__find_functions(const char *const *names, size_t cnt, bool *has);

/*
 * Writes into buf one sentence that says why no tier above `tier` can be had
 * here and what would have to change; "" when there is no better tier.
 */
void feature__advice(const struct features *features, int tier, char *buf, size_t buf_bytes);

/* From findings, however they were come by: the best tier they allow. */
int feature__best_tier(const struct features *features);
/* Writes into buf "yes", "in part: WHY" or "no: WHY": whether the best tier has these columns. */
void feature__column(const struct features *features, enum feature_column column, char *buf, size_t buf_bytes);
const char *feature__column_name(enum feature_column column);

#endif
