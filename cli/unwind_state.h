/* SPDX-License-Identifier: BSD-2-Clause */
/* What unwind.c and unwind_collect.c share; nobody else includes it. */
#ifndef ALLOCTRACE_CLI_UNWIND_STATE_H
#define ALLOCTRACE_CLI_UNWIND_STATE_H

#include <pthread.h>

#include "cli/unwind.h"
#include "cli/unwind_walk.h"

struct ring_buffer;

/* A call that was counted under a cut chain, and the chain that it belongs to. */
struct unwind_fix {
	struct at_path_key key;
	struct at_path path;
	uint64_t *frames; /* owned */
	uint32_t cnt, guess_from;
	enum at_end end;
};

struct unwind {
	struct unwind_objects objects;
	struct unwind_results results;
	struct ring_buffer *ring;
	pthread_mutex_t lock; /* of objects and fixes, while the thread runs */
	pthread_t thread;
	bool has_thread, is_ending;
	struct unwind_fix *fixes;
	size_t fix_cnt, fix_max;
};

#endif
