/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads chains and paths out of the kernel's maps and puts the late ones in their places. */
#include <bpf/bpf.h>
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cli/symbol.h"
#include "cli/unwind_state.h"

#define FRAMES_BYTES ((size_t)AT_FRAME_CHUNKS * AT_FRAME_CHUNK * sizeof(uint64_t))

/* Chains that were read, to find one by its key; late ones get keys of their own. */
struct chain_key {
	uint64_t hash;
	uint32_t chain;
};

struct collection {
	struct unwind *unwind;
	struct callchains *chains;
	struct chain_key *keys; /* sorted by hash */
	size_t key_cnt, chain_max, frame_of_max, frame_max, path_max;
	const uint64_t *frames; /* the kernel's */
	struct frame_slot {
		uint64_t word;
		uint32_t frame;
		bool is_used;
	} * slots; /* open hash of frames by word; frame_slot_cnt is a power of two */
	size_t slot_cnt;
};

/* Grows an array by one element. */
static int grow(void **array, size_t cnt, size_t *max, size_t bytes)
{
	size_t wanted = *max ? 2 * *max : 256;
	void *grown;

	if (cnt < *max)
		return 0;
	grown = reallocarray(*array, wanted, bytes);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	*max = wanted;
	return 0;
}

static struct frame_slot *slot_of(struct frame_slot *slots, size_t cnt, uint64_t word)
{
	size_t at = (word * 0x9e3779b97f4a7c15ull) >> 32 & (cnt - 1);

	while (slots[at].is_used && slots[at].word != word)
		at = (at + 1) & (cnt - 1);
	return &slots[at];
}

static int grow_slots(struct collection *collection)
{
	size_t cnt = collection->slot_cnt ? 2 * collection->slot_cnt : 1024;
	struct frame_slot *slots = calloc(cnt, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < collection->slot_cnt; i++)
		if (collection->slots[i].is_used)
			*slot_of(slots, cnt, collection->slots[i].word) = collection->slots[i];
	free(collection->slots);
	collection->slots = slots;
	collection->slot_cnt = cnt;
	return 0;
}

/* The number of a frame, the same for the same word. */
static int find_frame(struct collection *collection, uint64_t word, uint32_t *frame)
{
	struct callchains *chains = collection->chains;
	struct frame_slot *slot;
	int err = 0;

	if (2 * chains->frame_cnt >= collection->slot_cnt)
		err = grow_slots(collection);
	if (!err)
		err = grow((void **)&chains->frames, chains->frame_cnt, &collection->frame_max,
			   sizeof(*chains->frames));
	if (err)
		return err;
	slot = slot_of(collection->slots, collection->slot_cnt, word);
	if (!slot->is_used) {
		*slot = (struct frame_slot){word, (uint32_t)chains->frame_cnt, true};
		chains->frames[chains->frame_cnt++] = (struct callchain_frame){.word = word};
	}
	*frame = slot->frame;
	return 0;
}

static int add_chain(struct collection *collection, const uint64_t *words, uint32_t cnt, uint32_t guess_from,
		     enum at_end end)
{
	struct callchains *chains = collection->chains;
	int err = grow((void **)&chains->chains, chains->chain_cnt, &collection->chain_max, sizeof(*chains->chains));

	if (err)
		return err;
	chains->chains[chains->chain_cnt] = (struct callchain_chain){
		.first = (uint32_t)chains->frame_of_cnt, .cnt = cnt, .guess_from = guess_from, .end = end};
	for (uint32_t i = 0; !err && i < cnt; i++) {
		err = grow((void **)&chains->frame_of, chains->frame_of_cnt, &collection->frame_of_max,
			   sizeof(*chains->frame_of));
		if (!err)
			err = find_frame(collection, words[i], &chains->frame_of[chains->frame_of_cnt]);
		if (!err)
			chains->frame_of_cnt++;
	}
	if (!err)
		chains->chain_cnt++;
	return err;
}

static int add_path(struct collection *collection, const struct at_path_key *key, uint32_t chain,
		    const struct at_path *path)
{
	struct callchains *chains = collection->chains;
	int err = grow((void **)&chains->paths, chains->path_cnt, &collection->path_max, sizeof(*chains->paths));

	if (!err)
		chains->paths[chains->path_cnt++] = (struct callchain_path){.chain = chain,
									    .class = key->class,
									    .phase = key->phase,
									    .tgid = (pid_t)key->pid,
									    .tid = (pid_t)key->tid,
									    .call_cnt = path->call_cnt,
									    .sum_ns = path->sum_ns,
									    .bytes = path->bytes};
	return err;
}

static int read_chains(struct collection *collection)
{
	int fd = collection->unwind->results.chains, err = 0;
	uint64_t key, *last = NULL;
	struct at_chain chain;
	size_t max = 0;

	while (!err && !bpf_map_get_next_key(fd, last, &key)) {
		last = &key;
		if (bpf_map_lookup_elem(fd, &key, &chain))
			continue;
		if ((uint64_t)chain.first + chain.cnt > (uint64_t)AT_FRAME_CHUNKS * AT_FRAME_CHUNK)
			return -EINVAL;
		err = grow((void **)&collection->keys, collection->key_cnt, &max, sizeof(*collection->keys));
		if (err)
			break;
		collection->keys[collection->key_cnt++] =
			(struct chain_key){key, (uint32_t)collection->chains->chain_cnt};
		err = add_chain(collection, collection->frames + chain.first, chain.cnt, chain.guess_from, chain.end);
	}
	return err;
}

static int compare_keys(const void *a, const void *b)
{
	const struct chain_key *x = a, *y = b;

	return x->hash < y->hash ? -1 : x->hash > y->hash;
}

static int read_paths(struct collection *collection)
{
	int fd = collection->unwind->results.paths, err = 0;
	struct at_path_key key, *last = NULL;
	struct at_path path;

	while (!err && !bpf_map_get_next_key(fd, last, &key)) {
		struct chain_key wanted = {.hash = key.chain}, *found = NULL;

		last = &key;
		if (bpf_map_lookup_elem(fd, &key, &path))
			continue;
		if (key.chain && collection->key_cnt)
			found = bsearch(&wanted, collection->keys, collection->key_cnt, sizeof(wanted), compare_keys);
		if (!found)
			collection->chains->lost_cnt += path.call_cnt;
		err = add_path(collection, &key, found ? found->chain : 0, &path);
	}
	return err;
}

/* Calls that found no room even for their path. */
static int read_losses(struct collection *collection)
{
	const struct unwind_results *results = &collection->unwind->results;
	struct at_path *values = calloc((size_t)results->cpu_cnt, sizeof(*values));
	int err = values ? 0 : -ENOMEM;

	for (uint32_t key = 0; !err && key < AT_PHASE_CNT * AT_CLASS_CNT; key++) {
		struct at_path_key path_key = {.class = key % AT_CLASS_CNT, .phase = key / AT_CLASS_CNT};
		struct at_path sum = {0};

		err = bpf_map_lookup_elem(results->path_losses, &key, values) ? -errno : 0;
		for (int cpu = 0; !err && cpu < results->cpu_cnt; cpu++) {
			sum.call_cnt += values[cpu].call_cnt;
			sum.sum_ns += values[cpu].sum_ns;
			sum.bytes += values[cpu].bytes;
		}
		if (!err && sum.call_cnt) {
			collection->chains->lost_cnt += sum.call_cnt;
			err = add_path(collection, &path_key, 0, &sum);
		}
	}
	free(values);
	return err;
}

/* Takes a call off the path of its cut chain. False: it is not there (its path was lost). */
static bool take_off(struct collection *collection, const struct unwind_fix *fix, size_t path_cnt)
{
	struct chain_key wanted = {.hash = fix->key.chain}, *found = NULL;

	if (fix->key.chain && collection->key_cnt)
		found = bsearch(&wanted, collection->keys, collection->key_cnt, sizeof(wanted), compare_keys);
	for (size_t i = 0; i < path_cnt; i++) {
		struct callchain_path *path = &collection->chains->paths[i];

		if (path->chain != (found ? found->chain : 0) || path->class != fix->key.class ||
		    path->phase != fix->key.phase || path->tgid != (pid_t)fix->key.pid ||
		    path->tid != (pid_t)fix->key.tid || path->call_cnt < fix->path.call_cnt)
			continue;
		path->call_cnt -= fix->path.call_cnt;
		path->sum_ns -= fix->path.sum_ns;
		path->bytes -= fix->path.bytes;
		if (!found)
			collection->chains->lost_cnt -= fix->path.call_cnt;
		return true;
	}
	return false;
}

/* The calls whose chains were completed late move there: the sums stay what they were. */
static int apply_fixes(struct collection *collection)
{
	size_t path_cnt = collection->chains->path_cnt;
	int err = 0;

	for (size_t i = 0; !err && i < collection->unwind->fix_cnt; i++) {
		const struct unwind_fix *fix = &collection->unwind->fixes[i];
		uint32_t chain = (uint32_t)collection->chains->chain_cnt;

		if (!take_off(collection, fix, path_cnt))
			continue;
		err = add_chain(collection, fix->frames, fix->cnt, fix->guess_from, fix->end);
		if (!err)
			err = add_path(collection, &fix->key, chain, &fix->path);
	}
	return err;
}

/* Paths that are empty now are no paths. */
static void drop_empty_paths(struct callchains *chains)
{
	size_t cnt = 0;

	for (size_t i = 0; i < chains->path_cnt; i++)
		if (chains->paths[i].call_cnt)
			chains->paths[cnt++] = chains->paths[i];
	chains->path_cnt = cnt;
}

static int read_maps(struct collection *collection)
{
	int err = add_chain(collection, NULL, 0, 0, AT_END_LOST);

	if (!err)
		err = read_chains(collection);
	if (!err && collection->key_cnt)
		qsort(collection->keys, collection->key_cnt, sizeof(*collection->keys), compare_keys);
	if (!err)
		err = read_paths(collection);
	if (!err)
		err = read_losses(collection);
	if (!err)
		err = apply_fixes(collection);
	return err;
}

int unwind__collect(struct unwind *unwind, struct callchains **out)
{
	struct collection collection = {.unwind = unwind, .chains = calloc(1, sizeof(struct callchains))};
	const uint64_t *frames;
	int err = 0;

	*out = NULL;
	if (!collection.chains)
		return -ENOMEM;
	frames = mmap(NULL, FRAMES_BYTES, PROT_READ, MAP_SHARED, unwind->results.frames, 0);
	if (frames == MAP_FAILED)
		err = -errno;
	collection.frames = frames;
	if (!err)
		err = read_maps(&collection);
	if (!err) {
		drop_empty_paths(collection.chains);
		collection.chains->is_by_thread = unwind->results.is_by_thread;
		collection.chains->note_lost_cnt = *unwind->results.notes_lost;
		collection.chains->cut_lost_cnt = *unwind->results.cuts_lost;
		collection.chains->table_lost_cnt = unwind->objects.lost_cnt;
		symbol__resolve(&unwind->objects, collection.chains);
		callchain__finish(collection.chains);
	}
	if (frames != MAP_FAILED)
		munmap((void *)frames, FRAMES_BYTES);
	free(collection.keys);
	free(collection.slots);
	if (err)
		callchain__free(collection.chains);
	else
		*out = collection.chains;
	return err;
}
