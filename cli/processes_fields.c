/* SPDX-License-Identifier: BSD-2-Clause */
/* The members of struct processes and its parts, one line each; see processes_fields.h. */
#include "cli/processes_fields.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ledger_fields.h"
#include "cli/profile.h"
#include "cli/profile_fields.h"

static const char *class_name(int index)
{
	return profile__class_name(index);
}

static const struct field cpu_fields[] = {
	FIELD(struct at_cpu, user_ns),
	FIELD(struct at_cpu, sys_ns),
	FIELD(struct at_cpu, total_ns),
	FIELD_END,
};

static const struct field usage_fields[] = {
	FIELD(struct usage, call_cnt),
	FIELD(struct usage, error_cnt),
	FIELD(struct usage, bytes),
	FIELD(struct usage, sum_ns),
	FIELD_END,
};

static const struct field ledger_fields[] = {
	FIELD(struct at_row_ledger, charged_pages),
	FIELD(struct at_row_ledger, uncharged_pages),
	FIELD(struct at_row_ledger, update_cnt),
	FIELD(struct at_row_ledger, peak_pages),
	FIELD(struct at_row_ledger, vma_first_ns),
	FIELD(struct at_row_ledger, vma_first),
	FIELD(struct at_row_ledger, vma_last_ns),
	FIELD(struct at_row_ledger, vma_last),
	FIELD(struct at_row_ledger, vma_peak),
	FIELD_OBJECTS(struct at_row_ledger, refaults, ledger_fields__release_name, ledger_fields__release),
	FIELD_OBJECTS(struct at_row_ledger, locks, ledger_fields__lock_name, ledger_fields__wait),
	FIELD_OBJECT(struct at_row_ledger, stacks, ledger_fields__stacks),
	FIELD_END,
};

static const struct field thread_fields[] = {
	FIELD(struct thread_stat, tid),
	FIELD_TEXT(struct thread_stat, comm),
	FIELD(struct thread_stat, is_ended),
	FIELD(struct thread_stat, begin_ns),
	FIELD_OBJECT(struct thread_stat, cpu, cpu_fields),
	FIELD_OBJECTS(struct thread_stat, classes, class_name, usage_fields),
	FIELD_OBJECT(struct thread_stat, ledger, ledger_fields),
	FIELD_END,
};

static const char *self_name(int index)
{
	return processes__self_name(index);
}

static const struct field process_fields[] = {
	FIELD(struct process_stat, pid),
	FIELD(struct process_stat, tgid),
	FIELD(struct process_stat, start_ns),
	FIELD(struct process_stat, exec_cnt),
	FIELD_TEXT(struct process_stat, comm),
	FIELD_TEXT(struct process_stat, allocator),
	FIELD(struct process_stat, is_ended),
	FIELD(struct process_stat, has_leader),
	FIELD(struct process_stat, is_found),
	FIELD(struct process_stat, begin_ns),
	FIELD_OBJECT(struct process_stat, cpu, cpu_fields),
	FIELD_OBJECTS(struct process_stat, classes, class_name, usage_fields),
	FIELD_OBJECT(struct process_stat, ledger, ledger_fields),
	FIELD_ENUM(struct process_stat, self_state, SELF_STATE_CNT, self_name),
	FIELD_OBJECT(struct process_stat, self, profile_self_fields),
	FIELD(struct process_stat, thread_cnt),
	FIELD_END,
};

static const struct field rest_fields[] = {
	FIELD_OBJECTS(struct processes, rest, class_name, usage_fields),
	FIELD(struct processes, rest_cnt),
	FIELD_OBJECTS(struct processes, other, class_name, usage_fields),
	FIELD(struct processes, other_cnt),
	FIELD_END,
};

json_t *processes_fields__write(const struct processes *processes)
{
	json_t *object = fields__write(rest_fields, processes), *items = json_array();

	for (size_t i = 0; object && i < processes->cnt; i++) {
		const struct process_stat *item = &processes->items[i];
		json_t *process = fields__write(process_fields, item), *threads = json_array();

		for (size_t j = 0; j < item->kept_cnt; j++)
			json_array_append_new(threads, fields__write(thread_fields, &item->threads[j]));
		json_object_set_new(process, "threads", threads);
		json_array_append_new(items, process);
	}
	if (json_object_set_new(object, "items", items)) {
		json_decref(object);
		return NULL;
	}
	return object;
}

static int refuse(struct fields_reading *reading, const char *why)
{
	snprintf(reading->where, sizeof(reading->where), "processes");
	reading->why = why;
	return -EINVAL;
}

/* The fields of an object but for one key, which is taken out and returned through `part` (borrowed). */
static int read_without(const struct field *fields, const json_t *object, const char *key, void *data, json_t **part,
			struct fields_reading *reading)
{
	json_t *copy;
	int err;

	*part = json_object_get(object, key);
	if (!json_is_array(*part))
		return refuse(reading, "lacks a list");
	copy = json_copy((json_t *)object);
	if (!copy)
		return -ENOMEM;
	json_object_del(copy, key);
	err = fields__read(fields, copy, data, reading);
	json_decref(copy);
	return err;
}

static int read_threads(const json_t *list, struct processes *processes, struct process_stat *item,
			struct fields_reading *reading)
{
	size_t cnt = json_array_size(list);
	int err = 0;

	if (cnt > PROCESSES_THREAD_MAX - processes->kept_thread_cnt)
		return refuse(reading, "has more threads than are ever kept");
	item->threads = calloc(cnt ? cnt : 1, sizeof(*item->threads));
	if (!item->threads)
		return -ENOMEM;
	for (size_t i = 0; !err && i < cnt; i++) {
		if (!json_is_object(json_array_get(list, i)))
			return refuse(reading, "has a thread that is no object");
		err = fields__read(thread_fields, json_array_get(list, i), &item->threads[i], reading);
		item->kept_cnt++;
		processes->kept_thread_cnt++;
	}
	return err;
}

int processes_fields__read(const json_t *object, struct processes *processes, struct fields_reading *reading)
{
	json_t *items, *threads;
	size_t cnt;
	int err;

	if (!json_is_object(object))
		return refuse(reading, "is no object");
	err = read_without(rest_fields, object, "items", processes, &items, reading);
	if (err)
		return err;
	cnt = json_array_size(items);
	if (cnt > PROCESSES_MAX)
		return refuse(reading, "has more processes than are ever kept");
	processes->items = calloc(cnt ? cnt : 1, sizeof(*processes->items));
	if (!processes->items)
		return -ENOMEM;
	processes->cap = cnt;
	for (size_t i = 0; !err && i < cnt; i++) {
		const json_t *process = json_array_get(items, i);

		if (!json_is_object(process))
			return refuse(reading, "has a process that is no object");
		processes->cnt++;
		err = read_without(process_fields, process, "threads", &processes->items[i], &threads, reading);
		if (!err)
			err = read_threads(threads, processes, &processes->items[i], reading);
	}
	return err;
}
