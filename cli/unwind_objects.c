/* SPDX-License-Identifier: BSD-2-Clause */
/* Objects: from a mapped file to a table in the kernel; see unwind_objects.h. */
#include "cli/unwind_objects.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "cli/unwind_table.h"

enum { OBJECT_MAX = 8000, VDSO_MAX_BYTES = 1 << 16 };
#define PAGE_MASK 4095ull
#define UNUSED_NS 1000000000ull

uint64_t unwind_objects__now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

struct unwind_object *unwind_objects__get(const struct unwind_objects *objects, uint32_t number)
{
	return number && number <= objects->object_cnt ? objects->objects[number - 1] : NULL;
}

static bool is_same_key(const struct at_file *a, const struct at_file *b)
{
	return a->inode == b->inode && a->dev == b->dev;
}

struct unwind_object *unwind_objects__find(const struct unwind_objects *objects, const struct at_file *file)
{
	/* The latest first: of a file that was written over, it is the one that counts. */
	for (size_t i = objects->object_cnt; i-- > 0;)
		if (is_same_key(&objects->objects[i]->file, file) || is_same_key(&objects->objects[i]->alias, file))
			return objects->objects[i];
	return NULL;
}

uint32_t unwind_objects__rule(const struct unwind_objects *objects, const struct unwind_object *object, uint32_t pc)
{
	const struct at_chunk *chunk = NULL;

	for (uint32_t i = 0; i < object->kernel.chunk_cnt && object->kernel.chunks[i].pc0 <= pc; i++)
		chunk = &object->kernel.chunks[i];
	return chunk ? unwind_table__rule(&objects->store.shards[chunk->shard].rows[chunk->row0], chunk->row_cnt, pc)
		     : AT_RULE_NONE;
}

bool unwind_objects__read_code(const struct unwind_object *object, uint32_t pc, uint8_t *code, size_t bytes)
{
	for (uint32_t i = 0; i < object->kernel.segment_cnt; i++) {
		const struct at_segment *segment = &object->kernel.segments[i];
		uint64_t end = (uint64_t)pc - segment->pc0, offset;

		if (pc <= segment->pc0 || end > segment->bytes || end < bytes)
			continue;
		offset = segment->file_offset + end - bytes;
		if (!object->memory)
			return pread(object->fd, code, bytes, (off_t)offset) == (ssize_t)bytes;
		if (offset > object->bytes || bytes > object->bytes - offset)
			return false;
		memcpy(code, object->memory + offset, bytes);
		return true;
	}
	return false;
}

/* The executable segments, in whole pages as they are mapped. */
static void fill_segments(struct unwind_object *object, const struct elf_image *image)
{
	struct at_object *kernel = &object->kernel;

	object->base = image->base;
	for (size_t i = 0; i < image->segment_cnt && kernel->segment_cnt < AT_SEGMENT_CNT; i++) {
		const Elf64_Phdr *segment = &image->segments[i];
		uint64_t head = segment->p_offset & PAGE_MASK, pc0 = segment->p_vaddr - head - image->base;

		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X) || pc0 > UINT32_MAX ||
		    segment->p_filesz > UINT32_MAX - head - pc0)
			continue;
		kernel->segments[kernel->segment_cnt++] =
			(struct at_segment){.file_offset = segment->p_offset - head,
					    .bytes = (segment->p_filesz + head + PAGE_MASK) & ~PAGE_MASK,
					    .pc0 = (uint32_t)pc0};
	}
}

/* The number of a layout of Go's structures; 0 is that of none. */
static uint32_t add_layout(struct unwind_objects *objects, const struct at_go *go)
{
	uint32_t number = 0;

	if (!go->g_m)
		return 0;
	while (++number <= objects->layout_cnt)
		if (memcmp(&objects->layouts[number], go, sizeof(*go)) == 0)
			return number;
	if (number >= sizeof(objects->layouts) / sizeof(objects->layouts[0]) ||
	    bpf_map_update_elem(objects->store.maps.go_layouts, &number, go, BPF_ANY))
		return 0;
	objects->layouts[number] = *go;
	objects->layout_cnt = number;
	return number;
}

static int open_image(const struct unwind_object *object, struct elf_image *image)
{
	return object->memory ? elf_image__open_memory(image, object->memory, object->bytes)
			      : elf_image__open(image, object->fd);
}

/* Builds the table and puts it into the kernel. What cannot be read has none, which is no failure. */
static int build_table(struct unwind_objects *objects, struct unwind_object *object)
{
	struct unwind_table table = {0};
	struct elf_image image;
	int err = open_image(object, &image);

	object->is_elf = !err;
	object->kernel.segment_cnt = 0;
	if (!err) {
		fill_segments(object, &image);
		err = unwind_table__build(&table, &image);
	}
	if (!err) {
		object->is_go = table.is_go;
		object->kernel.go = add_layout(objects, &table.go);
		err = unwind_store__add_rows(&objects->store, table.rows, table.row_cnt, object->kernel.chunks,
					     &object->kernel.chunk_cnt);
		if (err == -ENOSPC && unwind_objects__reclaim(objects))
			err = unwind_store__add_rows(&objects->store, table.rows, table.row_cnt, object->kernel.chunks,
						     &object->kernel.chunk_cnt);
		if (err)
			objects->lost_cnt++;
	}
	unwind_table__free(&table);
	elf_image__free(&image);
	return err == -ENOMEM ? err : 0;
}

/* Under its keys, the kernel side finds the object without a piece. Where there is no room, such chains are cut. */
static void add_keys(struct unwind_objects *objects, const struct unwind_object *object)
{
	if (object->file.inode)
		bpf_map_update_elem(objects->store.maps.objects, &object->file, &object->kernel, BPF_ANY);
	if (object->alias.inode)
		bpf_map_update_elem(objects->store.maps.objects, &object->alias, &object->kernel, BPF_ANY);
}

/* True when there was one. */
static bool drop_keys(struct unwind_objects *objects, const struct unwind_object *object)
{
	bool has_any = object->file.inode && !bpf_map_delete_elem(objects->store.maps.objects, &object->file);

	return (object->alias.inode && !bpf_map_delete_elem(objects->store.maps.objects, &object->alias)) || has_any;
}

void unwind_objects__add_alias(struct unwind_objects *objects, struct unwind_object *object, const struct at_file *file)
{
	struct at_object kernel;

	/* Known by another object: the same file, below the overlay. */
	if (!bpf_map_lookup_elem(objects->store.maps.objects, file, &kernel))
		return;
	object->alias = *file;
	add_keys(objects, object);
}

/* Takes the object over; frees it on failure. */
static struct unwind_object *add_object(struct unwind_objects *objects, struct unwind_object *object)
{
	struct unwind_object **all;

	all = objects->object_cnt < OBJECT_MAX
		      ? reallocarray(objects->objects, objects->object_cnt + 1, sizeof(struct unwind_object *))
		      : NULL;
	if (all) {
		objects->objects = all;
		object->kernel.object = (uint32_t)objects->object_cnt + 1;
		object->unused_since_ns = unwind_objects__now_ns();
	}
	if (!all || !object->path || build_table(objects, object)) {
		objects->lost_cnt++;
		if (object->fd >= 0)
			close(object->fd);
		free(object->path);
		free(object->memory);
		free(object);
		return NULL;
	}
	objects->objects[objects->object_cnt++] = object;
	add_keys(objects, object);
	return object;
}

/* A table that was dropped is built again when its object comes back. */
static void revive(struct unwind_objects *objects, struct unwind_object *object)
{
	if (object->kernel.chunk_cnt || !object->is_elf || object->ref_cnt)
		return;
	if (!build_table(objects, object))
		add_keys(objects, object);
}

static struct unwind_object *new_object(const char *path, const struct at_file *file, int fd,
					const struct unwind_root *root)
{
	struct unwind_object *object = calloc(1, sizeof(*object));
	struct stat st;

	if (!object) {
		close(fd);
		return NULL;
	}
	object->path = strdup(path);
	object->file = *file;
	object->fd = fd;
	object->root_fd = root ? root->fd : -1;
	if (root && strncmp(path, root->path, strlen(root->path)) == 0 && path[strlen(root->path)] == '/')
		object->root_bytes = strlen(root->path);
	if (!fstat(fd, &st)) {
		object->bytes = (uint64_t)st.st_size;
		object->mtime_ns = st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec;
	}
	return object;
}

/*
 * Whether that is the file of which maps told: another one may have been mapped there
 * before it was opened. overlayfs and btrfs show other numbers in maps than in stat; there,
 * what is mapped now has to have the same name.
 */
static bool is_of_mapping(int fd, const char *link, const struct unwind_mapping *mapping)
{
	size_t bytes = strlen(mapping->path);
	char name[4096];
	struct stat st;

	if (fstat(fd, &st))
		return false;
	if (((uint64_t)major(st.st_dev) << 20 | minor(st.st_dev)) == mapping->file.dev)
		return st.st_ino == mapping->file.inode;
	return readlink(link, name, sizeof(name)) == (ssize_t)bytes && memcmp(name, mapping->path, bytes) == 0;
}

/* The very file that is mapped, also when its name is gone or means another one. */
static int open_mapped(pid_t pid, const struct unwind_mapping *mapping)
{
	char name[4096 + 64];
	struct stat st;
	int fd;

	snprintf(name, sizeof(name), "/proc/%d/map_files/%llx-%llx", pid, (unsigned long long)mapping->start,
		 (unsigned long long)mapping->end);
	fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd >= 0 && is_of_mapping(fd, name, mapping))
		return fd;
	if (fd >= 0)
		close(fd);
	/* Without the right to follow that link: by its name, when that still has the inode. */
	snprintf(name, sizeof(name), "/proc/%d/root%s", pid, mapping->path);
	fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd >= 0 && !fstat(fd, &st) && st.st_ino == mapping->file.inode)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static bool open_root(pid_t pid, struct unwind_root *root)
{
	char name[64], path[4096];
	struct stat st;
	ssize_t bytes;

	root->fd = -1;
	snprintf(name, sizeof(name), "/proc/%d/ns/mnt", pid);
	if (stat(name, &st))
		return false;
	root->namespace = st.st_ino;
	snprintf(name, sizeof(name), "/proc/%d/root", pid);
	bytes = readlink(name, path, sizeof(path));
	root->fd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (bytes <= 0 || root->fd < 0 || fstat(root->fd, &st))
		return false;
	root->dev = st.st_dev;
	root->inode = st.st_ino;
	root->path = strndup(path, (size_t)bytes - (path[bytes - 1] == '/'));
	return root->path;
}

static void close_root(struct unwind_root *root)
{
	if (root->fd >= 0)
		close(root->fd);
	free(root->path);
}

/* One descriptor a root directory: separate debug files are looked for below it. NULL: it cannot be had. */
static const struct unwind_root *root_of(struct unwind_objects *objects, pid_t pid)
{
	struct unwind_root root = {.fd = -1}, *roots;

	if (open_root(pid, &root)) {
		for (size_t i = 0; i < objects->root_cnt; i++) {
			roots = &objects->roots[i];
			if (roots->namespace == root.namespace && roots->dev == root.dev &&
			    roots->inode == root.inode) {
				close_root(&root);
				return roots;
			}
		}
		roots = reallocarray(objects->roots, objects->root_cnt + 1, sizeof(*roots));
		if (roots) {
			objects->roots = roots;
			roots[objects->root_cnt] = root;
			return &roots[objects->root_cnt++];
		}
	}
	close_root(&root);
	return NULL;
}

static bool is_same_file(const struct unwind_object *object, int fd)
{
	struct stat st;

	return !fstat(fd, &st) && (uint64_t)st.st_size == object->bytes &&
	       st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec == object->mtime_ns;
}

struct unwind_object *unwind_objects__of_mapping(struct unwind_objects *objects, pid_t pid,
						 const struct unwind_mapping *mapping)
{
	struct unwind_object *object = unwind_objects__find(objects, &mapping->file);
	int fd;

	/* Our descriptor shows the file as it is now: written over in place, it is another object. */
	if (object && (object->fd < 0 || is_same_file(object, object->fd))) {
		revive(objects, object);
		return object;
	}
	fd = open_mapped(pid, mapping);
	if (fd < 0)
		return NULL;
	if (object)
		drop_keys(objects, object);
	object = new_object(mapping->path, &mapping->file, fd, root_of(objects, pid));
	return object ? add_object(objects, object) : NULL;
}

/* The vdso has no file; of all processes of the same kind it is the same. */
struct unwind_object *unwind_objects__vdso(struct unwind_objects *objects, pid_t pid,
					   const struct unwind_mapping *mapping)
{
	uint64_t bytes = mapping->end - mapping->start;
	struct unwind_object *object;
	uint8_t *memory = NULL;
	char name[64];
	ssize_t got = -1;
	int fd;

	snprintf(name, sizeof(name), "/proc/%d/mem", pid);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && bytes && bytes <= VDSO_MAX_BYTES && (memory = malloc(bytes)))
		got = pread(fd, memory, bytes, (off_t)mapping->start);
	if (fd >= 0)
		close(fd);
	if (!memory || got != (ssize_t)bytes) {
		free(memory);
		return NULL;
	}
	for (size_t i = 0; i < objects->object_cnt; i++) {
		object = objects->objects[i];
		if (object->memory && object->bytes == bytes && memcmp(object->memory, memory, bytes) == 0) {
			free(memory);
			return object;
		}
	}
	object = calloc(1, sizeof(*object));
	if (!object) {
		free(memory);
		return NULL;
	}
	*object = (struct unwind_object){
		.path = strdup(mapping->path), .fd = -1, .root_fd = -1, .memory = memory, .bytes = bytes};
	return add_object(objects, object);
}

int unwind_objects__add_file(struct unwind_objects *objects, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct unwind_object *object;
	struct at_file file;
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return -EINVAL;
	}
	/* As the kernel writes a device. Where stat() says another one, this key is never asked for. */
	file = (struct at_file){.dev = (uint64_t)major(st.st_dev) << 20 | minor(st.st_dev), .inode = st.st_ino};
	if (unwind_objects__find(objects, &file)) {
		close(fd);
		return 0;
	}
	object = new_object(path, &file, fd, NULL);
	return object && add_object(objects, object) ? 0 : -ENOMEM;
}

bool unwind_objects__reclaim(struct unwind_objects *objects)
{
	uint64_t now_ns = unwind_objects__now_ns();
	bool has_freed = false;

	if (objects->is_keeping)
		return false;
	for (size_t i = 0; i < objects->object_cnt; i++) {
		struct unwind_object *object = objects->objects[i];

		if (object->ref_cnt || !object->kernel.chunk_cnt)
			continue;
		/* First out of the programs' sight, at a later time free. */
		if (drop_keys(objects, object)) {
			object->unused_since_ns = now_ns;
			continue;
		}
		if (now_ns - object->unused_since_ns < UNUSED_NS)
			continue;
		unwind_store__free_rows(&objects->store, object->kernel.chunks, object->kernel.chunk_cnt);
		object->kernel.chunk_cnt = 0;
		has_freed = true;
	}
	for (struct unwind_range **at = &objects->retired; *at;) {
		struct unwind_range *range = *at;

		if (now_ns - range->retired_ns < UNUSED_NS) {
			at = &range->next_retired;
			continue;
		}
		unwind_store__free_pieces(&objects->store, range->first, range->cnt);
		*at = range->next_retired;
		free(range);
		has_freed = true;
	}
	return has_freed;
}

int unwind_objects__open(struct unwind_objects *objects, const struct unwind_maps *maps)
{
	*objects = (struct unwind_objects){0};
	return unwind_store__open(&objects->store, maps);
}

void unwind_objects__close(struct unwind_objects *objects)
{
	struct unwind_range *next;

	for (size_t i = 0; i < objects->object_cnt; i++) {
		struct unwind_object *object = objects->objects[i];

		if (object->fd >= 0)
			close(object->fd);
		free(object->path);
		free(object->memory);
		free(object);
	}
	free(objects->objects);
	for (size_t i = 0; i < objects->process_cnt; i++) {
		struct unwind_range *range = objects->processes[i].range;

		if (range && !--range->ref_cnt)
			free(range);
	}
	free(objects->processes);
	for (struct unwind_range *range = objects->retired; range; range = next) {
		next = range->next_retired;
		free(range);
	}
	for (size_t i = 0; i < objects->root_cnt; i++)
		close_root(&objects->roots[i]);
	free(objects->roots);
	unwind_store__close(&objects->store);
	*objects = (struct unwind_objects){0};
}
