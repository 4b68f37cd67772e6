/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The only file that makes memory syscalls, and the place where they are
 * counted; the contract is in os.h.
 */
#include "alloc/os.h"

#include <linux/mman.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "alloc/policy.h"
#include "alloc/probe.h"
#include "alloc/syscall.h"

size_t atm_page_bytes;
unsigned atm_page_shift;

void atm_os_init(void)
{
	size_t bytes = getauxval(AT_PAGESZ);

	atm_page_shift = (unsigned)__builtin_ctzl(bytes);
	atm_page_bytes = bytes;
}

static long counted(enum atm_kind kind, long ret)
{
	atm_count_call(kind, ret);
	return ret;
}

static int map(enum atm_kind kind, void *at, size_t bytes, int prot, int flags, void **addr)
{
	long ret = counted(kind, atm_syscall(SYS_mmap, (long)at, (long)bytes, prot, flags, -1, 0));

	if (ret < 0 && ret > -4096)
		return (int)ret;
	*addr = (void *)ret;
	return 0;
}

int atm_os_map(size_t bytes, void **addr)
{
	return map(ATM_KIND_MMAP_ANON, NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, addr);
}

int atm_os_reserve(void *hint, size_t bytes, void **addr)
{
	return map(ATM_KIND_MMAP_RESERVE, hint, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, addr);
}

int atm_os_map_stack(size_t bytes, int prot, void **addr)
{
	return map(ATM_KIND_MMAP_STACK, NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, addr);
}

int atm_os_map_shared(void *addr, size_t bytes, int fd, uint64_t offset)
{
	/* Counted by the caller: the counters themselves are what is replaced here. */
	long ret = atm_syscall(SYS_mmap, (long)addr, (long)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
			       (long)offset);

	return ret == (long)addr ? 0 : (int)ret;
}

int atm_os_map_over(void *addr, size_t bytes)
{
	return map(ATM_KIND_MMAP_FIXED, addr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		   &addr);
}

int atm_os_unmap(void *addr, size_t bytes)
{
	return (int)counted(ATM_KIND_MUNMAP, atm_syscall(SYS_munmap, (long)addr, (long)bytes, 0, 0, 0, 0));
}

int atm_os_commit(void *addr, size_t bytes)
{
	return (int)counted(ATM_KIND_MPROTECT_COMMIT,
			    atm_syscall(SYS_mprotect, (long)addr, (long)bytes, PROT_READ | PROT_WRITE, 0, 0, 0));
}

int atm_os_guard(void *addr, size_t bytes)
{
	return (int)counted(ATM_KIND_MPROTECT_GUARD,
			    atm_syscall(SYS_mprotect, (long)addr, (long)bytes, PROT_NONE, 0, 0, 0));
}

int atm_os_release(void *addr, size_t bytes)
{
	ATM_PROBE(decommit, addr, bytes);
	return (int)counted(ATM_KIND_MADVISE_DONTNEED,
			    atm_syscall(SYS_madvise, (long)addr, (long)bytes, MADV_DONTNEED, 0, 0, 0));
}

int atm_os_remap(void *addr, size_t old_bytes, size_t new_bytes, bool may_move, void **new_addr)
{
	long ret = atm_syscall(SYS_mremap, (long)addr, (long)old_bytes, (long)new_bytes, may_move ? MREMAP_MAYMOVE : 0,
			       0, 0);
	bool is_error = ret < 0 && ret > -4096;
	enum atm_kind kind = new_bytes > old_bytes ? ATM_KIND_MREMAP_GROW : ATM_KIND_MREMAP_SHRINK;

	if (!is_error && ret != (long)addr)
		kind = ATM_KIND_MREMAP_MOVE;
	atm_count_call(kind, is_error ? ret : 0);
	if (is_error)
		return (int)ret;
	*new_addr = (void *)ret;
	return 0;
}

void atm_os_mark_phase(unsigned phase)
{
	counted(ATM_KIND_MADVISE_PHASE, atm_syscall(SYS_madvise, 0, 0, (long)(ATM_PHASE_MARK | phase), 0, 0, 0));
}
