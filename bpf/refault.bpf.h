/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The refault ledger: pages that a process gave back and took again. Counted are
 * pages that a page fault of ours brought in: what was never touched is not
 * released, and its first fault brings nothing back.
 *
 * A range is marked when the call that releases it is entered: when it returns,
 * another thread may have touched it again, or mapped another one there.
 */
#ifndef ALLOCTRACE_BPF_REFAULT_BPF_H
#define ALLOCTRACE_BPF_REFAULT_BPF_H

enum { SWEEP_CNT_MAX = 1 << 20, TICK_SHIFT = 10 };

enum sweep_op {
	SWEEP_RELEASE,      /* touched pages are gone; of kind `release` */
	SWEEP_MOVE_GONE,    /* pages that are gone by unmap go to another place */
	SWEEP_MOVE_TOUCHED, /* the same with those that are there */
};

/* A pass over the blocks that there are in a range. Units are pages. */
struct sweep {
	__u64 at, end;
	__u64 delta; /* to the other place; modulo 2^64 */
	__u64 page_cnt;
	__u32 tgid, ticks;
	__u8 level, op, release; /* bytes: it lies on stacks, and 6.1 rounds each of six frames up to 32 */
};

LEDGER_MAP(refault_ledgers, struct at_refault_ledger);

/* Of a microsecond each; they wrap after 73 minutes, beyond the histogram's last edge. */
static __always_inline __u32 ticks_of(__u64 ns)
{
	return ns >> TICK_SHIFT;
}

/* The bits of the pages of a block that are in the range of a sweep, which has come to the block. */
static __always_inline __u64 sweep_bits(const struct sweep *sweep)
{
	__u64 first = sweep->at & 63, last = sweep->end - (sweep->at - first), bits = ~0ull << first;

	if (last < BLOCK_PAGE_CNT)
		bits &= (1ull << (last & 63)) - 1;
	return bits;
}

/* One of two values, without a branch: the verifier would follow all of them through the loops below. */
static __always_inline __u32 choose(__u64 is_second, __u32 first, __u32 second)
{
	return first ^ ((first ^ second) & (__u32) - (is_second & 1));
}

static __always_inline void sweep_release(struct sweep *sweep, struct block *block)
{
	__u64 bits = block->touched & sweep_bits(sweep);
	__u32 release = sweep->release;

	if (!bits || release >= AT_RELEASE_CNT)
		return;
	/* What is advised away with MADV_FREE stays until the kernel needs it. */
	if (release != AT_RELEASE_FREE)
		__sync_fetch_and_and(&block->touched, ~bits);
	for (int i = 0; i < AT_RELEASE_CNT; i++)
		if (i == (int)release)
			__sync_fetch_and_or(&block->gone[i], bits);
		else if (block->gone[i] & bits)
			__sync_fetch_and_and(&block->gone[i], ~bits);
	for (int i = 0; i < BLOCK_PAGE_CNT; i++)
		block->gone_ticks[i] = choose(bits >> i, block->gone_ticks[i], sweep->ticks);
	sweep->page_cnt += bit_cnt(bits);
}

/* A block that was not there. A global function, see bpf/walk.bpf.h. */
__noinline int block_add(__u32 tgid, __u64 index)
{
	struct place place = {.tgid = tgid, .index = index};

	if (cfg_has_refaults && block_make(&place))
		block_announce(tgid, index);
	return 0;
}

/* Half of the bits of a block arrive in one block, half in the next; shift: where bit 0 arrives, may be negative. */
static __always_inline void move_half(const struct sweep *sweep, const struct block *from, __u64 bits, __u64 index,
				      __s32 shift)
{
	struct place place = {.tgid = sweep->tgid, .index = index};
	struct block *block = bpf_map_lookup_elem(&blocks, &place);
	bool is_touched = sweep->op == SWEEP_MOVE_TOUCHED;
	__u64 moved = shift < 0 ? bits >> (-shift & 63) : bits << (shift & 63);

	if (!moved)
		return;
	if (!block) {
		block_add(sweep->tgid, index);
		block = bpf_map_lookup_elem(&blocks, &place);
		if (!block)
			return;
	}
	if (is_touched) {
		__sync_fetch_and_or(&block->touched, moved);
		return;
	}
	__sync_fetch_and_or(&block->gone[AT_RELEASE_UNMAP], moved);
	for (int i = 0; i < BLOCK_PAGE_CNT; i++)
		block->gone_ticks[i] =
			choose(moved >> i, block->gone_ticks[i], from->gone_ticks[(__u32)(i - shift) & 63]);
}

static __always_inline void sweep_move(struct sweep *sweep, struct block *block)
{
	__u64 bits = sweep_bits(sweep), to = (sweep->at & ~63ull) + sweep->delta;
	__s32 shift = to & 63;

	if (sweep->op == SWEEP_MOVE_TOUCHED)
		bits &= __sync_fetch_and_and(&block->touched, ~bits);
	else
		bits &= __sync_fetch_and_and(&block->gone[AT_RELEASE_UNMAP], ~bits);
	if (!bits)
		return;
	move_half(sweep, block, bits, to >> NODE_CHILD_BITS, shift);
	if (shift)
		move_half(sweep, block, bits, (to >> NODE_CHILD_BITS) + 1, shift - 64);
}

/*
 * One step of a sweep: a block, or one node that says where the next one is. After
 * a block its node is asked; where a node has no more, the one above it.
 */
static long sweep_step(__u32 i, struct sweep *sweep)
{
	__u32 level = sweep->level, shift;
	struct place place = {.tgid = sweep->tgid};
	struct block *block;
	struct node *node;
	__u64 mask, child;

	if (sweep->at >= sweep->end)
		return 1;
	place.level = level;
	place.index = sweep->at >> NODE_CHILD_BITS * (level + 1);
	if (!level) {
		block = bpf_map_lookup_elem(&blocks, &place);
		if (block && sweep->op == SWEEP_RELEASE)
			sweep_release(sweep, block);
		else if (block)
			sweep_move(sweep, block);
		sweep->at = (sweep->at | 63) + 1;
		sweep->level = 1;
		return 0;
	}
	shift = NODE_CHILD_BITS * level;
	child = sweep->at >> shift;
	node = bpf_map_lookup_elem(&nodes, &place);
	mask = node ? node->mask >> (child & 63) : 0;
	if (!mask) {
		sweep->at = (place.index + 1) << (shift + NODE_CHILD_BITS);
		if (level < NODE_LEVEL_MAX)
			sweep->level = level + 1;
		return 0;
	}
	if (!(mask & 1))
		sweep->at = (child + lowest_bit(mask)) << shift;
	sweep->level = level - 1;
	return 0;
}

/* A global function, see bpf/walk.bpf.h. The helper wants the stack of its caller. */
__noinline int sweep_run(struct sweep *sweep)
{
	struct sweep own;
	__u64 page_cnt;

	if (!sweep || !cfg_has_refaults)
		return 0;
	own = *sweep;
	page_cnt = own.end - own.at;
	own.level = 0;
	for (int i = 1; i <= NODE_LEVEL_MAX; i++)
		if (page_cnt > 1ull << NODE_CHILD_BITS * i)
			own.level = i;
	bpf_loop(SWEEP_CNT_MAX, sweep_step, &own, 0);
	sweep->page_cnt = own.page_cnt;
	return 0;
}

/* Global functions, see bpf/walk.bpf.h: in the row of the thread. */
__noinline int row_release(const struct at_slot *slot, __u32 release, __u64 pages, __u64 ns)
{
	struct at_row_ledger *row = slot ? row_ledger_of(slot) : NULL;

	if (row && release < AT_RELEASE_CNT) {
		row->refaults[release].released_pages += pages;
		row->refaults[release].release_ns += ns;
	}
	return 0;
}

__noinline int row_return(const struct at_slot *slot, __u32 release, __u64 ns)
{
	struct at_row_ledger *row = slot ? row_ledger_of(slot) : NULL;

	if (row && release < AT_RELEASE_CNT) {
		row->refaults[release].returned_pages++;
		row->refaults[release].refault_ns += ns;
	}
	return 0;
}

static __always_inline void refault_count(const struct at_slot *slot, const struct block *block, __u32 release,
					  __u64 page, __u64 ns, __u64 end_ns)
{
	__u32 phase = slot->fault_phase;
	struct at_refault_ledger *ledger = bpf_map_lookup_elem(&refault_ledgers, &phase);
	__u64 away_ns = (__u64)(ticks_of(end_ns) - block->gone_ticks[page & 63]) << TICK_SHIFT;
	__u32 bucket;

	if (!ledger || release >= AT_RELEASE_CNT)
		return;
	ledger->kinds[release].returned_pages++;
	ledger->kinds[release].refault_ns += ns;
	if (cfg_has_rows)
		row_return(slot, release, ns);
	if (away_ns > ledger->max_ns)
		ledger->max_ns = away_ns;
	bucket = at_hist_bucket(away_ns);
	barrier_var(bucket); /* clang knows that the test below is true, the verifier does not */
	if (bucket < AT_HIST_CNT)
		ledger->hist[bucket]++;
}

/* A fault has brought in a page. Faults of a thread that is past its exit are not for the list of its process. */
static __always_inline void refault_fault(const struct at_slot *slot, const struct task_struct *task, __u64 addr,
					  __u64 ns, __u64 end_ns)
{
	__u64 page = addr / PAGE_BYTES, bit = 1ull << (page & 63);
	struct place place = {.tgid = task->tgid, .index = page >> NODE_CHILD_BITS};
	struct block *block;

	if (task->flags & PF_EXITING || addr >> ADDRESS_BITS)
		return;
	block = bpf_map_lookup_elem(&blocks, &place);
	if (!block) {
		block_add(place.tgid, place.index);
		block = bpf_map_lookup_elem(&blocks, &place);
		if (!block)
			return;
	}
	for (int i = 0; i < AT_RELEASE_CNT; i++)
		if (block->gone[i] & bit && __sync_fetch_and_and(&block->gone[i], ~bit) & bit)
			refault_count(slot, block, i, page, ns, end_ns);
	if (!(block->touched & bit))
		__sync_fetch_and_or(&block->touched, bit);
}

/* The range that a call releases, if any, and how. */
static __always_inline bool release_range(const struct pt_regs *regs, const struct mm_struct *mm,
					  const struct at_slot *slot, struct sweep *sweep)
{
	__u32 advice = regs->dx;

	sweep->release = AT_RELEASE_UNMAP;
	commit_range(slot->syscall, regs, mm, &sweep->at, &sweep->end);
	if (slot->syscall == AT_SYS_MADVISE) {
		if (advice != MADV_DONTNEED && advice != MADV_FREE)
			return false;
		sweep->release = advice == MADV_FREE ? AT_RELEASE_FREE : AT_RELEASE_DONTNEED;
		sweep->end = regs->di + page_align(regs->si);
	} else if (slot->syscall == AT_SYS_MPROTECT || slot->syscall == AT_SYS_PKEY_MPROTECT) {
		return false;
	}
	if (sweep->at % PAGE_BYTES || sweep->at >= sweep->end || sweep->end >> ADDRESS_BITS)
		return false;
	sweep->at /= PAGE_BYTES;
	sweep->end /= PAGE_BYTES;
	return true;
}

static __always_inline void refault_enter(const struct pt_regs *regs, __u32 tgid, const struct mm_struct *mm,
					  struct at_slot *slot)
{
	struct sweep sweep = {.tgid = tgid, .op = SWEEP_RELEASE};

	slot->released_pages = 0;
	if (!release_range(regs, mm, slot, &sweep))
		return;
	sweep.ticks = ticks_of(bpf_ktime_get_ns());
	sweep_run(&sweep);
	slot->released_pages = sweep.page_cnt;
	slot->release = sweep.release;
}

/*
 * Ranges that were unmapped, by size: 12.5 % wide classes, as the histogram's. The
 * next mapping of that size takes its place, wherever it lies: page by page, what
 * was touched before comes back when it is touched again.
 */
static __always_inline struct place size_place(__u32 tgid, __u64 page_cnt)
{
	struct place place = {.tgid = tgid, .level = LEVEL_OF_SIZES, .index = at_hist_bucket(page_cnt)};

	return place;
}

/* A global function, see bpf/walk.bpf.h. */
__noinline int size_keep(__u32 tgid, __u64 packed)
{
	struct place place = size_place(tgid, range_page_cnt(packed));
	struct ranges *kept;

	if (!cfg_has_refaults)
		return 0;
	kept = ranges_make(&place, AT_LOSS_REFAULT_FULL);
	if (!kept)
		return 0;
	for (int i = 0; i < RANGE_CNT; i++)
		if (!__sync_val_compare_and_swap(&kept->packed[i], 0, packed))
			return 0;
	/* More at once than there is room for: one of the older ones is found again only by its address. */
	kept->packed[range_page(packed) & (RANGE_CNT - 1)] = packed;
	return 0;
}

/* A mapping was made: does it take the place of one that is gone? A global function, see bpf/walk.bpf.h. */
__noinline int size_take(__u32 tgid, __u64 packed)
{
	struct place place = size_place(tgid, range_page_cnt(packed));
	struct ranges *kept;
	struct sweep sweep = {.tgid = tgid, .op = SWEEP_MOVE_GONE};
	__u64 page_cnt = range_page_cnt(packed), old, old_cnt, old_page;

	if (!cfg_has_refaults)
		return 0;
	kept = bpf_map_lookup_elem(&ranges, &place);
	if (!kept)
		return 0;
	for (int i = 0; i < RANGE_CNT; i++)
		if (kept->packed[i] && range_page(kept->packed[i]) == range_page(packed)) {
			__sync_lock_test_and_set(&kept->packed[i], 0);
			return 0;
		}
	for (int i = 0; i < RANGE_CNT; i++) {
		old = kept->packed[i] ? __sync_lock_test_and_set(&kept->packed[i], 0) : 0;
		if (!old)
			continue;
		old_page = range_page(old);
		old_cnt = range_page_cnt(old);
		if (old_cnt > page_cnt)
			old_cnt = page_cnt;
		/* Where the two overlap, pages come back at their old addresses. */
		if (old_page < range_page(packed) + page_cnt && range_page(packed) < old_page + old_cnt)
			return 0;
		sweep.at = old_page;
		sweep.end = old_page + old_cnt;
		sweep.delta = range_page(packed) - old_page;
		sweep_run(&sweep);
		return 0;
	}
	return 0;
}

static __always_inline void refault_moved(const struct finished *call, __u32 tgid)
{
	__u64 old_cnt = page_align(call->si) / PAGE_BYTES, new_cnt = page_align(call->dx) / PAGE_BYTES;
	struct sweep sweep = {.tgid = tgid, .op = SWEEP_MOVE_TOUCHED};

	if ((__u64)call->ret == call->di)
		return;
	sweep.at = call->di / PAGE_BYTES;
	sweep.end = sweep.at + (old_cnt < new_cnt ? old_cnt : new_cnt);
	sweep.delta = (__u64)call->ret / PAGE_BYTES - sweep.at;
	sweep_run(&sweep);
}

/*
 * madvise may have done a part of its range when it fails; the others do all or
 * nothing. A global function, see bpf/walk.bpf.h.
 */
__noinline int refault_settle(const struct at_slot *slot, const struct finished *call, __u64 ns)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32, release, phase, syscall;
	struct at_refault_ledger *ledger;
	__u64 pages;
	bool is_ok;

	if (!slot || !call || !cfg_has_refaults)
		return 0;
	release = slot->release;
	phase = slot->phase;
	syscall = slot->syscall;
	pages = page_align(call->si) / PAGE_BYTES;
	is_ok = !is_error(call->ret);
	if (slot->released_pages && (is_ok || syscall == AT_SYS_MADVISE)) {
		ledger = bpf_map_lookup_elem(&refault_ledgers, &phase);
		barrier_var(release); /* 6.1 forgets bounds of what goes through the stack: tested where used */
		if (ledger && release < AT_RELEASE_CNT) {
			ledger->kinds[release].released_pages += slot->released_pages;
			ledger->kinds[release].release_ns += ns;
		}
		if (cfg_has_rows)
			row_release(slot, release, slot->released_pages, ns);
	}
	if (!is_ok || !pages || pages >> ORDER_MAX)
		return 0;
	if (syscall == AT_SYS_MUNMAP && slot->released_pages)
		size_keep(tgid, range_pack(call->di / PAGE_BYTES, pages));
	else if (syscall == AT_SYS_MMAP && call->r10 & MAP_ANONYMOUS && !(call->r10 & MAP_FIXED))
		size_take(tgid, range_pack((__u64)call->ret / PAGE_BYTES, pages));
	else if (syscall == AT_SYS_MREMAP)
		refault_moved(call, tgid);
	return 0;
}

#endif
