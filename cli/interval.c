/* SPDX-License-Identifier: BSD-2-Clause */
/* Differences of profiles; see interval.h. */
#include "cli/interval.h"

static void since(uint64_t *now, const uint64_t *before, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++)
		now[i] = now[i] > before[i] ? now[i] - before[i] : 0;
}

static void class_since(struct class_stat *now, const struct class_stat *before)
{
	uint64_t upper_ns = 0;

	since(&now->call_cnt, &before->call_cnt, 1);
	since(&now->error_cnt, &before->error_cnt, 1);
	since(&now->bytes, &before->bytes, 1);
	since(&now->sum_ns, &before->sum_ns, 1);
	since(now->hist, before->hist, AT_HIST_CNT);
	if (!now->error_cnt)
		now->last_errno = 0;
	for (int i = 0; i < AT_HIST_CNT; i++)
		if (now->hist[i])
			upper_ns = i == AT_HIST_CNT - 1 ? now->max_ns : at_hist_upper_ns(i);
	if (upper_ns < now->max_ns)
		now->max_ns = upper_ns;
}

static void commit_since(struct commit_stat *now, const struct commit_stat *before)
{
	since(&now->charged_pages, &before->charged_pages, 1);
	since(&now->uncharged_pages, &before->uncharged_pages, 1);
	since(&now->update_cnt, &before->update_cnt, 1);
	since(now->past_cnt, before->past_cnt, AT_BATCH_CNT);
	since(&now->assumed_cnt, &before->assumed_cnt, 1);
	since(&now->assumed_pages, &before->assumed_pages, 1);
	since(&now->shared_pages, &before->shared_pages, 1);
}

static void waits_since(struct at_wait *now, const struct at_wait *before, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++) {
		now[i].cnt = now[i].cnt > before[i].cnt ? now[i].cnt - before[i].cnt : 0;
		now[i].sum_ns = now[i].sum_ns > before[i].sum_ns ? now[i].sum_ns - before[i].sum_ns : 0;
	}
}

/* Structures of nothing but sums. */
static void sums_since(void *now, const void *before, size_t bytes)
{
	since(now, before, bytes / sizeof(uint64_t));
}

static void ledgers_since(struct phase_stat *now, const struct phase_stat *before)
{
	commit_since(&now->commit, &before->commit);
	sums_since(now->refault.kinds, before->refault.kinds, sizeof(now->refault.kinds));
	sums_since(now->refault.hist, before->refault.hist, sizeof(now->refault.hist));
	sums_since(&now->stacks, &before->stacks, sizeof(now->stacks));
	waits_since(now->locks.kinds, before->locks.kinds, AT_LOCK_CNT);
	waits_since(now->locks.classes, before->locks.classes, AT_CLASS_CNT);
}

void interval__since(struct profile *now, const struct profile *before)
{
	for (int phase = 0; phase < AT_PHASE_CNT; phase++) {
		struct phase_stat *dst = &now->phases[phase];
		const struct phase_stat *src = &before->phases[phase];

		for (int class = 0; class < AT_CLASS_CNT; class ++) {
			class_since(&dst->classes[class], &src->classes[class]);
			dst->vmas.growth[class] -= src->vmas.growth[class];
		}
		ledgers_since(dst, src);
	}
	since(now->loss_cnt, before->loss_cnt, AT_LOSS_CNT);
	since(&now->recursion_miss_cnt, &before->recursion_miss_cnt, 1);
	since(now->early_flight_cnt, before->early_flight_cnt, AT_SYS_CNT);
	since(now->compat_cnt, before->compat_cnt, AT_SYS_CNT);
	since(now->advice_cnt, before->advice_cnt, AT_ADVICE_CNT);
	since(&now->bpf_run_cnt, &before->bpf_run_cnt, 1);
	since(&now->bpf_ns, &before->bpf_ns, 1);
}
