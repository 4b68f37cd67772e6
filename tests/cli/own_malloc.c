/* SPDX-License-Identifier: BSD-2-Clause */
/* A program with an allocator of its own: a preloaded one cannot replace it. */
#include <stddef.h>
#include <string.h>

static char arena[1 << 20] __attribute__((aligned(16)));
static size_t used;

void *malloc(size_t bytes);
void *calloc(size_t cnt, size_t bytes);
void *realloc(void *block, size_t bytes);
void free(void *block);

void *malloc(size_t bytes)
{
	void *block = arena + used;

	used += (bytes + 15) & ~(size_t)15;
	return used <= sizeof(arena) ? block : NULL;
}

void *calloc(size_t cnt, size_t bytes)
{
	return malloc(cnt * bytes); /* never reused, so still zero */
}

void *realloc(void *block, size_t bytes)
{
	void *moved = malloc(bytes);

	if (moved && block)
		memcpy(moved, block, bytes);
	return moved;
}

void free(void *block)
{
	(void)block;
}

int main(void)
{
	char *block = malloc(100);

	return block >= arena && block < arena + sizeof(arena) ? 0 : 1;
}
