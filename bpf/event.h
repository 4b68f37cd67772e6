/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The whole coupling between the kernel side and the CLI: classes, syscalls,
 * phases, counters. Owns every type that crosses; includes nothing of either
 * side. The including file provides __u8 ... __u64 (bpf/kernel.h in kernel
 * code, <linux/types.h> in user space).
 */
#ifndef ALLOCTRACE_BPF_EVENT_H
#define ALLOCTRACE_BPF_EVENT_H

/* Raised whenever a type or a value below changes its meaning. */
#define AT_EVENT_ABI 5

/*
 * The traced syscalls: X(id, name, x86-64 number, ia32 number, ia32 number 2).
 * ia32 numbers serve only to recognise and count compat calls (an ia32 number
 * is never read as a 64-bit one); 0 = none.
 */
#define AT_SYSCALLS(X)                                 \
	X(MMAP, "mmap", 9, 90, 192)                    \
	X(MPROTECT, "mprotect", 10, 125, 0)            \
	X(MUNMAP, "munmap", 11, 91, 0)                 \
	X(BRK, "brk", 12, 45, 0)                       \
	X(MREMAP, "mremap", 25, 163, 0)                \
	X(MADVISE, "madvise", 28, 219, 0)              \
	X(PKEY_MPROTECT, "pkey_mprotect", 329, 380, 0) \
	X(PROCESS_MADVISE, "process_madvise", 440, 440, 0)

#define X(id, name, nr, ia32, ia32_2) AT_SYS_##id,
enum at_syscall { AT_SYS_INVALID = 0, AT_SYSCALLS(X) AT_SYS_CNT };
#undef X

/*
 * The classes, docs/output.md has each one's definition: X(id, name, syscall).
 * Faults belong to no syscall. madvise.phase is the phase marker below.
 */
#define AT_CLASSES(X)                                          \
	X(MMAP_ANON, "mmap.anon", MMAP)                        \
	X(MMAP_FILE, "mmap.file", MMAP)                        \
	X(MMAP_RESERVE, "mmap.reserve", MMAP)                  \
	X(MMAP_STACK, "mmap.stack", MMAP)                      \
	X(MMAP_FIXED, "mmap.fixed", MMAP)                      \
	X(MUNMAP, "munmap", MUNMAP)                            \
	X(MPROTECT_COMMIT, "mprotect.commit", MPROTECT)        \
	X(MPROTECT_GUARD, "mprotect.guard", MPROTECT)          \
	X(MPROTECT_OTHER, "mprotect.other", MPROTECT)          \
	X(MADVISE_DONTNEED, "madvise.dontneed", MADVISE)       \
	X(MADVISE_FREE, "madvise.free", MADVISE)               \
	X(MADVISE_HUGEPAGE, "madvise.hugepage", MADVISE)       \
	X(MADVISE_NOHUGEPAGE, "madvise.nohugepage", MADVISE)   \
	X(MADVISE_POPULATE, "madvise.populate", MADVISE)       \
	X(MADVISE_PHASE, "madvise.phase", MADVISE)             \
	X(MADVISE_OTHER, "madvise.other", MADVISE)             \
	X(MREMAP_GROW, "mremap.grow", MREMAP)                  \
	X(MREMAP_SHRINK, "mremap.shrink", MREMAP)              \
	X(MREMAP_MOVE, "mremap.move", MREMAP)                  \
	X(BRK_GROW, "brk.grow", BRK)                           \
	X(BRK_SHRINK, "brk.shrink", BRK)                       \
	X(BRK_QUERY, "brk.query", BRK)                         \
	X(PROCESS_MADVISE, "process_madvise", PROCESS_MADVISE) \
	X(PKEY_MPROTECT, "pkey_mprotect", PKEY_MPROTECT)       \
	X(FAULT_MINOR, "fault.minor", INVALID)                 \
	X(FAULT_MAJOR, "fault.major", INVALID)

#define X(id, name, sys) AT_CLASS_##id,
enum at_class { AT_CLASS_INVALID = 0, AT_CLASSES(X) AT_CLASS_CNT };
#undef X

/*
 * Phases. madvise(NULL, 0, AT_PHASE_MARK | phase) fails with EINVAL in the
 * kernel and switches the caller's process to `phase` here. A call is billed
 * to the phase that was in force when it was entered; so is the marker.
 */
#define AT_PHASE_MARK 0x41540000
enum at_phase { AT_PHASE_STARTUP = 0, AT_PHASE_MEASURED = 1, AT_PHASE_TEARDOWN = 2, AT_PHASE_CNT };

/*
 * Histogram of durations, log-linear: 8 buckets an octave, so a bucket's width
 * is at most 12.5 % of its lower edge. Values below 8 ns have a bucket each;
 * the last bucket also takes everything above 2^38 ns (4.6 min).
 */
#define AT_HIST_SUB_BITS 3
#define AT_HIST_MAX_BIT 38
#define AT_HIST_CNT ((AT_HIST_MAX_BIT - AT_HIST_SUB_BITS + 1) << AT_HIST_SUB_BITS)

/*
 * One class in one phase on one CPU. calls = sum of hist. bytes: of the calls
 * that succeeded only. Key of the map: phase * AT_CLASS_CNT + class.
 */
struct at_cell {
	__u64 errors;
	__u64 last_errno;    /* positive; 0 = none on this CPU */
	__u64 last_errno_ns; /* when, so that the latest of all CPUs wins */
	__u64 bytes;
	__u64 sum_ns;
	__u64 max_ns;
	__u64 hist[AT_HIST_CNT];
};
_Static_assert(sizeof(struct at_cell) == 8 * (6 + AT_HIST_CNT), "at_cell has no holes");

/* Clocks of two CPUs may disagree: such a duration is 0, and the caller counts AT_LOSS_CLOCK_BACK. */
static inline __attribute__((always_inline)) __u64 at_duration_ns(__u64 start_ns, __u64 end_ns)
{
	return end_ns < start_ns ? 0 : end_ns - start_ns;
}

/*
 * The number of the highest bit that is set, of a value from 1 to 2^63. BPF has no instruction for it. Without
 * branches: the verifier would follow all of them.
 */
static inline __attribute__((always_inline)) __u32 at_highest_bit(__u64 bits)
{
	__u32 bit = 0;

	for (__u32 log = 6; log-- > 0;) {
		__u32 shift = (((1ull << (1u << log)) - 1 - bits) >> 63) << log;

		bits >>= shift;
		bit += shift;
	}
	return bit;
}

/* The bucket of a duration. */
static inline __attribute__((always_inline)) __u32 at_hist_bucket(__u64 ns)
{
	__u32 bit;

	if (ns >> AT_HIST_MAX_BIT)
		return AT_HIST_CNT - 1;
	if (ns < 1 << AT_HIST_SUB_BITS)
		return ns;
	bit = at_highest_bit(ns);
	/* The bits below the highest one choose the bucket within the octave. */
	return ((bit - AT_HIST_SUB_BITS + 1) << AT_HIST_SUB_BITS) +
	       ((ns >> (bit - AT_HIST_SUB_BITS)) & ((1 << AT_HIST_SUB_BITS) - 1));
}

/* The largest duration that falls into a bucket; the last bucket is open. */
static inline __u64 at_hist_upper_ns(__u32 bucket)
{
	__u32 octave = bucket >> AT_HIST_SUB_BITS;
	__u64 sub = bucket & ((1 << AT_HIST_SUB_BITS) - 1);

	if (!octave)
		return bucket;
	return ((((__u64)1 << AT_HIST_SUB_BITS) + sub + 1) << (octave - 1)) - 1;
}

/*
 * Calls beside the cells, one u64 per CPU each: 32-bit (compat) memory syscalls
 * by AT_SYS_*, which are counted but not decoded; and madvise.other by advice
 * number (the last entry takes all numbers from there on).
 */
#define AT_ADVICE_CNT 128

/*
 * What goes on in one thread; zero = nothing. Written only by that thread, and
 * cleared when it dies. Cache lines of its own, because neighbours in tid run on
 * different CPUs. The key is the tid, or the task.
 */
struct at_slot {
	__u64 start_ns; /* of the call; 0 = not inside one */
	__u64 aux;      /* state at entry: bpf/syscall.bpf.h */
	__u64 fault_ns; /* start of the page fault; 0 = not inside one */
	__u8 syscall;   /* AT_SYS_* */
	__u8 phase;     /* in force when the call began */
	__u8 fault_phase;
	__u8 has_walk;    /* the range was looked at on entry */
	__u32 vma_cnt;    /* of the process at entry */
	__u64 walk_at;    /* where a walk over VMAs stands */
	__u64 walk_seen;  /* bytes of its range that it has judged */
	__u64 walk_acct;  /* bytes that are charged to the commit account */
	__u64 walk_blind; /* bytes that stayed unseen on entry */
	/* attach only: */
	__u32 scope;      /* AT_SCOPE_*: the thread is known */
	__u32 row;        /* number of its row + 1; 0 = none, AT_ROW_FULL = there was no room */
	__u32 exec_cnt;   /* programs that its process has started while traced */
	__u32 fault_anon; /* anonymous pages of the process when the page fault began: bpf/stacks.bpf.h */
	/* ledgers only: */
	__u64 wait_lock;      /* address of the lock that the thread waits for; 0 = none */
	__u64 wait_ns;        /* since when */
	__u64 call_wait_ns;   /* waits in the call so far, */
	__u64 fault_wait_ns;  /* and in the page fault */
	__u32 released_pages; /* that the call takes from the process */
	__u8 release;         /* AT_RELEASE_* */
	__u8 wait_kind;       /* AT_LOCK_* */
	__u8 is_stack;        /* the call is about a thread stack */
	__u8 is_fresh;        /* attach: it was there before tracing, and has not entered a call since */
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct at_slot) == 128, "two cache lines");

/* attach: one class in a row, see struct at_row. */
struct at_row_class {
	__u64 call_cnt, error_cnt, bytes, sum_ns;
};

/* CPU time of a thread as the kernel counts it; total is more precise than the other two. */
struct at_cpu {
	__u64 user_ns, sys_ns, total_ns;
};

#define AT_COMM_BYTES 16
#define AT_ROW_FULL 0xffffffffu

/* Why a thread is traced. */
enum at_scope {
	AT_SCOPE_NONE = 0,
	AT_SCOPE_PROCESS = 1, /* with all threads of its process */
	AT_SCOPE_THREAD = 2,  /* alone */
};

/* Threads to be traced. Key: tgid with AT_SCOPE_PROCESS, tid with AT_SCOPE_THREAD; as the kernel numbers them. */
struct at_wanted {
	__u64 start_ns; /* of the process, or of the thread: another life of the number is not meant */
	__u32 scope;    /* AT_SCOPE_* */
	__u32 pad;
};

/* What a pass over all threads of the system is to do. */
enum at_pass {
	AT_PASS_INVALID = 0,
	AT_PASS_LIST = 1, /* write a struct at_task for each */
	AT_PASS_MARK = 2, /* make those known that are wanted */
	AT_PASS_LOOK = 3, /* bring the rows of known ones up to date */
};

/* One thread, as AT_PASS_LIST writes it. */
struct at_task {
	__u64 process_start_ns, start_ns; /* boot time clock */
	__u32 tgid, tid, shown_tgid, shown_tid;
	__u32 is_kernel, is_dead; /* kernel thread; zombie, or on the way to it */
	char comm[AT_COMM_BYTES], process_comm[AT_COMM_BYTES];
	__u64 cgroup_id; /* of cgroup version 2 */
};

/* What the two sides of attach tell each other. One, key 0. */
struct at_attach {
	__u32 pass;       /* AT_PASS_*, set by user space */
	__u32 self_tgid;  /* whoever made the last pass, as the kernel numbers it */
	__u32 marked_cnt; /* threads that passes have made known */
	__u32 row_next;   /* rows from here on were never used */
	__u32 level;      /* of the user's pid namespace; 0 = the first */
	__u32 is_over;    /* nobody becomes a target any more */
	__u32 is_open;    /* by name or control group: not before this is set */
	__u32 pad;
	__u64 row_full_cnt; /* threads that got no row */
};

/*
 * Ledgers: what the targets hold, kept beside the calls.
 *
 * The sizes that a change of the commit account is compared with, in pages:
 * X(id, name). What they are: cli/ledger.h.
 */
#define AT_BATCHES(X)       \
	X(KERNEL, "kernel") \
	X(FIXED, "fixed")   \
	X(SCALED, "scaled")

#define X(id, name) AT_BATCH_##id,
enum at_batch { AT_BATCHES(X) AT_BATCH_CNT };
#undef X

/* One phase on one CPU. Key of the map: phase. Of `vma` fields see docs/output.md. */
struct at_ledger {
	__u64 charged_pages, uncharged_pages;
	__u64 update_cnt;               /* changes of the commit account */
	__u64 past_cnt[AT_BATCH_CNT];   /* those larger than the batch */
	__u64 peak_pages;               /* most that all targets held together */
	__u64 assumed_cnt;              /* calls whose charge is in part assumed ... */
	__u64 assumed_pages;            /* ... and of how many pages */
	__u64 shared_pages;             /* charged for shared anonymous mappings; in no other field */
	__u64 checked_pages;            /* tier 2: that the kernel's own check let pass, of either kind */
	__u64 vma_first_ns, vma_first;  /* VMAs when the first call began, */
	__u64 vma_last_ns, vma_last;    /* when the last one ended, */
	__u64 vma_peak;                 /* and the most that one process had */
	__u64 vma_growth[AT_CLASS_CNT]; /* signed */
};

/* A process with an address space, for the commit ledger. Key: tgid. */
struct at_process {
	__u64 acct_pages;  /* that it has charged; signed */
	__u64 stack_pages; /* of stacks, when last looked at */
	__u32 owner_tgid;  /* whose address space it is, where that is another's (vfork): only this field counts */
	__u32 user_cnt;    /* processes that use the address space */
	__u32 is_dead;
	__u32 pad;
};

/*
 * Locks that a thread waits for: X(id, name). mmap_lock of its own process for
 * reading and for writing; other locks by their kind.
 */
#define AT_LOCKS(X)                 \
	X(MMAP_READ, "mmap_read")   \
	X(MMAP_WRITE, "mmap_write") \
	X(SPIN, "spin")             \
	X(SEM, "rwsem")             \
	X(MUTEX, "mutex")           \
	X(OTHER, "other")

#define X(id, name) AT_LOCK_##id,
enum at_lock { AT_LOCKS(X) AT_LOCK_CNT };
#undef X

struct at_wait {
	__u64 cnt, sum_ns, max_ns;
};

/* One phase on one CPU. Key of the map: phase. */
struct at_lock_ledger {
	struct at_wait kinds[AT_LOCK_CNT];    /* one a wait */
	struct at_wait classes[AT_CLASS_CNT]; /* one a call or fault that waited */
};

/*
 * How pages are taken from a process: X(id, name). unmap: munmap, an mmap over
 * them, a smaller brk or mremap.
 */
#define AT_RELEASES(X)          \
	X(DONTNEED, "dontneed") \
	X(FREE, "free")         \
	X(UNMAP, "unmap")

#define X(id, name) AT_RELEASE_##id,
enum at_release { AT_RELEASES(X) AT_RELEASE_CNT };
#undef X

struct at_refault {
	__u64 released_pages; /* that had been touched */
	__u64 release_ns;     /* of the calls that did it */
	__u64 returned_pages; /* of them, those that a fault brought back */
	__u64 refault_ns;     /* of those faults */
};

/* One phase on one CPU. Key of the map: phase. */
struct at_refault_ledger {
	struct at_refault kinds[AT_RELEASE_CNT];
	__u64 max_ns;            /* longest time until a page came back */
	__u64 hist[AT_HIST_CNT]; /* of those times */
};

/* One phase on one CPU. Key of the map: phase. */
struct at_stack_ledger {
	__u64 thread_cnt;                     /* created */
	__u64 foreign_cnt;                    /* of them, those whose stack was not seen to be mapped */
	__u64 call_cnt, call_ns;              /* about stacks */
	__u64 charged_pages, uncharged_pages; /* by those calls, with the commit ledger */
	__u64 touched_pages;                  /* by page faults */
	__u64 huge_pages;                     /* of them, those in huge ones */
	__u64 fault_ns;
};

/* attach: what the ledgers know of one thread. Fields as in the ledgers above. */
struct at_row_ledger {
	__u64 charged_pages, uncharged_pages;
	__u64 update_cnt;
	__u64 peak_pages; /* most that its process held after a change by this thread */
	__u64 vma_first_ns, vma_first;
	__u64 vma_last_ns, vma_last;
	__u64 vma_peak;
	struct at_refault refaults[AT_RELEASE_CNT];
	struct at_wait locks[AT_LOCK_CNT];
	struct at_stack_ledger stacks;
};

/*
 * attach: rows, one a thread and program that it runs. Only the thread itself
 * adds to its row, so plain additions are exact. Key: its number.
 */
struct at_row {
	__u64 start_ns; /* of the process, boot time clock: with the tgid it names one process for ever */
	__u64 begin_ns; /* of the row; monotonic clock */
	__u64 end_ns;   /* its thread died or started another program; 0 = not yet */
	struct at_cpu first, last;
	__u32 tgid, tid;             /* as the kernel numbers them, */
	__u32 shown_tgid, shown_tid; /* and as the user's pid namespace does; 0 = not visible there */
	__u32 exec_cnt;              /* of the slot when the row began */
	__u32 is_found;              /* its thread ran already */
	char comm[AT_COMM_BYTES];
	struct at_row_class classes[AT_CLASS_CNT];
	struct at_row_ledger ledger;
};

/*
 * What could not be counted exactly, by reason: X(id, JSON key, text). Each is
 * one u64 per CPU. A report is `exact` when all but NEVER_RETURNED are 0.
 */
#define AT_LOSSES(X)                                                                                 \
	X(NO_START, "no_start", "calls whose entry was not seen")                                    \
	X(NO_END, "no_end", "calls whose exit was not seen")                                         \
	X(NEVER_RETURNED, "never_returned", "calls that never returned (the thread died inside)")    \
	X(CLOCK_BACK, "clock_back", "durations set to 0 because the clock went back")                \
	X(SLOT_FULL, "map_full", "calls without room for their start time")                          \
	X(FORK_FULL, "target_full", "processes that could not be followed")                          \
	X(CLASS_ASSUMED, "class_assumed", "mprotect calls classed from their arguments alone")       \
	X(FAULT_MISSED, "fault_missed", "page faults that the kernel counted and we did not")        \
	X(FAULT_HIDDEN, "fault_hidden", "programs whose page faults the kernel hides (set-user-ID)") \
	X(LEDGER_FULL, "ledger_full", "processes without room in the commit ledger")                 \
	X(REFAULT_FULL, "refault_full", "page ranges without room in the refault ledger")            \
	X(STACK_FULL, "stack_full", "stacks without room in the stack ledger")

#define X(id, key, text) AT_LOSS_##id,
enum at_loss { AT_LOSS_INVALID = 0, AT_LOSSES(X) AT_LOSS_CNT };
#undef X

#endif
