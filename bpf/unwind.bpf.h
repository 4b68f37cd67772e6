/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The walk from a thread's user registers up its stack, by tables that user
 * space made from .eh_frame and .gopclntab (bpf/callchain.h). Knows nothing of
 * classes and counts. User space walks with the same rules in
 * cli/unwind_walk.c: what changes here changes there.
 *
 * The state is in a per-CPU map and not on the stack: what is loaded from it is
 * an unknown number to the verifier, so it has nothing to follow through the
 * loops. The searches have no branches for the same reason.
 */
#ifndef ALLOCTRACE_BPF_UNWIND_BPF_H
#define ALLOCTRACE_BPF_UNWIND_BPF_H

enum {
	BLOCK_BITS = 10, /* the stack is read in aligned blocks, which never cross a page */
	BLOCK_BYTES = 1 << BLOCK_BITS,
	BLOCK_CNT = 4,
	GUESS_MAX_BYTES = 1 << 20, /* a guessed frame is no larger */
	ADDRESS_MAX_BIT = 47,      /* user addresses are below */
	GO_LAYOUT_CNT = 16,
};

/* One walk. Two, as a program may interrupt the other kind: syscalls and faults. */
struct walk {
	__u64 ip, sp, bp, bx;
	__u64 hash;
	__u64 vm_start, vm_end, vm_file_offset; /* of the mapping that was looked up last */
	struct at_file file;                    /* inode 0: it has none */
	__u32 is_return;                        /* ip is a return address */
	__u32 is_exec;
	__u32 has_bx;                       /* bx is known: few functions need it */
	__u32 cnt, guess_from, end, is_raw; /* raw: a frame outside all objects */
	__u32 first, piece_cnt;
	struct at_piece piece; /* that of the latest frame; bytes 0: none */
	__u64 block_at[BLOCK_CNT];
	__u64 blocks[BLOCK_CNT][BLOCK_BYTES / 8];
	__u64 frames[AT_CHAIN_FRAMES + 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct walk);
} walks SEC(".maps");

struct shard {
	struct at_unwind_row rows[AT_SHARD_ROWS];
};

/* key: shard number; in it key 0 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, AT_SHARD_CNT);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(map_flags, BPF_F_MMAPABLE);
			__uint(max_entries, 1);
			__uint(key_size, sizeof(__u32));
			__uint(value_size, sizeof(struct shard));
		});
} shards SEC(".maps");

struct pieces {
	struct at_piece pieces[AT_PIECE_CNT];
};

/* key: 0 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pieces);
} pieces SEC(".maps");

/* key: tgid */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 15);
	__type(key, __u32);
	__type(value, struct at_unwind_process);
} unwind_processes SEC(".maps");

/* key: 0; value: one a tgid */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct at_mappings)); /* set at load */
} mappings SEC(".maps");

/* key: a file as the kernel sees it */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 13);
	__type(key, struct at_file);
	__type(value, struct at_object);
} objects SEC(".maps");

/* key: at_piece.go */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GO_LAYOUT_CNT);
	__type(key, __u32);
	__type(value, struct at_go);
} go_layouts SEC(".maps");

/* NULL when the table is too small for it. */
static __always_inline struct at_mappings *mappings_of(__u32 tgid)
{
	__u32 key = 0;
	struct at_mappings *all = bpf_map_lookup_elem(&mappings, &key);

	if (!all || tgid >= cfg_pid_cnt)
		return NULL;
	return all + tgid;
}

/* The pieces of a process, where they are true. */
static __always_inline struct at_unwind_process *pieces_of(__u32 tgid)
{
	struct at_unwind_process *process = bpf_map_lookup_elem(&unwind_processes, &tgid);
	struct at_mappings *now = mappings_of(tgid);

	return process && now && process->generation == now->generation ? process : NULL;
}

/* Keeps the compiler from turning arithmetic back into a branch. */
#define OPAQUE(x) asm volatile("" : "+r"(x))

/* -1 where a < b, else 0; both below 2^63. */
static __always_inline __u64 mask_below(__u64 a, __u64 b)
{
	__u64 mask = (__s64)(a - b) >> 63;

	OPAQUE(mask);
	return mask;
}

/* The word at a user address; false when it cannot be read. */
static __always_inline bool read_word(struct walk *walk, __u64 at, __u64 *word)
{
	__u64 block = at & ~(__u64)(BLOCK_BYTES - 1);
	__u32 slot = at >> BLOCK_BITS & (BLOCK_CNT - 1);

	if (at & 7 || at >> ADDRESS_MAX_BIT)
		return false;
	if (walk->block_at[slot] != block) {
		walk->block_at[slot] = 1; /* no block's address */
		if (bpf_probe_read_user(walk->blocks[slot], BLOCK_BYTES, (void *)block))
			return false;
		walk->block_at[slot] = block;
	}
	*word = walk->blocks[slot][at >> 3 & (BLOCK_BYTES / 8 - 1)];
	return true;
}

static long vma_seen(struct task_struct *task, struct vm_area_struct *vma, void *ctx)
{
	struct walk *walk = *(struct walk **)ctx;
	struct file *file = vma->vm_file;
	struct inode *inode;

	walk->vm_start = vma->vm_start;
	walk->vm_end = vma->vm_end;
	walk->vm_file_offset = vma->vm_pgoff * PAGE_BYTES;
	walk->is_exec = !!(vma->vm_flags & VM_EXEC);
	if (!file)
		return 0;
	inode = file->f_inode;
	walk->file.dev = inode->i_sb->s_dev;
	walk->file.inode = inode->i_ino;
	return 0;
}

/* The piece of a pc within an object whose mapping is in walk->vm_*. */
static __always_inline bool piece_of_object(struct walk *walk, __u64 pc, const struct at_object *object)
{
	__u64 offset = walk->vm_file_offset + (pc - walk->vm_start);
	__u32 object_pc = 0;
	bool is_found = false;

	for (int i = 0; i < AT_SEGMENT_CNT; i++)
		if (offset - object->segments[i].file_offset < object->segments[i].bytes) {
			object_pc = object->segments[i].pc0 + (offset - object->segments[i].file_offset);
			is_found = true;
		}
	if (!is_found)
		return false;
	walk->piece.start = pc;
	walk->piece.bytes = 1;
	walk->piece.pc0 = object_pc;
	walk->piece.object = object->object;
	walk->piece.go = object->go;
	walk->piece.row_cnt = 0;
	for (int i = 0; i < AT_CHUNK_CNT; i++)
		if (i < object->chunk_cnt && object->chunks[i].pc0 <= object_pc) {
			walk->piece.row0 = object->chunks[i].row0;
			walk->piece.row_cnt = object->chunks[i].row_cnt;
			walk->piece.shard = object->chunks[i].shard;
		}
	return true;
}

/* The mapping of a pc that is in no piece. False ends the walk, with its reason in walk->end. */
static __always_inline bool find_mapping(struct walk *walk, __u64 pc)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct walk *ctx = walk;
	struct at_object *object;
	long err;

	walk->file.dev = walk->file.inode = 0;
	walk->vm_start = walk->vm_end = 0;
	err = bpf_find_vma(task, pc, vma_seen, &ctx, 0);
	if (err) {
		/* Someone else has mmap_lock: what is there is not known, and user space may find out. */
		walk->end = err == -ENOENT ? AT_END_BAD_ADDRESS : AT_END_NO_MAPPING;
		return false;
	}
	if (!walk->is_exec) {
		walk->end = AT_END_BAD_ADDRESS;
		return false;
	}
	if (!walk->file.inode) {
		walk->piece.start = walk->vm_start;
		walk->piece.bytes = walk->vm_end - walk->vm_start;
		walk->piece.object = 0;
		walk->piece.row_cnt = 0;
		return true;
	}
	object = bpf_map_lookup_elem(&objects, &walk->file);
	if (object && piece_of_object(walk, pc, object))
		return true;
	walk->end = AT_END_NO_MAPPING;
	return false;
}

/* Puts the piece of a pc into walk->piece. False ends the walk. */
static __always_inline bool find_piece(struct walk *walk, __u64 pc)
{
	__u32 zero = 0, lo = walk->first, len = walk->piece_cnt, half;
	struct pieces *all = bpf_map_lookup_elem(&pieces, &zero);
	const struct at_piece *piece;

	if (!all)
		return false;
	if (len) {
		for (int step = 0; step < 15; step++) {
			half = len >> 1;
			piece = &all->pieces[(lo + half) & (AT_PIECE_CNT - 1)];
			lo += half & ~(__u32)mask_below(pc, piece->start);
			len -= half;
		}
		piece = &all->pieces[lo & (AT_PIECE_CNT - 1)];
		if (pc - piece->start < piece->bytes) {
			walk->piece = *piece;
			return true;
		}
	}
	return find_mapping(walk, pc);
}

/* The rule for a pc of the object in walk->piece. */
static __always_inline __u32 find_rule(const struct walk *walk, __u32 pc)
{
	__u32 key = walk->piece.shard, zero = 0, lo = walk->piece.row0, len = walk->piece.row_cnt, half;
	const struct at_unwind_row *row;
	struct shard *shard;
	void *map;

	if (!len)
		return AT_RULE_NONE;
	map = bpf_map_lookup_elem(&shards, &key);
	if (!map)
		return AT_RULE_NONE;
	shard = bpf_map_lookup_elem(map, &zero);
	if (!shard)
		return AT_RULE_NONE;
	for (int step = 0; step < AT_SHARD_BITS + 1; step++) {
		half = len >> 1;
		row = &shard->rows[(lo + half) & (AT_SHARD_ROWS - 1)];
		lo += half & ~(__u32)mask_below(pc, row->pc);
		len -= half;
	}
	row = &shard->rows[lo & (AT_SHARD_ROWS - 1)];
	return pc < row->pc ? AT_RULE_NONE : row->rule;
}

static __always_inline void add_frame(struct walk *walk, __u64 frame)
{
	walk->frames[walk->cnt & AT_CHAIN_FRAMES] = frame;
	walk->cnt++;
	walk->hash = (walk->hash ^ frame) * 0x9e3779b97f4a7c15;
	walk->hash ^= walk->hash >> 29;
}

static __always_inline bool walk_ends(struct walk *walk, enum at_end end)
{
	walk->end = end;
	return false;
}

/* A return address comes right after a call: e8 and 4 bytes, or ff /2 and 1 to 7 bytes in all. */
static __always_inline bool is_after_call(__u64 ip)
{
	__u8 code[8] = {};

	if (ip < sizeof(code) || bpf_probe_read_user(code, sizeof(code), (void *)(ip - sizeof(code))))
		return false;
	return code[3] == 0xe8 || (code[6] == 0xff && (code[7] & 0x38) == 0x10) ||
	       (code[5] == 0xff && (code[6] & 0x38) == 0x10) || (code[4] == 0xff && (code[5] & 0x38) == 0x10) ||
	       (code[2] == 0xff && (code[3] & 0x38) == 0x10) || (code[1] == 0xff && (code[2] & 0x38) == 0x10);
}

static __always_inline bool is_guess(__u32 rule)
{
	return AT_RULE_TYPE(rule) == AT_RULE_SPECIAL && AT_RULE_SPECIAL_TYPE(rule) == AT_SPECIAL_CODE;
}

/* The caller of the latest frame, and all that comes of it. */
static __always_inline void guess_marked(struct walk *walk)
{
	if (walk->guess_from > walk->cnt)
		walk->guess_from = walk->cnt;
}

/* Without a table: rbp may be a frame pointer. Whatever comes of it is marked as a guess. */
static __always_inline bool step_guess(struct walk *walk)
{
	__u64 bp = walk->bp, next_bp, ip;

	/* By convention, the outermost frame of a thread. */
	if (!bp)
		return walk_ends(walk, walk->piece.object ? AT_END_OUTERMOST : AT_END_NO_TABLE);
	if (bp - walk->sp >= GUESS_MAX_BYTES || !read_word(walk, bp, &next_bp) || !read_word(walk, bp + 8, &ip))
		return walk_ends(walk, AT_END_NO_TABLE);
	if (!ip)
		return walk_ends(walk, AT_END_OUTERMOST);
	if (!is_after_call(ip))
		return walk_ends(walk, AT_END_NO_TABLE);
	guess_marked(walk);
	walk->sp = bp + 16;
	walk->bp = next_bp;
	walk->has_bx = 0;
	walk->ip = ip;
	walk->is_return = 1;
	return true;
}

/* A signal handler's caller is what the signal interrupted, at exactly its pc. */
static __always_inline bool step_signal(struct walk *walk)
{
	__u64 sp = walk->sp, ip, bp, next_sp;

	if (!read_word(walk, sp + AT_UCONTEXT_RIP, &ip) || !read_word(walk, sp + AT_UCONTEXT_RBP, &bp) ||
	    !read_word(walk, sp + AT_UCONTEXT_RSP, &next_sp))
		return walk_ends(walk, AT_END_STACK);
	walk->ip = ip;
	walk->sp = next_sp;
	walk->bp = bp;
	walk->has_bx = read_word(walk, sp + AT_UCONTEXT_RBX, &walk->bx);
	walk->is_return = 0;
	return true;
}

/* From a Go thread's system stack to the goroutine that called it. */
static __always_inline bool step_go(struct walk *walk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 key = walk->piece.go;
	struct at_go *go = bpf_map_lookup_elem(&go_layouts, &key);
	__u64 g, m, ip;

	if (!go || !go->g_m)
		return walk_ends(walk, AT_END_NO_TABLE);
	if (!read_word(walk, task->thread.fsbase - 8, &g) || !read_word(walk, g + go->g_m, &m) ||
	    !read_word(walk, m + go->m_curg, &g))
		return walk_ends(walk, AT_END_STACK);
	if (!g)
		return walk_ends(walk, AT_END_OUTERMOST);
	if (!read_word(walk, g + go->sched_sp, &walk->sp) || !read_word(walk, g + go->sched_bp, &walk->bp) ||
	    !read_word(walk, g + go->sched_pc, &ip))
		return walk_ends(walk, AT_END_STACK);
	walk->ip = ip;
	walk->has_bx = 0;
	walk->is_return = 0; /* it is the start of runtime.systemstack_switch */
	return ip ? true : walk_ends(walk, AT_END_OUTERMOST);
}

/* False: what it takes is not known, and the walk has ended. */
static __always_inline bool find_cfa(struct walk *walk, __u32 rule, __u64 pc, __u64 *cfa)
{
	__u64 bytes = AT_RULE_OFFSET(rule) * 8;

	switch (AT_RULE_TYPE(rule)) {
	case AT_RULE_SP: *cfa = walk->sp + bytes; return true;
	case AT_RULE_BP: *cfa = walk->bp + bytes; return true;
	case AT_RULE_SP_FAR: *cfa = walk->sp + AT_RULE_FAR_OFFSET(rule) * 8; return true;
	case AT_RULE_DEREF: return read_word(walk, walk->bp - bytes, cfa) || walk_ends(walk, AT_END_STACK);
	default: break;
	}
	switch (AT_RULE_SPECIAL_TYPE(rule)) {
	case AT_SPECIAL_PLT: *cfa = walk->sp + 8 + ((pc & 15) >= AT_RULE_SPECIAL_OFFSET(rule) ? 8 : 0); return true;
	case AT_SPECIAL_CODE: *cfa = walk->sp + AT_RULE_SPECIAL_OFFSET(rule) * 8; return true;
	case AT_SPECIAL_BX:
		*cfa = walk->bx + AT_RULE_SPECIAL_OFFSET(rule) * 8;
		return walk->has_bx || walk_ends(walk, AT_END_NO_TABLE);
	default: return walk_ends(walk, AT_END_NO_TABLE);
	}
}

/* The caller's rbx. That it is not known ends only what needs it. */
static __always_inline void restore_bx(struct walk *walk, __u32 rule, __u64 cfa)
{
	__u32 saved = AT_RULE_TYPE(rule) == AT_RULE_SP_FAR ? AT_RBX_LOST : AT_RULE_RBX(rule);

	if (saved == AT_RBX_LOST)
		walk->has_bx = 0;
	else if (saved)
		walk->has_bx = read_word(walk, cfa - saved * 8, &walk->bx);
}

/* The caller by a rule that gives its CFA. */
static __always_inline bool step_cfa(struct walk *walk, __u32 rule, __u64 pc)
{
	__u64 cfa, ip, bp = walk->bp;
	__u32 saved = AT_RULE_RBP(rule);

	if (!find_cfa(walk, rule, pc, &cfa))
		return false;
	if (cfa <= walk->sp)
		return walk_ends(walk, AT_END_STUCK);
	if (!read_word(walk, cfa - 8, &ip))
		return walk_ends(walk, AT_END_STACK);
	if (is_guess(rule)) {
		if (ip && !is_after_call(ip))
			return walk_ends(walk, AT_END_NO_TABLE);
		guess_marked(walk);
	}
	if (saved == AT_RBP_AT_RBP) {
		if (!read_word(walk, bp, &walk->bp))
			return walk_ends(walk, AT_END_STACK);
	} else if (saved && !read_word(walk, cfa - saved * 8, &walk->bp)) {
		return walk_ends(walk, AT_END_STACK);
	}
	restore_bx(walk, rule, cfa);
	walk->sp = cfa;
	walk->ip = ip;
	walk->is_return = 1;
	return ip ? true : walk_ends(walk, AT_END_OUTERMOST);
}

/* One frame. False: the walk has ended. */
static __always_inline bool walk_step(struct walk *walk)
{
	__u64 pc = walk->ip - walk->is_return;
	__u32 rule, object_pc;

	if (walk->cnt >= AT_CHAIN_FRAMES)
		return walk_ends(walk, AT_END_DEEP);
	if (pc >> ADDRESS_MAX_BIT)
		return walk_ends(walk, AT_END_BAD_ADDRESS);
	if (pc - walk->piece.start >= walk->piece.bytes && !find_piece(walk, pc))
		return false;
	if (!walk->piece.object) {
		walk->is_raw = 1;
		add_frame(walk, walk->ip);
		return step_guess(walk);
	}
	object_pc = walk->piece.pc0 + (pc - walk->piece.start);
	rule = find_rule(walk, object_pc);
	/* No call leads to what a signal handler returns to. */
	if (AT_RULE_TYPE(rule) == AT_RULE_SIGNAL)
		object_pc += walk->is_return;
	add_frame(walk, (__u64)walk->piece.object << AT_FRAME_BITS | object_pc);
	switch (AT_RULE_TYPE(rule)) {
	case AT_RULE_NONE: return step_guess(walk);
	case AT_RULE_SIGNAL: return step_signal(walk);
	case AT_RULE_END: return walk_ends(walk, AT_END_OUTERMOST);
	default: break;
	}
	if (rule == AT_RULE_OF_SPECIAL(AT_SPECIAL_GO, 0, 0, 0))
		return step_go(walk);
	return step_cfa(walk, rule, pc);
}

static long walk_loop(__u32 i, void *ctx)
{
	return !walk_step(*(struct walk **)ctx);
}

/* Walks from the current thread's user registers. */
static __always_inline void walk_run(struct walk *walk, struct task_struct *task, __u32 tgid)
{
	const struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
	struct at_unwind_process *process = pieces_of(tgid);
	struct walk *ctx = walk;

	walk->ip = regs->ip;
	walk->sp = regs->sp;
	walk->bp = regs->bp;
	walk->bx = regs->bx;
	walk->has_bx = 1;
	walk->is_return = 0;
	walk->hash = cfg_chain_seed;
	walk->cnt = 0;
	walk->guess_from = AT_CHAIN_FRAMES + 1;
	walk->is_raw = 0;
	walk->end = AT_END_DEEP;
	walk->first = process ? process->first : 0;
	walk->piece_cnt = process ? process->cnt : 0;
	walk->piece.bytes = 0;
	for (int i = 0; i < BLOCK_CNT; i++)
		walk->block_at[i] = 1;
	bpf_loop(AT_CHAIN_FRAMES + 1, walk_loop, &ctx, 0);
}

#endif
