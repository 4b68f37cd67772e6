/* SPDX-License-Identifier: BSD-2-Clause */
/* The shortest life: one mmap and the end. Linked statically. */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
	syscall(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	_exit(0);
}
