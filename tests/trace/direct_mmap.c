/* SPDX-License-Identifier: BSD-2-Clause */
/* The program itself maps, writes ten pages and unmaps, CNT times, beside a heap that a policy can change. */
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096, DIRECT_BYTES = 1 << 20, HEAP_BYTES = 48 * PAGE_BYTES };

static char *volatile kept;

int main(int argc, char **argv)
{
	size_t cnt = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;

	for (size_t i = 0; i < cnt; i++) {
		char *pages = mmap(NULL, DIRECT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (pages == MAP_FAILED)
			return 1;
		for (size_t at = 0; at < (size_t)10 * PAGE_BYTES; at += PAGE_BYTES)
			pages[at] = 1;
		munmap(pages, DIRECT_BYTES);
		kept = malloc(HEAP_BYTES);
		kept[0] = 1;
		free(kept);
	}
	return 0;
}
