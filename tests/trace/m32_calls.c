/* SPDX-License-Identifier: BSD-2-Clause */
/* A 32-bit program: 1,009 pairs of mmap2 and munmap, beside those of its start. */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
	for (int i = 0; i < 1009; i++) {
		long mem = syscall(SYS_mmap2, 0, 200000, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		syscall(SYS_munmap, mem, 200000);
	}
	return 0;
}
