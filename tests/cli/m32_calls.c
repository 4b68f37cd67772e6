/* SPDX-License-Identifier: BSD-2-Clause */
/* A 32-bit program: 101 mappings made and removed, and some use of malloc. */
#include <stdlib.h>
#include <sys/mman.h>

int main(void)
{
	for (int i = 0; i < 101; i++) {
		void *map =
			mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (map == MAP_FAILED || munmap(map, 1 << 20))
			return 1;
		free(malloc(1000));
	}
	return 0;
}
