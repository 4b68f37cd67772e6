/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ledgers: which are kept, and the batches of the commit ledger. The kernel adds
 * a change of the commit account to a count of its own CPU, and takes a
 * global lock when that count passes the batch.
 */
#ifndef ALLOCTRACE_CLI_LEDGER_H
#define ALLOCTRACE_CLI_LEDGER_H

#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>

#include "bpf/event.h"
#include "cli/profile.h"

/* What batches and ledgers depend on. */
struct ledger_host {
	uint64_t ram_pages, cpu_cnt; /* CPUs that are present */
	int overcommit_memory;       /* vm.overcommit_memory */
	bool is_huge;                /* huge pages come without being asked for */
};

void ledger__read_host(struct ledger_host *host);
/*
 * In pages. KERNEL: the running kernel's own since 5.9, max(32, 2 x CPUs, RAM /
 * CPUs / 4), or RAM / CPUs / 256 in strict mode. FIXED: 2.6.37's, max(32, 2 x
 * CPUs). SCALED: that of the patch of 2011, RAM / (20 x CPUs).
 */
void ledger__batches(const struct ledger_host *host, uint64_t batches[AT_BATCH_CNT]);
/* Names with commas between, "all" or "none". False when a name is unknown. */
bool ledger__parse(const char *list, unsigned *ledgers);

/* "commit, vmas, ...": all that there are, for messages. */
const char *ledger__names(void);

/* Maps of the kernel side; only those of ledgers that are kept are valid. */
struct ledger_fds {
	int ledgers; /* commit and VMAs */
	int locks, refaults, stacks;
};

/* Adds what the maps hold to the profile, whose `ledgers` are valid. 0 or -errno. */
int ledger__collect(const struct ledger_fds *fds, int cpu_cnt, struct profile *profile);

#endif
