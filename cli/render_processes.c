/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes and threads as tables and JSON; see render_processes.h. */
#include "cli/render_processes.h"

#include <string.h>

#include "cli/format.h"
#include "cli/json_part.h"
#include "cli/json_text.h"
#include "cli/profile.h"
#include "cli/render_requests.h"
#include "cli/render_row_ledgers.h"

enum { COMM_TEXT = 4 * AT_COMM_BYTES + 1, HEADLINE_CNT = 4 };

static const char *comm_text(const char *comm, char text[COMM_TEXT])
{
	return format__escape(comm[0] ? comm : "?", text, COMM_TEXT);
}

void render_processes__headline(FILE *out, const struct processes *processes)
{
	uint64_t thread_cnt = 0;
	char comm[COMM_TEXT], a[FORMAT_BYTES], b[FORMAT_BYTES];

	for (size_t i = 0; i < processes->cnt; i++)
		thread_cnt += processes->items[i].thread_cnt;
	fprintf(out, " attached to %s process%s, %s thread%s", format__count(processes->cnt, a),
		processes->cnt == 1 ? "" : "es", format__count(thread_cnt, b), thread_cnt == 1 ? "" : "s");
	for (size_t i = 0; i < processes->cnt && i < HEADLINE_CNT; i++)
		fprintf(out, "%s %s (%d)", i ? "," : ":", comm_text(processes->items[i].comm, comm),
			(int)processes->items[i].pid);
	if (processes->cnt > HEADLINE_CNT)
		fputs(", ...", out);
}

static void print_row(FILE *out, const char *label, const char *name, const struct usage classes[AT_CLASS_CNT],
		      const struct at_cpu *cpu, const char *tail)
{
	struct usage calls, faults;
	char a[FORMAT_BYTES], b[FORMAT_BYTES], c[FORMAT_BYTES];

	processes__sum(classes, &calls, &faults);
	fprintf(out, "%-10s %-18s %12s %8s %10.3f %12s %10.3f", label, name, format__count(calls.call_cnt, a),
		format__count(calls.error_cnt, b), calls.sum_ns / 1e6, format__count(faults.call_cnt, c),
		faults.sum_ns / 1e6);
	if (cpu)
		fprintf(out, " %10.1f %10.1f", processes__user_ns(cpu) / 1e6, processes__sys_ns(cpu) / 1e6);
	fprintf(out, "%s%s\n", tail[0] ? "  " : "", tail);
}

static void print_threads(FILE *out, const struct process_stat *item, unsigned top_cnt)
{
	size_t cnt = top_cnt && item->kept_cnt > top_cnt ? top_cnt : item->kept_cnt;
	char label[24], comm[COMM_TEXT], text[FORMAT_BYTES];

	/* A process of one thread has been shown. */
	if (item->thread_cnt < 2)
		return;
	for (size_t i = 0; i < cnt; i++) {
		const struct thread_stat *thread = &item->threads[i];

		snprintf(label, sizeof(label), "  %d", (int)thread->tid);
		print_row(out, label, comm_text(thread->comm, comm), thread->classes, &thread->cpu,
			  thread->is_ended ? "ended" : "");
	}
	if (item->thread_cnt > cnt)
		fprintf(out, "  and %s threads more\n", format__count(item->thread_cnt - cnt, text));
}

static void print_rests(FILE *out, const struct processes *processes)
{
	char label[FORMAT_BYTES];
	struct usage calls, faults;

	if (processes->rest_cnt)
		print_row(out, "(rest)", "ended, not kept", processes->rest, NULL, "");
	processes__sum(processes->other, &calls, &faults);
	if (!processes->other_cnt && !calls.call_cnt && !faults.call_cnt)
		return;
	print_row(out, "(other)", "no row", processes->other, NULL, "");
	if (processes->other_cnt)
		fprintf(out, "%s threads found no row and are told apart no further: --rows N makes room for more\n",
			format__count(processes->other_cnt, label));
}

void render_processes__table(FILE *out, const struct processes *processes, unsigned top_cnt, bool has_color,
			     bool has_threads)
{
	size_t cnt = top_cnt && processes->cnt > top_cnt ? top_cnt : processes->cnt;
	char label[24], comm[COMM_TEXT], tail[192], text[FORMAT_BYTES];

	fprintf(out, "\n%s%-10s %-18s %12s %8s %10s %12s %10s %10s %10s%s\n", has_color ? "\033[1m" : "", "pid", "name",
		"calls", "errors", "kernel ms", "faults", "fault ms", "user ms", "system ms",
		has_color ? "\033[0m" : "");
	for (size_t i = 0; i < cnt; i++) {
		const struct process_stat *item = &processes->items[i];
		char allocator[128];

		snprintf(label, sizeof(label), "%d", (int)item->pid);
		format__escape(item->allocator, allocator, sizeof(allocator));
		snprintf(tail, sizeof(tail), "%s%s%s", allocator, allocator[0] && item->is_ended ? ", " : "",
			 item->is_ended ? "ended" : "");
		print_row(out, label, comm_text(item->comm, comm), item->classes, &item->cpu, tail);
		if (has_threads)
			print_threads(out, item, top_cnt);
	}
	if (processes->cnt > cnt)
		fprintf(out, "and %s processes more: --top 0 lists all\n", format__count(processes->cnt - cnt, text));
	print_rests(out, processes);
}

/* Classes that have calls. */
static json_t *classes_object(const struct usage classes[AT_CLASS_CNT])
{
	json_t *object = json_object();

	for (int class = 1; class < AT_CLASS_CNT; class ++) {
		json_t *usage;

		if (!classes[class].call_cnt)
			continue;
		usage = json_object();
		json_part__set_number(usage, "calls", classes[class].call_cnt);
		json_part__set_number(usage, "errors", classes[class].error_cnt);
		if (profile__class_syscall(class) != AT_SYS_INVALID)
			json_part__set_number(usage, "bytes", classes[class].bytes);
		json_part__set_number(usage, "kernel_ns", classes[class].sum_ns);
		json_object_set_new(object, profile__class_name(class), usage);
	}
	return object;
}

static void set_cpu(json_t *object, const struct at_cpu *cpu)
{
	json_part__set_number(object, "user_ns", processes__user_ns(cpu));
	json_part__set_number(object, "sys_ns", processes__sys_ns(cpu));
}

static json_t *thread_object(const struct thread_stat *thread, unsigned ledgers)
{
	json_t *object = json_object();

	json_part__set_number(object, "tid", (uint64_t)thread->tid);
	json_text__set(object, "name", thread->comm);
	json_object_set_new(object, "ended", json_boolean(thread->is_ended));
	set_cpu(object, &thread->cpu);
	json_object_set_new(object, "classes", classes_object(thread->classes));
	render_row_ledgers__json(object, &thread->ledger, ledgers);
	return object;
}

static json_t *process_object(const struct process_stat *item, unsigned ledgers)
{
	json_t *object = json_object(), *threads = json_array();

	json_part__set_number(object, "pid", (uint64_t)item->pid);
	json_text__set(object, "name", item->comm);
	json_part__set_number(object, "start_ns", item->start_ns);
	json_part__set_number(object, "execs", item->exec_cnt);
	json_object_set_new(object, "ended", json_boolean(item->is_ended));
	if (item->allocator[0])
		json_text__set(object, "allocator", item->allocator);
	set_cpu(object, &item->cpu);
	json_part__set_number(object, "thread_count", item->thread_cnt);
	json_object_set_new(object, "classes", classes_object(item->classes));
	render_row_ledgers__json(object, &item->ledger, ledgers);
	render_requests__process_json(object, item);
	for (size_t i = 0; i < item->kept_cnt; i++)
		json_array_append_new(threads, thread_object(&item->threads[i], ledgers));
	json_object_set_new(object, "threads", threads);
	return object;
}

static void set_rest(json_t *document, const char *key, uint64_t thread_cnt, const struct usage classes[AT_CLASS_CNT])
{
	struct usage calls, faults;
	json_t *object;

	processes__sum(classes, &calls, &faults);
	if (!thread_cnt && !calls.call_cnt && !faults.call_cnt)
		return;
	object = json_object();
	json_part__set_number(object, "threads", thread_cnt);
	json_object_set_new(object, "classes", classes_object(classes));
	json_object_set_new(document, key, object);
}

void render_processes__json(json_t *document, const struct processes *processes, unsigned ledgers)
{
	json_t *list = json_array();

	for (size_t i = 0; i < processes->cnt; i++)
		json_array_append_new(list, process_object(&processes->items[i], ledgers));
	json_object_set_new(document, "processes", list);
	set_rest(document, "rest", processes->rest_cnt, processes->rest);
	set_rest(document, "other", processes->other_cnt, processes->other);
}
