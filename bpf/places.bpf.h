/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What ledgers remember of places in address spaces, in three maps of bounded size:
 *
 *   blocks  64 pages each: which were touched, which were taken away and when
 *   nodes   which blocks, or nodes below, there are: a call on a large range
 *           looks only at what is there
 *   ranges  of pages, found by an address in them, or by their size
 *
 * All entries of an address space hang on one list, so that its end removes them.
 */
#ifndef ALLOCTRACE_BPF_PLACES_BPF_H
#define ALLOCTRACE_BPF_PLACES_BPF_H

enum {
	BLOCK_PAGE_CNT = 64,
	NODE_CHILD_BITS = 6, /* a node has 64 children */
	NODE_LEVEL_MAX = 4,  /* 4 TiB each; blocks are level 0 */
	LEVEL_OF_STACKS = 8, /* + log2 of the pages of a place */
	LEVEL_OF_SIZES = 64, /* ranges by size, not by address */
	ORDER_MAX = 28,      /* log2 of the pages of the largest range */
	RANGE_CNT = 4,       /* in one place */
	ADDRESS_BITS = 47,   /* places above are not looked at */
	PURGE_CNT_MAX = 1 << 20,
};

/* Where something is remembered. */
struct place {
	__u32 tgid;
	__u32 level;
	__u64 index; /* pages >> NODE_CHILD_BITS * (level + 1) of blocks and nodes */
};

struct block {
	__u64 touched;              /* a bit a page */
	__u64 gone[AT_RELEASE_CNT]; /* released, and not back */
	__u64 next;
	__u32 gone_ticks[BLOCK_PAGE_CNT]; /* when; ticks_of */
};

struct node {
	__u64 mask; /* children that there are, or were */
	__u64 next;
};

/* Each range: first page << ORDER_MAX | pages, 0 = none. */
struct ranges {
	__u64 packed[RANGE_CNT];
	__u64 next;
};

#define PLACES(name, cnt, entry)                      \
	struct {                                      \
		__uint(type, BPF_MAP_TYPE_HASH);      \
		__uint(map_flags, BPF_F_NO_PREALLOC); \
		__uint(max_entries, cnt);             \
		__type(key, struct place);            \
		__type(value, entry);                 \
	} name SEC(".maps")

PLACES(blocks, 1 << 16, struct block); /* 16 GiB of touched pages that lie close */
PLACES(nodes, 1 << 15, struct node);
PLACES(ranges, 1 << 15, struct ranges);

/* key: tgid; head of its list */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, __u32);
	__type(value, __u64);
} place_lists SEC(".maps");

/* Values of new entries, too large for the stack of a program. */
static const struct block new_block;
static const struct node new_node;
static const struct ranges new_ranges;

/* What entries of a list name the next one by; 0 is none. */
static __always_inline __u64 place_name(const struct place *place)
{
	return ((__u64)place->level << 56 | place->index) + 1;
}

/* Puts a new entry on the list of its process; *next is in the entry. */
static __always_inline void place_enlist(const struct place *place, __u64 *next)
{
	__u32 tgid = place->tgid;
	__u64 none = 0, *head = bpf_map_lookup_elem(&place_lists, &tgid);

	if (!head) {
		bpf_map_update_elem(&place_lists, &tgid, &none, BPF_NOEXIST);
		head = bpf_map_lookup_elem(&place_lists, &tgid);
	}
	if (head)
		*next = __sync_lock_test_and_set(head, place_name(place));
}

static __always_inline bool block_make(const struct place *place)
{
	struct block *block;
	int err = bpf_map_update_elem(&blocks, place, &new_block, BPF_NOEXIST);

	if (err && err != -EEXIST) {
		loss_count(AT_LOSS_REFAULT_FULL);
		return false;
	}
	block = bpf_map_lookup_elem(&blocks, place);
	if (block && !err)
		place_enlist(place, &block->next);
	return block;
}

static __always_inline struct node *node_make(const struct place *place)
{
	struct node *node = bpf_map_lookup_elem(&nodes, place);
	int err;

	if (node)
		return node;
	err = bpf_map_update_elem(&nodes, place, &new_node, BPF_NOEXIST);
	if (err && err != -EEXIST) {
		loss_count(AT_LOSS_REFAULT_FULL);
		return NULL;
	}
	node = bpf_map_lookup_elem(&nodes, place);
	if (node && !err)
		place_enlist(place, &node->next);
	return node;
}

/* Makes a block known to the nodes above it. */
static __always_inline void block_announce(__u32 tgid, __u64 index)
{
	struct place place = {.tgid = tgid};

	for (int level = 1; level <= NODE_LEVEL_MAX; level++) {
		__u64 bit = 1ull << (index & 63);
		struct node *node;

		index >>= NODE_CHILD_BITS;
		place.level = level;
		place.index = index;
		node = node_make(&place);
		if (!node || node->mask & bit)
			return;
		__sync_fetch_and_or(&node->mask, bit);
	}
}

static __always_inline struct ranges *ranges_make(const struct place *place, enum at_loss loss)
{
	struct ranges *found = bpf_map_lookup_elem(&ranges, place);
	int err;

	if (found)
		return found;
	err = bpf_map_update_elem(&ranges, place, &new_ranges, BPF_NOEXIST);
	if (err && err != -EEXIST) {
		loss_count(loss);
		return NULL;
	}
	found = bpf_map_lookup_elem(&ranges, place);
	if (found && !err)
		place_enlist(place, &found->next);
	return found;
}

static __always_inline __u64 range_pack(__u64 page, __u64 page_cnt)
{
	return page << ORDER_MAX | page_cnt;
}

static __always_inline __u64 range_page(__u64 packed)
{
	return packed >> ORDER_MAX;
}

static __always_inline __u64 range_page_cnt(__u64 packed)
{
	return packed & ((1ull << ORDER_MAX) - 1);
}

static __always_inline bool is_in_range(__u64 packed, __u64 page)
{
	return page - range_page(packed) < range_page_cnt(packed);
}

static __always_inline __u32 bit_cnt(__u64 bits)
{
	bits -= bits >> 1 & 0x5555555555555555ull;
	bits = (bits & 0x3333333333333333ull) + (bits >> 2 & 0x3333333333333333ull);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return bits * 0x0101010101010101ull >> 56;
}

/* The number of the lowest bit that is set; there is one. Without branches, see at_highest_bit(). */
static __always_inline __u32 lowest_bit(__u64 bits)
{
	return bit_cnt(~bits & (bits - 1));
}

struct purge {
	__u64 name;
	__u32 tgid;
};

static long purge_step(__u32 i, struct purge *purge)
{
	struct place place = {.tgid = purge->tgid};

	if (!purge->name)
		return 1;
	place.level = (purge->name - 1) >> 56;
	place.index = (purge->name - 1) & ((1ull << 56) - 1);
	purge->name = 0;
	/* The two maps are there with the refault ledger only. */
	if (cfg_has_refaults && !place.level) {
		struct block *block = bpf_map_lookup_elem(&blocks, &place);

		if (block)
			purge->name = block->next;
		bpf_map_delete_elem(&blocks, &place);
	} else if (cfg_has_refaults && place.level <= NODE_LEVEL_MAX) {
		struct node *node = bpf_map_lookup_elem(&nodes, &place);

		if (node)
			purge->name = node->next;
		bpf_map_delete_elem(&nodes, &place);
	} else {
		struct ranges *found = bpf_map_lookup_elem(&ranges, &place);

		if (found)
			purge->name = found->next;
		bpf_map_delete_elem(&ranges, &place);
	}
	return 0;
}

/* The address space of a process is gone, and nobody is in it any more. */
static __always_inline void places_end(__u32 tgid)
{
	__u64 *head = bpf_map_lookup_elem(&place_lists, &tgid);
	struct purge purge = {.tgid = tgid};

	if (!head)
		return;
	purge.name = *head;
	bpf_map_delete_elem(&place_lists, &tgid);
	bpf_loop(PURGE_CNT_MAX, purge_step, &purge, 0);
}

#endif
