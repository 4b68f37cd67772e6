/* SPDX-License-Identifier: BSD-2-Clause */
/* The ledgers in the JSON report; their keys are in docs/output.md. */
#include <jansson.h>

#include "cli/json_part.h"
#include "cli/render_json.h"

static void set_signed(json_t *object, const char *key, int64_t value)
{
	json_object_set_new(object, key, json_integer(value));
}

static json_t *commit_object(const struct profile *profile, const struct commit_stat *commit)
{
	json_t *object = json_object(), *batches = json_object();

	json_part__set_number(object, "charged_pages", commit->charged_pages);
	json_part__set_number(object, "uncharged_pages", commit->uncharged_pages);
	set_signed(object, "net_pages", profile__net_pages(commit));
	json_part__set_number(object, "peak_pages", commit->peak_pages);
	json_part__set_number(object, "updates", commit->update_cnt);
	for (int batch = 0; batch < AT_BATCH_CNT; batch++)
		json_object_set_new(batches, profile__batch_name(batch),
				    json_pack("{s:o, s:o}", "pages", json_part__number(profile->batch_pages[batch]),
					      "past", json_part__number(commit->past_cnt[batch])));
	json_object_set_new(object, "batches", batches);
	json_part__set_number(object, "assumed_calls", commit->assumed_cnt);
	json_part__set_number(object, "assumed_pages", commit->assumed_pages);
	json_part__set_number(object, "shared_pages", commit->shared_pages);
	if (profile->has_charge_check)
		json_part__set_number(object, "checked_pages", commit->checked_pages);
	return object;
}

static json_t *vmas_object(const struct profile *profile, const struct vma_stat *vmas)
{
	json_t *object = json_object(), *growth = json_object();

	if (vmas->start_ns) {
		json_part__set_number(object, "start", vmas->start_cnt);
		json_part__set_number(object, "peak", vmas->peak_cnt);
		json_part__set_number(object, "end", vmas->end_cnt);
	}
	if (profile->max_map_cnt)
		json_part__set_number(object, "max_map_count", profile->max_map_cnt);
	for (int class = 1; class < AT_CLASS_CNT; class ++)
		if (vmas->growth[class])
			set_signed(growth, profile__class_name(class), vmas->growth[class]);
	json_object_set_new(object, "growth", growth);
	return object;
}

/* Pages that came back, by the upper edge of their bucket. */
static json_t *away_histogram(const struct at_refault_ledger *refault)
{
	json_t *buckets = json_array();

	for (uint32_t i = 0; i < AT_HIST_CNT; i++)
		if (refault->hist[i])
			json_array_append_new(buckets, json_pack("[o, o]", json_part__number(at_hist_upper_ns(i)),
								 json_part__number(refault->hist[i])));
	return buckets;
}

static json_t *refault_object(const struct at_refault_ledger *refault)
{
	struct refault_sum sum = profile__refault_sum(refault);
	json_t *object = json_object(), *kinds = json_object();

	json_part__set_number(object, "released_pages", sum.released_pages);
	json_part__set_number(object, "returned_pages", sum.returned_pages);
	json_part__set_number(object, "wasted_ns", sum.wasted_ns);
	for (int i = 0; i < AT_RELEASE_CNT; i++) {
		const struct at_refault *kind = &refault->kinds[i];

		json_object_set_new(kinds, profile__release_name(i),
				    json_pack("{s:o, s:o, s:o, s:o}", "released_pages",
					      json_part__number(kind->released_pages), "returned_pages",
					      json_part__number(kind->returned_pages), "release_ns",
					      json_part__number(kind->release_ns), "refault_ns",
					      json_part__number(kind->refault_ns)));
	}
	json_object_set_new(object, "kinds", kinds);
	if (!sum.returned_pages)
		return object;
	json_part__set_number(object, "away_p50_ns", profile__away_ns(refault, 0.50));
	json_part__set_number(object, "away_p90_ns", profile__away_ns(refault, 0.90));
	json_part__set_number(object, "away_p99_ns", profile__away_ns(refault, 0.99));
	json_part__set_number(object, "away_max_ns", refault->max_ns);
	json_object_set_new(object, "away_histogram", away_histogram(refault));
	return object;
}

static json_t *locks_object(const struct at_lock_ledger *locks)
{
	json_t *object = json_object();

	for (int i = 0; i < AT_LOCK_CNT; i++)
		json_object_set_new(object, profile__lock_name(i),
				    json_pack("{s:o, s:o, s:o}", "waits", json_part__number(locks->kinds[i].cnt),
					      "wait_ns", json_part__number(locks->kinds[i].sum_ns), "max_ns",
					      json_part__number(locks->kinds[i].max_ns)));
	return object;
}

static json_t *stacks_object(const struct profile *profile, const struct at_stack_ledger *stacks)
{
	json_t *object = json_object();

	json_part__set_number(object, "threads", stacks->thread_cnt);
	json_part__set_number(object, "foreign_threads", stacks->foreign_cnt);
	json_part__set_number(object, "calls", stacks->call_cnt);
	json_part__set_number(object, "call_ns", stacks->call_ns);
	if (profile->ledgers & LEDGER_COMMIT) {
		json_part__set_number(object, "charged_pages", stacks->charged_pages);
		json_part__set_number(object, "uncharged_pages", stacks->uncharged_pages);
	}
	if (profile->has_faults) {
		json_part__set_number(object, "touched_pages", stacks->touched_pages);
		json_part__set_number(object, "huge_pages", stacks->huge_pages);
		json_part__set_number(object, "fault_ns", stacks->fault_ns);
	}
	return object;
}

void render_json__set_ledgers(json_t *object, const struct profile *profile, const struct phase_stat *phase)
{
	if (profile->ledgers & LEDGER_COMMIT)
		json_object_set_new(object, "commit", commit_object(profile, &phase->commit));
	if (profile->ledgers & LEDGER_VMAS)
		json_object_set_new(object, "vmas", vmas_object(profile, &phase->vmas));
	if (profile->ledgers & LEDGER_REFAULT)
		json_object_set_new(object, "refault", refault_object(&phase->refault));
	if (profile->ledgers & LEDGER_LOCKS)
		json_object_set_new(object, "locks", locks_object(&phase->locks));
	if (profile->ledgers & LEDGER_STACKS)
		json_object_set_new(object, "stacks", stacks_object(profile, &phase->stacks));
}

void render_json__set_waits(json_t *classes, const struct profile *profile, const struct phase_stat *phase)
{
	for (int class = 1; class < AT_CLASS_CNT && profile->ledgers & LEDGER_LOCKS; class ++) {
		json_t *object = json_object_get(classes, profile__class_name(class));

		if (!object)
			continue;
		json_part__set_number(object, "lock_waits", phase->locks.classes[class].cnt);
		json_part__set_number(object, "lock_wait_ns", phase->locks.classes[class].sum_ns);
		json_part__set_number(object, "lock_wait_max_ns", phase->locks.classes[class].max_ns);
	}
}
