/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel maps of the unwinder as memory to give out: rows in shards, and
 * ranges of pieces. What programs may still be reading is freed by the caller
 * only after a while. Functions return 0 or -errno. Not thread-safe.
 */
#ifndef ALLOCTRACE_CLI_UNWIND_STORE_H
#define ALLOCTRACE_CLI_UNWIND_STORE_H

#include <linux/types.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/callchain.h"

/* File descriptors of the maps; borrowed. */
struct unwind_maps {
	int shards, pieces, processes, objects, go_layouts, mappings;
	uint32_t pid_cnt; /* entries of mappings */
};

/* Free space as a list of gaps, sorted, none adjacent. */
struct gap_list {
	struct gap {
		uint32_t first, cnt;
	} * gaps;
	size_t cnt;
};

struct unwind_store {
	struct unwind_maps maps;
	struct at_piece *pieces;
	struct at_mappings *mappings; /* by tgid */
	size_t mappings_bytes;
	struct gap_list piece_gaps;
	struct unwind_shard {
		int fd;
		struct at_unwind_row *rows;
		struct gap_list gaps;
	} shards[AT_SHARD_CNT];
	uint32_t shard_cnt;
};

int unwind_store__open(struct unwind_store *store, const struct unwind_maps *maps);
void unwind_store__close(struct unwind_store *store);

/* Copies rows in; -ENOSPC: no room, with nothing taken. */
int unwind_store__add_rows(struct unwind_store *store, const struct at_unwind_row *rows, uint32_t row_cnt,
			   struct at_chunk chunks[AT_CHUNK_CNT], uint32_t *chunk_cnt);
void unwind_store__free_rows(struct unwind_store *store, const struct at_chunk *chunks, uint32_t chunk_cnt);
/* -ENOSPC: no room. */
int unwind_store__add_pieces(struct unwind_store *store, const struct at_piece *pieces, uint32_t cnt, uint32_t *first);
void unwind_store__free_pieces(struct unwind_store *store, uint32_t first, uint32_t cnt);

#endif
