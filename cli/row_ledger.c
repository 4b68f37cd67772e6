/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums and differences; see row_ledger.h. */
#include "cli/row_ledger.h"

#include <stddef.h>

/* The parts that are nothing but sums: 64-bit numbers throughout. */
static void each(void *dst, const void *src, size_t bytes, bool is_less)
{
	__u64 *to = dst;
	const __u64 *from = src;

	for (size_t i = 0; i < bytes / sizeof(*to); i++)
		to[i] = !is_less ? to[i] + from[i] : to[i] > from[i] ? to[i] - from[i] : 0;
}

static void combine(struct at_row_ledger *dst, const struct at_row_ledger *src, bool is_less)
{
	each(&dst->charged_pages, &src->charged_pages, sizeof(dst->charged_pages), is_less);
	each(&dst->uncharged_pages, &src->uncharged_pages, sizeof(dst->uncharged_pages), is_less);
	each(&dst->update_cnt, &src->update_cnt, sizeof(dst->update_cnt), is_less);
	each(dst->refaults, src->refaults, sizeof(dst->refaults), is_less);
	each(&dst->stacks, &src->stacks, sizeof(dst->stacks), is_less);
	for (int i = 0; i < AT_LOCK_CNT; i++) {
		each(&dst->locks[i].cnt, &src->locks[i].cnt, sizeof(dst->locks[i].cnt), is_less);
		each(&dst->locks[i].sum_ns, &src->locks[i].sum_ns, sizeof(dst->locks[i].sum_ns), is_less);
	}
}

static void keep_max(__u64 *max, __u64 value)
{
	if (value > *max)
		*max = value;
}

void row_ledger__add(struct at_row_ledger *dst, const struct at_row_ledger *src)
{
	combine(dst, src, false);
	keep_max(&dst->peak_pages, src->peak_pages);
	for (int i = 0; i < AT_LOCK_CNT; i++)
		keep_max(&dst->locks[i].max_ns, src->locks[i].max_ns);
	if (!src->vma_first_ns)
		return;
	if (!dst->vma_first_ns || src->vma_first_ns < dst->vma_first_ns) {
		dst->vma_first_ns = src->vma_first_ns;
		dst->vma_first = src->vma_first;
	}
	if (src->vma_last_ns >= dst->vma_last_ns) {
		dst->vma_last_ns = src->vma_last_ns;
		dst->vma_last = src->vma_last;
	}
	keep_max(&dst->vma_peak, src->vma_peak);
}

void row_ledger__since(struct at_row_ledger *now, const struct at_row_ledger *before)
{
	combine(now, before, true);
}

bool row_ledger__has_any(const struct at_row_ledger *ledger)
{
	const __u64 *numbers = (const __u64 *)ledger;

	for (size_t i = 0; i < sizeof(*ledger) / sizeof(*numbers); i++)
		if (numbers[i])
			return true;
	return false;
}

struct at_wait row_ledger__waits(const struct at_row_ledger *ledger)
{
	struct at_wait sum = {0};

	for (int i = 0; i < AT_LOCK_CNT; i++) {
		sum.cnt += ledger->locks[i].cnt;
		sum.sum_ns += ledger->locks[i].sum_ns;
		keep_max(&sum.max_ns, ledger->locks[i].max_ns);
	}
	return sum;
}
