/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The commit ledger: pages that targets charge to the system's commit account
 * and give back. docs/output.md tells users the same rules.
 *
 * A change is that of the pages of accounted VMAs (VM_ACCOUNT) in the range of
 * the call, across the call. Where arguments and result say it all, no VMA is
 * looked at; where the state before decides, the range is walked on entry, and
 * after mprotect again. What a walk could not see is assumed and counted.
 *
 * A new program and a forked child are charged for all that they have, VMA by
 * VMA; the end of an address space gives all of its balance back at once.
 * Growing stacks are charged in page faults: they are found in mm->stack_vm.
 */
#ifndef ALLOCTRACE_BPF_COMMIT_BPF_H
#define ALLOCTRACE_BPF_COMMIT_BPF_H

#define ADDRESS_END (1ull << 56)

static __always_inline void commit_add_row(struct at_row *row, __s64 pages)
{
	if (pages > 0)
		row->ledger.charged_pages += pages;
	else
		row->ledger.uncharged_pages -= pages;
	row->ledger.update_cnt++;
}

static __always_inline void commit_peak(struct at_row *row, __s64 pages)
{
	if (row && pages > (__s64)row->ledger.peak_pages)
		row->ledger.peak_pages = pages;
}

/*
 * One update of the account. process: whose balance it is; NULL = nobody's. row: of
 * the thread that did it; NULL = it has none. A global function, see bpf/walk.bpf.h.
 */
__noinline int commit_add(struct at_ledger *ledger, struct at_process *process, struct at_row *row, __s64 pages)
{
	__u64 size = pages < 0 ? -pages : pages, level;

	if (!pages || !ledger)
		return 0;
	if (pages > 0)
		ledger->charged_pages += size;
	else
		ledger->uncharged_pages += size;
	ledger->update_cnt++;
	if (row)
		commit_add_row(row, pages);
	for (int i = 0; i < AT_BATCH_CNT; i++)
		if (size > cfg_batches[i])
			ledger->past_cnt[i]++;
	if (process)
		commit_peak(row, __sync_fetch_and_add(&process->acct_pages, pages) + pages);
	level = __sync_fetch_and_add(&commit_level, pages) + pages;
	if ((__s64)level > (__s64)ledger->peak_pages)
		ledger->peak_pages = level;
	return 0;
}

static __always_inline void commit_assume(struct at_ledger *ledger, __u64 bytes)
{
	ledger->assumed_cnt++;
	ledger->assumed_pages += bytes / PAGE_BYTES;
}

/* The process whose address space it is; NULL when it is not known yet. */
static __always_inline struct at_process *process_of(__u32 tgid)
{
	struct at_process *process = bpf_map_lookup_elem(&processes, &tgid);

	if (process && process->owner_tgid)
		process = bpf_map_lookup_elem(&processes, &process->owner_tgid);
	return process;
}

/*
 * flags: BPF_NOEXIST, then it may be -EEXIST; else BPF_ANY. Where there is no
 * room that is counted once for a program. The error of a map's update is an int:
 * until Linux 6.4 that is what the kernel puts into a register, and as a long it
 * is not equal to -EEXIST.
 */
static __always_inline int process_add(__u32 tgid, const struct at_process *new, __u64 flags)
{
	int err = bpf_map_update_elem(&processes, &tgid, new, flags);

	if (err != -EEXIST && target_note(tgid, !err) && err)
		loss_count(AT_LOSS_LEDGER_FULL);
	return err;
}

/* One user more of an address space; flags as for process_add(). */
static __always_inline void process_share(__u32 tgid, __u32 owner_tgid, __u64 flags)
{
	struct at_process shared = {.owner_tgid = owner_tgid};
	struct at_process *owner = bpf_map_lookup_elem(&processes, &owner_tgid);

	if (owner && !process_add(tgid, &shared, flags))
		__sync_fetch_and_add(&owner->user_cnt, 1);
}

/* Whose address space it is that a process is in: its parent's, which is a target too, after vfork. */
static __noinline __u32 owner_of(const struct task_struct *task, const struct mm_struct *mm)
{
	const struct task_struct *parent = task->real_parent;
	__u8 *target = target_of(parent->tgid);

	return target && *target && parent->mm == mm ? parent->tgid : task->tgid;
}

/* A process that is older than the tracing: what it has is its start, not a charge. */
static __always_inline struct at_process *process_found(struct task_struct *task, const struct mm_struct *mm,
							struct at_slot *slot, struct at_row *row, __s64 pages)
{
	struct at_process new = {.stack_pages = mm->stack_vm, .user_cnt = 1};
	__u8 *target = target_of(task->tgid);
	__u32 owner_tgid;

	if (!target || *target & TARGET_UNKEPT)
		return NULL;
	walk_once(slot, 0, ADDRESS_END);
	new.acct_pages = cfg_has_vma_iter ? slot->walk_acct / PAGE_BYTES : mm->data_vm + mm->stack_vm;
	new.acct_pages -= pages; /* before the call that made us look */
	owner_tgid = owner_of(task, mm);
	if (!process_add(owner_tgid, &new, BPF_NOEXIST)) {
		__sync_fetch_and_add(&commit_start, new.acct_pages);
		__sync_fetch_and_add(&commit_level, new.acct_pages);
		commit_peak(row, new.acct_pages);
	}
	if (owner_tgid != task->tgid)
		process_share(task->tgid, owner_tgid, BPF_NOEXIST);
	return process_of(task->tgid);
}

/* Stacks that have grown. Threads may find the same growth: one of them wins. */
static __always_inline void commit_stacks(struct at_ledger *ledger, struct at_process *process, struct at_row *row,
					  const struct mm_struct *mm)
{
	__u64 before = process->stack_pages, now = mm->stack_vm;

	if (now != before && __sync_val_compare_and_swap(&process->stack_pages, before, now) == before && now > before)
		commit_add(ledger, process, row, now - before);
}

/* The range that a call may take pages from; none: start = end. */
static __always_inline void commit_range(__u32 syscall, const struct pt_regs *regs, const struct mm_struct *mm,
					 __u64 *start, __u64 *end)
{
	__u64 bytes = page_align(regs->si);

	*start = *end = regs->di;
	if (syscall == AT_SYS_MUNMAP || syscall == AT_SYS_MPROTECT || syscall == AT_SYS_PKEY_MPROTECT ||
	    (syscall == AT_SYS_MMAP && regs->r10 & MAP_FIXED && !(regs->r10 & MAP_FIXED_NOREPLACE))) {
		*end = regs->di + bytes;
	} else if (syscall == AT_SYS_BRK && regs->di >= mm->start_brk) {
		*start = page_align(regs->di);
		*end = page_align(mm->brk);
	} else if (syscall == AT_SYS_MREMAP) {
		*start = regs->di + page_align(regs->dx);
		*end = regs->di + bytes;
	}
}

static __always_inline bool is_range(__u64 start, __u64 end)
{
	return !(start % PAGE_BYTES) && start < end && end <= ADDRESS_END;
}

/* mremap to a fixed place unmaps what is there; that is added to what the walk of its tail found. */
static __always_inline void commit_enter_fixed(const struct pt_regs *regs, struct at_slot *slot)
{
	__u64 acct = slot->walk_acct, end = regs->r8 + page_align(regs->dx);

	if (!(regs->r10 & MREMAP_FIXED) || !is_range(regs->r8, end))
		return;
	slot->walk_blind += walk_range(slot, regs->r8, end);
	slot->walk_acct += acct;
}

/* Looks at what the call may change. aux of mremap: the growth that will be charged, and in bit 0 whether assumed. */
static __always_inline void commit_enter(const struct pt_regs *regs, const struct mm_struct *mm, struct at_slot *slot)
{
	__u64 start, end, new_bytes = page_align(regs->dx), old_bytes = page_align(regs->si);
	__u32 syscall = slot->syscall;
	bool is_assumed = false;

	slot->has_walk = false;
	slot->walk_acct = 0;
	slot->walk_blind = 0;
	commit_range(syscall, regs, mm, &start, &end);
	if (is_range(start, end)) {
		slot->has_walk = true;
		slot->walk_blind = walk_range(slot, start, end);
	}
	if (syscall != AT_SYS_MREMAP)
		return;
	commit_enter_fixed(regs, slot);
	if (regs->r10 & MREMAP_DONTUNMAP)
		old_bytes = 0;
	if (new_bytes > old_bytes && is_accounted(regs->di, &is_assumed))
		slot->aux = (new_bytes - old_bytes) | is_assumed;
}

/* Pages that a mapping is charged for when it is made. */
static __always_inline __s64 mmap_charge(const struct finished *call, __u64 addr, struct at_ledger *ledger)
{
	__u64 flags = call->r10, bytes = page_align(call->si);
	bool is_reserved = cfg_is_strict || !(flags & MAP_NORESERVE), is_assumed = false;

	if ((flags & MAP_TYPE) != MAP_PRIVATE && flags & MAP_ANONYMOUS && is_reserved && !(flags & MAP_HUGETLB))
		ledger->shared_pages += bytes / PAGE_BYTES;
	/* What grows down is found in mm->stack_vm. */
	if ((flags & MAP_TYPE) != MAP_PRIVATE || !(call->dx & PROT_WRITE) || !is_reserved || flags & MAP_GROWSDOWN)
		return 0;
	if (flags & MAP_ANONYMOUS)
		return flags & MAP_HUGETLB ? 0 : bytes / PAGE_BYTES;
	/* A file may be one of huge pages. */
	if (!is_accounted(addr, &is_assumed))
		return 0;
	if (is_assumed)
		commit_assume(ledger, bytes);
	return bytes / PAGE_BYTES;
}

/*
 * mprotect: what is charged now less what was before. Pages not seen were
 * charged if they were accessible; they are if they have become writable or were.
 */
static __always_inline __s64 mprotect_charge(const struct finished *call, struct at_slot *slot,
					     struct at_ledger *ledger)
{
	__u64 before = slot->walk_acct, blind = slot->walk_blind, blind_after, after;

	if (!slot->has_walk)
		return 0;
	if (slot->aux != AUX_FROM_NONE)
		before += blind;
	blind_after = walk_range(slot, call->di, call->di + page_align(call->si));
	after = slot->walk_acct;
	if (call->dx & PROT_WRITE || blind_after < before)
		after += blind_after;
	else
		after += before;
	if (blind || blind_after)
		commit_assume(ledger, blind > blind_after ? blind : blind_after);
	/* No signed division in BPF. */
	return (__s64)(after / PAGE_BYTES) - (__s64)(before / PAGE_BYTES);
}

/* What a call that succeeded gave back: what the walk on entry found. */
static __always_inline __s64 walked_pages(const struct at_slot *slot, struct at_ledger *ledger)
{
	if (slot->walk_blind)
		commit_assume(ledger, slot->walk_blind);
	return (slot->walk_acct + slot->walk_blind) / PAGE_BYTES;
}

/* A failed mmap may have unmapped what was at its place. */
static __always_inline __s64 commit_change(const struct finished *call, struct at_slot *slot, struct at_ledger *ledger)
{
	__s64 pages = 0;

	switch (slot->syscall) {
	case AT_SYS_MPROTECT:
	case AT_SYS_PKEY_MPROTECT: return mprotect_charge(call, slot, ledger);
	case AT_SYS_BRK:
		if ((__u64)call->ret > slot->aux)
			return (page_align(call->ret) - page_align(slot->aux)) / PAGE_BYTES;
		return (__u64)call->ret < slot->aux ? -walked_pages(slot, ledger) : 0;
	case AT_SYS_MUNMAP: return is_error(call->ret) ? 0 : -walked_pages(slot, ledger);
	case AT_SYS_MMAP:
		if (is_error(call->ret))
			return slot->has_walk ? mprotect_charge(call, slot, ledger) : 0;
		pages = -walked_pages(slot, ledger);
		return pages + mmap_charge(call, call->ret, ledger);
	}
	return 0;
}

/* A global function, see bpf/walk.bpf.h. */
__noinline int commit_settle(struct at_slot *slot, const struct finished *call)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct mm_struct *mm = task->mm;
	struct at_process *process;
	struct at_ledger *ledger;
	struct at_row *row;
	__s64 pages, growth = 0;

	if (!slot || !call || !cfg_has_commit)
		return 0;
	ledger = ledger_of(slot->phase);
	if (!ledger)
		return 0;
	if (slot->syscall == AT_SYS_MREMAP) {
		if (is_error(call->ret))
			return 0;
		pages = -walked_pages(slot, ledger);
		growth = slot->aux / PAGE_BYTES;
		if (slot->aux % PAGE_BYTES)
			commit_assume(ledger, slot->aux);
	} else {
		pages = commit_change(call, slot, ledger);
	}
	row = cfg_has_rows ? row_of(slot) : NULL;
	process = process_of(task->tgid);
	if (!process)
		process = process_found(task, mm, slot, row, pages + growth);
	if (process)
		commit_stacks(ledger, process, row, mm);
	commit_add(ledger, process, row, pages);
	commit_add(ledger, process, row, growth);
	if (cfg_has_stacks)
		stacks_charge(slot, pages + growth);
	return 0;
}

/*
 * Tier 2: the kernel asks __vm_enough_memory() before it charges. That is an
 * independent count of all charges, before what the same call gives back.
 */
static __always_inline int commit_charged_fx(__s64 pages, int ret)
{
	__u8 *target = target_of(bpf_get_current_pid_tgid() >> 32);
	struct at_ledger *ledger;

	if (ret || !target || !*target)
		return 0;
	ledger = ledger_of(target_phase(target));
	if (ledger)
		ledger->checked_pages += pages;
	return 0;
}

/* Calls after which an address space may be gone: the last look at its stacks. */
static __always_inline void commit_last_look(__u64 nr)
{
	struct at_process *process;
	struct task_struct *task;
	struct at_ledger *ledger;
	__u8 *target;

	if (nr != NR_EXIT_GROUP && nr != NR_EXECVE && nr != NR_EXECVEAT)
		return;
	task = bpf_get_current_task_btf();
	target = target_of(task->tgid);
	if (!target || !*target || is_compat(task))
		return;
	ledger = ledger_of(target_phase(target));
	process = process_of(task->tgid);
	if (ledger && process)
		commit_stacks(ledger, process, row_of_task(task), task->mm);
}

/* Charges a new address space VMA by VMA, as the kernel did. Nobody else is in it. */
static __noinline __u64 commit_new(struct task_struct *task, struct at_slot *slot, struct at_ledger *ledger,
				   struct at_row *row)
{
	struct bpf_iter_task_vma it;
	struct vm_area_struct *vma;

	slot->walk_seen = 0;
	slot->walk_acct = 0;
	bpf_iter_task_vma_new(&it, task, 0);
	while ((vma = bpf_iter_task_vma_next(&it)) != NULL) {
		__u64 pages = (vma->vm_end - vma->vm_start) / PAGE_BYTES;

		slot->walk_seen += pages;
		if (!(vma->vm_flags & VM_ACCOUNT))
			continue;
		slot->walk_acct += pages;
		commit_add(ledger, NULL, row, pages);
	}
	bpf_iter_task_vma_destroy(&it);
	return slot->walk_acct;
}

/* A forked child or a new program. guess: its accounted pages, where VMAs cannot be walked. */
static __always_inline void commit_begin(struct task_struct *task, const struct mm_struct *mm, __u8 phase, __u64 guess)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct at_process new = {.stack_pages = mm->stack_vm, .user_cnt = 1};
	struct at_slot *slot = slot_of(current, current->pid, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct at_ledger *ledger = ledger_of(phase);
	struct at_row *row = row_of_task(task);
	__u64 all_pages = mm->total_vm;

	if (!slot || !ledger)
		return;
	if (cfg_has_vma_iter) {
		new.acct_pages = commit_new(task, slot, ledger, row);
		if (slot->walk_seen != all_pages)
			commit_assume(ledger, (all_pages - slot->walk_seen) * PAGE_BYTES);
	} else {
		new.acct_pages = guess;
		commit_add(ledger, NULL, row, guess);
		commit_assume(ledger, guess * PAGE_BYTES);
	}
	commit_peak(row, new.acct_pages);
	process_add(task->tgid, &new, BPF_ANY);
}

/* One user less of an address space; the last one gives everything back. */
static __always_inline void process_drop(struct at_process *process, __u32 tgid, struct at_row *row, __u8 phase)
{
	struct at_ledger *ledger = ledger_of(phase);

	if (__sync_fetch_and_add(&process->user_cnt, -1) != 1)
		return;
	if (ledger)
		commit_add(ledger, NULL, row, -process->acct_pages);
	bpf_map_delete_elem(&processes, &tgid);
}

/* The process has left its address space. */
static __always_inline void commit_end(__u32 tgid, struct at_row *row, __u8 phase)
{
	struct at_process *process = bpf_map_lookup_elem(&processes, &tgid), *owner;
	__u32 owner_tgid;

	/* Of threads that end at the same moment more than one may believe to be the last. */
	if (!process || __sync_lock_test_and_set(&process->is_dead, 1))
		return;
	owner_tgid = process->owner_tgid;
	if (!owner_tgid) {
		process_drop(process, tgid, row, phase);
		return;
	}
	bpf_map_delete_elem(&processes, &tgid);
	owner = bpf_map_lookup_elem(&processes, &owner_tgid);
	if (owner)
		process_drop(owner, owner_tgid, row, phase);
}

static __always_inline void commit_fork(struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_tgid = parent->tgid;
	__u8 *target = target_of(child->tgid);
	struct at_process *process;
	const struct mm_struct *mm;
	__u64 guess;

	if (parent_tgid == child->tgid || !target || !*target)
		return;
	mm = child->mm;
	process = bpf_map_lookup_elem(&processes, &parent_tgid);
	if (mm != parent->mm) {
		guess = mm->data_vm;
		barrier(); /* clang must not make one load of two kinds of pointer */
		process = process_of(parent_tgid);
		if (process)
			guess = process->acct_pages;
		commit_begin(child, mm, target_phase(target), guess);
		return;
	}
	/* An address space that is not known yet is not worth knowing for a vfork that makes no call. */
	if (process)
		process_share(child->tgid, process->owner_tgid ? process->owner_tgid : parent_tgid, BPF_ANY);
}

/* The old program's address space is gone; old_tid: the thread that has started the new one. */
static __always_inline void commit_leave(struct task_struct *task, __u32 old_tid)
{
	__u8 *target = target_of(task->tgid);
	struct at_slot *slot = cfg_has_rows ? slot_of(task, old_tid, 0) : NULL;

	if (target && *target)
		commit_end(task->tgid, slot ? row_of(slot) : NULL, target_phase(target));
}

static __always_inline void commit_exec(struct task_struct *task)
{
	__u8 *target = target_of(task->tgid);
	const struct mm_struct *mm;

	if (!target || !*target)
		return;
	mm = task->mm;
	commit_begin(task, mm, target_phase(target), mm->data_vm + mm->stack_vm);
}

static __always_inline void commit_die(struct task_struct *task)
{
	__u8 *target = target_of(task->tgid);

	if (target && *target && !task->signal->live.counter)
		commit_end(task->tgid, row_of_task(task), target_phase(target));
}

#endif
