/* SPDX-License-Identifier: BSD-2-Clause */
/* See render_requests.h. */
#include "cli/render_requests.h"

#include "cli/format.h"
#include "cli/json_part.h"
#include "cli/json_text.h"
#include "cli/render.h"

enum { NAMED_MAX = 4, COMM_TEXT = 4 * AT_COMM_BYTES + 1 };

struct request_costs {
	uint64_t call_cnt, call_ns, fault_ns;
};

static struct request_costs costs_of_phase(const struct phase_stat *phase)
{
	struct request_costs costs = {0};

	for (int class = 1; class < AT_CLASS_CNT; class ++) {
		const struct class_stat *stat = &phase->classes[class];

		if (class == AT_CLASS_MADVISE_PHASE)
			continue;
		if (profile__class_syscall(class) == AT_SYS_INVALID) {
			costs.fault_ns += stat->sum_ns;
			continue;
		}
		costs.call_cnt += stat->call_cnt;
		costs.call_ns += stat->sum_ns;
	}
	return costs;
}

static struct request_costs costs_of_process(const struct process_stat *item)
{
	struct usage calls, faults;

	processes__sum(item->classes, &calls, &faults);
	return (struct request_costs){calls.call_cnt, calls.sum_ns, faults.sum_ns};
}

static uint64_t request_cnt(const struct atm_requests *requests)
{
	return render__band_sum(requests->malloc_cnt) + render__band_sum(requests->free_cnt) +
	       render__band_sum(requests->realloc_cnt);
}

/* What was traced is that of the processes whose requests are known, and of nobody else. */
static bool is_whole(const struct profile *profile)
{
	const struct processes *processes = profile->processes;

	for (size_t i = 0; processes && i < processes->cnt; i++)
		if (processes->items[i].self_state != SELF_KNOWN)
			return false;
	return !processes || (!processes->rest_cnt && !processes->other_cnt);
}

static void print_costs(FILE *out, uint64_t cnt, const struct request_costs *costs)
{
	format__line(out, "", "per 1,000 requests: %.2f memory syscalls, %.2f us in them, %.2f us in faults",
		     (double)costs->call_cnt * 1e3 / (double)cnt, (double)costs->call_ns / (double)cnt,
		     (double)costs->fault_ns / (double)cnt);
}

static void print_decisions(FILE *out, const struct atm_sums *self)
{
	char cnt[FORMAT_BYTES];
	bool has_any = false;

	for (int decision = 0; decision < ATM_DECISION_CNT; decision++) {
		if (!self->decision_cnt[decision])
			continue;
		fprintf(out, has_any ? ", %s %s" : "decisions   %s %s", render__decision_name(decision),
			format__count(self->decision_cnt[decision], cnt));
		has_any = true;
	}
	if (has_any)
		fputc('\n', out);
}

static void print_sums(FILE *out, const char *label, const char *of, const struct atm_requests *requests)
{
	char a[FORMAT_BYTES], b[FORMAT_BYTES], c[FORMAT_BYTES];

	format__line(out, label, "malloc %s, free %s, realloc %s%s",
		     format__count(render__band_sum(requests->malloc_cnt), a),
		     format__count(render__band_sum(requests->free_cnt), b),
		     format__count(render__band_sum(requests->realloc_cnt), c), of);
}

/* The tracer is not there: what the allocator itself counted. */
static void print_own_calls(FILE *out, const struct atm_sums *self, uint64_t cnt)
{
	uint64_t call_cnt = 0;

	for (int kind = 0; kind < ATM_KIND_CNT; kind++)
		call_cnt += kind == ATM_KIND_MADVISE_PHASE ? 0 : self->call_cnt[kind];
	format__line(out, "", "%.2f memory syscalls per 1,000 requests", (double)call_cnt * 1e3 / (double)cnt);
}

/* Each process that has some, where the line above does not say it all. */
static void print_processes(FILE *out, const struct processes *processes, unsigned top_cnt)
{
	uint64_t shown_cnt = 0, left_cnt = 0;
	char comm[COMM_TEXT], of[COMM_TEXT + 32], text[FORMAT_BYTES];

	for (size_t i = 0; processes->cnt > 1 && i < processes->cnt; i++) {
		const struct process_stat *item = &processes->items[i];
		struct request_costs costs = costs_of_process(item);
		uint64_t cnt = request_cnt(&item->self.requests);

		if (item->self_state != SELF_KNOWN || !cnt)
			continue;
		if (top_cnt && shown_cnt == top_cnt) {
			left_cnt++;
			continue;
		}
		snprintf(of, sizeof(of), ", of %s (%d)", format__escape(item->comm, comm, sizeof(comm)),
			 (int)item->pid);
		print_sums(out, "", of, &item->self.requests);
		print_costs(out, cnt, &costs);
		shown_cnt++;
	}
	if (left_cnt)
		format__line(out, "", "and of %s processes more: --top 0 lists all", format__count(left_cnt, text));
}

/* Those whose requests are missing, by reason. */
static void print_missing(FILE *out, const struct processes *processes)
{
#define X(id, name, why) [SELF_##id] = why,
	static const char *const reasons[SELF_STATE_CNT] = {SELF_STATES(X)};
#undef X

	for (enum self_state state = SELF_KNOWN + 1; state < SELF_STATE_CNT; state++) {
		uint64_t cnt = 0;
		char comm[COMM_TEXT], text[FORMAT_BYTES];

		for (size_t i = 0; i < processes->cnt; i++) {
			const struct process_stat *item = &processes->items[i];

			if (item->self_state != state)
				continue;
			if (!cnt)
				fprintf(out, "%-*snot those of ", FORMAT_LABEL_WIDTH, "");
			if (cnt < NAMED_MAX)
				fprintf(out, "%s%s (%d)", cnt ? ", " : "",
					format__escape(item->comm[0] ? item->comm : "?", comm, sizeof(comm)),
					(int)item->pid);
			cnt++;
		}
		if (cnt > NAMED_MAX)
			fprintf(out, " and %s more", format__count(cnt - NAMED_MAX, text));
		if (cnt)
			fprintf(out, ": %s\n", reasons[state]);
	}
	if (processes->rest_cnt)
		format__line(out, "", "not those of processes that ended and were not kept");
}

static uint64_t missing_cnt(const struct processes *processes)
{
	uint64_t cnt = 0;

	for (size_t i = 0; i < processes->cnt; i++)
		cnt += processes->items[i].self_state > SELF_KNOWN;
	return cnt;
}

void render_requests__table(FILE *out, const struct profile *profile, const struct phase_stat *total, unsigned top_cnt)
{
	const struct phase_stat *phase = render__has_phases(profile) ? &profile->phases[AT_PHASE_MEASURED] : total;
	const struct request_costs costs = costs_of_phase(phase);
	uint64_t cnt = request_cnt(&phase->self.requests);

	if (profile->has_self_counts) {
		print_decisions(out, &phase->self);
		print_sums(out, "requests", "", &phase->self.requests);
		if (cnt && !profile->has_trace)
			print_own_calls(out, &phase->self, cnt);
		else if (cnt && is_whole(profile))
			print_costs(out, cnt, &costs);
	} else if (profile->processes && missing_cnt(profile->processes)) {
		format__line(out, "requests", "not known");
	} else {
		return;
	}
	if (!profile->processes)
		return;
	print_processes(out, profile->processes, top_cnt);
	print_missing(out, profile->processes);
}

/* Bands by the size up to which they go. */
static json_t *bands_object(const struct atm_requests *requests)
{
#define X(edge) #edge,
	static const char *const names[ATM_BAND_CNT] = {ATM_BANDS(X)};
#undef X
	json_t *bands = json_object();

	for (int band = 0; band < ATM_BAND_CNT; band++) {
		json_t *object;

		if (!requests->malloc_cnt[band] && !requests->free_cnt[band] && !requests->realloc_cnt[band])
			continue;
		object = json_object();
		json_part__set_number(object, "malloc", requests->malloc_cnt[band]);
		json_part__set_number(object, "free", requests->free_cnt[band]);
		json_part__set_number(object, "realloc", requests->realloc_cnt[band]);
		json_object_set_new(bands, band == ATM_BAND_CNT - 1 ? "above" : names[band], object);
	}
	return bands;
}

/* costs: NULL where they would be those of others, too. */
static void set_self(json_t *object, const struct atm_sums *self, const struct request_costs *costs)
{
	uint64_t cnt = request_cnt(&self->requests);
	json_t *requests = json_object(), *counts = json_object(), *errors = json_object(), *decisions = json_object();

	json_part__set_number(requests, "malloc", render__band_sum(self->requests.malloc_cnt));
	json_part__set_number(requests, "free", render__band_sum(self->requests.free_cnt));
	json_part__set_number(requests, "realloc", render__band_sum(self->requests.realloc_cnt));
	json_object_set_new(requests, "by_size", bands_object(&self->requests));
	if (costs && cnt) {
		json_object_set_new(requests, "syscalls_per_1000",
				    json_real((double)costs->call_cnt * 1e3 / (double)cnt));
		json_part__set_number(requests, "syscall_ns_per_1000",
				      (uint64_t)((double)costs->call_ns * 1e3 / (double)cnt));
		json_part__set_number(requests, "fault_ns_per_1000",
				      (uint64_t)((double)costs->fault_ns * 1e3 / (double)cnt));
	}
	for (int kind = 0; kind < ATM_KIND_CNT; kind++) {
		json_part__set_number(counts, profile__kind_name(kind), self->call_cnt[kind]);
		if (self->error_cnt[kind])
			json_part__set_number(errors, profile__kind_name(kind), self->error_cnt[kind]);
	}
	for (int decision = 0; decision < ATM_DECISION_CNT; decision++)
		if (self->decision_cnt[decision])
			json_part__set_number(decisions, render__decision_name(decision), self->decision_cnt[decision]);
	json_object_set_new(object, "requests", requests);
	json_object_set_new(object, "self_counts", counts);
	json_part__set_if_any(object, "self_errors", errors);
	json_part__set_if_any(object, "decisions", decisions);
}

void render_requests__phase_json(json_t *object, const struct profile *profile, const struct phase_stat *phase)
{
	const struct request_costs costs = costs_of_phase(phase);

	if (profile->has_self_counts)
		set_self(object, &phase->self, profile->has_trace && is_whole(profile) ? &costs : NULL);
}

void render_requests__process_json(json_t *object, const struct process_stat *item)
{
	const struct request_costs costs = costs_of_process(item);

	if (item->self_state == SELF_KNOWN)
		set_self(object, &item->self, &costs);
	else if (item->self_state != SELF_NONE)
		json_text__set(object, "requests_missing", processes__self_name(item->self_state));
}
