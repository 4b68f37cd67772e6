/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The stack ledger: threads created, and what their stacks cost. A stack is what
 * was mapped with MAP_STACK; calls and page faults on addresses in it are its.
 */
#ifndef ALLOCTRACE_BPF_STACKS_BPF_H
#define ALLOCTRACE_BPF_STACKS_BPF_H

enum { HUGE_PAGE_CNT = 512 };

LEDGER_MAP(stack_ledgers, struct at_stack_ledger);

/* Bit k: there is, or was, a stack of at most 2^k pages and more than half of that. */
__u64 stack_orders;

/* Some target has asked for huge pages. */
__u8 huge_is_asked;

static __always_inline struct at_stack_ledger *stack_ledger_of(__u32 phase)
{
	return bpf_map_lookup_elem(&stack_ledgers, &phase);
}

/* Places of 2^order pages: a stack lies in one or two of them, and no place has parts of more than three. */
static __always_inline struct place stack_place(__u32 tgid, __u32 order, __u64 page)
{
	struct place place = {.tgid = tgid, .level = LEVEL_OF_STACKS + order, .index = page >> order};

	return place;
}

static __always_inline __u32 stack_order(__u64 page_cnt)
{
	__u32 order = 0;

	for (int i = 0; i < ORDER_MAX; i++)
		if (page_cnt > 1ull << i)
			order = i + 1;
	return order;
}

/* Adds or removes a stack in one of its places. */
static __always_inline void stack_set(__u32 tgid, __u32 order, __u64 page, __u64 from, __u64 to)
{
	struct place place = stack_place(tgid, order, page);
	struct ranges *stacks;

	if (to)
		stacks = ranges_make(&place, AT_LOSS_STACK_FULL);
	else
		stacks = bpf_map_lookup_elem(&ranges, &place);
	if (!stacks)
		return;
	for (int i = 0; i < RANGE_CNT; i++)
		if (__sync_val_compare_and_swap(&stacks->packed[i], from, to) == from)
			return;
	if (to)
		loss_count(AT_LOSS_STACK_FULL);
}

/* A global function, see bpf/walk.bpf.h. is_new: mapped; else unmapped. */
__noinline int stack_change(__u32 tgid, __u64 packed, bool is_new)
{
	__u64 first = range_page(packed), page_cnt = range_page_cnt(packed), last = first + page_cnt - 1;
	__u32 order = stack_order(page_cnt);
	__u64 bit = 1ull << order;

	if (!cfg_has_stacks)
		return 0;
	if (is_new && !(stack_orders & bit))
		__sync_fetch_and_or(&stack_orders, bit);
	stack_set(tgid, order, first, is_new ? 0 : packed, is_new ? packed : 0);
	if (first >> order != last >> order)
		stack_set(tgid, order, last, is_new ? 0 : packed, is_new ? packed : 0);
	return 0;
}

/* The stack that a page is part of, packed; 0 = none. Looks at no more than 8 kinds of size. */
__noinline __u64 stack_find(__u32 tgid, __u64 page)
{
	__u64 orders = cfg_has_stacks ? stack_orders : 0;

	for (int i = 0; i < 8 && orders; i++) {
		struct place place = stack_place(tgid, lowest_bit(orders), page);
		struct ranges *stacks = bpf_map_lookup_elem(&ranges, &place);

		orders &= orders - 1;
		if (!stacks)
			continue;
		for (int j = 0; j < RANGE_CNT; j++)
			if (is_in_range(stacks->packed[j], page))
				return stacks->packed[j];
	}
	return 0;
}

static __always_inline bool is_stack_map(__u32 syscall, const struct pt_regs *regs)
{
	return syscall == AT_SYS_MMAP && regs->r10 & MAP_STACK && regs->r10 & MAP_ANONYMOUS;
}

static __always_inline void stacks_enter(const struct pt_regs *regs, const struct task_struct *task,
					 struct at_slot *slot)
{
	slot->is_stack = is_stack_map(slot->syscall, regs);
	if (!slot->is_stack && slot->syscall != AT_SYS_MMAP && slot->syscall != AT_SYS_BRK &&
	    slot->syscall != AT_SYS_PROCESS_MADVISE && stack_orders)
		slot->is_stack = stack_find(task->tgid, regs->di / PAGE_BYTES) != 0;
}

/* The call was about a stack. A global function, see bpf/walk.bpf.h. */
__noinline int stacks_settle(const struct at_slot *slot, const struct finished *call, __u64 ns)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	__u64 page_cnt, page, stack;
	struct at_stack_ledger *ledger;
	struct at_row_ledger *row;

	if (!slot || !call || !cfg_has_stacks)
		return 0;
	page = call->di / PAGE_BYTES;
	page_cnt = page_align(call->si) / PAGE_BYTES;
	ledger = stack_ledger_of(slot->phase);
	if (ledger) {
		ledger->call_cnt++;
		ledger->call_ns += ns;
	}
	row = row_ledger_of(slot);
	if (row) {
		row->stacks.call_cnt++;
		row->stacks.call_ns += ns;
	}
	if (is_error(call->ret) || !page_cnt || page_cnt >> ORDER_MAX)
		return 0;
	if (slot->syscall == AT_SYS_MMAP) {
		stack_change(tgid, range_pack((__u64)call->ret / PAGE_BYTES, page_cnt), true);
	} else if (slot->syscall == AT_SYS_MUNMAP) {
		stack = stack_find(tgid, page);
		if (stack && range_page(stack) >= page && range_page(stack) + range_page_cnt(stack) <= page + page_cnt)
			stack_change(tgid, stack, false);
	}
	return 0;
}

static __always_inline void stack_charge(struct at_stack_ledger *ledger, __s64 pages)
{
	if (!ledger)
		return;
	if (pages > 0)
		ledger->charged_pages += pages;
	else
		ledger->uncharged_pages -= pages;
}

/* Pages that the commit ledger found for a call about a stack. */
static __always_inline void stacks_charge(const struct at_slot *slot, __s64 pages)
{
	struct at_row_ledger *row = row_ledger_of(slot);

	if (!slot->is_stack)
		return;
	stack_charge(stack_ledger_of(slot->phase), pages);
	if (row)
		stack_charge(&row->stacks, pages);
}

static __always_inline __u32 anon_now(const struct task_struct *task)
{
	return (__u32)rss_part(task, MM_ANONPAGES) << 1 | 1;
}

/*
 * No event says how large the page is that a fault brings in. Where a huge one fits into the stack, it is
 * told from what the process has more: other threads add, or give back, some pages meanwhile, hardly half of a huge
 * one.
 */
static __always_inline void stacks_fault_begin(struct at_slot *slot, const struct task_struct *task, __u64 addr)
{
	__u64 first = addr / PAGE_BYTES & ~(HUGE_PAGE_CNT - 1ull), stack;

	slot->fault_anon = 0;
	if (!stack_orders || !(cfg_is_huge || huge_is_asked))
		return;
	stack = stack_find(task->tgid, addr / PAGE_BYTES);
	if (stack && is_in_range(stack, first) && is_in_range(stack, first + HUGE_PAGE_CNT - 1))
		slot->fault_anon = anon_now(task);
}

static __always_inline __u32 stack_fault_pages(const struct at_slot *slot, const struct task_struct *task)
{
	return slot->fault_anon && (__s32)(anon_now(task) - slot->fault_anon) > HUGE_PAGE_CNT ? HUGE_PAGE_CNT : 1;
}

static __always_inline void stack_touched(struct at_stack_ledger *ledger, __u32 page_cnt, __u64 ns)
{
	ledger->touched_pages += page_cnt;
	if (page_cnt > 1)
		ledger->huge_pages += page_cnt;
	ledger->fault_ns += ns;
}

static __always_inline void stacks_fault(const struct at_slot *slot, const struct task_struct *task, __u64 addr,
					 __u64 ns)
{
	struct at_stack_ledger *ledger;
	struct at_row_ledger *row;
	__u32 page_cnt;

	if (!stack_orders || !stack_find(task->tgid, addr / PAGE_BYTES))
		return;
	page_cnt = stack_fault_pages(slot, task);
	ledger = stack_ledger_of(slot->fault_phase);
	row = row_ledger_of(slot);
	if (ledger)
		stack_touched(ledger, page_cnt, ns);
	if (row)
		stack_touched(&row->stacks, page_cnt, ns);
}

/* A new thread: its first stack pointer tells where its stack is. */
static __always_inline void stacks_fork(struct task_struct *parent, struct task_struct *child)
{
	__u8 *target = target_of(child->tgid);
	const struct pt_regs *regs;
	struct at_stack_ledger *ledger;
	struct at_row *row;
	bool is_foreign;

	if (parent->tgid != child->tgid || !target || !*target)
		return;
	ledger = stack_ledger_of(target_phase(target));
	if (!ledger)
		return;
	regs = (const struct pt_regs *)bpf_task_pt_regs(child);
	is_foreign = !stack_find(child->tgid, (regs->sp - 1) / PAGE_BYTES);
	ledger->thread_cnt++;
	ledger->foreign_cnt += is_foreign;
	row = row_of_task(parent);
	if (!row)
		return;
	row->ledger.stacks.thread_cnt++;
	row->ledger.stacks.foreign_cnt += is_foreign;
}

#endif
