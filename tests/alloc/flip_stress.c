/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates, resizes and frees blocks of all sizes from several threads, also
 * across threads, starts short threads in between, and checks the contents of
 * every block before it lets go of it. For runs in which somebody changes the
 * policies meanwhile. Prints "ready", works until its standard input ends, and
 * then frees everything and prints "ok BLOCKS". A block with wrong contents
 * ends it with one line and abort().
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORKERS = 3, SLOTS = 48, EXCHANGE_SLOTS = 64 };

/* At the start of every block; the rest repeats `seed`, position mixed in. */
struct block {
	size_t bytes;
	uint64_t seed;
};

static atomic_bool is_stopping;
static _Atomic(struct block *) exchange[EXCHANGE_SLOTS];
static atomic_ulong block_cnt;

static uint64_t next(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 2685821657736338717ull;
}

/* Of all orders of magnitude: tiny, medium, at page and mapping edges, large. */
static size_t pick_bytes(uint64_t *state)
{
	static const unsigned shifts[] = {0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12, 13, 14, 15, 16, 17, 18, 20};
	unsigned shift = shifts[next(state) % (sizeof(shifts) / sizeof(*shifts))];

	return sizeof(struct block) + (1ull << shift) + next(state) % (1ull << shift);
}

/*
 * The next word that carries contents: every one of a small block, of a large
 * one those around every page's edges and its end, so that the time goes to the
 * allocator.
 */
static size_t next_word(size_t word, size_t words)
{
	word++;
	if (words <= 1024 || word % 512 < 2 || word % 512 > 509 || word + 4 > words)
		return word;
	word += 510 - word % 512;
	return word < words - 4 ? word : words - 4;
}

static void fill(struct block *block, size_t bytes, uint64_t seed)
{
	uint64_t *words = (uint64_t *)block;

	block->bytes = bytes;
	block->seed = seed;
	for (size_t i = 2; i < bytes / 8; i = next_word(i, bytes / 8))
		words[i] = seed + i;
}

static void check(const struct block *block, size_t common_bytes)
{
	const uint64_t *words = (const uint64_t *)block;
	size_t bytes = block->bytes;

	for (size_t i = 2; i < common_bytes / 8; i = next_word(i, bytes / 8)) {
		if (words[i] == block->seed + i)
			continue;
		fprintf(stderr, "block of %zu bytes at %p: word %zu is %jx, not %jx\n", bytes, (const void *)block, i,
			(uintmax_t)words[i], (uintmax_t)(block->seed + i));
		abort();
	}
}

static struct block *allocate(uint64_t *state)
{
	size_t bytes = pick_bytes(state);
	struct block *block = next(state) % 8 ? malloc(bytes) : aligned_alloc(64, (bytes + 63) / 64 * 64);

	if (!block) {
		perror("malloc");
		abort();
	}
	fill(block, bytes, next(state));
	atomic_fetch_add_explicit(&block_cnt, 1, memory_order_relaxed);
	return block;
}

static void release(struct block *block)
{
	if (!block)
		return;
	check(block, block->bytes);
	free(block);
}

static struct block *resize(struct block *block, uint64_t *state)
{
	size_t old_bytes = block->bytes, new_bytes = pick_bytes(state);

	/* Often by a little, as policy realloc cares about. */
	if (next(state) % 2)
		new_bytes = old_bytes > 8192 && next(state) % 2 ? old_bytes - 4096 : old_bytes + 4096;
	check(block, old_bytes);
	block = realloc(block, new_bytes);
	if (!block) {
		perror("realloc");
		abort();
	}
	check(block, old_bytes < new_bytes ? old_bytes : new_bytes);
	fill(block, new_bytes, next(state));
	return block;
}

static void *free_in_thread(void *arg)
{
	release(arg);
	return NULL;
}

static void hand_to_thread(struct block *block)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, free_in_thread, block)) {
		perror("pthread_create");
		abort();
	}
	pthread_join(thread, NULL);
}

static void *work(void *arg)
{
	uint64_t state = (uintptr_t)arg * 0x9e3779b97f4a7c15ull + 1;
	struct block *slots[SLOTS] = {NULL};

	while (!atomic_load_explicit(&is_stopping, memory_order_relaxed)) {
		struct block **slot = &slots[next(&state) % SLOTS];

		switch (next(&state) % 16) {
		case 0:
		case 1:
		case 2:
		case 3:
			/* Somebody else frees mine; I get somebody else's. */
			*slot = atomic_exchange(&exchange[next(&state) % EXCHANGE_SLOTS], *slot);
			break;
		case 4:
		case 5:
		case 6:
			if (*slot)
				*slot = resize(*slot, &state);
			break;
		case 7:
			if (next(&state) % 64 == 0) {
				hand_to_thread(*slot);
				*slot = NULL;
			}
			break;
		default: release(*slot); *slot = next(&state) % 4 ? allocate(&state) : NULL;
		}
	}
	for (int i = 0; i < SLOTS; i++)
		release(slots[i]);
	return NULL;
}

int main(void)
{
	pthread_t workers[WORKERS];
	char byte;

	for (uintptr_t i = 0; i < WORKERS; i++) {
		if (pthread_create(&workers[i], NULL, work, (void *)(i + 1))) {
			perror("pthread_create");
			return 1;
		}
	}
	if (write(STDOUT_FILENO, "ready\n", 6) != 6)
		return 1;
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	atomic_store(&is_stopping, true);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(workers[i], NULL);
	for (int i = 0; i < EXCHANGE_SLOTS; i++)
		release(exchange[i]);
	printf("ok %lu\n", atomic_load(&block_cnt));
	return 0;
}
