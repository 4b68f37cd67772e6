/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums, quantiles and names of a finished measurement. Pure arithmetic. */
#include "cli/profile.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/callchain.h"
#include "cli/processes.h"

struct profile *profile__new(void)
{
	struct profile *profile = calloc(1, sizeof(*profile));

	if (!profile)
		return NULL;
	snprintf(profile->version, sizeof(profile->version), "%s", AT_VERSION);
	profile->overcommit_memory = -1;
	return profile;
}

void profile__free(struct profile *profile)
{
	if (!profile)
		return;
	for (char **arg = profile->argv; arg && *arg; arg++)
		free(*arg);
	free(profile->argv);
	free(profile->tune);
	callchain__free(profile->callchains);
	if (profile->processes)
		processes__free(profile->processes);
	free(profile->processes);
	free(profile);
}

void profile__add_class(struct class_stat *dst, const struct class_stat *src)
{
	dst->call_cnt += src->call_cnt;
	dst->error_cnt += src->error_cnt;
	if (src->last_errno && (!dst->last_errno || src->last_errno_ns >= dst->last_errno_ns)) {
		dst->last_errno = src->last_errno;
		dst->last_errno_ns = src->last_errno_ns;
	}
	dst->bytes += src->bytes;
	dst->sum_ns += src->sum_ns;
	if (src->max_ns > dst->max_ns)
		dst->max_ns = src->max_ns;
	for (int i = 0; i < AT_HIST_CNT; i++)
		dst->hist[i] += src->hist[i];
}

void profile__add_commit(struct commit_stat *dst, const struct commit_stat *src)
{
	dst->charged_pages += src->charged_pages;
	dst->uncharged_pages += src->uncharged_pages;
	dst->update_cnt += src->update_cnt;
	for (int i = 0; i < AT_BATCH_CNT; i++)
		dst->past_cnt[i] += src->past_cnt[i];
	/* Each peak is one of all targets already. */
	if (src->peak_pages > dst->peak_pages)
		dst->peak_pages = src->peak_pages;
	dst->assumed_cnt += src->assumed_cnt;
	dst->assumed_pages += src->assumed_pages;
	dst->shared_pages += src->shared_pages;
	dst->checked_pages += src->checked_pages;
}

void profile__add_vmas(struct vma_stat *dst, const struct vma_stat *src)
{
	if (!src->start_ns)
		return;
	if (!dst->start_ns || src->start_ns < dst->start_ns) {
		dst->start_ns = src->start_ns;
		dst->start_cnt = src->start_cnt;
	}
	if (src->end_ns >= dst->end_ns) {
		dst->end_ns = src->end_ns;
		dst->end_cnt = src->end_cnt;
	}
	if (src->peak_cnt > dst->peak_cnt)
		dst->peak_cnt = src->peak_cnt;
	for (int class = 0; class < AT_CLASS_CNT; class ++)
		dst->growth[class] += src->growth[class];
}

void profile__add_refault(struct at_refault_ledger *dst, const struct at_refault_ledger *src)
{
	for (int i = 0; i < AT_RELEASE_CNT; i++) {
		dst->kinds[i].released_pages += src->kinds[i].released_pages;
		dst->kinds[i].release_ns += src->kinds[i].release_ns;
		dst->kinds[i].returned_pages += src->kinds[i].returned_pages;
		dst->kinds[i].refault_ns += src->kinds[i].refault_ns;
	}
	if (src->max_ns > dst->max_ns)
		dst->max_ns = src->max_ns;
	for (int i = 0; i < AT_HIST_CNT; i++)
		dst->hist[i] += src->hist[i];
}

static void add_wait(struct at_wait *dst, const struct at_wait *src)
{
	dst->cnt += src->cnt;
	dst->sum_ns += src->sum_ns;
	if (src->max_ns > dst->max_ns)
		dst->max_ns = src->max_ns;
}

void profile__add_locks(struct at_lock_ledger *dst, const struct at_lock_ledger *src)
{
	for (int i = 0; i < AT_LOCK_CNT; i++)
		add_wait(&dst->kinds[i], &src->kinds[i]);
	for (int i = 0; i < AT_CLASS_CNT; i++)
		add_wait(&dst->classes[i], &src->classes[i]);
}

void profile__add_stacks(struct at_stack_ledger *dst, const struct at_stack_ledger *src)
{
	dst->thread_cnt += src->thread_cnt;
	dst->foreign_cnt += src->foreign_cnt;
	dst->call_cnt += src->call_cnt;
	dst->call_ns += src->call_ns;
	dst->charged_pages += src->charged_pages;
	dst->uncharged_pages += src->uncharged_pages;
	dst->touched_pages += src->touched_pages;
	dst->huge_pages += src->huge_pages;
	dst->fault_ns += src->fault_ns;
}

static void profile__add_self(struct atm_sums *dst, const struct atm_sums *src)
{
	for (int i = 0; i < ATM_KIND_CNT; i++) {
		dst->call_cnt[i] += src->call_cnt[i];
		dst->error_cnt[i] += src->error_cnt[i];
	}
	for (int i = 0; i < ATM_DECISION_CNT; i++)
		dst->decision_cnt[i] += src->decision_cnt[i];
	for (int i = 0; i < ATM_BAND_CNT; i++) {
		dst->requests.malloc_cnt[i] += src->requests.malloc_cnt[i];
		dst->requests.free_cnt[i] += src->requests.free_cnt[i];
		dst->requests.realloc_cnt[i] += src->requests.realloc_cnt[i];
	}
}

void profile__total(const struct profile *profile, struct phase_stat *dst)
{
	*dst = (struct phase_stat){0};
	for (int phase = 0; phase < AT_PHASE_CNT; phase++) {
		for (int class = 0; class < AT_CLASS_CNT; class ++)
			profile__add_class(&dst->classes[class], &profile->phases[phase].classes[class]);
		profile__add_commit(&dst->commit, &profile->phases[phase].commit);
		profile__add_vmas(&dst->vmas, &profile->phases[phase].vmas);
		profile__add_refault(&dst->refault, &profile->phases[phase].refault);
		profile__add_locks(&dst->locks, &profile->phases[phase].locks);
		profile__add_stacks(&dst->stacks, &profile->phases[phase].stacks);
		profile__add_self(&dst->self, &profile->phases[phase].self);
	}
}

static uint64_t quantile_ns(const uint64_t hist[AT_HIST_CNT], uint64_t cnt, uint64_t max_ns, double q)
{
	double wanted = q * (double)cnt;
	uint64_t seen_cnt = 0, edge_ns;

	if (!cnt)
		return 0;
	for (int i = 0; i < AT_HIST_CNT - 1; i++) {
		seen_cnt += hist[i];
		if (!seen_cnt || (double)seen_cnt < wanted)
			continue;
		edge_ns = at_hist_upper_ns(i);
		return edge_ns < max_ns ? edge_ns : max_ns;
	}
	return max_ns;
}

uint64_t profile__quantile_ns(const struct class_stat *stat, double q)
{
	return quantile_ns(stat->hist, stat->call_cnt, stat->max_ns, q);
}

uint64_t profile__away_ns(const struct at_refault_ledger *refault, double q)
{
	uint64_t hist[AT_HIST_CNT]; /* the kernel's type of 64 bits has another name */

	for (int i = 0; i < AT_HIST_CNT; i++)
		hist[i] = refault->hist[i];
	return quantile_ns(hist, profile__refault_sum(refault).returned_pages, refault->max_ns, q);
}

struct refault_sum profile__refault_sum(const struct at_refault_ledger *refault)
{
	struct refault_sum sum = {0};

	for (int i = 0; i < AT_RELEASE_CNT; i++) {
		const struct at_refault *kind = &refault->kinds[i];
		double share = 0;

		/* What was released in an earlier phase may return in this one. */
		if (kind->released_pages)
			share = (double)kind->returned_pages / (double)kind->released_pages;
		sum.released_pages += kind->released_pages;
		sum.returned_pages += kind->returned_pages;
		sum.wasted_ns += kind->refault_ns + (uint64_t)((share < 1 ? share : 1) * (double)kind->release_ns);
	}
	return sum;
}

uint64_t profile__mean_ns(const struct class_stat *stat)
{
	return stat->call_cnt ? stat->sum_ns / stat->call_cnt : 0;
}

bool profile__is_exact(const struct profile *profile)
{
	for (int i = 0; i < AT_LOSS_CNT; i++)
		if (i != AT_LOSS_NEVER_RETURNED && profile->loss_cnt[i])
			return false;
	return !profile->recursion_miss_cnt;
}

const char *profile__class_name(enum at_class class)
{
#define X(id, name, sys) [AT_CLASS_##id] = name,
	static const char *const names[AT_CLASS_CNT] = { AT_CLASSES(X) };
#undef X

	return (unsigned)class < AT_CLASS_CNT ? names[class] : NULL;
}

const char *profile__syscall_name(enum at_syscall syscall)
{
#define X(id, name, nr, ia32, ia32_2) [AT_SYS_##id] = name,
	static const char *const names[AT_SYS_CNT] = { AT_SYSCALLS(X) };
#undef X

	return (unsigned)syscall < AT_SYS_CNT ? names[syscall] : NULL;
}

const char *profile__phase_name(enum at_phase phase)
{
	static const char *const names[AT_PHASE_CNT] = {
		[AT_PHASE_STARTUP] = "startup",
		[AT_PHASE_MEASURED] = "measured",
		[AT_PHASE_TEARDOWN] = "teardown",
	};

	return (unsigned)phase < AT_PHASE_CNT ? names[phase] : NULL;
}

const char *profile__batch_name(enum at_batch batch)
{
#define X(id, name) [AT_BATCH_##id] = name,
	static const char *const names[AT_BATCH_CNT] = {AT_BATCHES(X)};
#undef X

	return (unsigned)batch < AT_BATCH_CNT ? names[batch] : NULL;
}

const char *profile__lock_name(enum at_lock lock)
{
#define X(id, name) [AT_LOCK_##id] = name,
	static const char *const names[AT_LOCK_CNT] = {AT_LOCKS(X)};
#undef X

	return (unsigned)lock < AT_LOCK_CNT ? names[lock] : NULL;
}

const char *profile__release_name(enum at_release release)
{
#define X(id, name) [AT_RELEASE_##id] = name,
	static const char *const names[AT_RELEASE_CNT] = {AT_RELEASES(X)};
#undef X

	return (unsigned)release < AT_RELEASE_CNT ? names[release] : NULL;
}

const char *profile__ledger_name(int bit)
{
#define X(id, name) [LEDGER_##id##_BIT] = name,
	static const char *const names[LEDGER_CNT] = {LEDGERS(X)};
#undef X

	return (unsigned)bit < LEDGER_CNT ? names[bit] : NULL;
}

const char *profile__kind_name(enum atm_kind kind)
{
#define X(id, name) [ATM_KIND_##id] = name,
	static const char *const names[ATM_KIND_CNT] = {ATM_KINDS(X)};
#undef X

	return (unsigned)kind < ATM_KIND_CNT ? names[kind] : NULL;
}

enum at_syscall profile__class_syscall(enum at_class class)
{
#define X(id, name, sys) [AT_CLASS_##id] = AT_SYS_##sys,
	static const enum at_syscall syscalls[AT_CLASS_CNT] = { AT_CLASSES(X) };
#undef X

	return (unsigned)class < AT_CLASS_CNT ? syscalls[class] : AT_SYS_INVALID;
}
