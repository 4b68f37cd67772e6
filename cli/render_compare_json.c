/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A comparison as JSON, schema alloctrace.comparison/1 (docs/output.md). What
 * was not measured, or has no value, is absent.
 */
#include <errno.h>
#include <math.h>

#include "cli/json_text.h"
#include "cli/render_compare.h"
#include "cli/render_json.h"

static void set_real(json_t *object, const char *key, double value)
{
	if (isfinite(value))
		json_object_set_new(object, key, json_real(value));
}

/* Figures are whole numbers, but for a median between two runs. */
static json_t *whole(double value)
{
	return value == floor(value) && fabs(value) < 9e15 ? json_integer((json_int_t)value) : json_real(value);
}

static json_t *interval_object(const struct stats_interval *interval, json_t *(*number)(double value))
{
	json_t *object = json_object();

	json_object_set_new(object, "median", number(interval->median));
	json_object_set_new(object, "low", number(interval->low));
	json_object_set_new(object, "high", number(interval->high));
	return object;
}

static json_t *figure_object(const struct comparison *comparison, size_t config, enum compare_figure figure)
{
	const struct compare_stat *stat = compare__stat(comparison, config, figure);
	json_t *object = interval_object(&stat->value, whole), *runs = json_array();

	for (size_t block = 0; block < comparison->block_cnt; block++)
		json_array_append_new(runs, whole(compare__value(comparison, block, config, figure)));
	json_object_set_new(object, "runs", runs);
	json_object_set_new(object, "outliers", json_integer((json_int_t)stat->outlier_cnt));
	set_real(object, "spread", stat->spread);
	if (config == comparison->base)
		return object;
	json_object_set_new(object, "difference", interval_object(&stat->difference, whole));
	if (stat->has_ratio)
		json_object_set_new(object, "ratio", interval_object(&stat->ratio, json_real));
	set_real(object, "p", stat->p);
	json_object_set_new(object, "same", json_boolean(stat->is_same));
	return object;
}

static json_t *effects_object(const struct comparison *comparison, enum compare_figure figure)
{
	static const char *const names[] = {
#define X(id, name) #name,
		ATM_POLICIES(X)
#undef X
	};
	json_t *object = json_object();
	struct stats_interval effect;
	char key[64];

	for (int first = 0; first < POLICY_CNT; first++)
		for (int second = first; second < POLICY_CNT; second++) {
			if (compare__effect(comparison, figure, 1u << first, 1u << second, &effect))
				continue;
			snprintf(key, sizeof(key), "%s%s%s", names[first], first == second ? "" : ",",
				 first == second ? "" : names[second]);
			json_object_set_new(object, key, interval_object(&effect, json_real));
		}
	return object;
}

static json_t *ranking_array(const struct compare_report *report, const struct comparison *comparison)
{
	json_t *ranking = json_array();
	size_t order[COMPARE_CONFIG_MAX];

	compare__rank(comparison, COMPARE_CALLS, order);
	for (size_t i = 0; i < comparison->config_cnt; i++)
		json_array_append_new(ranking, json_string(report->configs->all[order[i]].name));
	return ranking;
}

static json_t *program_object(const struct compare_report *report, const struct compare_program *program)
{
	const struct comparison *comparison = program->comparison;
	json_t *object = json_object(), *configs = json_object(), *effects = json_object();
	char key[COMPARE_NAME_BYTES];

	json_text__set(object, "name", program->name);
	json_object_set_new(object, "phase", json_string(comparison->has_phases ? "measured" : "all"));
	if (report->shown[0]->has_trace)
		json_object_set_new(object, "exact", json_boolean(comparison->is_exact));
	for (size_t config = 0; config < comparison->config_cnt; config++) {
		json_t *figures = json_object();

		for (int figure = 0; figure < COMPARE_FIGURE_CNT; figure++)
			if (comparison->is_measured[figure])
				json_object_set_new(figures, compare__key(figure, key),
						    figure_object(comparison, config, figure));
		json_object_set_new(configs, report->configs->all[config].name, figures);
	}
	json_object_set_new(object, "configurations", configs);
	if (comparison->is_measured[COMPARE_CALLS])
		json_object_set_new(object, "ranking", ranking_array(report, comparison));
	for (int figure = COMPARE_CALLS; report->is_matrix && figure <= COMPARE_KERNEL; figure += COMPARE_KERNEL)
		if (comparison->is_measured[figure])
			json_object_set_new(effects, compare__key(figure, key), effects_object(comparison, figure));
	if (report->is_matrix)
		json_object_set(object, "effects", effects);
	json_decref(effects);
	return object;
}

static json_t *config_object(const struct compare_config *config, const struct profile *shown)
{
	json_t *object = json_object();

	json_text__set(object, "name", config->name);
	json_text__set(object, "allocator", shown->allocator);
	if (shown->has_policy) {
		json_t *policy = json_array();

#define X(id, name)                      \
	if (shown->policy & POLICY_##id) \
		json_array_append_new(policy, json_string(#name));
		ATM_POLICIES(X)
#undef X
		json_object_set_new(object, "policy", policy);
		json_object_set_new(object, "tune", render_json__tune(shown->tune));
	}
	json_text__set_array(object, "env", config->env);
	return object;
}

static json_t *method_object(const struct compare_report *report)
{
	json_t *method = json_object();

	json_object_set_new(method, "base", json_string(report->configs->all[report->base].name));
	json_object_set_new(method, "blocks", json_integer((json_int_t)report->block_cnt));
	json_object_set_new(method, "blocks_wanted", json_integer((json_int_t)report->wanted_block_cnt));
	if (report->precision_percent > 0) {
		set_real(method, "precision_percent", report->precision_percent);
		json_object_set_new(method, "precise", json_boolean(!report->is_out_of_time && !report->signal));
	}
	json_object_set_new(method, "interrupted", json_boolean(report->signal));
	if (report->is_apart)
		json_object_set_new(method, "apart", json_true());
	/* A 64-bit seed as text: numbers of JSON readers end at 2^53. */
	json_object_set_new(method, "seed", json_sprintf("%llu", (unsigned long long)report->seed));
	json_object_set_new(method, "confidence", json_real(STATS_CONFIDENCE_PERCENT / 100.0));
	json_object_set_new(method, "resamples", json_integer(STATS_RESAMPLE_CNT));
	json_object_set_new(method, "alpha", json_real(COMPARE_ALPHA));
	return method;
}

static json_t *host_object(const struct compare_report *report)
{
	json_t *host = render_json__host(report->shown[0]);

	if (report->governor[0])
		json_text__set(host, "governor", report->governor);
	if (report->load.start >= 0) {
		set_real(host, "load_start", report->load.start);
		set_real(host, "load_end", report->load.end);
		set_real(host, "load_own", report->load.own);
	}
	if (report->load.others >= 0) {
		set_real(host, "load_others", report->load.others);
		set_real(host, "load_stolen", report->load.stolen);
	}
	return host;
}

static json_t *geometric_object(const struct compare_report *report)
{
	json_t *object = json_object();
	char key[COMPARE_NAME_BYTES];

	for (size_t config = 0; config < report->configs->cnt; config++) {
		json_t *figures = json_object();

		for (int figure = 0; figure < COMPARE_FIGURE_CNT; figure++)
			if (config != report->base)
				set_real(figures, compare__key(figure, key),
					 render_compare__geometric(report, config, figure));
		if (config != report->base)
			json_object_set(object, report->configs->all[config].name, figures);
		json_decref(figures);
	}
	return object;
}

json_t *render_json__comparison(const struct compare_report *report)
{
	json_t *document = json_object(), *configs = json_array(), *programs = json_array(), *warnings = json_array();

	for (size_t i = 0; i < report->configs->cnt; i++)
		json_array_append_new(configs, config_object(&report->configs->all[i], report->shown[i]));
	for (size_t i = 0; i < report->program_cnt; i++)
		json_array_append_new(programs, program_object(report, &report->programs[i]));
	for (size_t i = 0; i < report->warning_cnt; i++)
		json_array_append_new(warnings, json_string(report->warnings[i]));
	json_object_set_new(document, "schema", json_string(RENDER_JSON_COMPARISON));
	json_object_set_new(
		document, "tool",
		json_pack("{s:s, s:i}", "version", report->shown[0]->version, "tier", report->shown[0]->tier));
	json_object_set_new(document, "host", host_object(report));
	json_object_set_new(document, "method", method_object(report));
	json_object_set_new(document, "configurations", configs);
	json_object_set_new(document, "programs", programs);
	if (report->program_cnt > 1)
		json_object_set_new(document, "geometric_means", geometric_object(report));
	json_object_set_new(document, "warnings", warnings);
	return document;
}

int render_compare__json(FILE *out, const struct compare_report *report)
{
	json_t *document = render_json__comparison(report);

	if (!document)
		return -ENOMEM;
	/* A failed write shows in ferror(out), which the caller looks at. */
	if (!json_dumpf(document, out, JSON_INDENT(2)))
		fputc('\n', out);
	json_decref(document);
	return 0;
}
