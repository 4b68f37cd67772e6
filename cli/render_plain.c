/* SPDX-License-Identifier: BSD-2-Clause */
/* A run as CSV and Markdown; see render_plain.h. */
#include "cli/render_plain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/settings.h"
#include "cli/format.h"
#include "cli/options.h"
#include "cli/render.h"
#include "cli/render_callchain.h"
#include "cli/render_json.h"

bool render_plain__choose(const char *word, enum render_format *format)
{
#define X(id, name) name,
	static const char *const words[] = {RENDER_FORMATS(X) NULL};
#undef X
	int chosen = options__choose("--format", word, words);

	*format = chosen < 0 ? RENDER_TABLE : (enum render_format)chosen;
	return chosen >= 0;
}

int render_plain__run(FILE *out, const struct profile *profile, enum render_format format,
		      const struct render_opts *opts)
{
	int err;

	switch (format) {
	case RENDER_JSON: return render__json(out, profile);
	case RENDER_CSV: return render_plain__csv(out, profile);
	case RENDER_MARKDOWN: return render_plain__markdown(out, profile);
	default:
		err = render__table(out, profile, opts);
		return err || !profile->is_tree_asked || !profile->callchains ? err
									      : render_callchain__tree(out, profile);
	}
}

int render_plain__comparison(FILE *out, const struct compare_report *report, enum render_format format,
			     const struct look *look)
{
	switch (format) {
	case RENDER_JSON: return render_compare__json(out, report);
	case RENDER_CSV: return render_plain__compare_csv(out, report);
	case RENDER_MARKDOWN: return render_plain__compare_markdown(out, report);
	default: return render_compare__table(out, report, look);
	}
}

void render_plain__field(FILE *out, const char *text)
{
	if (!strpbrk(text, ",\"\r\n") && text[0] != ' ') {
		fputs(text, out);
		return;
	}
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"')
			fputc('"', out);
		fputc(*text, out);
	}
	fputc('"', out);
}

void render_plain__text(FILE *out, const char *text)
{
	char escaped[1024];

	format__escape(text, escaped, sizeof(escaped));
	for (const char *at = escaped; *at; at++) {
		if (strchr("|*_`<>[]#~&!", *at))
			fputc('\\', out);
		fputc(*at, out);
	}
}

/* What is the same in all lines: settings of the run. */
struct lines {
	FILE *out;
	char *command;
	const char *allocator;
	char policy[128]; /* "" where policies do not apply */
	bool is_csv;
};

static char *join(char *const *words)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *memory = open_memstream(&text, &bytes);

	for (char *const *word = words; memory && word && *word; word++)
		fprintf(memory, word == words ? "%s" : " %s", *word);
	if (memory)
		fclose(memory);
	return text;
}

static void print_value(const struct lines *lines, const char *phase, const char *part, const char *name,
			const char *figure, const json_t *value)
{
	FILE *out = lines->out;
	char number[32] = "";

	if (json_is_integer(value))
		snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	else if (json_is_boolean(value))
		strcpy(number, json_is_true(value) ? "true" : "false");
	else if (!json_is_string(value))
		return;
	if (!lines->is_csv) {
		fprintf(out, "| ");
		render_plain__text(out, part);
		fprintf(out, "%s%s.%s | ", name[0] ? "." : "", name, figure);
		render_plain__text(out, json_is_string(value) ? json_string_value(value) : number);
		fputs(" |\n", out);
		return;
	}
	render_plain__field(out, lines->command);
	fputc(',', out);
	render_plain__field(out, lines->allocator);
	fputc(',', out);
	render_plain__field(out, lines->policy);
	fprintf(out, ",%s,%s,%s,%s,", phase, part, name, figure);
	render_plain__field(out, json_is_string(value) ? json_string_value(value) : number);
	fputc('\n', out);
}

/* Every figure below object. name: the keys between part and figure; put back. */
static void print_object(const struct lines *lines, const char *phase, const char *part, char name[96],
			 const json_t *object)
{
	size_t name_bytes = strlen(name);
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)object, key, value)
	{
		if (!json_is_object(value)) {
			print_value(lines, phase, part, name, key, value);
			continue;
		}
		snprintf(name + name_bytes, 96 - name_bytes, "%s%s", name_bytes ? "." : "", key);
		print_object(lines, phase, part, name, value);
		name[name_bytes] = 0;
	}
}

static void print_phase(const struct lines *lines, const char *phase, const json_t *object, bool has_classes)
{
	char name[96] = "";
	const char *part;
	json_t *value;

	json_object_foreach((json_t *)object, part, value)
	{
		if (has_classes || (strcmp(part, "classes") != 0 && strcmp(part, "syscalls") != 0))
			print_object(lines, phase, part, name, value);
	}
}

static int begin(struct lines *lines, const struct profile *profile, FILE *out, bool is_csv, json_t **document)
{
	*lines = (struct lines){
		.out = out, .command = join(profile->argv), .allocator = profile->allocator, .is_csv = is_csv};
	if (profile->has_policy)
		settings__format_policy(profile->policy, lines->policy, sizeof(lines->policy));
	*document = render_json__document(profile);
	return lines->command && *document ? 0 : -ENOMEM;
}

int render_plain__csv(FILE *out, const struct profile *profile)
{
	struct lines lines;
	json_t *document, *phase;
	char name[96] = "";
	const char *key;
	int err = begin(&lines, profile, out, true, &document);

	if (!err) {
		fputs("command,allocator,policy,phase,part,name,figure,value\n", out);
		json_object_foreach(json_object_get(document, "phases"), key, phase)
		{
			print_phase(&lines, key, phase, true);
		}
		if (render__has_phases(profile))
			print_phase(&lines, "total", json_object_get(document, "total"), true);
		print_object(&lines, "run", "rusage", name, json_object_get(document, "rusage"));
		print_object(&lines, "run", "tool", name, json_object_get(document, "tool"));
	}
	json_decref(document);
	free(lines.command);
	return err;
}

static void print_class_row(FILE *out, enum at_class class, const struct class_stat *stat)
{
	const char *name = stat->last_errno ? strerrorname_np(stat->last_errno) : NULL;
	char text[FORMAT_BYTES];
	bool is_fault = profile__class_syscall(class) == AT_SYS_INVALID;

	fprintf(out, "| %s | %" PRIu64 " | ", profile__class_name(class), stat->call_cnt);
	if (!is_fault)
		fprintf(out, "%" PRIu64 "%s%s", stat->error_cnt, stat->error_cnt && name ? " " : "",
			stat->error_cnt && name ? name : "");
	fprintf(out, " | %s | %.3f | %.2f | %.2f | %.2f | %.2f | %.2f |\n",
		is_fault ? "" : format__bytes(stat->bytes, text), stat->sum_ns / 1e6, profile__mean_ns(stat) / 1e3,
		profile__quantile_ns(stat, 0.50) / 1e3, profile__quantile_ns(stat, 0.90) / 1e3,
		profile__quantile_ns(stat, 0.99) / 1e3, stat->max_ns / 1e3);
}

static void print_classes(FILE *out, const struct phase_stat *phase)
{
	fputs("\n| class | calls | errors | bytes | kernel ms | mean us | p50 us | p90 us | p99 us | max us |\n"
	      "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
	      out);
	for (int class = 1; class < AT_CLASS_CNT; class ++)
		if (class != AT_CLASS_MADVISE_PHASE && phase->classes[class].call_cnt)
			print_class_row(out, class, &phase->classes[class]);
}

/* The head, and the classes of the phase that the table shows. */
static int print_head(const struct lines *lines, const struct profile *profile)
{
	struct phase_stat *phase = malloc(sizeof(*phase));
	FILE *out = lines->out;

	if (!phase)
		return -ENOMEM;
	fputs("## ", out);
	render_plain__text(out, lines->command);
	fputs("\n\n", out);
	fputs("* allocator ", out);
	render_plain__text(out, profile->allocator);
	fprintf(out, "%s%s\n", lines->policy[0] ? ", policies " : "", lines->policy);
	fprintf(out, "* alloctrace %s, tier %d%s; Linux %s, %d CPUs\n", profile->version, profile->tier,
		!profile->has_trace          ? ", not traced"
		: profile__is_exact(profile) ? ", exact"
					     : ", **not exact**",
		profile->kernel, profile->cpu_cnt);
	fprintf(out, "* phase: %s\n", render__has_phases(profile) ? profile__phase_name(AT_PHASE_MEASURED) : "all");
	if (render__has_phases(profile))
		*phase = profile->phases[AT_PHASE_MEASURED];
	else
		profile__total(profile, phase);
	if (profile->has_trace)
		print_classes(out, phase);
	free(phase);
	return 0;
}

int render_plain__markdown(FILE *out, const struct profile *profile)
{
	struct lines lines;
	json_t *document;
	char name[96] = "";
	int err = begin(&lines, profile, out, false, &document);
	const char *shown = render__has_phases(profile) ? profile__phase_name(AT_PHASE_MEASURED) : "all";

	if (!err)
		err = print_head(&lines, profile);
	if (!err) {
		fputs("\n| figure | value |\n|---|--:|\n", out);
		print_phase(&lines, shown, json_object_get(json_object_get(document, "phases"), shown), false);
		print_object(&lines, "run", "rusage", name, json_object_get(document, "rusage"));
	}
	json_decref(document);
	free(lines.command);
	return err;
}
