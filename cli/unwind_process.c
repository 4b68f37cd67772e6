/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes: from /proc/PID/maps to pieces in the kernel; see unwind_objects.h. */
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/unwind_objects.h"

/* Pieces as they are collected. */
struct draft {
	struct at_piece *pieces;
	uint32_t cnt, max;
};

static int draft__add(struct draft *draft, const struct at_piece *piece)
{
	struct at_piece *pieces;
	uint32_t max;

	if (draft->cnt == AT_PROCESS_PIECES)
		return -E2BIG;
	if (draft->cnt == draft->max) {
		max = draft->max ? 2 * draft->max : 64;
		pieces = reallocarray(draft->pieces, max, sizeof(*pieces));
		if (!pieces)
			return -ENOMEM;
		draft->pieces = pieces;
		draft->max = max;
	}
	draft->pieces[draft->cnt++] = *piece;
	return 0;
}

/* One mapping of a segment: a piece for each of the object's chunks that it covers. */
static int add_object_pieces(struct draft *draft, const struct unwind_object *object, uint64_t start, uint64_t bytes,
			     uint32_t pc0)
{
	const struct at_object *kernel = &object->kernel;
	uint32_t chunk = 0;
	int err = 0;

	while (!err && bytes) {
		struct at_piece piece = {
			.start = start, .pc0 = pc0, .object = (uint16_t)kernel->object, .go = kernel->go};
		uint64_t part = bytes;

		while (chunk + 1 < kernel->chunk_cnt && kernel->chunks[chunk + 1].pc0 <= pc0)
			chunk++;
		if (chunk < kernel->chunk_cnt) {
			piece.row0 = kernel->chunks[chunk].row0;
			piece.row_cnt = kernel->chunks[chunk].row_cnt;
			piece.shard = (uint16_t)kernel->chunks[chunk].shard;
		}
		if (chunk + 1 < kernel->chunk_cnt && kernel->chunks[chunk + 1].pc0 - pc0 < part)
			part = kernel->chunks[chunk + 1].pc0 - pc0;
		piece.bytes = (uint32_t)part;
		err = draft__add(draft, &piece);
		start += part;
		bytes -= part;
		pc0 += (uint32_t)part;
	}
	return err;
}

static int add_file_mapping(struct draft *draft, const struct unwind_object *object,
			    const struct unwind_mapping *mapping)
{
	const struct at_object *kernel = &object->kernel;
	uint64_t bytes = mapping->end - mapping->start;

	for (uint32_t i = 0; i < kernel->segment_cnt; i++) {
		const struct at_segment *segment = &kernel->segments[i];
		uint64_t within = mapping->file_offset - segment->file_offset;

		if (mapping->file_offset < segment->file_offset || within >= segment->bytes)
			continue;
		if (bytes > segment->bytes - within)
			bytes = segment->bytes - within;
		return add_object_pieces(draft, object, mapping->start, bytes, segment->pc0 + (uint32_t)within);
	}
	return 0;
}

static int add_mapping(struct unwind_objects *objects, struct draft *draft, pid_t pid,
		       const struct unwind_mapping *mapping)
{
	struct at_piece piece = {.start = mapping->start, .bytes = (uint32_t)(mapping->end - mapping->start)};
	struct unwind_object *object;

	if (strcmp(mapping->path, "[vsyscall]") == 0 || mapping->end - mapping->start > UINT32_MAX)
		return 0;
	if (strcmp(mapping->path, "[vdso]") == 0) {
		object = unwind_objects__vdso(objects, pid, mapping);
		return object ? add_object_pieces(draft, object, mapping->start, piece.bytes, 0) : 0;
	}
	if (!mapping->file.inode)
		return draft__add(draft, &piece);
	object = unwind_objects__of_mapping(objects, pid, mapping);
	return object ? add_file_mapping(draft, object, mapping) : 0;
}

/* "start-end perms offset major:minor inode path"; false when it is not executable. */
static bool parse_mapping(char *line, struct unwind_mapping *mapping)
{
	unsigned long long start, end, offset, inode;
	unsigned int major, minor;
	char perms[5];
	int path_at = 0;

	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu %n", &start, &end, perms, &offset, &major, &minor, &inode,
		   &path_at) < 7 ||
	    perms[2] != 'x' || end <= start)
		return false;
	*mapping = (struct unwind_mapping){
		.start = start,
		.end = end,
		.file_offset = offset,
		.file = {.dev = (uint64_t)major << 20 | minor, .inode = inode},
		.path = path_at ? line + path_at : "",
	};
	return true;
}

static int read_mappings(struct unwind_objects *objects, struct draft *draft, pid_t pid)
{
	struct unwind_mapping mapping;
	size_t line_bytes = 0;
	char *line = NULL, name[64];
	bool has_any = false;
	int err = 0;
	FILE *file;

	snprintf(name, sizeof(name), "/proc/%d/maps", pid);
	file = fopen(name, "re");
	if (!file)
		return errno == ENOENT ? -ESRCH : -errno;
	while (!err && getline(&line, &line_bytes, file) > 0) {
		has_any = true;
		if (parse_mapping(line, &mapping))
			err = add_mapping(objects, draft, pid, &mapping);
	}
	if (ferror(file))
		err = -ESRCH;
	fclose(file);
	free(line);
	/* A process that is ending has no mappings any more. */
	return err ? err : has_any ? 0 : -ESRCH;
}

static void count_references(struct unwind_objects *objects, const struct unwind_range *range, bool is_given)
{
	for (uint32_t i = 0; i < range->cnt; i++) {
		struct unwind_object *object =
			unwind_objects__get(objects, objects->store.pieces[range->first + i].object);

		if (!object)
			continue;
		if (is_given)
			object->ref_cnt++;
		else if (!--object->ref_cnt)
			object->unused_since_ns = unwind_objects__now_ns();
	}
}

static void release_range(struct unwind_objects *objects, struct unwind_range *range)
{
	if (!range || --range->ref_cnt)
		return;
	count_references(objects, range, false);
	range->retired_ns = unwind_objects__now_ns();
	range->next_retired = objects->retired;
	objects->retired = range;
}

static struct unwind_process *find_process(const struct unwind_objects *objects, uint32_t tgid)
{
	for (size_t i = 0; i < objects->process_cnt; i++)
		if (objects->processes[i].tgid == tgid)
			return &objects->processes[i];
	return NULL;
}

static struct unwind_process *find_or_add_process(struct unwind_objects *objects, uint32_t tgid)
{
	struct unwind_process *process = find_process(objects, tgid), *all;

	if (process)
		return process;
	all = reallocarray(objects->processes, objects->process_cnt + 1, sizeof(*all));
	if (!all)
		return NULL;
	objects->processes = all;
	process = &all[objects->process_cnt++];
	*process = (struct unwind_process){.tgid = tgid};
	return process;
}

static int tell_kernel(struct unwind_objects *objects, const struct unwind_process *process)
{
	const struct unwind_range *range = process->range;
	struct at_unwind_process entry = {.first = range->first, .cnt = range->cnt, .generation = process->generation};

	return bpf_map_update_elem(objects->store.maps.processes, &process->tgid, &entry, BPF_ANY) ? -errno : 0;
}

/* Sends notes from now on again, and says which state the look that follows will be of. */
static uint32_t begin_look(struct unwind_objects *objects, uint32_t tgid)
{
	struct at_mappings *mappings = &objects->store.mappings[tgid];

	__atomic_store_n(&mappings->is_noted, 0, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&mappings->generation, __ATOMIC_SEQ_CST);
}

static int new_range(struct unwind_objects *objects, const struct draft *draft, struct unwind_range **out)
{
	struct unwind_range *range = calloc(1, sizeof(*range));
	int err = range ? 0 : -ENOMEM;

	if (!err)
		err = unwind_store__add_pieces(&objects->store, draft->pieces, draft->cnt, &range->first);
	if (err == -ENOSPC && unwind_objects__reclaim(objects))
		err = unwind_store__add_pieces(&objects->store, draft->pieces, draft->cnt, &range->first);
	if (err) {
		free(range);
		return err;
	}
	range->cnt = draft->cnt;
	range->ref_cnt = 1;
	count_references(objects, range, true);
	*out = range;
	return 0;
}

static bool is_same(const struct unwind_objects *objects, const struct unwind_range *range, const struct draft *draft)
{
	return range && range->cnt == draft->cnt &&
	       (!range->cnt ||
		memcmp(&objects->store.pieces[range->first], draft->pieces, draft->cnt * sizeof(*draft->pieces)) == 0);
}

int unwind_objects__add_process(struct unwind_objects *objects, uint32_t tgid, pid_t pid)
{
	struct unwind_process *process = NULL;
	struct unwind_range *range, *old;
	struct draft draft = {0};
	uint32_t generation;
	int err;

	if (!tgid || tgid >= objects->store.maps.pid_cnt)
		return -ERANGE;
	if (pid <= 0)
		return -ESRCH;
	generation = begin_look(objects, tgid);
	err = read_mappings(objects, &draft, pid);
	if (!err) {
		process = find_or_add_process(objects, tgid);
		err = process ? 0 : -ENOMEM;
	}
	if (!err && !is_same(objects, process->range, &draft)) {
		err = new_range(objects, &draft, &range);
		if (!err) {
			old = process->range;
			process->range = range;
			release_range(objects, old);
		}
	}
	if (!err) {
		process->generation = generation;
		err = tell_kernel(objects, process);
	}
	if (err && err != -ESRCH)
		objects->lost_cnt++;
	free(draft.pieces);
	return err;
}

int unwind_objects__refresh(struct unwind_objects *objects, uint32_t tgid, pid_t pid)
{
	const struct unwind_process *process = find_process(objects, tgid);

	if (process && process->range &&
	    process->generation == __atomic_load_n(&objects->store.mappings[tgid].generation, __ATOMIC_SEQ_CST))
		return 0;
	return unwind_objects__add_process(objects, tgid, pid);
}

int unwind_objects__fork(struct unwind_objects *objects, uint32_t parent, uint32_t child, pid_t child_pid)
{
	struct unwind_process *from, *to;
	struct at_unwind_process entry;

	if (!child || child >= objects->store.maps.pid_cnt)
		return -ERANGE;
	to = find_or_add_process(objects, child);
	if (!to)
		return -ENOMEM;
	release_range(objects, to->range);
	to->range = NULL;
	from = find_process(objects, parent);
	/* What the kernel side copied may be older or newer than what we have. */
	if (!from || !from->range || bpf_map_lookup_elem(objects->store.maps.processes, &child, &entry) ||
	    entry.first != from->range->first || entry.cnt != from->range->cnt)
		return unwind_objects__add_process(objects, child, child_pid);
	to->range = from->range;
	to->range->ref_cnt++;
	to->generation = entry.generation;
	return 0;
}

void unwind_objects__drop_process(struct unwind_objects *objects, uint32_t tgid)
{
	struct unwind_process *process = find_process(objects, tgid);

	bpf_map_delete_elem(objects->store.maps.processes, &tgid);
	if (!process)
		return;
	release_range(objects, process->range);
	*process = objects->processes[--objects->process_cnt];
}

const struct at_piece *unwind_objects__piece(const struct unwind_objects *objects, uint32_t tgid, uint64_t address)
{
	const struct unwind_process *process = find_process(objects, tgid);
	const struct unwind_range *range = process ? process->range : NULL;

	for (uint32_t i = 0; range && i < range->cnt; i++) {
		const struct at_piece *piece = &objects->store.pieces[range->first + i];

		if (address - piece->start < piece->bytes)
			return piece;
	}
	return NULL;
}

bool unwind_objects__is_of(const struct unwind_objects *objects, uint32_t tgid, uint32_t generation)
{
	const struct unwind_process *process = find_process(objects, tgid);

	return process && process->range && process->generation == generation;
}
