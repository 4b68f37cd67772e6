/* SPDX-License-Identifier: BSD-2-Clause */
/* See allocators.h. */
#include "cli/allocators.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/allocator.h"
#include "cli/counters.h"
#include "cli/policy_ctl.h"

enum { ASK_MAX = 500 }; /* processes that are asked for their allocator */

/* What a process had counted when it was attached to. */
struct start {
	uint64_t address; /* of its counters; 0: it had none yet */
	uint32_t pid;     /* as the counters have it */
	struct counters_mark mark;
};

/* What it counted from then on, by phase. */
struct part {
	struct atm_sums phases[ATM_PHASE_CNT];
};

struct allocators {
	struct processes first, last;
	struct start **starts; /* of first; NULL: could not be read */
	struct part **parts;   /* of last; NULL: not known, see self_state */
	size_t start_cnt, part_cnt;
	bool has_bundled;              /* one of them had it */
	struct atm_counters *counters; /* of the process that is being read */
};

/* One look at a process. 0: its counters are in allocators->counters. */
static int look_at(struct allocators *allocators, struct process_stat *item, struct policy_ctl *ctl)
{
	char why[256];
	int err = policy_ctl__open(ctl, item->pid, why, sizeof(why));

	allocator__find(item->pid, err ? NULL : &ctl->control, item->allocator, sizeof(item->allocator));
	/* One of another version counts, too, but nobody can read it. */
	item->self_state = !err || err == -EPROTO ? SELF_UNREAD : SELF_NONE;
	allocators->has_bundled |= item->self_state != SELF_NONE;
	return err ? err : policy_ctl__read_counters(ctl, allocators->counters);
}

static int note_start(struct allocators *allocators, size_t number)
{
	struct policy_ctl ctl;
	int err = look_at(allocators, &allocators->first.items[number], &ctl);
	struct start *start;

	/* One that has just started its program may load it yet. */
	if (err && err != -ENOENT)
		return 0;
	start = calloc(1, sizeof(*start));
	allocators->starts[number] = start;
	if (!start)
		return -ENOMEM;
	if (err)
		return 0;
	start->address = ctl.counters_address;
	start->pid = allocators->counters->pid;
	counters__mark(allocators->counters, &start->mark);
	return 0;
}

int allocators__begin(struct allocators **out, struct processes *first)
{
	struct allocators *allocators = calloc(1, sizeof(*allocators));
	size_t asked_cnt = 0;
	int err = 0;

	*out = allocators;
	if (!allocators)
		return -ENOMEM;
	allocators->first = *first;
	processes__init(first);
	processes__init(&allocators->last);
	allocators->start_cnt = allocators->first.cnt;
	allocators->starts = calloc(allocators->start_cnt + 1, sizeof(*allocators->starts));
	allocators->counters = malloc(sizeof(*allocators->counters));
	if (!allocators->starts || !allocators->counters)
		return -ENOMEM;
	for (size_t i = 0; !err && i < allocators->first.cnt; i++) {
		struct process_stat *item = &allocators->first.items[i];

		item->self_state = SELF_UNASKED;
		if (!item->is_ended && item->pid && asked_cnt++ < ASK_MAX)
			err = note_start(allocators, i);
	}
	return err;
}

/* The number that a process has for itself, in the innermost pid namespace; 0: not known. */
static uint32_t own_number(pid_t pid)
{
	char path[64], line[512];
	unsigned number = 0;
	FILE *status;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	status = fopen(path, "re");
	while (status && fgets(line, sizeof(line), status)) {
		const char *last = strncmp(line, "NSpid:", 6) ? NULL : strrchr(line, '\t');

		if (last && sscanf(last, "%u", &number) == 1)
			break;
	}
	if (status)
		fclose(status);
	return number;
}

/* Whether what was read in `counters` tells what the process did while it was traced, and since which mark. */
static enum self_state judge(const struct allocators *allocators, const struct process_stat *item,
			     const struct policy_ctl *ctl, const struct counters_mark **mark)
{
	static const struct counters_mark zero;
	const struct atm_counters *counters = allocators->counters;
	const struct process_stat *first =
		processes__find(&allocators->first, item->tgid, item->start_ns, item->exec_cnt);
	const struct start *start = first ? allocators->starts[first - allocators->first.items] : NULL;

	/* A child of vfork, or a clone that no handler of pthread_atfork has seen. */
	if (counters->magic && counters->pid != own_number(item->pid))
		return SELF_SHARED;
	if (counters->uncounted_heap_cnt)
		return SELF_HEAPS;
	*mark = start ? &start->mark : &zero;
	if (first && (!start || (start->address && (start->address != ctl->counters_address ||
						    (start->pid && start->pid != counters->pid)))))
		return SELF_UNREAD;
	return !first && item->is_found ? SELF_LATE : SELF_KNOWN;
}

static int note_end(struct allocators *allocators, size_t number, bool is_partial)
{
	struct process_stat *item = &allocators->last.items[number];
	const struct counters_mark *mark;
	struct policy_ctl ctl;
	struct part *part;
	int err = look_at(allocators, item, &ctl);

	if (err || is_partial) {
		if (item->self_state != SELF_NONE)
			item->self_state = is_partial ? SELF_THREADS : err == -ESRCH ? SELF_ENDED : SELF_UNREAD;
		return 0;
	}
	item->self_state = judge(allocators, item, &ctl, &mark);
	if (item->self_state != SELF_KNOWN)
		return 0;
	part = calloc(1, sizeof(*part));
	allocators->parts[number] = part;
	if (!part)
		return -ENOMEM;
	counters__add_since(allocators->counters, mark, part->phases);
	for (int phase = 0; phase < ATM_PHASE_CNT; phase++)
		counters__add_sums(&item->self, &part->phases[phase]);
	return 0;
}

int allocators__end(struct allocators *allocators, struct processes *last, bool is_partial)
{
	size_t asked_cnt = 0;
	int err = 0;

	allocators->last = *last;
	processes__init(last);
	allocators->parts = calloc(allocators->last.cnt + 1, sizeof(*allocators->parts));
	if (!allocators->parts)
		return -ENOMEM;
	allocators->part_cnt = allocators->last.cnt;
	for (size_t i = 0; !err && i < allocators->last.cnt; i++) {
		struct process_stat *item = &allocators->last.items[i];

		item->self_state = SELF_UNASKED;
		if (!item->is_ended && item->pid && asked_cnt++ < ASK_MAX)
			err = note_end(allocators, i, is_partial);
	}
	return err;
}

/* Its allocator, and whether its requests are known, from the two looks at it. */
static void settle(const struct allocators *allocators, struct process_stat *item)
{
	const struct process_stat *first =
		processes__find(&allocators->first, item->tgid, item->start_ns, item->exec_cnt);
	const struct process_stat *last =
		processes__find(&allocators->last, item->tgid, item->start_ns, item->exec_cnt);
	const struct process_stat *asked = last && last->allocator[0] ? last : first;

	if (asked)
		memcpy(item->allocator, asked->allocator, sizeof(item->allocator));
	if (!allocators->has_bundled || (asked && asked->allocator[0] && asked->self_state == SELF_NONE)) {
		item->self_state = SELF_NONE;
		return;
	}
	item->self_state = last ? last->self_state : SELF_UNASKED;
	if (item->is_ended)
		item->self_state = SELF_ENDED;
	else if (item->self_state == SELF_NONE && first && first->self_state != SELF_NONE)
		item->self_state = SELF_UNREAD;
}

void allocators__fill(const struct allocators *allocators, struct profile *profile)
{
	for (size_t i = 0; i < profile->processes->cnt; i++) {
		struct process_stat *item = &profile->processes->items[i];
		const struct process_stat *last;

		settle(allocators, item);
		if (item->self_state != SELF_KNOWN)
			continue;
		last = processes__find(&allocators->last, item->tgid, item->start_ns, item->exec_cnt);
		item->self = last->self;
		for (int phase = 0; phase < ATM_PHASE_CNT; phase++)
			counters__add_sums(&profile->phases[phase].self,
					   &allocators->parts[last - allocators->last.items]->phases[phase]);
		profile->has_self_counts = true;
		profile->self_process_cnt++;
	}
}

void allocators__free(struct allocators *allocators)
{
	if (!allocators)
		return;
	for (size_t i = 0; i < allocators->part_cnt; i++)
		free(allocators->parts[i]);
	free(allocators->parts);
	for (size_t i = 0; allocators->starts && i < allocators->start_cnt; i++)
		free(allocators->starts[i]);
	free(allocators->starts);
	processes__free(&allocators->first);
	processes__free(&allocators->last);
	free(allocators->counters);
	free(allocators);
}
