/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Walks over the VMAs of a range: how many of its bytes are charged to the
 * commit account. Knows nothing of calls.
 *
 * Two ways to look, neither of which may wait:
 *   bpf_find_vma   under mmap_lock, so what it says is true; fails while
 *                  another thread has the lock for writing.
 *   the iterator   6.18 silently skips a VMA that another thread has locked.
 * So a walk takes short ranges VMA by VMA with the first, all else with the
 * second, and compares what it saw with the length of the range.
 *
 * The sums are in the slot, not in registers: the verifier follows each value
 * of a register through the loops, and does not come to an end.
 */
#ifndef ALLOCTRACE_BPF_WALK_BPF_H
#define ALLOCTRACE_BPF_WALK_BPF_H

enum { WALK_STEP_CNT = 6, WALK_TRY_CNT = 5 };

struct found {
	__u64 start, end, flags;
};

static long vma_found(struct task_struct *task, struct vm_area_struct *vma, void *ctx)
{
	struct found *found = ctx;

	found->start = vma->vm_start;
	found->end = vma->vm_end;
	found->flags = vma->vm_flags;
	return 0;
}

/* Adds the part of a VMA that lies between the walk's place and the end. */
static __always_inline void walk_add(struct at_slot *slot, __u64 end, const struct found *vma)
{
	__u64 from = vma->start > slot->walk_at ? vma->start : slot->walk_at;
	__u64 to = vma->end < end ? vma->end : end;

	if (from >= to)
		return;
	slot->walk_seen += to - from;
	if (vma->flags & VM_ACCOUNT)
		slot->walk_acct += to - from;
	slot->walk_at = to;
}

/* Where the next VMA after the walk's place begins, as far as the iterator sees it. */
static __always_inline __u64 next_start(struct task_struct *task, const struct at_slot *slot, __u64 end)
{
	struct bpf_iter_task_vma it;
	struct vm_area_struct *vma;
	__u64 start = end;

	bpf_iter_task_vma_new(&it, task, slot->walk_at);
	vma = bpf_iter_task_vma_next(&it);
	if (vma && vma->vm_start < end)
		start = vma->vm_start;
	bpf_iter_task_vma_destroy(&it);
	return start;
}

/*
 * The walk stands on a hole. A VMA that the iterator skipped shows at the far
 * end of the hole. True when the walk has got on.
 *
 * This and walk_once are global functions because the verifier goes through
 * those once, and through others at every call: 400 ms against 10.
 */
__noinline int walk_hole(struct at_slot *slot, __u64 end)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct found found = {};
	__u64 next;
	long err;

	if (!slot)
		return false;
	if (!cfg_has_vma_iter) { /* a page of it is sure */
		slot->walk_seen += PAGE_BYTES;
		slot->walk_at += PAGE_BYTES;
		return true;
	}
	next = next_start(task, slot, end);
	if (next <= slot->walk_at)
		return false;
	err = bpf_find_vma(task, next - 1, vma_found, &found, 0);
	if (err && err != -ENOENT)
		return false;
	if (err)
		found.start = next;
	if (found.start <= slot->walk_at)
		return false;
	slot->walk_seen += found.start - slot->walk_at;
	slot->walk_at = found.start;
	if (!err)
		walk_add(slot, end, &found);
	return true;
}

/* True when it came to the end. */
static __always_inline bool walk_by_steps(struct task_struct *task, struct at_slot *slot, __u64 end)
{
	for (int i = 0; i < WALK_STEP_CNT; i++) {
		struct found found = {};
		long err = bpf_find_vma(task, slot->walk_at, vma_found, &found, 0);

		if (!err)
			walk_add(slot, end, &found);
		else if (err != -ENOENT || !walk_hole(slot, end))
			return false;
		if (slot->walk_at >= end)
			return true;
	}
	return false;
}

/* Goes on from the walk's place. True when nothing can have been skipped. */
static __always_inline bool walk_by_iter(struct task_struct *task, struct at_slot *slot, __u64 start, __u64 end)
{
	struct bpf_iter_task_vma it;
	struct vm_area_struct *vma;
	int err;

	if (!cfg_has_vma_iter)
		return false;
	err = bpf_iter_task_vma_new(&it, task, slot->walk_at);
	while ((vma = bpf_iter_task_vma_next(&it)) != NULL) {
		struct found found = {vma->vm_start, vma->vm_end, vma->vm_flags};

		if (found.start >= end)
			break;
		walk_add(slot, end, &found);
	}
	bpf_iter_task_vma_destroy(&it);
	/* What is missing are holes when no other thread can hold a lock. */
	return slot->walk_seen == end - start || (!err && task->signal->live.counter == 1);
}

/* One walk over a range of the current process; its sums are in the slot. True when nothing was skipped. */
__noinline int walk_once(struct at_slot *slot, __u64 start, __u64 end)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (!slot)
		return false;
	slot->walk_at = start;
	slot->walk_seen = 0;
	slot->walk_acct = 0;
	return walk_by_steps(task, slot, end) || walk_by_iter(task, slot, start, end);
}

/* Leaves the charged bytes of the range in slot->walk_acct. Returns the bytes that stayed unseen. */
static __always_inline __u64 walk_range(struct at_slot *slot, __u64 start, __u64 end)
{
	for (int i = 0; i < WALK_TRY_CNT; i++)
		if (walk_once(slot, start, end))
			return 0;
	return end - start - slot->walk_seen;
}

enum acct { ACCT_NO, ACCT_YES, ACCT_UNSEEN };

/* Whether the VMA at an address is charged for. */
__noinline int walk_at(__u64 addr)
{
	struct task_struct *task = bpf_get_current_task_btf();

	for (int i = 0; i < WALK_TRY_CNT; i++) {
		struct found found = {};
		long err = bpf_find_vma(task, addr, vma_found, &found, 0);

		if (!err || err == -ENOENT)
			return found.flags & VM_ACCOUNT ? ACCT_YES : ACCT_NO;
	}
	return ACCT_UNSEEN;
}

/* The same; what cannot be seen is taken to be. */
static __always_inline bool is_accounted(__u64 addr, bool *is_assumed)
{
	int acct = walk_at(addr);

	*is_assumed = acct == ACCT_UNSEEN;
	return acct != ACCT_NO;
}

#endif
