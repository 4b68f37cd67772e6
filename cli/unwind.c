/* SPDX-License-Identifier: BSD-2-Clause */
/* The thread that keeps unwind tables up to date, and the chains that it completes; see unwind.h. */
#include "cli/unwind.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/elf_image.h"
#include "cli/msg.h"
#include "cli/unwind_state.h"

/* How soon the thread sees that it is to end, when there is nothing else to see. */
enum { POLL_MS = 20 };

static void handle_cut(struct unwind *unwind, const struct at_cut *cut)
{
	uint32_t tgid = cut->note.tgid;
	const struct at_piece *piece;
	struct unwind_object *object;
	struct unwind_fix *fixes;
	struct unwind_chain chain;

	unwind_objects__refresh(&unwind->objects, tgid, (pid_t)cut->note.pid);
	piece = unwind_objects__piece(&unwind->objects, tgid, cut->ip - cut->is_return);
	object = piece ? unwind_objects__get(&unwind->objects, piece->object) : NULL;
	/*
	 * Some file systems show another device or inode in /proc than the kernel side reads (overlayfs). Where
	 * something was mapped since, another file may lie there by now.
	 */
	if (object && object->file.inode && cut->file.inode &&
	    unwind_objects__is_of(&unwind->objects, tgid, cut->generation))
		unwind_objects__add_alias(&unwind->objects, object, &cut->file);
	unwind_walk__resume(&unwind->objects, cut, &chain);
	if (chain.end == AT_END_NO_MAPPING && chain.cnt == cut->cnt)
		return;
	if (unwind->fix_cnt == unwind->fix_max) {
		size_t max = unwind->fix_max ? 2 * unwind->fix_max : 64;

		fixes = reallocarray(unwind->fixes, max, sizeof(*fixes));
		if (!fixes)
			return;
		unwind->fixes = fixes;
		unwind->fix_max = max;
	}
	fixes = &unwind->fixes[unwind->fix_cnt];
	fixes->key = cut->key;
	fixes->path = cut->path;
	fixes->frames = reallocarray(NULL, chain.cnt + !chain.cnt, sizeof(*fixes->frames));
	if (!fixes->frames)
		return;
	memcpy(fixes->frames, chain.frames, chain.cnt * sizeof(*fixes->frames));
	fixes->cnt = chain.cnt;
	fixes->guess_from = chain.guess_from;
	fixes->end = chain.end;
	unwind->fix_cnt++;
}

static int handle_note(void *data, void *record, size_t bytes)
{
	struct unwind *unwind = data;
	const struct at_note *note = record;
	pid_t pid = (pid_t)note->pid;

	pthread_mutex_lock(&unwind->lock);
	if (*unwind->results.notes_lost)
		unwind->objects.is_keeping = true;
	switch (note->kind) {
	case AT_NOTE_EXEC:
	case AT_NOTE_MAPPED: unwind_objects__add_process(&unwind->objects, note->tgid, pid); break;
	case AT_NOTE_FORK: unwind_objects__fork(&unwind->objects, note->parent_tgid, note->tgid, pid); break;
	case AT_NOTE_EXIT: unwind_objects__drop_process(&unwind->objects, note->tgid); break;
	case AT_NOTE_CUT:
		if (bytes >= sizeof(struct at_cut))
			handle_cut(unwind, record);
		break;
	default: break;
	}
	pthread_mutex_unlock(&unwind->lock);
	return 0;
}

static void *listen(void *data)
{
	struct unwind *unwind = data;

	while (!__atomic_load_n(&unwind->is_ending, __ATOMIC_ACQUIRE))
		ring_buffer__poll(unwind->ring, POLL_MS);
	return NULL;
}

int unwind__open(struct unwind **out, const struct unwind_maps *maps, const struct unwind_results *results)
{
	struct unwind *unwind = calloc(1, sizeof(*unwind));
	int err;

	*out = NULL;
	if (!unwind)
		return -ENOMEM;
	unwind->results = *results;
	pthread_mutex_init(&unwind->lock, NULL);
	err = unwind_objects__open(&unwind->objects, maps);
	if (!err) {
		unwind->ring = ring_buffer__new(results->notes, handle_note, unwind, NULL);
		err = unwind->ring ? 0 : -errno;
	}
	if (err) {
		unwind__free(unwind);
		return err;
	}
	*out = unwind;
	return 0;
}

int unwind__add_process(struct unwind *unwind, uint32_t tgid, pid_t pid)
{
	int err;

	pthread_mutex_lock(&unwind->lock);
	err = unwind_objects__add_process(&unwind->objects, tgid, pid);
	pthread_mutex_unlock(&unwind->lock);
	return err;
}

void unwind__drop_process(struct unwind *unwind, uint32_t tgid)
{
	pthread_mutex_lock(&unwind->lock);
	unwind_objects__drop_process(&unwind->objects, tgid);
	pthread_mutex_unlock(&unwind->lock);
}

/* The loader that the file names; "" for none. */
static void read_interpreter(const char *path, char *interpreter, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct elf_image image = {.fd = -1};

	interpreter[0] = '\0';
	if (fd >= 0 && !elf_image__open(&image, fd))
		for (size_t i = 0; i < image.segment_cnt; i++)
			if (image.segments[i].p_type == PT_INTERP && image.segments[i].p_filesz < bytes &&
			    !elf_image__read(&image, image.segments[i].p_offset, interpreter,
					     image.segments[i].p_filesz))
				interpreter[image.segments[i].p_filesz] = '\0';
	elf_image__free(&image);
	if (fd >= 0)
		close(fd);
}

void unwind__expect(struct unwind *unwind, const char *path, uint32_t self)
{
	char interpreter[4096];

	read_interpreter(path, interpreter, sizeof(interpreter));
	pthread_mutex_lock(&unwind->lock);
	unwind_objects__add_file(&unwind->objects, path);
	if (interpreter[0] == '/')
		unwind_objects__add_file(&unwind->objects, interpreter);
	/* The loader and the C library are mostly the same as ours. */
	if (!unwind_objects__add_process(&unwind->objects, self, getpid()))
		unwind_objects__drop_process(&unwind->objects, self);
	pthread_mutex_unlock(&unwind->lock);
}

int unwind__start(struct unwind *unwind)
{
	sigset_t all, old;
	int err;

	/* Signals are the main thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&unwind->thread, NULL, listen, unwind);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	unwind->has_thread = !err;
	return -err;
}

void unwind__stop(struct unwind *unwind)
{
	if (!unwind->has_thread)
		return;
	__atomic_store_n(&unwind->is_ending, true, __ATOMIC_RELEASE);
	pthread_join(unwind->thread, NULL);
	unwind->has_thread = false;
	ring_buffer__consume(unwind->ring);
}

bool unwind__is_running(const struct unwind *unwind)
{
	return unwind->has_thread;
}

void unwind__free(struct unwind *unwind)
{
	if (!unwind)
		return;
	unwind__stop(unwind);
	ring_buffer__free(unwind->ring);
	for (size_t i = 0; i < unwind->fix_cnt; i++)
		free(unwind->fixes[i].frames);
	free(unwind->fixes);
	unwind_objects__close(&unwind->objects);
	pthread_mutex_destroy(&unwind->lock);
	free(unwind);
}
