/* SPDX-License-Identifier: BSD-2-Clause */
/* The ledgers in the report for people: a line or a few each, of the phase that its table shows. */
#include "cli/format.h"
#include "cli/render.h"

struct ledger_table {
	FILE *out;
	const struct profile *profile;
	bool has_color;
};

static void print_commit(const struct ledger_table *table, const struct phase_stat *phase)
{
	const struct commit_stat *commit = &phase->commit;
	const uint64_t page_bytes = table->profile->page_bytes;
	char cnt[FORMAT_BYTES], a[FORMAT_BYTES], b[FORMAT_BYTES], c[FORMAT_BYTES], bytes[FORMAT_BYTES];

	format__line(table->out, "commit", "charged %s pages (%s), uncharged %s, net %lld, peak %s; %s updates",
		     format__count(commit->charged_pages, a), format__bytes(commit->charged_pages * page_bytes, bytes),
		     format__count(commit->uncharged_pages, b), (long long)profile__net_pages(commit),
		     format__count(commit->peak_pages, c), format__count(commit->update_cnt, cnt));
	fprintf(table->out, "%-*supdates past the batch:", FORMAT_LABEL_WIDTH, "");
	for (int batch = 0; batch < AT_BATCH_CNT; batch++)
		fprintf(table->out, "%s %s (%s pages) %s", batch ? "," : "", profile__batch_name(batch),
			format__count(table->profile->batch_pages[batch], a),
			format__count(commit->past_cnt[batch], b));
	fputc('\n', table->out);
	if (commit->shared_pages)
		format__line(table->out, "", "and %s pages charged for shared anonymous mappings",
			     format__count(commit->shared_pages, a));
	if (commit->assumed_cnt)
		format__line(table->out, "", "of it assumed: %s pages of %s calls",
			     format__count(commit->assumed_pages, a), format__count(commit->assumed_cnt, b));
}

/* A process near the limit is about to get ENOMEM from calls that have nothing to do with memory running out. */
static void print_vmas(const struct ledger_table *table, const struct phase_stat *phase)
{
	enum { WARN_PERCENT = 80 };
	const struct vma_stat *vmas = &phase->vmas;
	const uint64_t max_cnt = table->profile->max_map_cnt;
	char a[FORMAT_BYTES], b[FORMAT_BYTES], c[FORMAT_BYTES], max[FORMAT_BYTES];
	const char *separator = "growth: ";
	bool is_near = max_cnt && vmas->peak_cnt * 100 > max_cnt * WARN_PERCENT;

	if (!vmas->start_ns)
		return;
	fprintf(table->out, "%-*sstart %s, peak %s, end %s", FORMAT_LABEL_WIDTH, "VMAs",
		format__count(vmas->start_cnt, a), format__count(vmas->peak_cnt, b), format__count(vmas->end_cnt, c));
	if (max_cnt)
		fprintf(table->out, "; peak is %.1f %% of vm.max_map_count (%s)", 100.0 * vmas->peak_cnt / max_cnt,
			format__count(max_cnt, max));
	fputc('\n', table->out);
	for (int class = 1; class < AT_CLASS_CNT; class ++)
		if (vmas->growth[class]) {
			if (*separator != ',')
				fprintf(table->out, "%-*s", FORMAT_LABEL_WIDTH, "");
			fprintf(table->out, "%s%s %+lld", separator, profile__class_name(class),
				(long long)vmas->growth[class]);
			separator = ", ";
		}
	if (*separator == ',')
		fputc('\n', table->out);
	if (is_near)
		format__line(table->out, "WARNING",
			     "%sVMA count %s of vm.max_map_count %s: beyond it mmap, munmap and mprotect fail%s",
			     table->has_color ? "\033[31m" : "", format__count(vmas->peak_cnt, a),
			     format__count(max_cnt, max), table->has_color ? "\033[0m" : "");
}

static void print_refault(const struct ledger_table *table, const struct phase_stat *phase)
{
	const struct at_refault_ledger *refault = &phase->refault;
	struct refault_sum sum = profile__refault_sum(refault);
	char a[FORMAT_BYTES], b[FORMAT_BYTES], c[FORMAT_BYTES];
	const char *separator = "by ";

	if (!sum.released_pages && !sum.returned_pages)
		return;
	format__line(table->out, "refaults", "released %s touched pages, %s came back; %s of kernel time for nothing",
		     format__count(sum.released_pages, a), format__count(sum.returned_pages, b),
		     format__ns(sum.wasted_ns, c));
	fprintf(table->out, "%-*s", FORMAT_LABEL_WIDTH, "");
	for (int i = 0; i < AT_RELEASE_CNT; i++) {
		const struct at_refault *kind = &refault->kinds[i];

		if (!kind->released_pages && !kind->returned_pages)
			continue;
		fprintf(table->out, "%s%s %s, back %s", separator, profile__release_name(i),
			format__count(kind->released_pages, a), format__count(kind->returned_pages, b));
		separator = "; ";
	}
	if (sum.returned_pages)
		fprintf(table->out, "; away p50 %s, p99 %s, max %s", format__ns(profile__away_ns(refault, 0.50), a),
			format__ns(profile__away_ns(refault, 0.99), b), format__ns(refault->max_ns, c));
	fputc('\n', table->out);
}

static void print_wait(const struct ledger_table *table, const char *separator, const char *name,
		       const struct at_wait *wait)
{
	char cnt[FORMAT_BYTES], sum[FORMAT_BYTES], max[FORMAT_BYTES];

	fprintf(table->out, "%s%s %s (%s, max %s)", separator, name, format__count(wait->cnt, cnt),
		format__ns(wait->sum_ns, sum), format__ns(wait->max_ns, max));
}

static void print_locks(const struct ledger_table *table, const struct phase_stat *phase)
{
	const char *separator = "waits for ";
	char cnt[FORMAT_BYTES];

	for (int i = 0; i < AT_LOCK_CNT; i++)
		if (phase->locks.kinds[i].cnt) {
			if (*separator == 'w')
				fprintf(table->out, "%-*s", FORMAT_LABEL_WIDTH, "locks");
			print_wait(table, separator, profile__lock_name(i), &phase->locks.kinds[i]);
			separator = ", ";
		}
	if (*separator == 'w')
		return;
	separator = "\n            in ";
	for (int i = 1; i < AT_CLASS_CNT; i++)
		if (phase->locks.classes[i].cnt) {
			print_wait(table, separator, profile__class_name(i), &phase->locks.classes[i]);
			separator = ", ";
		}
	fputc('\n', table->out);
	if (table->profile->lock_miss_cnt)
		format__line(table->out, "", "%s events not seen, which interrupted others",
			     format__count(table->profile->lock_miss_cnt, cnt));
}

static void print_stacks(const struct ledger_table *table, const struct phase_stat *phase)
{
	const struct at_stack_ledger *stacks = &phase->stacks;
	const double thread_cnt = stacks->thread_cnt ? (double)stacks->thread_cnt : 1;
	char a[FORMAT_BYTES], b[FORMAT_BYTES];

	if (!stacks->thread_cnt && !stacks->call_cnt)
		return;
	fprintf(table->out, "%-*s%s threads created; a thread: %.2f calls about stacks, %s", FORMAT_LABEL_WIDTH,
		"stacks", format__count(stacks->thread_cnt, a), (double)stacks->call_cnt / thread_cnt,
		format__ns((uint64_t)((double)stacks->call_ns / thread_cnt), b));
	if (table->profile->ledgers & LEDGER_COMMIT)
		fprintf(table->out, ", %.2f pages charged", (double)stacks->charged_pages / thread_cnt);
	if (table->profile->has_faults)
		fprintf(table->out, ", %.2f touched", (double)stacks->touched_pages / thread_cnt);
	if (stacks->huge_pages)
		fprintf(table->out, " (%.2f in huge pages)", (double)stacks->huge_pages / thread_cnt);
	fputc('\n', table->out);
	if (stacks->foreign_cnt)
		format__line(table->out, "",
			     "%s of them on stacks that were not mapped with MAP_STACK, or before tracing",
			     format__count(stacks->foreign_cnt, a));
}

void render__ledgers(FILE *out, const struct profile *profile, const struct phase_stat *total,
		     const struct render_opts *opts)
{
	const struct ledger_table table = {.out = out, .profile = profile, .has_color = opts->has_color};
	const struct phase_stat *phase = render__has_phases(profile) ? &profile->phases[AT_PHASE_MEASURED] : total;

	if (profile->ledgers & LEDGER_COMMIT)
		print_commit(&table, phase);
	if (profile->ledgers & LEDGER_VMAS)
		print_vmas(&table, phase);
	if (profile->ledgers & LEDGER_REFAULT)
		print_refault(&table, phase);
	if (profile->ledgers & LEDGER_LOCKS)
		print_locks(&table, phase);
	if (profile->ledgers & LEDGER_STACKS)
		print_stacks(&table, phase);
}
