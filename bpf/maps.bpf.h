/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Every map and every setting, and the only functions that look them up. Sizes
 * marked "set at load" are set by user space between open and load.
 */
#ifndef ALLOCTRACE_BPF_MAPS_BPF_H
#define ALLOCTRACE_BPF_MAPS_BPF_H

enum { OPEN_CNT_MAX = 1024, OPEN_LEVEL_MAX = 32 };

/* The user's choices and the kernel's sizes: constants for the verifier. */
const volatile __u32 cfg_pid_cnt = 1; /* tids and tgids are below */
const volatile bool cfg_is_following; /* children of targets are targets */
const volatile bool cfg_is_storage;   /* slots are in task storage */
const volatile bool cfg_has_rows;     /* attach: threads have rows */
const volatile bool cfg_is_shown;     /* user space has other process numbers than the kernel: see user_number() */
const volatile bool cfg_is_partial;   /* attach: not all threads of a target process are targets */
const volatile bool cfg_is_open;      /* attach: processes that are not there yet may be wanted */
const volatile __u32 cfg_row_cnt = 1;

const volatile bool cfg_has_faults;     /* page fault events are on */
const volatile bool cfg_has_commit;     /* the commit ledger is kept */
const volatile bool cfg_has_vmas;       /* the VMA ledger is kept */
const volatile bool cfg_has_locks;      /* the lock ledger is kept */
const volatile bool cfg_has_refaults;   /* the refault ledger is kept */
const volatile bool cfg_has_stacks;     /* the stack ledger is kept */
const volatile bool cfg_is_huge;        /* huge pages come without being asked for */
const volatile bool cfg_has_vma_iter;   /* the kernel has the iterator over VMAs */
const volatile bool cfg_has_callchains; /* calls are summed by callchain */
const volatile bool cfg_is_by_thread;   /* ... and by thread */
const volatile __u64 cfg_chain_seed;    /* so that nobody can make two chains look alike */
const volatile bool cfg_is_strict;      /* vm.overcommit_memory=2: MAP_NORESERVE means nothing */
const volatile __u64 cfg_batches[AT_BATCH_CNT] = {1, 1, 1};

/* Pages charged by all targets together, and those of them that were there before tracing. */
__u64 commit_level, commit_start;

/* Phases that some process entered, written as 1. */
__u8 phases_seen[AT_PHASE_CNT];

/* key: tid; mappable, so that values start on a page and are cache lines */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set at load */
	__type(key, __u32);
	__type(value, struct at_slot);
} slots SEC(".maps");

/* key: task */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct at_slot);
} task_slots SEC(".maps");

/* key: 0; value: one byte a tgid, 0 = not a target, else phase + 1, and TARGET_UNKEPT */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 8); /* set at load */
} targets SEC(".maps");

/* key: phase * AT_CLASS_CNT + class */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, AT_PHASE_CNT *AT_CLASS_CNT);
	__type(key, __u32);
	__type(value, struct at_cell);
} cells SEC(".maps");

/* key: phase; only with a ledger */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, AT_PHASE_CNT);
	__type(key, __u32);
	__type(value, struct at_ledger);
} ledgers SEC(".maps");

/* key: tgid; only with the commit ledger */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, __u32);
	__type(value, struct at_process);
} processes SEC(".maps");

/* key: number of the row; of attach, as the three below */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set at load */
	__type(key, __u32);
	__type(value, struct at_row);
} rows SEC(".maps");

/* numbers of rows that may be used again */
struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1); /* set at load */
	__uint(value_size, sizeof(__u32));
} free_rows SEC(".maps");

/* key: a name, padded with zeros; value: nothing */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, OPEN_CNT_MAX);
	__uint(key_size, AT_COMM_BYTES);
	__uint(value_size, sizeof(__u8));
} open_names SEC(".maps");

/* key: id of a control group; value: nothing */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, OPEN_CNT_MAX);
	__type(key, __u64);
	__type(value, __u8);
} open_cgroups SEC(".maps");

/* key: tgid or tid, see struct at_wanted */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, __u32);
	__type(value, struct at_wanted);
} wanted SEC(".maps");

/* key: 0 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct at_attach);
} attach_state SEC(".maps");

/* key: phase; each only with its ledger */
#define LEDGER_MAP(name, ledger)                         \
	struct {                                         \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); \
		__uint(max_entries, AT_PHASE_CNT);       \
		__type(key, __u32);                      \
		__type(value, ledger);                   \
	} name SEC(".maps")

#define COUNTERS(name, cnt)                              \
	struct {                                         \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); \
		__uint(max_entries, cnt);                \
		__type(key, __u32);                      \
		__type(value, __u64);                    \
	} name SEC(".maps")

COUNTERS(losses, AT_LOSS_CNT);    /* key: AT_LOSS_* */
COUNTERS(compats, AT_SYS_CNT);    /* key: AT_SYS_*; 32-bit calls */
COUNTERS(final_pages, 1);         /* key: 0; most that a process had resident at its end */
COUNTERS(advices, AT_ADVICE_CNT); /* key: advice; calls in madvise.other */
/*
 * key: AT_SYS_*; calls entered and not left: only the sum over CPUs means
 * something. Kept with task storage, which cannot be listed: the array of slots shows
 * the same for nothing.
 */
COUNTERS(flights, AT_SYS_CNT);
COUNTERS(early_flights, AT_SYS_CNT); /* key: AT_SYS_*; calls that were running when attach began, at their ends */

static __always_inline void counter_add(void *map, __u32 key, __u64 n)
{
	__u64 *cnt = bpf_map_lookup_elem(map, &key);

	if (cnt)
		*cnt += n;
}

static __always_inline struct at_ledger *ledger_of(__u32 phase)
{
	return bpf_map_lookup_elem(&ledgers, &phase);
}

static __always_inline void loss_count(enum at_loss loss)
{
	counter_add(&losses, loss, 1);
}

static __always_inline void flight_count(__u32 syscall, __u64 n)
{
	if (cfg_is_storage)
		counter_add(&flights, syscall, n);
}

/* The target byte of a process; NULL when the table is too small for it. */
static __always_inline __u8 *target_of(__u32 tgid)
{
	__u32 key = 0;
	__u8 *bytes = bpf_map_lookup_elem(&targets, &key);

	if (!bytes || tgid >= cfg_pid_cnt)
		return NULL;
	return bytes + tgid;
}

/* Bit of a target byte: the process found no room in the commit ledger, and is not looked for again. */
enum { TARGET_UNKEPT = 0x80 };

/* Of a byte that is not 0. */
static __always_inline __u32 target_phase(const __u8 *target)
{
	return (*target & ~TARGET_UNKEPT) - 1;
}

/*
 * Notes whether a process has its place in the commit ledger; true when that is news. By words, so that no
 * phase is lost that another thread writes meanwhile. A global function, see bpf/walk.bpf.h.
 */
__noinline int target_note(__u32 tgid, bool is_kept)
{
	__u32 key = 0, bit = (__u32)TARGET_UNKEPT << tgid % 4 * 8;
	__u8 *bytes = bpf_map_lookup_elem(&targets, &key);
	__u32 *word;

	if (!bytes || tgid >= cfg_pid_cnt)
		return false;
	word = (__u32 *)(bytes + (tgid & ~3u));
	if (is_kept)
		return (__sync_fetch_and_and(word, ~bit) & bit) != 0;
	return !(__sync_fetch_and_or(word, bit) & bit);
}

/* The slot of the current thread; NULL when there is none. */
static __always_inline struct at_slot *slot_of(struct task_struct *task, __u32 tid, __u64 flags)
{
	if (cfg_is_storage)
		return bpf_task_storage_get(&task_slots, task, NULL, flags);
	return bpf_map_lookup_elem(&slots, &tid);
}

/* What is kept in slot.aux of mprotect. */
enum aux { AUX_OTHER = 0, AUX_FROM_NONE = 1 };

static __always_inline __u64 page_align(__u64 bytes)
{
	return (bytes + PAGE_BYTES - 1) & ~(__u64)(PAGE_BYTES - 1);
}

static __always_inline bool is_error(long ret)
{
	return (__u64)ret >= (__u64)-MAX_ERRNO;
}

/* What is left of a call at its end: arguments by their registers, and result. */
struct finished {
	__u64 di, si, dx, r10;
	__s64 ret;
};

/* Adds one event to its cell. An error adds no bytes. */
static __always_inline void cell_add(__u32 phase, __u32 class, __u64 start_ns, __u64 end_ns, __u64 bytes, __u32 err)
{
	__u32 key = phase * AT_CLASS_CNT + class;
	struct at_cell *cell = bpf_map_lookup_elem(&cells, &key);
	__u64 ns = at_duration_ns(start_ns, end_ns);
	__u32 bucket;

	if (!cell)
		return;
	if (end_ns < start_ns)
		loss_count(AT_LOSS_CLOCK_BACK);
	if (err) {
		cell->errors++;
		cell->last_errno = err;
		cell->last_errno_ns = end_ns;
	} else {
		cell->bytes += bytes;
	}
	cell->sum_ns += ns;
	if (ns > cell->max_ns)
		cell->max_ns = ns;
	bucket = at_hist_bucket(ns);
	if (bucket < AT_HIST_CNT)
		cell->hist[bucket]++;
}

#endif
