/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libFuzzer target: the input is a sequence of operations on the malloc family,
 * with threads, policies, tunables and refused memory syscalls in between,
 * against a shadow model and the invariant walkers. Linked with the allocator
 * (instrumented), which also serves libFuzzer itself. Reports by abort().
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/atmalloc.h"
#include "alloc/heap.h"

#define SLOT_CNT 64
#define DEPTH_MAX 3
/* Blocks together ask for no more: the target shares its machine. */
#define LIVE_MAX_BYTES ((size_t)64 << 20)
/* Stamped bytes a block, spread evenly, and the last. */
#define STAMP_CNT 8

#define CHECK(condition)                                                                                    \
	do {                                                                                                \
		if (!(condition)) {                                                                         \
			fprintf(stderr, "%s:%d: %s, operation %u\n", __FILE__, __LINE__, #condition, step); \
			abort();                                                                            \
		}                                                                                           \
	} while (0)

struct block {
	unsigned char *p;
	size_t bytes;
	unsigned char stamp;
};

static struct block blocks[SLOT_CNT];
static size_t live_bytes;
static unsigned step;
static const uint8_t *input, *input_end;
static unsigned depth;

/* ---- memory syscalls that fail when the input says so: the linker wraps them (Makefile) ---- */

#define CALLS(X)                                                                                   \
	X(map, (size_t bytes, void **addr), (bytes, addr))                                         \
	X(reserve, (void *hint, size_t bytes, void **addr), (hint, bytes, addr))                   \
	X(unmap, (void *addr, size_t bytes), (addr, bytes))                                        \
	X(commit, (void *addr, size_t bytes), (addr, bytes))                                       \
	X(release, (void *addr, size_t bytes), (addr, bytes))                                      \
	X(remap, (void *addr, size_t old_bytes, size_t new_bytes, bool may_move, void **new_addr), \
	  (addr, old_bytes, new_bytes, may_move, new_addr))

#define X(name, params, args) CALL_##name,
enum call { CALLS(X) CALL_CNT };
#undef X

static uint8_t fail_mask; /* bit: enum call */
static unsigned fail_after, fail_cnt;
static bool has_failed; /* since the operation began */

static bool fails(enum call call)
{
	if (!(fail_mask >> call & 1) || fail_cnt == 0 || (fail_after && fail_after--))
		return false;
	fail_cnt--;
	has_failed = true;
	return true;
}

#define X(name, params, args)                                                    \
	int __real_atm_os_##name params;                                         \
	int __wrap_atm_os_##name params;                                         \
	int __wrap_atm_os_##name params                                          \
	{                                                                        \
		return fails(CALL_##name) ? -ENOMEM : __real_atm_os_##name args; \
	}
CALLS(X)
#undef X

/* ---- the input ---- */

static uint8_t take_byte(void)
{
	return input < input_end ? *input++ : 0;
}

/* Sizes of every kind of block, the edges of the kinds more often. */
static size_t take_bytes(void)
{
	static const size_t edges[] = {0,    1,    16,    17,    128,   129,     1024,    1025,    3584,    4095,
				       4096, 4097, 16384, 16385, 65536, 1048575, 1048576, 1048577, 4194304, 8388608};
	unsigned kind = take_byte(), low = take_byte();
	size_t value = low | (size_t)(kind & 31) << 8;

	switch (kind >> 5) {
	case 0:
	case 1: return value % 1300;
	case 2: return value;
	case 3: return value * 16;
	case 4: return value * 256;
	case 5: return value % 512 * 4096;
	case 6: return value % 1100 * 4096 - (value % 3 == 1) + (value % 3 == 2);
	default: return edges[low % (sizeof(edges) / sizeof(*edges))];
	}
}

/* ---- the model ---- */

static size_t stamp_at(const struct block *block, size_t i)
{
	return i == STAMP_CNT ? block->bytes - 1 : block->bytes / STAMP_CNT * i;
}

static void stamp(struct block *block)
{
	block->stamp = (unsigned char)(step * 37 + 1);
	for (size_t i = 0; block->bytes && i <= STAMP_CNT; i++)
		block->p[stamp_at(block, i)] = block->stamp;
}

static void check_stamp(const struct block *block, size_t kept_bytes)
{
	for (size_t i = 0; block->bytes && i <= STAMP_CNT; i++)
		if (stamp_at(block, i) < kept_bytes)
			CHECK(block->p[stamp_at(block, i)] == block->stamp);
}

/* p, which may be NULL only when a memory syscall was refused, becomes the block. */
static void settle(struct block *block, void *p, size_t bytes, size_t align)
{
	if (!p) {
		CHECK(has_failed);
		return;
	}
	CHECK(((uintptr_t)p & (align - 1)) == 0);
	CHECK(malloc_usable_size(p) >= bytes);
	block->p = p;
	block->bytes = bytes;
	live_bytes += bytes;
	stamp(block);
}

static void release(struct block *block)
{
	check_stamp(block, block->bytes);
	live_bytes -= block->bytes;
	errno = 4711;
	free(block->p);
	CHECK(errno == 4711);
	block->p = NULL;
}

static void do_malloc(struct block *block, size_t bytes)
{
	settle(block, malloc(bytes), bytes, 16);
}

static void do_calloc(struct block *block, size_t bytes)
{
	unsigned char *p = calloc(bytes, 1);

	/* All of a small block, samples of a large one: each page of it costs a fault. */
	for (size_t i = 0; p && i < bytes; i += bytes <= 8192 ? 1 : bytes / 61)
		CHECK(p[i] == 0);
	settle(block, p, bytes, 16);
}

static void do_aligned(struct block *block, size_t bytes)
{
	size_t align = (size_t)8 << take_byte() % 20;
	void *p = NULL;
	int err = posix_memalign(&p, align, bytes);

	CHECK(err == (p ? 0 : ENOMEM));
	settle(block, p, bytes, align);
}

static void do_realloc(struct block *block, size_t bytes)
{
	size_t kept_bytes = bytes < block->bytes ? bytes : block->bytes;
	void *p;

	if (bytes == 0)
		bytes = kept_bytes = 1;
	if (kept_bytes > block->bytes)
		kept_bytes = block->bytes;
	check_stamp(block, block->bytes);
	p = realloc(block->p, bytes);
	if (!p) { /* the block is as it was */
		CHECK(has_failed);
		check_stamp(block, block->bytes);
		return;
	}
	block->p = p;
	check_stamp(block, kept_bytes);
	live_bytes -= block->bytes;
	settle(block, p, bytes, 16);
}

static void set_tune(uint8_t dice)
{
	static const char *const tunes[] = {"grow=copy",         "grow=mremap",      "realloc_keep=0",
					    "realloc_keep=256K", "trim_threshold=0", "trim_threshold=8K",
					    "commit_batch=0",    "commit_batch=600", "commit_hold=0",
					    "commit_hold=10000", "stack_cache=0",    "stack_cache=40M"};

	CHECK(atmalloc_set_tune(tunes[dice % (sizeof(tunes) / sizeof(*tunes))]) == 0);
}

static void set_policy(uint8_t bits)
{
	static const char *const sets[] = {"all",     "none",  "-stack",  "-realloc",
					   "-commit", "-trim", "realloc", "commit"};

	CHECK(atmalloc_set_policy(sets[bits % (sizeof(sets) / sizeof(*sets))]) == 0);
}

static void operate(unsigned op_cnt);

static void *operate_in_thread(void *arg)
{
	operate(*(unsigned *)arg);
	return NULL;
}

/* The next operations run in a thread of their own, which then ends. */
static void do_thread(unsigned op_cnt)
{
	pthread_t thread;

	if (depth == DEPTH_MAX)
		return;
	depth++;
	if (pthread_create(&thread, NULL, operate_in_thread, &op_cnt) == 0)
		pthread_join(thread, NULL);
	depth--;
}

static void do_block(unsigned op, struct block *block)
{
	size_t bytes;

	if (op >= 128 || (op >= 64 && !block->p)) { /* free, more often than anything else */
		if (block->p)
			release(block);
		return;
	}
	bytes = take_bytes();
	if (live_bytes + bytes > LIVE_MAX_BYTES)
		return;
	if (op >= 64) {
		/* Half of them by little, as policy realloc cares about. */
		if (op & 1)
			bytes = block->bytes - (block->bytes < bytes % 70000 ? block->bytes : bytes % 70000);
		do_realloc(block, bytes);
		return;
	}
	if (block->p)
		release(block);
	if (op < 32)
		do_malloc(block, bytes);
	else if (op < 48)
		do_calloc(block, bytes);
	else
		do_aligned(block, bytes);
}

static void operate(unsigned op_cnt)
{
	while (op_cnt-- && input < input_end) {
		unsigned op = take_byte(), arg = take_byte();

		step++;
		has_failed = false;
		if (op < 228)
			do_block(op, &blocks[arg % SLOT_CNT]);
		else if (op < 234)
			do_thread(arg % 32);
		else if (op < 239)
			set_policy((uint8_t)arg);
		else if (op < 245)
			set_tune((uint8_t)arg);
		else if (op < 248)
			malloc_trim(arg % 2 * 65536);
		else {
			fail_mask = (uint8_t)arg;
			fail_after = take_byte() % 4;
			fail_cnt = 1 + op % 4;
		}
		if (atm_heap && step % 4 == 0)
			atm_check_heap(atm_heap);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	input = data;
	input_end = data + bytes;
	step = 0;
	fail_mask = 0;
	operate(UINT32_MAX);
	fail_mask = 0;
	for (int i = 0; i < SLOT_CNT; i++)
		if (blocks[i].p)
			release(&blocks[i]);
	CHECK(live_bytes == 0);
	CHECK(atmalloc_set_policy("all") == 0);
	CHECK(atmalloc_set_tune("grow=mremap,realloc_keep=256K,trim_threshold=0,commit_batch=0,commit_hold=10000,"
				"stack_cache=40M") == 0);
	malloc_trim(0);
	if (atm_heap)
		atm_check_heap(atm_heap);
	return 0;
}
