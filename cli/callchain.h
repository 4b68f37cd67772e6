/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Code paths and what was called on them, as pure data: filled by unwind.c and
 * symbol.c, read by the renderers. No I/O here.
 *
 * Frames of a chain run from the innermost, which made the call, outwards.
 */
#ifndef ALLOCTRACE_CLI_CALLCHAIN_H
#define ALLOCTRACE_CLI_CALLCHAIN_H

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/callchain.h"
#include "bpf/event.h"

/* Whose calls they are, by the functions of the chain: X(id, JSON key). */
#define CALLCHAIN_ORIGINS(X)      \
	X(PROGRAM, "program")     \
	X(ALLOCATOR, "allocator") \
	X(THREADS, "threads")     \
	X(LOADER, "loader")       \
	X(UNKNOWN, "unknown")

#define X(id, name) CALLCHAIN_##id,
enum callchain_origin { CALLCHAIN_ORIGINS(X) CALLCHAIN_ORIGIN_CNT };
#undef X

/* A place in the code. Texts are owned, NULL = not known; they may hold any byte but 0. */
struct callchain_frame {
	uint64_t word;  /* as the kernel side has it: bpf/callchain.h */
	char *function; /* demangled */
	char *module;   /* path of the object */
	char *file;     /* of the source */
	uint32_t line;
	uint64_t address; /* in the object, or the memory address where module is NULL */
	uint64_t offset;  /* from the start of the function */
	bool is_deleted;  /* the module's name is gone, or means another file */
};

struct callchain_chain {
	uint32_t first, cnt; /* in frame_of */
	uint32_t guess_from; /* frames from this one on are a guess; >= cnt: none */
	enum at_end end;
	enum callchain_origin origin;
};

/* Calls of one class on one chain. */
struct callchain_path {
	uint32_t chain;
	uint16_t class, phase;
	pid_t tgid, tid; /* tid 0: not kept apart */
	uint64_t call_cnt, sum_ns, bytes;
};

struct callchains {
	struct callchain_frame *frames;
	size_t frame_cnt;
	uint32_t *frame_of; /* index of each chain's frames in `frames` */
	size_t frame_of_cnt;
	struct callchain_chain *chains; /* the first has no frames: it stands for chains that found no room */
	size_t chain_cnt;
	struct callchain_path *paths; /* worst first: by time */
	size_t path_cnt;
	bool is_by_thread;
	uint64_t lost_cnt;     /* calls whose chain found no room */
	uint64_t cut_lost_cnt; /* chains that could have been completed later, had there been room for their stacks */
	uint64_t note_lost_cnt;
	uint64_t table_lost_cnt; /* objects and processes without room for their tables */
};

void callchain__free(struct callchains *chains);
/* Sorts the paths, and fills in each chain's origin. */
void callchain__finish(struct callchains *chains);

static inline const struct callchain_frame *callchain__frame(const struct callchains *chains,
							     const struct callchain_chain *chain, uint32_t i)
{
	return &chains->frames[chains->frame_of[chain->first + i]];
}

/* "no unwind table in", ... ; "" for complete ones. */
const char *callchain__end_text(enum at_end end);
const char *callchain__end_name(enum at_end end);
const char *callchain__origin_name(enum callchain_origin origin);
/* The last part of a path. */
const char *callchain__base_name(const char *path);
/*
 * What a frame is called: the function, or "[module+0x123]", or "[0x7f...]".
 * Never "". Cut to fit.
 */
const char *callchain__name(const struct callchain_frame *frame, char *buf, size_t buf_bytes);
/* Why the chain ends where it does: "[unknown: ...]"; "" when it is complete. */
const char *callchain__end(const struct callchains *chains, const struct callchain_chain *chain, char *buf,
			   size_t buf_bytes);

#endif
