/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program whose cost its environment sets: TRADE_CALLS failing munmaps, and
 * TRADE_MIB MiB of memory that it writes to and keeps until its end.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, MIB = 1 << 20 };

static long number(const char *name)
{
	const char *text = getenv(name);

	return text ? atol(text) : 0;
}

int main(void)
{
	size_t bytes = (size_t)number("TRADE_MIB") * MIB;
	char *kept = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (kept == MAP_FAILED)
		return 1;
	for (size_t at = 0; at < bytes; at += PAGE_BYTES)
		kept[at] = 1;
	for (long i = number("TRADE_CALLS"); i > 0; i--)
		if (syscall(SYS_munmap, 1, 0) != -1)
			return 1;
	return 0;
}
