/* SPDX-License-Identifier: BSD-2-Clause */
/* Maps as many pages one by one as its argument says, and ends at once: a child that is over before a slow tracer is
 * on. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int mappings = argc > 1 ? atoi(argv[1]) : 1;

	for (int i = 0; i < mappings; i++)
		if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			_exit(1);
	_exit(0);
}
