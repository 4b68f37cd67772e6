/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The bodies of syscall entry and exit, and the rules that sort a call into its
 * class and say how many bytes it was about. docs/output.md tells users the
 * same rules.
 *
 * Arguments are read at exit: the kernel leaves them in pt_regs. What the
 * call may change is read at entry and kept in slot.aux:
 *
 *   mprotect, to more than PROT_NONE: the protection of the VMA at its first
 *             page (enum aux). Later VMAs of the range are not looked at.
 *   brk:      mm->brk. Two threads inside brk at once may see each other's.
 *   mremap:   what it will be charged (bpf/commit.bpf.h).
 *
 * Failed calls are classed by what they asked for and have no bytes.
 * Lengths are rounded up to pages, as the kernel does.
 */
#ifndef ALLOCTRACE_BPF_SYSCALL_BPF_H
#define ALLOCTRACE_BPF_SYSCALL_BPF_H

struct call {
	__u32 class;
	__u64 bytes; /* valid when the call succeeded */
};

/*
 * mmap: the first that fits. .file: not MAP_ANONYMOUS; .stack: MAP_STACK;
 * .fixed: MAP_FIXED or MAP_FIXED_NOREPLACE; .reserve: PROT_NONE or
 * MAP_NORESERVE; .anon: the rest. Bytes: the length.
 */
static __always_inline void class_mmap(const struct pt_regs *regs, struct call *call)
{
	__u64 prot = regs->dx, flags = regs->r10;

	call->bytes = page_align(regs->si);
	if (!(flags & MAP_ANONYMOUS))
		call->class = AT_CLASS_MMAP_FILE;
	else if (flags & MAP_STACK)
		call->class = AT_CLASS_MMAP_STACK;
	else if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE))
		call->class = AT_CLASS_MMAP_FIXED;
	else if (!(prot & PROT_ANY) || flags & MAP_NORESERVE)
		call->class = AT_CLASS_MMAP_RESERVE;
	else
		call->class = AT_CLASS_MMAP_ANON;
}

/*
 * mprotect: .guard: to PROT_NONE; .commit: from PROT_NONE to anything with
 * PROT_WRITE; .other: the rest. Bytes: the length.
 */
static __always_inline void class_mprotect(const struct pt_regs *regs, __u64 aux, struct call *call)
{
	call->bytes = page_align(regs->si);
	if (!(regs->dx & PROT_ANY))
		call->class = AT_CLASS_MPROTECT_GUARD;
	else if (regs->dx & PROT_WRITE && aux == AUX_FROM_NONE)
		call->class = AT_CLASS_MPROTECT_COMMIT;
	else
		call->class = AT_CLASS_MPROTECT_OTHER;
}

/* madvise(NULL, 0, AT_PHASE_MARK | phase), phase a known one. */
static __always_inline bool is_phase_mark(const struct pt_regs *regs)
{
	__u32 advice = regs->dx;

	return !regs->di && !regs->si && advice >= AT_PHASE_MARK && advice < AT_PHASE_MARK + AT_PHASE_CNT;
}

/*
 * madvise: by advice; both MADV_POPULATE_* are .populate; phase markers are
 * .phase; all else is .other and counted by advice number. Bytes: the length.
 */
static __always_inline void class_madvise(const struct pt_regs *regs, struct call *call)
{
	__u32 advice = regs->dx; /* the kernel reads an int */

	call->bytes = page_align(regs->si);
	if (advice == MADV_DONTNEED)
		call->class = AT_CLASS_MADVISE_DONTNEED;
	else if (advice == MADV_FREE)
		call->class = AT_CLASS_MADVISE_FREE;
	else if (advice == MADV_HUGEPAGE)
		call->class = AT_CLASS_MADVISE_HUGEPAGE;
	else if (advice == MADV_NOHUGEPAGE)
		call->class = AT_CLASS_MADVISE_NOHUGEPAGE;
	else if (advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE)
		call->class = AT_CLASS_MADVISE_POPULATE;
	else if (is_phase_mark(regs))
		call->class = AT_CLASS_MADVISE_PHASE;
	else {
		call->class = AT_CLASS_MADVISE_OTHER;
		counter_add(&advices, advice < AT_ADVICE_CNT ? advice : AT_ADVICE_CNT - 1, 1);
	}
}

/*
 * mremap: .move: it succeeded and the address changed; else .grow, .shrink by
 * the lengths in pages, and .move when they are equal. Bytes: of a move the new
 * length, else the difference.
 */
static __always_inline void class_mremap(const struct pt_regs *regs, long ret, struct call *call)
{
	__u64 old_bytes = page_align(regs->si), new_bytes = page_align(regs->dx);

	if ((!is_error(ret) && (__u64)ret != regs->di) || new_bytes == old_bytes) {
		call->class = AT_CLASS_MREMAP_MOVE;
		call->bytes = new_bytes;
	} else if (new_bytes > old_bytes) {
		call->class = AT_CLASS_MREMAP_GROW;
		call->bytes = new_bytes - old_bytes;
	} else {
		call->class = AT_CLASS_MREMAP_SHRINK;
		call->bytes = old_bytes - new_bytes;
	}
}

/*
 * brk never fails: it returns the break in force. .grow: it is higher than
 * before, or more was asked for and it stayed (that is counted as ENOMEM);
 * .shrink: it is lower; .query: the rest. Bytes: the difference, not rounded.
 * Returns the error.
 */
static __always_inline __u32 class_brk(const struct pt_regs *regs, long ret, __u64 old_brk, struct call *call)
{
	__u64 new_brk = ret;

	call->bytes = 0;
	call->class = AT_CLASS_BRK_QUERY;
	if (new_brk > old_brk) {
		call->class = AT_CLASS_BRK_GROW;
		call->bytes = new_brk - old_brk;
	} else if (new_brk < old_brk) {
		call->class = AT_CLASS_BRK_SHRINK;
		call->bytes = old_brk - new_brk;
	} else if (regs->di > old_brk) {
		call->class = AT_CLASS_BRK_GROW;
		return ENOMEM;
	}
	return 0;
}

/* Sorts a finished call. Returns its error, 0 when it succeeded. */
static __always_inline __u32 class_call(const struct pt_regs *regs, long ret, const struct at_slot *slot,
					struct call *call)
{
	switch (slot->syscall) {
	case AT_SYS_BRK: return class_brk(regs, ret, slot->aux, call);
	case AT_SYS_MMAP: class_mmap(regs, call); break;
	case AT_SYS_MPROTECT: class_mprotect(regs, slot->aux, call); break;
	case AT_SYS_MADVISE: class_madvise(regs, call); break;
	case AT_SYS_MREMAP: class_mremap(regs, ret, call); break;
	case AT_SYS_MUNMAP:
		call->class = AT_CLASS_MUNMAP;
		call->bytes = page_align(regs->si);
		break;
	case AT_SYS_PKEY_MPROTECT:
		call->class = AT_CLASS_PKEY_MPROTECT;
		call->bytes = page_align(regs->si);
		break;
	case AT_SYS_PROCESS_MADVISE:
		/* Returns how many bytes it advised, of all its ranges. */
		call->class = AT_CLASS_PROCESS_MADVISE;
		call->bytes = ret;
		break;
	}
	return is_error(ret) ? -ret : 0;
}

static long vma_is_none(struct task_struct *task, struct vm_area_struct *vma, void *ctx)
{
	*(__u64 *)ctx = vma->vm_flags & VM_ANY ? AUX_OTHER : AUX_FROM_NONE;
	return 0;
}

/*
 * Whether an mprotect that adds PROT_WRITE starts on an inaccessible page. The
 * helper does not wait for mmap_lock; when another thread holds it, the
 * usual case is assumed and counted.
 */
static __always_inline __u64 aux_mprotect(struct task_struct *task, const struct pt_regs *regs)
{
	__u64 aux = AUX_OTHER;
	long err;

	if (!(regs->dx & PROT_WRITE))
		return AUX_OTHER;
	err = bpf_find_vma(task, regs->di, vma_is_none, &aux, 0);
	if (err && err != -ENOENT) { /* ENOENT: nothing is mapped there */
		loss_count(AT_LOSS_CLASS_ASSUMED);
		return AUX_FROM_NONE;
	}
	return aux;
}

/* What exit needs and can no longer see. */
static __always_inline __u64 aux_of(__u32 syscall, struct task_struct *task, const struct mm_struct *mm,
				    const struct pt_regs *regs)
{
	if (syscall == AT_SYS_MPROTECT)
		return aux_mprotect(task, regs);
	if (syscall == AT_SYS_BRK)
		return mm->brk;
	return 0;
}

/* The current thread, of a target process, enters a memory syscall. mm: the task's. */
static __always_inline int call_enter(const struct pt_regs *regs, struct task_struct *task, const struct mm_struct *mm,
				      __u8 *target, __u32 syscall)
{
	struct at_slot *slot = slot_of(task, task->pid, cfg_is_partial ? 0 : BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (cfg_is_partial && (!slot || !slot->scope))
		return 0;
	if (!slot) {
		loss_count(AT_LOSS_SLOT_FULL);
		return 0;
	}
	if (slot->start_ns) { /* the program at the end of the call before did not run */
		loss_count(AT_LOSS_NO_END);
		flight_count(slot->syscall, -1);
	}
	if (cfg_has_rows)
		row_enter(slot);
	flight_count(syscall, 1);
	slot->syscall = syscall;
	slot->phase = target_phase(target);
	slot->aux = aux_of(syscall, task, mm, regs);
	ledgers_enter(regs, task, mm, slot);
	if (syscall == AT_SYS_MADVISE && is_phase_mark(regs))
		phase_switch(target, (__u32)regs->dx - AT_PHASE_MARK);
	slot->start_ns = bpf_ktime_get_ns();
	return 0;
}

/* From sys_enter, which sees every syscall of every process. */
static __always_inline int syscall_enter(const struct pt_regs *regs, __u64 nr)
{
	const struct mm_struct *mm;
	struct task_struct *task;
	__u32 syscall;
	__u8 *target;

	if (!is_memory_nr(nr, true)) {
		rss_last_look(nr);
		if (cfg_has_commit)
			commit_last_look(nr);
		return 0;
	}
	task = bpf_get_current_task_btf();
	target = target_of(task->tgid);
	if (!target || !*target)
		return 0;
	if (is_compat(task)) {
		compat_count(nr);
		return 0;
	}
	mm = task->mm; /* see bpf/compat.bpf.h */
	syscall = syscall_of_x64(nr);
	return syscall ? call_enter(regs, task, mm, target, syscall) : 0;
}

/* From the tracepoint of one syscall, which does not fire for 32-bit calls. */
static __always_inline int syscall_enter_one(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u8 *target = target_of(task->tgid);
	const struct pt_regs *regs;
	__u32 syscall;

	if (!target || !*target)
		return 0;
	regs = (const struct pt_regs *)bpf_task_pt_regs(task);
	syscall = syscall_of_x64(regs->orig_ax);
	return syscall ? call_enter(regs, task, task->mm, target, syscall) : 0;
}

/* From the entry of a memory syscall's own function, which no 32-bit call comes through. regs: those of user mode. */
static __always_inline int syscall_enter_fx(const struct pt_regs *regs, __u32 syscall)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u8 *target = target_of(task->tgid);

	return target && *target ? call_enter(regs, task, task->mm, target, syscall) : 0;
}

static __always_inline int compat_enter_fx(__u32 syscall)
{
	__u8 *target = target_of(bpf_get_current_pid_tgid() >> 32);

	if (target && *target)
		counter_add(&compats, syscall, 1);
	return 0;
}

static __always_inline int syscall_last_look_fx(__u64 nr)
{
	rss_last_look(nr);
	if (cfg_has_commit)
		commit_last_look(nr);
	return 0;
}

/* From the tracepoints of the syscalls that end an address space. */
static __always_inline int syscall_last_look(void)
{
	const struct pt_regs *regs = (const struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

	if (cfg_has_commit)
		commit_last_look(regs->orig_ax);
	return 0;
}

/* An exit without an entry: only those that should have had one count. */
static __always_inline int exit_without_start(const struct task_struct *task, struct at_slot *slot, __u32 syscall)
{
	__u8 *target = target_of(task->tgid);

	if (!target || !*target || is_compat(task) || (cfg_is_partial && (!slot || !slot->scope)))
		return 0;
	if (cfg_has_rows && row_was_inside(slot))
		counter_add(&early_flights, syscall, 1);
	else
		loss_count(AT_LOSS_NO_START);
	return 0;
}

/* The current thread leaves a memory syscall; syscall is AT_SYS_*. */
static __always_inline int call_exit(const struct pt_regs *regs, struct task_struct *task, long ret, __u32 syscall)
{
	struct at_slot *slot = slot_of(task, task->pid, 0);
	struct call call = {};
	__u64 start_ns, end_ns;
	__u32 phase, err;

	if (!slot || !slot->start_ns || slot->syscall != syscall)
		return exit_without_start(task, slot, syscall);
	end_ns = bpf_ktime_get_ns();
	start_ns = slot->start_ns;
	phase = slot->phase;
	slot->start_ns = 0;
	flight_count(slot->syscall, -1);
	err = class_call(regs, ret, slot, &call);
	FORGET(call.class, end_ns);
	FORGET(err, end_ns);
	cell_add(phase, call.class, start_ns, end_ns, call.bytes, err);
	if (cfg_has_rows)
		row_add(slot, call.class, at_duration_ns(start_ns, end_ns), call.bytes, err);
	ledgers_exit(regs, ret, slot, call.class, start_ns, end_ns);
	if (cfg_has_callchains) {
		callchain_add(WALK_SYSCALL, phase, call.class, at_duration_ns(start_ns, end_ns), err ? 0 : call.bytes);
		callchain_exit_syscall(slot->syscall, regs, ret, task->tgid);
	}
	return 0;
}

static __always_inline int syscall_exit(const struct pt_regs *regs, long ret)
{
	__u64 nr = regs->orig_ax;

	return is_memory_nr(nr, false) ? call_exit(regs, bpf_get_current_task_btf(), ret, syscall_of_x64(nr)) : 0;
}

static __always_inline int syscall_exit_one(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct pt_regs *regs = (const struct pt_regs *)bpf_task_pt_regs(task);
	__u32 syscall = syscall_of_x64(regs->orig_ax);

	return syscall ? call_exit(regs, task, regs->ax, syscall) : 0;
}

#endif
