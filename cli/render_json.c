/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The JSON report, schema alloctrace.profile/1 (docs/output.md). What was not
 * measured is absent, never 0; a class that was measured and had no call has
 * 0 calls and no durations.
 */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/settings.h"
#include "cli/json_part.h"
#include "cli/json_text.h"
#include "cli/render.h"
#include "cli/render_callchain.h"
#include "cli/render_json.h"
#include "cli/render_processes.h"
#include "cli/render_requests.h"

static json_t *class_object(const struct class_stat *stat, enum at_class class)
{
	json_t *object = json_object();

	json_part__set_number(object, "calls", stat->call_cnt);
	json_part__set_number(object, "errors", stat->error_cnt);
	if (stat->error_cnt && stat->last_errno) {
		const char *name = strerrorname_np(stat->last_errno);

		if (name)
			json_object_set_new(object, "last_errno", json_string(name));
		else
			json_part__set_number(object, "last_errno", stat->last_errno);
	}
	if (profile__class_syscall(class) != AT_SYS_INVALID)
		json_part__set_number(object, "bytes", stat->bytes);
	json_part__set_number(object, "kernel_ns", stat->sum_ns);
	if (!stat->call_cnt)
		return object;
	json_part__set_number(object, "mean_ns", profile__mean_ns(stat));
	json_part__set_number(object, "p50_ns", profile__quantile_ns(stat, 0.50));
	json_part__set_number(object, "p90_ns", profile__quantile_ns(stat, 0.90));
	json_part__set_number(object, "p99_ns", profile__quantile_ns(stat, 0.99));
	json_part__set_number(object, "max_ns", stat->max_ns);
	return object;
}

static void set_faults(json_t *object, const struct phase_stat *phase)
{
	json_t *faults = json_object();
	const struct class_stat *minor = &phase->classes[AT_CLASS_FAULT_MINOR];
	const struct class_stat *major = &phase->classes[AT_CLASS_FAULT_MAJOR];

	json_part__set_number(faults, "minor", minor->call_cnt);
	json_part__set_number(faults, "major", major->call_cnt);
	json_part__set_number(faults, "kernel_ns", minor->sum_ns + major->sum_ns);
	json_object_set_new(object, "faults", faults);
}

static void set_traced(json_t *object, const struct profile *profile, const struct phase_stat *phase)
{
	json_t *classes = json_object(), *syscalls = json_object();

	for (int class = 1; class < AT_CLASS_CNT; class ++)
		if (profile->has_faults || profile__class_syscall(class) != AT_SYS_INVALID)
			json_object_set_new(classes, profile__class_name(class),
					    class_object(&phase->classes[class], class));
	for (int syscall = 1; syscall < AT_SYS_CNT; syscall++) {
		uint64_t call_cnt = 0, error_cnt = 0, sum_ns = 0;

		for (int class = 1; class < AT_CLASS_CNT; class ++)
			if (profile__class_syscall(class) == (enum at_syscall)syscall) {
				call_cnt += phase->classes[class].call_cnt;
				error_cnt += phase->classes[class].error_cnt;
				sum_ns += phase->classes[class].sum_ns;
			}
		json_object_set_new(syscalls, profile__syscall_name(syscall),
				    json_pack("{s:o, s:o, s:o}", "calls", json_part__number(call_cnt), "errors",
					      json_part__number(error_cnt), "kernel_ns", json_part__number(sum_ns)));
	}
	render_json__set_waits(classes, profile, phase);
	json_object_set_new(object, "classes", classes);
	json_object_set_new(object, "syscalls", syscalls);
	if (profile->has_faults)
		set_faults(object, phase);
}

static json_t *phase_object(const struct profile *profile, const struct phase_stat *phase)
{
	json_t *object = json_object();

	if (profile->has_trace)
		set_traced(object, profile, phase);
	render_json__set_ledgers(object, profile, phase);
	render_requests__phase_json(object, profile, phase);
	return object;
}

static json_t *tool_object(const struct profile *profile)
{
	json_t *tool = json_object(), *lost = json_object();

	json_object_set_new(tool, "version", json_string(profile->version));
	json_part__set_number(tool, "tier", profile->tier);
	if (profile->has_self_counts)
		json_part__set_number(tool, "self_count_processes", profile->self_process_cnt);
	if (!profile->has_trace) {
		json_decref(lost);
		return tool;
	}
	json_object_set_new(tool, "exact", json_boolean(profile__is_exact(profile)));
#define X(id, key, text) json_part__set_number(lost, key, profile->loss_cnt[AT_LOSS_##id]);
	AT_LOSSES(X)
#undef X
	json_part__set_number(lost, "recursion_misses", profile->recursion_miss_cnt);
	json_object_set_new(tool, "lost", lost);
	if (profile->lock_miss_cnt)
		json_part__set_number(tool, "lock_misses", profile->lock_miss_cnt);
	if (profile->commit_start_pages)
		json_part__set_number(tool, "commit_start_pages", profile->commit_start_pages);
	if (profile->bpf_run_cnt)
		json_object_set_new(tool, "self_cost",
				    json_pack("{s:o, s:o, s:b}", "bpf_runs", json_part__number(profile->bpf_run_cnt),
					      "bpf_ns", json_part__number(profile->bpf_ns), "measured",
					      profile->is_bpf_measured));
	return tool;
}

json_t *render_json__host(const struct profile *profile)
{
	json_t *host = json_object();

	json_text__set(host, "kernel", profile->kernel);
	json_part__set_number(host, "cpus", profile->cpu_cnt);
	json_part__set_number(host, "page_bytes", profile->page_bytes);
	json_part__set_number(host, "ram_pages", profile->ram_pages);
	if (profile->thp[0])
		json_text__set(host, "thp", profile->thp);
	if (profile->overcommit_memory >= 0)
		json_part__set_number(host, "overcommit_memory", profile->overcommit_memory);
	return host;
}

/* Each tunable that was given, as a number where it is one. */
json_t *render_json__tune(const char *tune)
{
	uint64_t values[ATM_TUNE_CNT];
	struct settings_error error;
	json_t *object = json_object();

	settings__tune_defaults(values);
	if (!tune || settings__parse_tune(tune, values, &error))
		return object;
	for (const char *at = tune; *at; at += *at == ',') {
		size_t bytes = strcspn(at, ",");
		const char *equals = memchr(at, '=', bytes);
		size_t name_bytes = equals ? (size_t)(equals - at) : bytes;

#define X(id, name, unit, dflt, help)                                                                          \
	if (strlen(#name) == name_bytes && memcmp(at, #name, name_bytes) == 0) {                               \
		if (ATM_UNIT_##unit >= ATM_UNIT_GROW)                                                          \
			json_object_set_new(object, #name, json_stringn(equals + 1, at + bytes - equals - 1)); \
		else                                                                                           \
			json_part__set_number(object, #name, values[ATM_TUNE_##id]);                           \
	}
		ATM_TUNABLES(X)
#undef X
		at += bytes;
	}
	return object;
}

static json_t *exit_object(const struct profile *profile)
{
	const char *name = profile->exit_signal ? sigabbrev_np(profile->exit_signal) : NULL;
	json_t *object = json_object();

	json_object_set_new(object, "status", profile->exit_signal ? json_null() : json_integer(profile->exit_status));
	json_object_set_new(object, "signal", profile->exit_signal ? json_integer(profile->exit_signal) : json_null());
	if (name)
		json_object_set_new(object, "signal_name", json_string(name));
	return object;
}

/* Each process once, whatever programs it has run. */
static json_t *pids_array(const struct processes *processes)
{
	json_t *pids = json_array();

	for (size_t i = 0; i < processes->cnt; i++)
		if (!processes->items[i].exec_cnt)
			json_array_append_new(pids, json_integer(processes->items[i].pid));
	return pids;
}

static json_t *target_object(const struct profile *profile)
{
	json_t *target = json_object();

	if (profile->processes) {
		json_object_set_new(target, "pids", pids_array(profile->processes));
		return target;
	}
	json_text__set_array(target, "command", profile->argv);
	json_object_set_new(target, "pids", json_pack("[i]", (int)profile->pid));
	json_text__set(target, "allocator", profile->allocator);
	if (profile->has_policy) {
		json_t *policy = json_array();

#define X(id, name)                        \
	if (profile->policy & POLICY_##id) \
		json_array_append_new(policy, json_string(#name));
		ATM_POLICIES(X)
#undef X
		json_object_set_new(target, "policy", policy);
		json_object_set_new(target, "tune", render_json__tune(profile->tune));
	}
	if (profile->note[0])
		json_text__set(target, "note", profile->note);
	if (profile->has_exit)
		json_object_set_new(target, "exit", exit_object(profile));
	return target;
}

static json_t *rusage_object(const struct profile *profile)
{
	json_t *rusage = json_object();

	json_part__set_number(rusage, "wall_ns", profile->wall_ns);
	json_part__set_number(rusage, "user_ns", profile->user_ns);
	json_part__set_number(rusage, "sys_ns", profile->sys_ns);
	if (profile->processes)
		return rusage;
	json_part__set_number(rusage, "max_rss_bytes", profile->max_rss_bytes);
	if (profile->final_rss_bytes)
		json_part__set_number(rusage, "final_rss_bytes", profile->final_rss_bytes);
	json_part__set_number(rusage, "minor_faults", profile->minor_fault_cnt);
	json_part__set_number(rusage, "major_faults", profile->major_fault_cnt);
	return rusage;
}

/* Calls by syscall, where there are any. */
static json_t *syscall_counts(const uint64_t cnt[AT_SYS_CNT])
{
	json_t *object = json_object();

	for (int syscall = 1; syscall < AT_SYS_CNT; syscall++)
		if (cnt[syscall])
			json_part__set_number(object, profile__syscall_name(syscall), cnt[syscall]);
	return object;
}

static json_t *advice_counts(const struct profile *profile)
{
	json_t *object = json_object();
	char key[16];

	for (int advice = 0; advice < AT_ADVICE_CNT; advice++)
		if (profile->advice_cnt[advice]) {
			snprintf(key, sizeof(key), "%d%s", advice, advice == AT_ADVICE_CNT - 1 ? "+" : "");
			json_part__set_number(object, key, profile->advice_cnt[advice]);
		}
	return object;
}

static json_t *phases_object(const struct profile *profile, const struct phase_stat *total)
{
	json_t *phases = json_object();

	if (!render__has_phases(profile))
		json_object_set_new(phases, "all", phase_object(profile, total));
	else
		for (int phase = 0; phase < AT_PHASE_CNT; phase++)
			json_object_set_new(phases, profile__phase_name(phase),
					    phase_object(profile, &profile->phases[phase]));
	return phases;
}

json_t *render_json__document(const struct profile *profile)
{
	struct phase_stat *total = malloc(sizeof(*total));
	json_t *document = json_object();

	if (!total || !document) {
		free(total);
		json_decref(document);
		return NULL;
	}
	profile__total(profile, total);
	json_object_set_new(document, "schema", json_string(RENDER_JSON_PROFILE));
	json_object_set_new(document, "tool", tool_object(profile));
	json_object_set_new(document, "host", render_json__host(profile));
	json_object_set_new(document, "target", target_object(profile));
	json_object_set_new(document, "rusage", rusage_object(profile));
	json_part__set_if_any(document, "compat", syscall_counts(profile->compat_cnt));
	json_part__set_if_any(document, "in_flight_at_attach", syscall_counts(profile->early_flight_cnt));
	json_part__set_if_any(document, "in_flight", syscall_counts(profile->in_flight_cnt));
	json_part__set_if_any(document, "advices", advice_counts(profile));
	json_object_set_new(document, "phases", phases_object(profile, total));
	json_object_set_new(document, "total", phase_object(profile, total));
	if (profile->callchains)
		json_object_set_new(document, "callchains", render_callchain__json(profile));
	free(total);
	return document;
}

int render__json(FILE *out, const struct profile *profile)
{
	json_t *document = render_json__document(profile);

	if (!document)
		return -ENOMEM;
	if (profile->processes)
		render_processes__json(document, profile->processes, profile->ledgers);
	/* A failed write shows in ferror(out), which the caller looks at. */
	if (!json_dumpf(document, out, JSON_INDENT(2)))
		fputc('\n', out);
	json_decref(document);
	return 0;
}

int render__interval_json(FILE *out, const struct profile *part, uint64_t from_ns, uint64_t to_ns)
{
	struct phase_stat *total = malloc(sizeof(*total));
	json_t *document = json_object();

	if (!total || !document) {
		json_decref(document);
		free(total);
		return -ENOMEM;
	}
	profile__total(part, total);
	json_object_set_new(document, "schema", json_string("alloctrace.interval/1"));
	json_part__set_number(document, "from_ns", from_ns);
	json_part__set_number(document, "to_ns", to_ns);
	json_object_set_new(document, "tool", tool_object(part));
	json_object_set_new(document, "total", phase_object(part, total));
	render_processes__json(document, part->processes, part->ledgers);
	if (!json_dumpf(document, out, JSON_COMPACT))
		fputc('\n', out);
	json_decref(document);
	free(total);
	return 0;
}
