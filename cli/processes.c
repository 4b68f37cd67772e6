/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums by process and thread; see processes.h. Pure arithmetic. */
#include "cli/processes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/profile.h"
#include "cli/row_ledger.h"

void processes__init(struct processes *processes)
{
	*processes = (struct processes){0};
}

void processes__free(struct processes *processes)
{
	for (size_t i = 0; i < processes->cnt; i++)
		free(processes->items[i].threads);
	free(processes->items);
	free(processes->index);
	processes__init(processes);
}

static void add_usage(struct usage dst[AT_CLASS_CNT], const struct usage src[AT_CLASS_CNT])
{
	for (int class = 0; class < AT_CLASS_CNT; class ++) {
		dst[class].call_cnt += src[class].call_cnt;
		dst[class].error_cnt += src[class].error_cnt;
		dst[class].bytes += src[class].bytes;
		dst[class].sum_ns += src[class].sum_ns;
	}
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static void subtract_usage(struct usage dst[AT_CLASS_CNT], const struct usage src[AT_CLASS_CNT])
{
	for (int class = 0; class < AT_CLASS_CNT; class ++) {
		dst[class].call_cnt = less(dst[class].call_cnt, src[class].call_cnt);
		dst[class].error_cnt = less(dst[class].error_cnt, src[class].error_cnt);
		dst[class].bytes = less(dst[class].bytes, src[class].bytes);
		dst[class].sum_ns = less(dst[class].sum_ns, src[class].sum_ns);
	}
}

static void add_cpu(struct at_cpu *dst, const struct at_cpu *src)
{
	dst->user_ns += src->user_ns;
	dst->sys_ns += src->sys_ns;
	dst->total_ns += src->total_ns;
}

static size_t hash(uint32_t tgid, uint64_t start_ns, uint32_t exec_cnt)
{
	return (tgid * 2654435761u) ^ (size_t)(start_ns * 0x9e3779b97f4a7c15u >> 32) ^ (exec_cnt * 40503u);
}

/* The index entry of a process: its own, or the empty one where it belongs. The index is never full. */
static uint32_t *index_entry(const struct processes *processes, uint32_t tgid, uint64_t start_ns, uint32_t exec_cnt)
{
	size_t at = hash(tgid, start_ns, exec_cnt) & (processes->index_cnt - 1);

	for (; processes->index[at]; at = (at + 1) & (processes->index_cnt - 1)) {
		const struct process_stat *item = &processes->items[processes->index[at] - 1];

		if (item->tgid == tgid && item->start_ns == start_ns && item->exec_cnt == exec_cnt)
			break;
	}
	return &processes->index[at];
}

const struct process_stat *processes__find(const struct processes *processes, uint32_t tgid, uint64_t start_ns,
					   uint32_t exec_cnt)
{
	const uint32_t *entry = processes->index_cnt ? index_entry(processes, tgid, start_ns, exec_cnt) : NULL;

	return entry && *entry ? &processes->items[*entry - 1] : NULL;
}

const char *processes__self_name(enum self_state state)
{
#define X(id, name, why) [SELF_##id] = name,
	static const char *const names[SELF_STATE_CNT] = {SELF_STATES(X)};
#undef X

	return names[state];
}

static int grow_index(struct processes *processes)
{
	size_t cnt = processes->index_cnt ? 2 * processes->index_cnt : 64;
	uint32_t *index = calloc(cnt, sizeof(*index));

	if (!index)
		return -ENOMEM;
	free(processes->index);
	processes->index = index;
	processes->index_cnt = cnt;
	for (size_t i = 0; i < processes->cnt; i++) {
		const struct process_stat *item = &processes->items[i];

		*index_entry(processes, item->tgid, item->start_ns, item->exec_cnt) = (uint32_t)i + 1;
	}
	return 0;
}

static int grow_items(struct processes *processes)
{
	size_t cap = processes->cap ? 2 * processes->cap : 16;
	struct process_stat *items = realloc(processes->items, cap * sizeof(*items));

	if (!items)
		return -ENOMEM;
	processes->items = items;
	processes->cap = cap;
	return 0;
}

/* The item of a process, made where there is none; NULL without an error: there is no more room. */
static int find_item(struct processes *processes, uint32_t tgid, uint64_t start_ns, uint32_t exec_cnt,
		     struct process_stat **item)
{
	uint32_t *entry;
	int err = 0;

	*item = NULL;
	if (2 * processes->cnt + 2 > processes->index_cnt)
		err = grow_index(processes);
	if (err)
		return err;
	entry = index_entry(processes, tgid, start_ns, exec_cnt);
	if (!*entry) {
		if (processes->cnt >= PROCESSES_MAX)
			return 0;
		if (processes->cnt == processes->cap)
			err = grow_items(processes);
		if (err)
			return err;
		processes->items[processes->cnt] = (struct process_stat){
			.tgid = tgid,
			.start_ns = start_ns,
			.exec_cnt = exec_cnt,
			.is_ended = true,
		};
		*entry = (uint32_t)++processes->cnt;
	}
	*item = &processes->items[*entry - 1];
	return 0;
}

static int keep_thread(struct processes *processes, struct process_stat *item, const struct thread_stat *thread)
{
	struct thread_stat *threads;

	if (processes->kept_thread_cnt >= PROCESSES_THREAD_MAX)
		return 0;
	/* Doubled whenever the number of them is a power of two. */
	if (!(item->kept_cnt & (item->kept_cnt - 1))) {
		size_t cap = item->kept_cnt ? 2 * item->kept_cnt : 1;

		threads = realloc(item->threads, cap * sizeof(*threads));
		if (!threads)
			return -ENOMEM;
		item->threads = threads;
	}
	item->threads[item->kept_cnt++] = *thread;
	processes->kept_thread_cnt++;
	return 0;
}

static void thread_of_row(const struct at_row *row, struct thread_stat *thread)
{
	*thread = (struct thread_stat){
		.tid = (pid_t)row->shown_tid,
		.is_ended = row->end_ns != 0,
		.begin_ns = row->begin_ns,
		.cpu.user_ns = less(row->last.user_ns, row->first.user_ns),
		.cpu.sys_ns = less(row->last.sys_ns, row->first.sys_ns),
		.cpu.total_ns = less(row->last.total_ns, row->first.total_ns),
		.ledger = row->ledger,
	};
	memcpy(thread->comm, row->comm, sizeof(thread->comm) - 1);
	for (int class = 0; class < AT_CLASS_CNT; class ++)
		thread->classes[class] = (struct usage){
			.call_cnt = row->classes[class].call_cnt,
			.error_cnt = row->classes[class].error_cnt,
			.bytes = row->classes[class].bytes,
			.sum_ns = row->classes[class].sum_ns,
		};
}

int processes__add_row(struct processes *processes, const struct at_row *row)
{
	bool is_leader = row->tid == row->tgid;
	struct process_stat *item;
	struct thread_stat thread;
	int err = find_item(processes, row->tgid, row->start_ns, row->exec_cnt, &item);

	if (err)
		return err;
	thread_of_row(row, &thread);
	if (!item) {
		add_usage(processes->rest, thread.classes);
		processes->rest_cnt++;
		return 0;
	}
	item->pid = (pid_t)row->shown_tgid;
	if (is_leader || !item->has_leader)
		memcpy(item->comm, thread.comm, sizeof(item->comm));
	item->has_leader |= is_leader;
	item->is_ended &= thread.is_ended;
	item->is_found |= row->is_found != 0;
	if (!item->begin_ns || thread.begin_ns < item->begin_ns)
		item->begin_ns = thread.begin_ns;
	add_cpu(&item->cpu, &thread.cpu);
	add_usage(item->classes, thread.classes);
	row_ledger__add(&item->ledger, &thread.ledger);
	item->thread_cnt++;
	return keep_thread(processes, item, &thread);
}

static int add_item(struct processes *processes, const struct process_stat *src)
{
	struct process_stat *item;
	int err = find_item(processes, src->tgid, src->start_ns, src->exec_cnt, &item);

	if (err)
		return err;
	if (!item) {
		add_usage(processes->rest, src->classes);
		processes->rest_cnt += src->thread_cnt;
		return 0;
	}
	item->pid = src->pid;
	if (src->has_leader || !item->has_leader)
		memcpy(item->comm, src->comm, sizeof(item->comm));
	item->has_leader |= src->has_leader;
	if (src->allocator[0])
		memcpy(item->allocator, src->allocator, sizeof(item->allocator));
	item->is_ended &= src->is_ended;
	item->is_found |= src->is_found;
	if (!item->begin_ns || src->begin_ns < item->begin_ns)
		item->begin_ns = src->begin_ns;
	add_cpu(&item->cpu, &src->cpu);
	add_usage(item->classes, src->classes);
	row_ledger__add(&item->ledger, &src->ledger);
	item->thread_cnt += src->thread_cnt;
	for (size_t i = 0; !err && i < src->kept_cnt; i++)
		err = keep_thread(processes, item, &src->threads[i]);
	return err;
}

int processes__add(struct processes *processes, const struct processes *src)
{
	int err = 0;

	for (size_t i = 0; !err && i < src->cnt; i++)
		err = add_item(processes, &src->items[i]);
	add_usage(processes->rest, src->rest);
	processes->rest_cnt += src->rest_cnt;
	add_usage(processes->other, src->other);
	processes->other_cnt += src->other_cnt;
	return err;
}

int processes__since(const struct processes *now, const struct processes *before, struct processes *out)
{
	int err = 0;

	processes__init(out);
	for (size_t i = 0; !err && i < now->cnt; i++) {
		struct process_stat part = now->items[i];
		const struct process_stat *old = processes__find(before, part.tgid, part.start_ns, part.exec_cnt);

		part.threads = NULL;
		part.kept_cnt = 0;
		if (old) {
			subtract_usage(part.classes, old->classes);
			row_ledger__since(&part.ledger, &old->ledger);
			part.cpu.user_ns = less(part.cpu.user_ns, old->cpu.user_ns);
			part.cpu.sys_ns = less(part.cpu.sys_ns, old->cpu.sys_ns);
			part.cpu.total_ns = less(part.cpu.total_ns, old->cpu.total_ns);
		}
		err = add_item(out, &part);
	}
	add_usage(out->rest, now->rest);
	subtract_usage(out->rest, before->rest);
	out->rest_cnt = less(now->rest_cnt, before->rest_cnt);
	add_usage(out->other, now->other);
	subtract_usage(out->other, before->other);
	out->other_cnt = less(now->other_cnt, before->other_cnt);
	return err;
}

void processes__sum(const struct usage classes[AT_CLASS_CNT], struct usage *calls, struct usage *faults)
{
	*calls = *faults = (struct usage){0};
	for (int class = 1; class < AT_CLASS_CNT; class ++) {
		struct usage *sum = profile__class_syscall(class) == AT_SYS_INVALID ? faults : calls;

		if (class == AT_CLASS_MADVISE_PHASE)
			continue;
		sum->call_cnt += classes[class].call_cnt;
		sum->error_cnt += classes[class].error_cnt;
		sum->bytes += classes[class].bytes;
		sum->sum_ns += classes[class].sum_ns;
	}
}

static uint64_t kernel_ns(const struct usage classes[AT_CLASS_CNT])
{
	struct usage calls, faults;

	processes__sum(classes, &calls, &faults);
	return calls.sum_ns + faults.sum_ns;
}

static int order(uint64_t a_ns, uint64_t b_ns, pid_t a, pid_t b)
{
	if (a_ns != b_ns)
		return a_ns < b_ns ? 1 : -1;
	return (a > b) - (a < b);
}

static int compare_threads(const void *a, const void *b)
{
	const struct thread_stat *left = a, *right = b;

	return order(kernel_ns(left->classes), kernel_ns(right->classes), left->tid, right->tid);
}

static int compare_items(const void *a, const void *b)
{
	const struct process_stat *left = a, *right = b;

	return order(kernel_ns(left->classes), kernel_ns(right->classes), left->pid, right->pid);
}

void processes__sort(struct processes *processes)
{
	if (!processes->cnt || !processes->index_cnt)
		return;
	qsort(processes->items, processes->cnt, sizeof(*processes->items), compare_items);
	for (size_t i = 0; i < processes->cnt; i++)
		if (processes->items[i].kept_cnt)
			qsort(processes->items[i].threads, processes->items[i].kept_cnt,
			      sizeof(*processes->items[i].threads), compare_threads);
	memset(processes->index, 0, processes->index_cnt * sizeof(*processes->index));
	for (size_t i = 0; i < processes->cnt; i++) {
		const struct process_stat *item = &processes->items[i];

		*index_entry(processes, item->tgid, item->start_ns, item->exec_cnt) = (uint32_t)i + 1;
	}
}

uint64_t processes__sys_ns(const struct at_cpu *cpu)
{
	uint64_t ticks_ns = cpu->user_ns + cpu->sys_ns;

	/* Nothing but a total: most likely a short time, and nobody knows where. */
	if (!ticks_ns)
		return 0;
	return (uint64_t)((double)cpu->total_ns * (double)cpu->sys_ns / (double)ticks_ns);
}

uint64_t processes__user_ns(const struct at_cpu *cpu)
{
	return cpu->total_ns - processes__sys_ns(cpu);
}

void processes__cpu(const struct processes *processes, struct at_cpu *cpu)
{
	*cpu = (struct at_cpu){0};
	for (size_t i = 0; i < processes->cnt; i++)
		add_cpu(cpu, &processes->items[i].cpu);
}
