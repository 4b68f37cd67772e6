/* SPDX-License-Identifier: BSD-2-Clause */
/* Batches and names of ledgers; see ledger.h. */
#include "cli/ledger.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/host.h"

/* "0-3,8": how many numbers. */
static uint64_t count_list(const char *list)
{
	unsigned first, last;
	uint64_t cnt = 0;
	int bytes;

	while (sscanf(list, "%u%n", &first, &bytes) == 1) {
		list += bytes;
		last = first;
		if (sscanf(list, "-%u%n", &last, &bytes) == 1)
			list += bytes;
		cnt += last - first + 1;
		if (*list++ != ',')
			break;
	}
	return cnt;
}

void ledger__read_host(struct ledger_host *host)
{
	char line[4096];

	*host = (struct ledger_host){.ram_pages = sysconf(_SC_PHYS_PAGES)};
	if (!host__read_line("/sys/devices/system/cpu/present", line, sizeof(line)))
		host->cpu_cnt = count_list(line);
	if (!host->cpu_cnt)
		host->cpu_cnt = sysconf(_SC_NPROCESSORS_CONF);
	if (!host__read_line("/proc/sys/vm/overcommit_memory", line, sizeof(line)))
		sscanf(line, "%d", &host->overcommit_memory);
	host->is_huge = !host__read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line)) &&
			strstr(line, "[always]");
}

void ledger__batches(const struct ledger_host *host, uint64_t batches[AT_BATCH_CNT])
{
	uint64_t fixed = host->cpu_cnt > 16 ? 2 * host->cpu_cnt : 32;
	uint64_t sized = host->ram_pages / host->cpu_cnt / (host->overcommit_memory == 2 ? 256 : 4);

	if (sized > INT32_MAX)
		sized = INT32_MAX; /* the kernel's counter has an int */
	batches[AT_BATCH_FIXED] = fixed;
	batches[AT_BATCH_KERNEL] = sized > fixed ? sized : fixed;
	batches[AT_BATCH_SCALED] = host->ram_pages / (20 * host->cpu_cnt);
}

static unsigned ledger_bit(const char *name, size_t bytes)
{
	if (bytes == 3 && memcmp(name, "all", bytes) == 0)
		return LEDGER_ALL;
#define X(id, word)                                                      \
	if (bytes == sizeof(word) - 1 && memcmp(name, word, bytes) == 0) \
		return LEDGER_##id;
	LEDGERS(X)
#undef X
	return 0;
}

const char *ledger__names(void)
{
#define X(id, word) ", " word
	static const char names[] = "" LEDGERS(X);
#undef X

	return names + 2;
}

bool ledger__parse(const char *list, unsigned *ledgers)
{
	*ledgers = 0;
	if (strcmp(list, "none") == 0)
		return true;
	for (const char *at = list;; at++) {
		size_t bytes = strcspn(at, ",");
		unsigned bit = ledger_bit(at, bytes);

		if (!bit)
			return false;
		*ledgers |= bit;
		at += bytes;
		if (!*at)
			return true;
	}
}

static void add_commit(struct commit_stat *dst, const struct at_ledger *src)
{
	struct commit_stat part = {
		.charged_pages = src->charged_pages,
		.uncharged_pages = src->uncharged_pages,
		.update_cnt = src->update_cnt,
		.peak_pages = src->peak_pages,
		.assumed_cnt = src->assumed_cnt,
		.assumed_pages = src->assumed_pages,
		.shared_pages = src->shared_pages,
		.checked_pages = src->checked_pages,
	};

	memcpy(part.past_cnt, src->past_cnt, sizeof(part.past_cnt));
	profile__add_commit(dst, &part);
}

static void add_vmas(struct vma_stat *dst, const struct at_ledger *src)
{
	struct vma_stat part = {
		.start_ns = src->vma_first_ns,
		.start_cnt = src->vma_first,
		.end_ns = src->vma_last_ns,
		.end_cnt = src->vma_last,
		.peak_cnt = src->vma_peak,
	};

	memcpy(part.growth, src->vma_growth, sizeof(part.growth));
	profile__add_vmas(dst, &part);
}

union ledger_value {
	struct at_ledger ledger;
	struct at_lock_ledger locks;
	struct at_refault_ledger refault;
	struct at_stack_ledger stacks;
};

static void add_ledger(struct phase_stat *phase, const void *value)
{
	add_commit(&phase->commit, value);
	add_vmas(&phase->vmas, value);
}

static void add_locks(struct phase_stat *phase, const void *value)
{
	profile__add_locks(&phase->locks, value);
}

static void add_refault(struct phase_stat *phase, const void *value)
{
	profile__add_refault(&phase->refault, value);
}

static void add_stacks(struct phase_stat *phase, const void *value)
{
	profile__add_stacks(&phase->stacks, value);
}

int ledger__collect(const struct ledger_fds *fds, int cpu_cnt, struct profile *profile)
{
	const struct {
		unsigned ledgers;
		int fd;
		size_t value_bytes;
		void (*add)(struct phase_stat *phase, const void *value);
	} maps[] = {
		{LEDGER_COMMIT | LEDGER_VMAS, fds->ledgers, sizeof(struct at_ledger), add_ledger},
		{LEDGER_LOCKS, fds->locks, sizeof(struct at_lock_ledger), add_locks},
		{LEDGER_REFAULT, fds->refaults, sizeof(struct at_refault_ledger), add_refault},
		{LEDGER_STACKS, fds->stacks, sizeof(struct at_stack_ledger), add_stacks},
	};
	union ledger_value *values = calloc((size_t)cpu_cnt, sizeof(*values));
	char line[32];
	int err = values ? 0 : -ENOMEM;

	for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++)
		for (uint32_t phase = 0; !err && phase < AT_PHASE_CNT && profile->ledgers & maps[i].ledgers; phase++) {
			err = bpf_map_lookup_elem(maps[i].fd, &phase, values);
			for (int cpu = 0; !err && cpu < cpu_cnt; cpu++)
				maps[i].add(&profile->phases[phase],
					    (const char *)values + (size_t)cpu * maps[i].value_bytes);
		}
	free(values);
	if (profile->ledgers & LEDGER_VMAS && !host__read_line("/proc/sys/vm/max_map_count", line, sizeof(line)))
		profile->max_map_cnt = strtoull(line, NULL, 10);
	return err;
}
