/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The objects that targets execute, their tables in the kernel, and which
 * process has them mapped where. Tables are counted by the processes' mappings;
 * what is no longer used is freed when room is needed, and never within a
 * second, as a program may still be reading it.
 *
 * An object is known by its file (device and inode as the kernel has them, time
 * and size), not by its build id: that is what the file says of itself, and must
 * not give it another one's table.
 *
 * Functions return 0 or -errno. Not thread-safe.
 */
#ifndef ALLOCTRACE_CLI_UNWIND_OBJECTS_H
#define ALLOCTRACE_CLI_UNWIND_OBJECTS_H

#include <stdbool.h>
#include <sys/types.h>

#include "cli/unwind_store.h"

struct unwind_object {
	struct at_file file;  /* as /proc/PID/maps has it; 0: the vdso */
	struct at_file alias; /* as the kernel side has it, where that is another one (overlayfs); 0: none */
	int64_t mtime_ns;
	uint64_t bytes;
	char *path;        /* as /proc/PID/maps has it; owned */
	size_t root_bytes; /* what of the path is the way to the process's root */
	int fd;            /* the file, open for reading; -1: none */
	int root_fd;       /* the process's root directory, where separate debug files are; -1: none. Borrowed */
	uint8_t *memory;   /* the vdso; owned */
	uint64_t base;     /* address that pc 0 has in the file */
	bool is_elf;       /* else there is nothing to say of it */
	bool is_go;
	uint32_t ref_cnt;         /* ranges of pieces that use it */
	uint64_t unused_since_ns; /* valid when ref_cnt is 0 */
	struct at_object kernel;  /* as in the kernel's map; chunk_cnt 0: no table */
};

/* The pieces of one or more processes (after fork). */
struct unwind_range {
	uint32_t first, cnt;
	uint32_t ref_cnt;
	uint64_t retired_ns; /* when ref_cnt became 0 */
	struct unwind_range *next_retired;
};

struct unwind_process {
	uint32_t tgid;       /* as the kernel numbers it */
	uint32_t generation; /* of the mappings that range describes */
	struct unwind_range *range;
};

/* A root directory: of a mount namespace, or one that a process has changed to within it. */
struct unwind_root {
	uint64_t namespace, dev, inode;
	int fd;
	char *path; /* in the terms of /proc/PID/maps, without a slash at its end; owned */
};

struct unwind_objects {
	struct unwind_store store;
	struct unwind_object **objects; /* number - 1 */
	size_t object_cnt;
	struct unwind_process *processes;
	size_t process_cnt;
	struct unwind_range *retired;
	struct unwind_root *roots;
	size_t root_cnt;
	uint32_t layout_cnt;      /* struct at_go in use */
	struct at_go layouts[16]; /* as in the kernel's map */
	bool is_keeping;          /* notes were lost: nothing may be freed any more */
	size_t lost_cnt;          /* objects and processes for which there was no room */
};

int unwind_objects__open(struct unwind_objects *objects, const struct unwind_maps *maps);
void unwind_objects__close(struct unwind_objects *objects);

/*
 * A process is known by the kernel's number for it, tgid; pid is that of our pid namespace, by which it is in /proc.
 * Looks at the mappings of a process, new or known, and tells the kernel. -ESRCH: it is gone.
 */
int unwind_objects__add_process(struct unwind_objects *objects, uint32_t tgid, pid_t pid);
/* Looks again only where something was mapped since the last look. */
int unwind_objects__refresh(struct unwind_objects *objects, uint32_t tgid, pid_t pid);
/* Child has what parent has. */
int unwind_objects__fork(struct unwind_objects *objects, uint32_t parent, uint32_t child, pid_t child_pid);
void unwind_objects__drop_process(struct unwind_objects *objects, uint32_t tgid);
/* Makes known a file that a target is about to execute. */
int unwind_objects__add_file(struct unwind_objects *objects, const char *path);
/* The key by which the kernel side has met the object's file: another one than in /proc with overlayfs. */
void unwind_objects__add_alias(struct unwind_objects *objects, struct unwind_object *object,
			       const struct at_file *file);

/* The piece of an address; NULL: none. */
const struct at_piece *unwind_objects__piece(const struct unwind_objects *objects, uint32_t tgid, uint64_t address);
/* Whether the pieces of a process are those of a state of its mappings. */
bool unwind_objects__is_of(const struct unwind_objects *objects, uint32_t tgid, uint32_t generation);
/* NULL: no such object. */
struct unwind_object *unwind_objects__get(const struct unwind_objects *objects, uint32_t number);
/* By either key. */
struct unwind_object *unwind_objects__find(const struct unwind_objects *objects, const struct at_file *file);
/* Rule for a pc of an object. */
uint32_t unwind_objects__rule(const struct unwind_objects *objects, const struct unwind_object *object, uint32_t pc);
/* The bytes of its code that end right before a pc. False: they cannot be read. */
bool unwind_objects__read_code(const struct unwind_object *object, uint32_t pc, uint8_t *code, size_t bytes);

/* For unwind_objects.c and unwind_process.c. */
struct unwind_mapping {
	uint64_t start, end, file_offset;
	struct at_file file; /* inode 0: none */
	const char *path;
};
struct unwind_object *unwind_objects__of_mapping(struct unwind_objects *objects, pid_t pid,
						 const struct unwind_mapping *mapping);
struct unwind_object *unwind_objects__vdso(struct unwind_objects *objects, pid_t pid,
					   const struct unwind_mapping *mapping);
/* Frees tables without a user and ranges that were retired a second ago. True when something was freed. */
bool unwind_objects__reclaim(struct unwind_objects *objects);
uint64_t unwind_objects__now_ns(void);

#endif
