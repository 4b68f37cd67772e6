/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What kernel side and CLI agree on for callchains: tables to unwind by, where
 * they lie, and the chains that come back. Like bpf/event.h includes nothing;
 * the including file provides __u8 ... __u64.
 *
 * An object is an ELF file (or the vdso) with a number from 1; a pc is an
 * address relative to its lowest one. Rows say how to get from a frame to its
 * caller; they lie in shards. Pieces are the executable mappings of a process.
 */
#ifndef ALLOCTRACE_BPF_CALLCHAIN_H
#define ALLOCTRACE_BPF_CALLCHAIN_H

enum {
	AT_SHARD_BITS = 17,
	AT_SHARD_ROWS = 1 << AT_SHARD_BITS, /* 1 MiB of rows */
	AT_SHARD_CNT = 64,
	AT_PIECE_BITS = 16,
	AT_PIECE_CNT = 1 << AT_PIECE_BITS, /* of all processes */
	AT_PROCESS_PIECES = 1 << 14,       /* of one process at most */
	AT_SEGMENT_CNT = 4,                /* executable segments of an object */
	AT_CHUNK_CNT = 8,                  /* shards over which its rows may lie */
	AT_CHAIN_FRAMES = 127,
	AT_CHAIN_CNT = 1 << 16,
	AT_PATH_CNT = 1 << 17,
	AT_FRAME_CHUNK = 1 << 17, /* frames a value of the frame map: 1 MiB */
	AT_FRAME_CHUNKS = 8,
	AT_STACK_BYTES = 16384, /* of stack that a note can hold */
	AT_NOTE_RING_BYTES = 16 << 20,
};

/* From `pc` up to the next row's. rule: type in bits 0-2, offset in bits 3-19, rbx in bits 20-23, rbp in bits 24-31. */
struct at_unwind_row {
	__u32 pc;
	__u32 rule;
};

/*
 * Types of rules: CFA is the caller's rsp after its call, the return address
 * lies below it. Offsets are in words of 8 bytes.
 */
enum at_rule {
	AT_RULE_NONE = 0,    /* nothing known */
	AT_RULE_SP = 1,      /* CFA = rsp + offset */
	AT_RULE_BP = 2,      /* CFA = rbp + offset */
	AT_RULE_SP_FAR = 3,  /* CFA = rsp + offset, which has rbx's bits, too: rbx is not known after it */
	AT_RULE_DEREF = 4,   /* CFA = *(rbp - offset): gcc's realigned frames */
	AT_RULE_SIGNAL = 5,  /* rsp points to a ucontext */
	AT_RULE_END = 6,     /* no caller */
	AT_RULE_SPECIAL = 7, /* enum at_special in bits 3-5, its offset in bits 6-19 */
};
enum at_special {
	AT_SPECIAL_INVALID = 0,
	AT_SPECIAL_GO = 1,   /* from a system stack to its goroutine */
	AT_SPECIAL_PLT = 2,  /* CFA = rsp + 8, + 8 more where (pc & 15) >= offset (in bytes) */
	AT_SPECIAL_BX = 3,   /* CFA = rbx + offset: the loader's lazy binding */
	AT_SPECIAL_CODE = 4, /* CFA = rsp + offset, by what the code seems to do: a guess */
};
/* rbp: 0 = unchanged, AT_RBP_AT_RBP = *rbp, else at CFA - 8 * n. rbx: 0 = unchanged, AT_RBX_LOST, else at CFA - 8 * n.
 */
enum {
	AT_OFFSET_MAX = 0x1ffff,
	AT_FAR_MAX = 0x1fffff,
	AT_SPECIAL_OFFSET_MAX = 0x3fff,
	AT_RBP_MAX = 0xfe,
	AT_RBP_AT_RBP = 0xff,
	AT_RBX_MAX = 0xe,
	AT_RBX_LOST = 0xf,
};

#define AT_RULE(type, offset, rbp, rbx) ((__u32)(type) | (__u32)(offset) << 3 | (__u32)(rbx) << 20 | (__u32)(rbp) << 24)
#define AT_RULE_FAR(offset, rbp) ((__u32)AT_RULE_SP_FAR | (__u32)(offset) << 3 | (__u32)(rbp) << 24)
#define AT_RULE_OF_SPECIAL(special, offset, rbp, rbx) \
	AT_RULE(AT_RULE_SPECIAL, (__u32)(special) | (__u32)(offset) << 3, rbp, rbx)
#define AT_RULE_TYPE(rule) ((rule)&7)
#define AT_RULE_OFFSET(rule) ((rule) >> 3 & AT_OFFSET_MAX)
#define AT_RULE_FAR_OFFSET(rule) ((rule) >> 3 & AT_FAR_MAX)
#define AT_RULE_SPECIAL_TYPE(rule) ((rule) >> 3 & 7)
#define AT_RULE_SPECIAL_OFFSET(rule) ((rule) >> 6 & AT_SPECIAL_OFFSET_MAX)
#define AT_RULE_RBX(rule) ((rule) >> 20 & 0xf)
#define AT_RULE_RBP(rule) ((rule) >> 24)

/* x86-64: offsets of the saved registers in a signal's ucontext. */
enum { AT_UCONTEXT_RBP = 120, AT_UCONTEXT_RBX = 128, AT_UCONTEXT_RSP = 160, AT_UCONTEXT_RIP = 168 };

/* Offsets in the Go runtime's structures, by which a system stack leads back to its goroutine. 0 = not known. */
struct at_go {
	__u16 g_m, m_curg, sched_sp, sched_bp, sched_pc;
	__u16 pad[3];
};

/* Rows of an object that lie in one shard; sorted by pc. */
struct at_chunk {
	__u32 pc0; /* of the first row */
	__u32 row0, row_cnt;
	__u32 shard;
};

struct at_piece {
	__u64 start;
	__u32 bytes;
	__u32 pc0; /* of start */
	__u32 row0, row_cnt;
	__u16 shard;
	__u16 object; /* 0: memory without a file, where frame pointers are the only guess */
	__u32 go;     /* its AT_SPECIAL_GO rules: index into the table of struct at_go */
};
_Static_assert(sizeof(struct at_piece) == 32, "at_piece has no holes");

/* The pieces of a process, sorted by start: true as long as nothing was mapped since. Key: tgid. */
struct at_unwind_process {
	__u32 first, cnt;
	__u32 generation; /* of the mappings that they describe */
	__u32 pad;
};
/* What the kernel side keeps of a process's mappings; an array by tgid. */
struct at_mappings {
	__u32 generation;
	__u32 is_noted; /* a note is on its way; user space clears it before it looks */
};

/* An object, for mappings that are in no piece yet. Key: its file, as the kernel sees it. */
struct at_file {
	__u64 dev, inode;
};
struct at_segment {
	__u64 file_offset, bytes;
	__u32 pc0, pad;
};
struct at_object {
	__u32 object, go;
	__u32 segment_cnt, chunk_cnt;
	struct at_segment segments[AT_SEGMENT_CNT];
	struct at_chunk chunks[AT_CHUNK_CNT];
};

/* Why a chain ends: X(id, JSON key, text); "" = it is complete. */
#define AT_ENDS(X)                                                              \
	X(OUTERMOST, "outermost", "")                                           \
	X(NO_TABLE, "no_table", "no unwind table in")                           \
	X(NO_MAPPING, "no_mapping", "the code's mapping was not known in time") \
	X(BAD_ADDRESS, "bad_address", "the return address is not in code")      \
	X(STACK, "stack", "the stack could not be read")                        \
	X(STUCK, "stuck", "the frame leads nowhere")                            \
	X(DEEP, "deep", "more than 127 frames")                                 \
	X(LOST, "lost", "no room for the callchain")

#define X(id, key, text) AT_END_##id,
enum at_end { AT_END_INVALID = 0, AT_ENDS(X) AT_END_CNT };
#undef X

/*
 * A frame: object << AT_FRAME_BITS | pc, or the address where the object is 0. The innermost comes first. Of a
 * return address it is the byte before, which belongs to the call; but not of the code that signal handlers return to.
 */
enum { AT_FRAME_BITS = 48 };

/* Key: a hash of its frames. */
struct at_chain {
	__u32 first;     /* index of its first frame */
	__u16 cnt;       /* frames */
	__u8 end;        /* AT_END_* */
	__u8 guess_from; /* frames from this one on were found by a guess; >= cnt: none */
	__u32 tgid;      /* one that had it */
	__u32 pad;
};

/* The calls of one class on one chain. chain 0: there was no room for the chain. */
struct at_path_key {
	__u64 chain;
	__u32 pid, tid; /* in user space's pid namespace; tid: 0 unless kept by thread */
	__u16 class, phase;
	__u32 pad;
};
struct at_path {
	__u64 call_cnt, sum_ns, bytes;
};

/* What the kernel side tells at once. */
enum at_note_kind {
	AT_NOTE_INVALID = 0,
	AT_NOTE_MAPPED, /* executable mappings changed */
	AT_NOTE_EXEC,
	AT_NOTE_FORK, /* parent_tgid's pieces are its own, too */
	AT_NOTE_EXIT,
	AT_NOTE_CUT, /* a chain came to code that is not known yet */
};
struct at_note {
	__u32 kind, tgid;
	__u32 parent_tgid;
	__u32 pid; /* of tgid in user space's pid namespace; 0: it has none there */
};
/* AT_NOTE_CUT: all that is needed to go on. */
struct at_cut {
	struct at_note note;
	struct at_path_key key; /* under which the call is counted */
	struct at_path path;
	struct at_file file; /* of the mapping; 0: not known */
	__u64 vm_start, vm_end, vm_file_offset;
	__u64 ip, sp, bp, bx, fsbase;
	__u32 is_return; /* ip is a return address */
	__u32 has_bx;    /* bx is known */
	__u32 cnt;       /* frames so far */
	__u32 guess_from;
	__u32 stack_bytes; /* valid in stack, from stack_at on */
	__u32 generation;  /* of the mappings */
	__u64 stack_at;
	__u64 frames[AT_CHAIN_FRAMES + 1];
	__u8 stack[AT_STACK_BYTES];
};

#endif
