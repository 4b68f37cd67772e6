/* SPDX-License-Identifier: BSD-2-Clause */
/* Ledgers by process as a table, by process and thread as JSON; see render_row_ledgers.h. */
#include "cli/render_row_ledgers.h"

#include "cli/format.h"
#include "cli/json_part.h"
#include "cli/profile.h"
#include "cli/row_ledger.h"

static struct refault_sum refaults(const struct at_row_ledger *ledger)
{
	struct at_refault_ledger all = {0};

	for (int i = 0; i < AT_RELEASE_CNT; i++)
		all.kinds[i] = ledger->refaults[i];
	return profile__refault_sum(&all);
}

static void print_head(FILE *out, unsigned ledgers, bool has_color)
{
	fprintf(out, "\n%s%-10s %-18s", has_color ? "\033[1m" : "", "pid", "ledgers of");
	if (ledgers & LEDGER_COMMIT)
		fprintf(out, " %12s %12s %12s", "charged", "uncharged", "peak pages");
	if (ledgers & LEDGER_VMAS)
		fprintf(out, " %8s %8s", "VMAs", "peak");
	if (ledgers & LEDGER_REFAULT)
		fprintf(out, " %10s %10s %10s", "released", "came back", "wasted ms");
	if (ledgers & LEDGER_LOCKS)
		fprintf(out, " %8s %10s", "waits", "wait ms");
	if (ledgers & LEDGER_STACKS)
		fprintf(out, " %8s %10s", "threads", "stack ms");
	fprintf(out, "%s\n", has_color ? "\033[0m" : "");
}

static void print_row(FILE *out, const struct process_stat *item, unsigned ledgers)
{
	const struct at_row_ledger *ledger = &item->ledger;
	const struct refault_sum refault = refaults(ledger);
	const struct at_wait waits = row_ledger__waits(ledger);
	char comm[4 * AT_COMM_BYTES + 1], a[FORMAT_BYTES], b[FORMAT_BYTES], c[FORMAT_BYTES];

	fprintf(out, "%-10d %-18s", (int)item->pid,
		format__escape(item->comm[0] ? item->comm : "?", comm, sizeof(comm)));
	if (ledgers & LEDGER_COMMIT)
		fprintf(out, " %12s %12s %12s", format__count(ledger->charged_pages, a),
			format__count(ledger->uncharged_pages, b), format__count(ledger->peak_pages, c));
	if (ledgers & LEDGER_VMAS)
		fprintf(out, " %8s %8s", format__count(ledger->vma_last, a), format__count(ledger->vma_peak, b));
	if (ledgers & LEDGER_REFAULT)
		fprintf(out, " %10s %10s %10.3f", format__count(refault.released_pages, a),
			format__count(refault.returned_pages, b), refault.wasted_ns / 1e6);
	if (ledgers & LEDGER_LOCKS)
		fprintf(out, " %8s %10.3f", format__count(waits.cnt, a), waits.sum_ns / 1e6);
	if (ledgers & LEDGER_STACKS)
		fprintf(out, " %8s %10.3f", format__count(ledger->stacks.thread_cnt, a), ledger->stacks.call_ns / 1e6);
	fputc('\n', out);
}

void render_row_ledgers__table(FILE *out, const struct processes *processes, unsigned ledgers, unsigned top_cnt,
			       bool has_color)
{
	size_t cnt = top_cnt && processes->cnt > top_cnt ? top_cnt : processes->cnt;
	bool has_head = false;

	for (size_t i = 0; i < cnt && ledgers; i++) {
		if (!row_ledger__has_any(&processes->items[i].ledger))
			continue;
		if (!has_head)
			print_head(out, ledgers, has_color);
		has_head = true;
		print_row(out, &processes->items[i], ledgers);
	}
}

static json_t *wait_object(const struct at_wait *wait)
{
	return json_pack("{s:o, s:o, s:o}", "waits", json_part__number(wait->cnt), "wait_ns",
			 json_part__number(wait->sum_ns), "max_ns", json_part__number(wait->max_ns));
}

static json_t *locks_object(const struct at_row_ledger *ledger)
{
	const struct at_wait sum = row_ledger__waits(ledger);
	json_t *object = wait_object(&sum), *kinds = json_object();

	for (int i = 0; i < AT_LOCK_CNT; i++)
		if (ledger->locks[i].cnt)
			json_object_set_new(kinds, profile__lock_name(i), wait_object(&ledger->locks[i]));
	json_object_set_new(object, "kinds", kinds);
	return object;
}

static json_t *vmas_object(const struct at_row_ledger *ledger)
{
	if (!ledger->vma_first_ns)
		return json_object();
	return json_pack("{s:o, s:o, s:o}", "start", json_part__number(ledger->vma_first), "peak",
			 json_part__number(ledger->vma_peak), "end", json_part__number(ledger->vma_last));
}

static json_t *stacks_object(const struct at_stack_ledger *stacks, bool has_commit)
{
	json_t *object =
		json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "threads", json_part__number(stacks->thread_cnt),
			  "foreign_threads", json_part__number(stacks->foreign_cnt), "calls",
			  json_part__number(stacks->call_cnt), "call_ns", json_part__number(stacks->call_ns),
			  "touched_pages", json_part__number(stacks->touched_pages), "huge_pages",
			  json_part__number(stacks->huge_pages), "fault_ns", json_part__number(stacks->fault_ns));

	if (has_commit) {
		json_part__set_number(object, "charged_pages", stacks->charged_pages);
		json_part__set_number(object, "uncharged_pages", stacks->uncharged_pages);
	}
	return object;
}

void render_row_ledgers__json(json_t *object, const struct at_row_ledger *ledger, unsigned ledgers)
{
	const struct refault_sum refault = refaults(ledger);

	if (ledgers & LEDGER_COMMIT)
		json_object_set_new(object, "commit",
				    json_pack("{s:o, s:o, s:o, s:o}", "charged_pages",
					      json_part__number(ledger->charged_pages), "uncharged_pages",
					      json_part__number(ledger->uncharged_pages), "peak_pages",
					      json_part__number(ledger->peak_pages), "updates",
					      json_part__number(ledger->update_cnt)));
	if (ledgers & LEDGER_VMAS)
		json_object_set_new(object, "vmas", vmas_object(ledger));
	if (ledgers & LEDGER_REFAULT)
		json_object_set_new(object, "refault",
				    json_pack("{s:o, s:o, s:o}", "released_pages",
					      json_part__number(refault.released_pages), "returned_pages",
					      json_part__number(refault.returned_pages), "wasted_ns",
					      json_part__number(refault.wasted_ns)));
	if (ledgers & LEDGER_LOCKS)
		json_object_set_new(object, "locks", locks_object(ledger));
	if (ledgers & LEDGER_STACKS)
		json_object_set_new(object, "stacks", stacks_object(&ledger->stacks, ledgers & LEDGER_COMMIT));
}
