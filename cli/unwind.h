/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Callchains while targets run: keeps the kernel side's tables up to date, from a
 * thread of its own that listens to its notes; and afterwards, what was found.
 *
 * Order: unwind__open, unwind__add_process for what exists, unwind__start, (the
 * programs attached, targets running), unwind__stop after they are detached,
 * unwind__collect, unwind__free. Functions return 0 or -errno. Between start and
 * stop only unwind__add_process may be called, from one other thread.
 */
#ifndef ALLOCTRACE_CLI_UNWIND_H
#define ALLOCTRACE_CLI_UNWIND_H

#include <sys/types.h>

#include "cli/callchain.h"
#include "cli/unwind_objects.h"

struct unwind;

/* Maps that hold the results. */
struct unwind_results {
	int chains, paths, path_losses, frames, notes;
	int cpu_cnt;
	bool is_by_thread;
	const volatile uint64_t *notes_lost, *cuts_lost; /* counters of the kernel side */
};

int unwind__open(struct unwind **unwind, const struct unwind_maps *maps, const struct unwind_results *results);
/* tgid: as the kernel numbers it, pid: as we do. */
int unwind__add_process(struct unwind *unwind, uint32_t tgid, pid_t pid);
void unwind__drop_process(struct unwind *unwind, uint32_t tgid);
/* Prepares for a file that is about to be executed, its interpreter, and what we ourselves (`self` to the kernel) have
 * mapped. */
void unwind__expect(struct unwind *unwind, const char *path, uint32_t self);
int unwind__start(struct unwind *unwind);
void unwind__stop(struct unwind *unwind);
bool unwind__is_running(const struct unwind *unwind);
/* Symbols included. *chains: free with callchain__free. */
int unwind__collect(struct unwind *unwind, struct callchains **chains);
void unwind__free(struct unwind *unwind);

#endif
