/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Calls summed by class and callchain, and notes to user space about what the
 * tables lack. The sum of a class's paths, with what found no room (at_path of
 * chain 0, and path_losses), is the class's own count: both are added to by
 * the same program run.
 */
#ifndef ALLOCTRACE_BPF_CALLCHAIN_BPF_H
#define ALLOCTRACE_BPF_CALLCHAIN_BPF_H

/* key: hash */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, AT_CHAIN_CNT);
	__type(key, __u64);
	__type(value, struct at_chain);
} chains SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, AT_PATH_CNT);
	__type(key, struct at_path_key);
	__type(value, struct at_path);
} paths SEC(".maps");

/* key: phase * AT_CLASS_CNT + class; calls without room in `paths` */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, AT_PHASE_CNT *AT_CLASS_CNT);
	__type(key, __u32);
	__type(value, struct at_path);
} path_losses SEC(".maps");

struct frame_chunk {
	__u64 frames[AT_FRAME_CHUNK];
};

/* Frames of all chains. key: index / AT_FRAME_CHUNK */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, AT_FRAME_CHUNKS);
	__type(key, __u32);
	__type(value, struct frame_chunk);
} frames SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, AT_NOTE_RING_BYTES);
} notes SEC(".maps");

__u64 frame_next;            /* first free frame */
__u64 notes_lost, cuts_lost; /* without room in `notes` */

enum { WALK_SYSCALL = 0, WALK_FAULT = 1 };

static __always_inline void path_lost(__u32 phase, __u32 class, __u64 ns, __u64 bytes)
{
	__u32 key = phase * AT_CLASS_CNT + class;
	struct at_path *path = bpf_map_lookup_elem(&path_losses, &key);

	if (!path)
		return;
	path->call_cnt++;
	path->sum_ns += ns;
	path->bytes += bytes;
}

/* Keeps a chain that is seen for the first time. False: no room. */
static __always_inline bool chain_add(struct walk *walk, __u64 hash, __u32 tgid)
{
	struct at_chain chain = {.end = walk->end, .tgid = tgid};
	struct frame_chunk *chunk;
	__u64 first, offset;
	__u32 cnt = walk->cnt & AT_CHAIN_FRAMES, key;

	first = __sync_fetch_and_add(&frame_next, cnt);
	if (first % AT_FRAME_CHUNK + cnt > AT_FRAME_CHUNK) /* never across two values: the rest of one is left free */
		first = __sync_fetch_and_add(&frame_next, cnt);
	key = first / AT_FRAME_CHUNK;
	chunk = bpf_map_lookup_elem(&frames, &key);
	offset = first % AT_FRAME_CHUNK;
	if (!chunk || offset > AT_FRAME_CHUNK - AT_CHAIN_FRAMES - 1)
		return false;
	bpf_probe_read_kernel(&chunk->frames[offset], cnt * sizeof(__u64), walk->frames);
	chain.first = first;
	chain.cnt = cnt;
	chain.guess_from = walk->guess_from;
	/* Another CPU may have been first. */
	return !bpf_map_update_elem(&chains, &hash, &chain, BPF_NOEXIST) || bpf_map_lookup_elem(&chains, &hash);
}

static __always_inline void path_add(const struct at_path_key *key, __u64 ns, __u64 bytes)
{
	struct at_path first = {.call_cnt = 1, .sum_ns = ns, .bytes = bytes};
	struct at_path *path = bpf_map_lookup_elem(&paths, key);

	if (!path) {
		if (!bpf_map_update_elem(&paths, key, &first, BPF_NOEXIST))
			return;
		path = bpf_map_lookup_elem(&paths, key);
	}
	if (!path) {
		path_lost(key->phase, key->class, ns, bytes);
		return;
	}
	__sync_fetch_and_add(&path->call_cnt, 1);
	__sync_fetch_and_add(&path->sum_ns, ns);
	__sync_fetch_and_add(&path->bytes, bytes);
}

/* Hands a chain that came to unknown code to user space, which can look at the file. */
static __always_inline void cut_send(struct walk *walk, struct task_struct *task, const struct at_path_key *key,
				     __u64 ns, __u64 bytes)
{
	const struct at_mappings *now = mappings_of(task->tgid);
	struct at_cut *cut = bpf_ringbuf_reserve(&notes, sizeof(*cut), 0);
	__u64 from = walk->sp & ~(__u64)(BLOCK_BYTES - 1);
	__u32 read_bytes = 0;

	if (!cut) {
		__sync_fetch_and_add(&cuts_lost, 1);
		return;
	}
	cut->note.kind = AT_NOTE_CUT;
	cut->note.tgid = task->tgid;
	cut->note.parent_tgid = 0;
	cut->note.pid = key->pid;
	cut->key = *key;
	cut->path.call_cnt = 1;
	cut->path.sum_ns = ns;
	cut->path.bytes = bytes;
	cut->file = walk->file;
	cut->vm_start = walk->vm_start;
	cut->vm_end = walk->vm_end;
	cut->vm_file_offset = walk->vm_file_offset;
	cut->ip = walk->ip;
	cut->sp = walk->sp;
	cut->bp = walk->bp;
	cut->bx = walk->bx;
	cut->has_bx = walk->has_bx;
	cut->generation = now ? now->generation : 0;
	cut->fsbase = task->thread.fsbase;
	cut->is_return = walk->is_return;
	cut->cnt = walk->cnt & AT_CHAIN_FRAMES;
	cut->guess_from = walk->guess_from;
	bpf_probe_read_kernel(cut->frames, sizeof(cut->frames), walk->frames);
	for (int i = 0; i < AT_STACK_BYTES / BLOCK_BYTES; i++) {
		if (bpf_probe_read_user(cut->stack + i * BLOCK_BYTES, BLOCK_BYTES, (void *)(from + i * BLOCK_BYTES)))
			break;
		read_bytes += BLOCK_BYTES;
	}
	cut->stack_at = from;
	cut->stack_bytes = read_bytes;
	bpf_ringbuf_submit(cut, 0);
}

/*
 * Adds a finished call of the current thread to its path. A global function, see
 * bpf/walk.bpf.h. `which`: WALK_*.
 */
__noinline int callchain_add(__u32 which, __u32 phase, __u32 class, __u64 ns, __u64 bytes)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct at_path_key key = {};
	struct walk *walk;
	__u64 hash;

	if (!cfg_has_callchains || phase >= AT_PHASE_CNT || class >= AT_CLASS_CNT)
		return 0;
	walk = bpf_map_lookup_elem(&walks, &which);
	if (!walk)
		return 0;
	walk_run(walk, task, task->tgid);
	hash = (walk->hash ^ walk->end ^ (walk->is_raw ? (__u64)task->tgid << 32 : 0)) * 0x9e3779b97f4a7c15;
	hash |= !hash; /* 0 means another thing */
	key.pid = user_number(task->group_leader, task->tgid);
	key.tid = cfg_is_by_thread ? user_number(task, task->pid) : 0;
	key.class = class;
	key.phase = phase;
	key.chain = hash;
	if (!bpf_map_lookup_elem(&chains, &hash) && !chain_add(walk, hash, task->tgid))
		key.chain = 0;
	path_add(&key, ns, bytes);
	if (walk->end == AT_END_NO_MAPPING)
		cut_send(walk, task, &key, ns, bytes);
	return 0;
}

static __always_inline void note_send(enum at_note_kind kind, const struct task_struct *task, __u32 parent_tgid)
{
	struct at_note *note = bpf_ringbuf_reserve(&notes, sizeof(*note), 0);

	if (!note) {
		__sync_fetch_and_add(&notes_lost, 1);
		return;
	}
	note->kind = kind;
	note->tgid = task->tgid;
	note->parent_tgid = parent_tgid;
	note->pid = user_number(task->group_leader, task->tgid);
	bpf_ringbuf_submit(note, 0);
}

/*
 * After a call that may have made memory executable. A file that was mapped may
 * lie where another one was: what the pieces say is no longer true, so that all is
 * looked up in the kernel until user space has made new ones.
 */
static __always_inline void callchain_mapped(__u32 tgid, bool is_file)
{
	struct at_mappings *now = mappings_of(tgid);

	if (!now)
		return;
	if (is_file)
		__sync_fetch_and_add(&now->generation, 1);
	if (!__sync_lock_test_and_set(&now->is_noted, 1))
		note_send(AT_NOTE_MAPPED, bpf_get_current_task_btf(), 0);
}

static __always_inline void callchain_exit_syscall(__u32 syscall, const struct pt_regs *regs, long ret, __u32 tgid)
{
	if (is_error(ret) || !(regs->dx & PROT_EXEC))
		return;
	if (syscall == AT_SYS_MMAP)
		callchain_mapped(tgid, !(regs->r10 & MAP_ANONYMOUS));
	else if (syscall == AT_SYS_MPROTECT || syscall == AT_SYS_PKEY_MPROTECT)
		callchain_mapped(tgid, false);
}

static __always_inline bool is_target(__u32 tgid)
{
	__u8 *target = target_of(tgid);

	return target && *target;
}

/* The life of a process; after that of the target byte. */

static __always_inline void callchain_fork(const struct task_struct *parent, const struct task_struct *child)
{
	__u32 parent_tgid = parent->tgid, child_tgid = child->tgid;
	struct at_unwind_process *from, to = {};
	struct at_mappings *now = mappings_of(child_tgid);

	/* In this order: 6.1 forgets what mappings_of() found out about a number that is too large. */
	if (parent_tgid == child_tgid || !now || !is_target(child_tgid))
		return;
	from = pieces_of(parent_tgid);
	if (from)
		to = *from;
	now->is_noted = 0;
	to.generation = now->generation;
	bpf_map_update_elem(&unwind_processes, &child_tgid, &to, BPF_ANY);
	note_send(AT_NOTE_FORK, child, parent_tgid);
}

static __always_inline void callchain_exec(const struct task_struct *task)
{
	__u32 tgid = task->tgid;
	struct at_mappings *now = mappings_of(tgid);

	if (!now || !is_target(tgid))
		return;
	__sync_fetch_and_add(&now->generation, 1);
	now->is_noted = 1;
	note_send(AT_NOTE_EXEC, task, 0);
}

static __always_inline void callchain_exit(const struct task_struct *task)
{
	if (is_target(task->tgid) && !task->signal->live.counter)
		note_send(AT_NOTE_EXIT, task, 0);
}

#endif
