/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report for people: settings in force, a table of the measured phase, and
 * what stands beside it. Times in the table have one unit a column, so that
 * they can be compared at a glance; plain ASCII unless a name is not.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/settings.h"
#include "cli/format.h"
#include "cli/render.h"
#include "cli/render_processes.h"
#include "cli/render_requests.h"
#include "cli/render_row_ledgers.h"

/* Width of the label column of all lines outside the table. */
enum { LABEL_WIDTH = 12 };

struct table {
	FILE *out;
	const struct profile *profile;
	const struct render_opts *opts;
	const struct phase_stat *total;
};

const char *render__decision_name(enum atm_decision decision)
{
	static const char *const names[] = {
#define X(id, name, help) name,
		ATM_DECISIONS(X)
#undef X
	};

	return names[decision];
}

uint64_t render__band_sum(const uint64_t cnt[ATM_BAND_CNT])
{
	uint64_t sum = 0;

	for (int band = 0; band < ATM_BAND_CNT; band++)
		sum += cnt[band];
	return sum;
}

static const char *bold(const struct table *table)
{
	return table->opts->has_color ? "\033[1m" : "";
}

static const char *plain(const struct table *table)
{
	return table->opts->has_color ? "\033[0m" : "";
}

static const char *alarm_color(const struct table *table)
{
	return table->opts->has_color ? "\033[31m" : "";
}

static void print_command(const struct table *table)
{
	char escaped[1024];

	fprintf(table->out, "%salloctrace %s:", bold(table), table->profile->version);
	if (table->profile->processes)
		render_processes__headline(table->out, table->profile->processes);
	for (char **arg = table->profile->argv; !table->profile->processes && arg && *arg; arg++) {
		bool is_quoted = !**arg || strpbrk(*arg, " '\"");

		format__escape(*arg, escaped, sizeof(escaped));
		fprintf(table->out, is_quoted ? " '%s'" : " %s", escaped);
	}
	fprintf(table->out, "%s\n", plain(table));
}

static void print_allocator(const struct table *table)
{
	const struct profile *profile = table->profile;
	char policy[128], escaped[512];

	if (profile->processes && !profile->allocator[0])
		return;
	format__escape(profile->allocator, escaped, sizeof(escaped));
	if (!profile->has_policy) {
		format__line(table->out, "allocator", "%s", escaped);
	} else {
		settings__format_policy(profile->policy, policy, sizeof(policy));
		format__line(table->out, "allocator", "%s, policies %s", escaped, policy);
		if (profile->tune)
			format__line(table->out, "tunables", "%s",
				     format__escape(profile->tune, escaped, sizeof(escaped)));
	}
	if (profile->note[0])
		format__line(table->out, "note", "%s: policies do not apply",
			     format__escape(profile->note, escaped, sizeof(escaped)));
}

/* "exact", or everything that is missing. */
static void print_exactness(const struct table *table)
{
	static const char *const texts[] = {NULL,
#define X(id, key, text) text,
					    AT_LOSSES(X)
#undef X
	};
	const struct profile *profile = table->profile;
	char cnt[FORMAT_BYTES];

	for (int loss = 1; loss < AT_LOSS_CNT; loss++)
		if (profile->loss_cnt[loss])
			format__line(table->out, loss == AT_LOSS_NEVER_RETURNED ? "" : "lost", "%s %s",
				     format__count(profile->loss_cnt[loss], cnt), texts[loss]);
	if (profile->recursion_miss_cnt)
		format__line(table->out, "lost", "%s program runs that the kernel skipped",
			     format__count(profile->recursion_miss_cnt, cnt));
}

static void print_settings(const struct table *table)
{
	const struct profile *profile = table->profile;
	bool is_exact = profile__is_exact(profile);

	print_command(table);
	print_allocator(table);
	if (profile->has_trace)
		format__line(table->out, "traced", "tier %d, %s%s%s; Linux %s, %d CPUs", profile->tier,
			     is_exact ? "" : alarm_color(table), is_exact ? "exact" : "NOT EXACT",
			     is_exact ? "" : plain(table), profile->kernel, profile->cpu_cnt);
	else
		format__line(table->out, "traced", "tier 0: not traced, %s; Linux %s, %d CPUs",
			     profile->has_self_counts ? "calls as counted by the allocator itself"
						      : "process totals only",
			     profile->kernel, profile->cpu_cnt);
	if (!profile->has_trace)
		format__line(table->out, "missing", "kernel time, durations, bytes, faults by phase%s",
			     profile->has_self_counts ? "" : ", calls");
	else if (!profile->has_faults)
		format__line(table->out, "missing", "page faults by phase, and their time: no page fault events here");
	if (profile->advice[0])
		format__line(table->out, "", "%s", profile->advice);
	print_exactness(table);
}

static void print_head(const struct table *table, const char *name)
{
	fprintf(table->out, "\n%s%-18s %10s %16s %10s %10s %9s %9s %9s %9s %10s%s\n", bold(table), name, "calls",
		"errors", "bytes", "kernel ms", "mean us", "p50 us", "p90 us", "p99 us", "max us", plain(table));
}

static void print_errors(const struct table *table, uint64_t error_cnt, int last_errno)
{
	const char *name = last_errno ? strerrorname_np(last_errno) : NULL;
	char cnt[FORMAT_BYTES], text[64];

	snprintf(text, sizeof(text), "%s%s%s", error_cnt ? format__count(error_cnt, cnt) : "0",
		 error_cnt && name ? " " : "", error_cnt && name ? name : "");
	fprintf(table->out, " %16s", text);
}

static void print_class(const struct table *table, enum at_class class, const struct class_stat *stat)
{
	char text[FORMAT_BYTES];
	bool has_bytes = profile__class_syscall(class) != AT_SYS_INVALID;

	fprintf(table->out, "%-18s %10s", profile__class_name(class), format__count(stat->call_cnt, text));
	if (has_bytes)
		print_errors(table, stat->error_cnt, stat->last_errno);
	else
		fprintf(table->out, " %16s", "");
	fprintf(table->out, " %10s %10.3f %9.2f %9.2f %9.2f %9.2f %10.2f\n",
		has_bytes ? format__bytes(stat->bytes, text) : "", stat->sum_ns / 1e6, profile__mean_ns(stat) / 1e3,
		profile__quantile_ns(stat, 0.50) / 1e3, profile__quantile_ns(stat, 0.90) / 1e3,
		profile__quantile_ns(stat, 0.99) / 1e3, stat->max_ns / 1e3);
}

/* Is the class one that people want to see? The marker is our own doing. */
static bool is_shown(const struct phase_stat *phase, int class)
{
	return class != AT_CLASS_MADVISE_PHASE && phase->classes[class].call_cnt;
}

static void print_traced_phase(const struct table *table, const char *name, const struct phase_stat *phase)
{
	bool has_any = false;

	print_head(table, name);
	for (int class = 1; class < AT_CLASS_CNT; class ++)
		if (is_shown(phase, class)) {
			print_class(table, class, &phase->classes[class]);
			has_any = true;
		}
	if (!has_any)
		fprintf(table->out, "no memory calls and no page faults\n");
}

/* Tier 0: what the allocator counted itself, the rest shown as missing. */
static void print_counted_phase(const struct table *table, const char *name, const struct phase_stat *phase)
{
	char text[FORMAT_BYTES];
	bool has_any = false;

	print_head(table, name);
	for (int kind = 0; kind < ATM_KIND_CNT; kind++) {
		if (kind == ATM_KIND_MADVISE_PHASE || !phase->self.call_cnt[kind])
			continue;
		fprintf(table->out, "%-18s %10s", profile__kind_name(kind),
			format__count(phase->self.call_cnt[kind], text));
		print_errors(table, phase->self.error_cnt[kind], 0);
		fprintf(table->out, " %10s %10s %9s %9s %9s %9s %10s\n", "-", "-", "-", "-", "-", "-", "-");
		has_any = true;
	}
	if (!has_any)
		fprintf(table->out, "the allocator made no memory calls\n");
}

/* Memory syscalls of a phase, as traced or else as counted by the allocator; without the marker. */
static uint64_t syscall_cnt(const struct table *table, const struct phase_stat *phase, uint64_t *sum_ns)
{
	uint64_t cnt = 0;

	*sum_ns = 0;
	if (!table->profile->has_trace) {
		for (int kind = 0; kind < ATM_KIND_CNT; kind++)
			cnt += kind == ATM_KIND_MADVISE_PHASE ? 0 : phase->self.call_cnt[kind];
		return cnt;
	}
	for (int class = 1; class < AT_CLASS_CNT; class ++) {
		if (class == AT_CLASS_MADVISE_PHASE || profile__class_syscall(class) == AT_SYS_INVALID)
			continue;
		cnt += phase->classes[class].call_cnt;
		*sum_ns += phase->classes[class].sum_ns;
	}
	return cnt;
}

static void print_phase_line(const struct table *table, enum at_phase number)
{
	const struct phase_stat *phase = &table->profile->phases[number];
	const struct class_stat *minor = &phase->classes[AT_CLASS_FAULT_MINOR];
	const struct class_stat *major = &phase->classes[AT_CLASS_FAULT_MAJOR];
	char calls[FORMAT_BYTES], ns[FORMAT_BYTES], faults[FORMAT_BYTES], fault_ns[FORMAT_BYTES];
	uint64_t sum_ns, cnt = syscall_cnt(table, phase, &sum_ns);

	if (table->profile->has_trace && !table->profile->has_faults)
		format__line(table->out, profile__phase_name(number), "%s calls, %s", format__count(cnt, calls),
			     format__ns(sum_ns, ns));
	else if (table->profile->has_trace)
		format__line(table->out, profile__phase_name(number), "%s calls, %s; %s faults, %s",
			     format__count(cnt, calls), format__ns(sum_ns, ns),
			     format__count(minor->call_cnt + major->call_cnt, faults),
			     format__ns(minor->sum_ns + major->sum_ns, fault_ns));
	else
		format__line(table->out, profile__phase_name(number), "%s calls", format__count(cnt, calls));
}

static void print_phases(const struct table *table)
{
	const struct profile *profile = table->profile;
	bool has_phases = render__has_phases(profile);
	const struct phase_stat *shown = has_phases ? &profile->phases[AT_PHASE_MEASURED] : table->total;
	const char *name = has_phases ? profile__phase_name(AT_PHASE_MEASURED) : "all";

	if (profile->has_trace)
		print_traced_phase(table, name, shown);
	else if (profile->has_self_counts)
		print_counted_phase(table, name, shown);
	fputc('\n', table->out);
	if (has_phases && (profile->has_trace || profile->has_self_counts)) {
		print_phase_line(table, AT_PHASE_STARTUP);
		print_phase_line(table, AT_PHASE_TEARDOWN);
	}
}

/* What share of the system time the classes explain. Said with care: the two are not measured alike. */
static void print_share(const struct table *table)
{
	const struct profile *profile = table->profile;
	uint64_t sum_ns = 0;
	char ns[FORMAT_BYTES], sys[FORMAT_BYTES];

	for (int class = 1; class < AT_CLASS_CNT; class ++)
		sum_ns += table->total->classes[class].sum_ns;
	if (!profile->sys_ns)
		return;
	format__line(table->out, "system time", "%s in the classes of all phases, %s of the %s: %.0f %%%s",
		     format__ns(sum_ns, ns), format__ns(profile->sys_ns, sys),
		     profile->processes ? "processes" : "process", 100.0 * sum_ns / profile->sys_ns,
		     sum_ns > profile->sys_ns ? " (time in calls includes waiting)" : "");
}

static void print_process(const struct table *table)
{
	const struct profile *profile = table->profile;
	char user[FORMAT_BYTES], sys[FORMAT_BYTES], wall[FORMAT_BYTES], rss[FORMAT_BYTES];
	char minor[FORMAT_BYTES], major[FORMAT_BYTES], final[FORMAT_BYTES + 16] = "";
	const char *name = profile->exit_signal ? sigabbrev_np(profile->exit_signal) : NULL;

	if (profile->processes) {
		format__line(table->out, "processes", "user %s, system %s while attached, %s",
			     format__ns(profile->user_ns, user), format__ns(profile->sys_ns, sys),
			     format__ns(profile->wall_ns, wall));
		return;
	}
	if (profile->final_rss_bytes)
		snprintf(final, sizeof(final), ", %s at the end", format__bytes(profile->final_rss_bytes, rss));
	format__line(table->out, "process", "user %s, system %s, wall %s, max RSS %s%s",
		     format__ns(profile->user_ns, user), format__ns(profile->sys_ns, sys),
		     format__ns(profile->wall_ns, wall), format__bytes(profile->max_rss_bytes, rss), final);
	format__line(table->out, "", "%s minor and %s major faults", format__count(profile->minor_fault_cnt, minor),
		     format__count(profile->major_fault_cnt, major));
	if (!profile->has_exit)
		return;
	if (profile->exit_signal)
		format__line(table->out, "ended", "signal %d%s%s%s", profile->exit_signal, name ? " (" : "",
			     name ? name : "", name ? ")" : "");
	else
		format__line(table->out, "ended", "exit %d", profile->exit_status);
}

/* "text: name 12, name 3" for the syscalls that have a count. */
static void print_by_syscall(const struct table *table, const char *label, const char *text,
			     const uint64_t cnt[AT_SYS_CNT])
{
	char count[FORMAT_BYTES];
	uint64_t sum = 0;
	const char *separator = ": ";

	for (int syscall = 1; syscall < AT_SYS_CNT; syscall++)
		sum += cnt[syscall];
	if (!sum)
		return;
	fprintf(table->out, "%-*s%s %s", FORMAT_LABEL_WIDTH, label, format__count(sum, count), text);
	for (int syscall = 1; syscall < AT_SYS_CNT; syscall++)
		if (cnt[syscall]) {
			fprintf(table->out, "%s%s %s", separator, profile__syscall_name(syscall),
				format__count(cnt[syscall], count));
			separator = ", ";
		}
	fputc('\n', table->out);
}

static void print_advices(const struct table *table)
{
	const char *separator = "madvise.other by advice: ";
	char count[FORMAT_BYTES];

	for (int advice = 0; advice < AT_ADVICE_CNT; advice++)
		if (table->profile->advice_cnt[advice]) {
			if (*separator != ',')
				fprintf(table->out, "%-*s", FORMAT_LABEL_WIDTH, "advices");
			fprintf(table->out, "%s%d%s %s", separator, advice, advice == AT_ADVICE_CNT - 1 ? "+" : "",
				format__count(table->profile->advice_cnt[advice], count));
			separator = ", ";
		}
	if (*separator == ',')
		fputc('\n', table->out);
}

/* The two counts are independent: the tracer may see more (the program's own calls), never less. */
static void print_check(const struct table *table)
{
	char traced[FORMAT_BYTES], self[FORMAT_BYTES];

	for (int kind = 0; kind < ATM_KIND_CNT; kind++)
		for (int class = 1; class < AT_CLASS_CNT; class ++) {
			/* One that was running when it was attached ends in no class. */
			const uint64_t call_cnt = table->total->classes[class].call_cnt +
						  table->profile->early_flight_cnt[profile__class_syscall(class)];

			if (strcmp(profile__class_name(class), profile__kind_name(kind)) != 0 ||
			    call_cnt >= table->total->self.call_cnt[kind])
				continue;
			format__line(table->out, "CHECK", "%s%s: %s traced, but the allocator counted %s%s",
				     alarm_color(table), profile__class_name(class), format__count(call_cnt, traced),
				     format__count(table->total->self.call_cnt[kind], self), plain(table));
		}
}

static void print_cost(const struct table *table)
{
	const struct profile *profile = table->profile;
	char runs[FORMAT_BYTES], ns[FORMAT_BYTES];

	if (profile->bpf_run_cnt)
		format__line(table->out, "self cost", "%s program runs, %s%s (%s)",
			     format__count(profile->bpf_run_cnt, runs), profile->is_bpf_measured ? "" : "about ",
			     format__ns(profile->bpf_ns, ns),
			     profile->is_bpf_measured ? "measured by the kernel" : "from a calibration");
}

int render__table(FILE *out, const struct profile *profile, const struct render_opts *opts)
{
	struct phase_stat *total = malloc(sizeof(*total));
	struct table table = {.out = out, .profile = profile, .opts = opts, .total = total};

	if (!total)
		return -ENOMEM;
	profile__total(profile, total);
	print_settings(&table);
	print_phases(&table);
	render__ledgers(out, profile, table.total, opts);
	render_requests__table(out, profile, table.total, opts->top_cnt);
	if (profile->processes)
		render_processes__table(out, profile->processes, opts->top_cnt, opts->has_color, true);
	if (profile->processes)
		render_row_ledgers__table(out, profile->processes, profile->ledgers, opts->top_cnt, opts->has_color);
	if (profile->processes)
		fputc('\n', out);
	if (profile->has_trace)
		print_share(&table);
	print_process(&table);
	print_by_syscall(&table, "compat", "compat (32-bit) syscalls not decoded", profile->compat_cnt);
	print_by_syscall(&table, "in flight", "calls that were running when it was attached",
			 profile->early_flight_cnt);
	print_by_syscall(&table, "in flight", "calls still running at the end", profile->in_flight_cnt);
	print_advices(&table);
	if (profile->has_trace && profile->has_self_counts)
		print_check(&table);
	print_cost(&table);
	free(total);
	return 0;
}

int render__interval_table(FILE *out, const struct profile *part, const struct render_opts *opts, uint64_t from_ns,
			   uint64_t to_ns)
{
	struct phase_stat *total = malloc(sizeof(*total));
	struct table table = {.out = out, .profile = part, .opts = opts, .total = total};
	char name[64];

	if (!total)
		return -ENOMEM;
	profile__total(part, total);
	snprintf(name, sizeof(name), "%.1f-%.1f s", from_ns / 1e9, to_ns / 1e9);
	print_traced_phase(&table, name, total);
	print_exactness(&table);
	render_processes__table(out, part->processes, opts->top_cnt, opts->has_color, false);
	free(total);
	return 0;
}
