/* SPDX-License-Identifier: BSD-2-Clause */
/* First fit in the maps' own memory; see unwind_store.h. */
#include "cli/unwind_store.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHARD_BYTES (AT_SHARD_ROWS * sizeof(struct at_unwind_row))
#define PIECES_BYTES (AT_PIECE_CNT * sizeof(struct at_piece))

static int gaps__give(struct gap_list *list, uint32_t first, uint32_t cnt)
{
	struct gap *gaps;
	size_t at = 0;

	while (at < list->cnt && list->gaps[at].first < first)
		at++;
	if (at && list->gaps[at - 1].first + list->gaps[at - 1].cnt == first) {
		list->gaps[--at].cnt += cnt;
	} else {
		gaps = reallocarray(list->gaps, list->cnt + 1, sizeof(*gaps));
		if (!gaps)
			return -ENOMEM;
		list->gaps = gaps;
		memmove(&gaps[at + 1], &gaps[at], (list->cnt - at) * sizeof(*gaps));
		gaps[at] = (struct gap){first, cnt};
		list->cnt++;
	}
	gaps = list->gaps;
	if (at + 1 < list->cnt && gaps[at].first + gaps[at].cnt == gaps[at + 1].first) {
		gaps[at].cnt += gaps[at + 1].cnt;
		list->cnt--;
		memmove(&gaps[at + 1], &gaps[at + 2], (list->cnt - at - 1) * sizeof(*gaps));
	}
	return 0;
}

static int gaps__take(struct gap_list *list, uint32_t cnt, uint32_t *first)
{
	for (size_t i = 0; i < list->cnt; i++) {
		struct gap *gap = &list->gaps[i];

		if (gap->cnt < cnt)
			continue;
		*first = gap->first;
		gap->first += cnt;
		gap->cnt -= cnt;
		if (!gap->cnt) {
			list->cnt--;
			memmove(gap, gap + 1, (list->cnt - i) * sizeof(*gap));
		}
		return 0;
	}
	return -ENOSPC;
}

static int add_shard(struct unwind_store *store)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE);
	struct unwind_shard *shard = &store->shards[store->shard_cnt];
	int err;

	if (store->shard_cnt == AT_SHARD_CNT)
		return -ENOSPC;
	*shard = (struct unwind_shard){
		.fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "at_rows", sizeof(uint32_t), SHARD_BYTES, 1, &opts)};
	if (shard->fd < 0)
		return -errno;
	shard->rows = mmap(NULL, SHARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, shard->fd, 0);
	err = shard->rows == MAP_FAILED ? -errno : gaps__give(&shard->gaps, 0, AT_SHARD_ROWS);
	if (!err)
		err = bpf_map_update_elem(store->maps.shards, &store->shard_cnt, &shard->fd, BPF_ANY);
	if (err) {
		if (shard->rows != MAP_FAILED)
			munmap(shard->rows, SHARD_BYTES);
		free(shard->gaps.gaps);
		close(shard->fd);
		return err;
	}
	store->shard_cnt++;
	return 0;
}

/* Room for rows in any shard. */
static int take_rows(struct unwind_store *store, uint32_t cnt, struct at_chunk *chunk)
{
	int err = -ENOSPC;

	for (uint32_t i = 0; err && i < store->shard_cnt; i++) {
		err = gaps__take(&store->shards[i].gaps, cnt, &chunk->row0);
		chunk->shard = i;
	}
	if (!err)
		return 0;
	err = add_shard(store);
	if (err)
		return err;
	chunk->shard = store->shard_cnt - 1;
	return gaps__take(&store->shards[chunk->shard].gaps, cnt, &chunk->row0);
}

int unwind_store__add_rows(struct unwind_store *store, const struct at_unwind_row *rows, uint32_t row_cnt,
			   struct at_chunk chunks[AT_CHUNK_CNT], uint32_t *chunk_cnt)
{
	int err = 0;

	*chunk_cnt = 0;
	while (!err && row_cnt) {
		struct at_chunk *chunk = &chunks[*chunk_cnt];
		uint32_t cnt = row_cnt < AT_SHARD_ROWS ? row_cnt : AT_SHARD_ROWS;

		if (*chunk_cnt == AT_CHUNK_CNT) {
			err = -E2BIG;
			break;
		}
		*chunk = (struct at_chunk){.pc0 = rows->pc, .row_cnt = cnt};
		err = take_rows(store, cnt, chunk);
		if (err)
			break;
		memcpy(&store->shards[chunk->shard].rows[chunk->row0], rows, cnt * sizeof(*rows));
		++*chunk_cnt;
		rows += cnt;
		row_cnt -= cnt;
	}
	if (err) {
		unwind_store__free_rows(store, chunks, *chunk_cnt);
		*chunk_cnt = 0;
	}
	return err;
}

void unwind_store__free_rows(struct unwind_store *store, const struct at_chunk *chunks, uint32_t chunk_cnt)
{
	/* Out of memory, the space stays taken. */
	for (uint32_t i = 0; i < chunk_cnt; i++)
		gaps__give(&store->shards[chunks[i].shard].gaps, chunks[i].row0, chunks[i].row_cnt);
}

int unwind_store__add_pieces(struct unwind_store *store, const struct at_piece *pieces, uint32_t cnt, uint32_t *first)
{
	int err = cnt ? gaps__take(&store->piece_gaps, cnt, first) : 0;

	if (!cnt)
		*first = 0;
	if (!err && cnt)
		memcpy(&store->pieces[*first], pieces, cnt * sizeof(*pieces));
	return err;
}

void unwind_store__free_pieces(struct unwind_store *store, uint32_t first, uint32_t cnt)
{
	if (cnt)
		gaps__give(&store->piece_gaps, first, cnt);
}

int unwind_store__open(struct unwind_store *store, const struct unwind_maps *maps)
{
	*store = (struct unwind_store){.maps = *maps};
	store->pieces = mmap(NULL, PIECES_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, maps->pieces, 0);
	if (store->pieces == MAP_FAILED) {
		store->pieces = NULL;
		return -errno;
	}
	store->mappings_bytes = maps->pid_cnt * sizeof(*store->mappings);
	store->mappings = mmap(NULL, store->mappings_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, maps->mappings, 0);
	if (store->mappings == MAP_FAILED) {
		store->mappings = NULL;
		return -errno;
	}
	return gaps__give(&store->piece_gaps, 0, AT_PIECE_CNT);
}

void unwind_store__close(struct unwind_store *store)
{
	for (uint32_t i = 0; i < store->shard_cnt; i++) {
		munmap(store->shards[i].rows, SHARD_BYTES);
		free(store->shards[i].gaps.gaps);
		close(store->shards[i].fd);
	}
	if (store->pieces)
		munmap(store->pieces, PIECES_BYTES);
	if (store->mappings)
		munmap(store->mappings, store->mappings_bytes);
	free(store->piece_gaps.gaps);
	*store = (struct unwind_store){0};
}
