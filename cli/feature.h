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
	struct feature btf;         /* /sys/kernel/btf/vmlinux is readable */
	struct feature bpf;         /* a trivial program loads */
	struct feature tp_btf;      /* BTF tracepoints load */
	struct feature fault_event; /* software perf events take a BPF program */
	struct feature fentry;      /* trampolines attach (tier 2) */
	struct feature task_storage;
	struct feature vma_iter;      /* programs can walk over VMAs */
	struct feature pid_namespace; /* our process numbers are the kernel's own */
	int pid_max;
	int best_tier; /* 2 is not built yet: never above 1 */
};

/* Tries everything. Prints nothing; cannot fail (a failure is a finding). */
void feature__probe(struct features *features);

/*
 * Writes into buf one sentence that says why no tier above `tier` can be had
 * here and what would have to change; "" when there is no better tier.
 */
void feature__advice(const struct features *features, int tier, char *buf, size_t buf_bytes);

#endif
