/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The only memory syscalls of the library. Every call is counted by kind and
 * by outcome (control.h, ATM_KINDS).
 *
 * All functions return 0 or -errno, never touch errno, are thread-safe and
 * async-signal-safe. Addresses and lengths are multiples of atm_page_bytes;
 * lengths are > 0.
 */
#ifndef ALLOCTRACE_ALLOC_OS_H
#define ALLOCTRACE_ALLOC_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The machine's page size, known from the first use of any function here. */
extern size_t atm_page_bytes;
extern unsigned atm_page_shift;

/* Must run before the two above are read; cheap when done already. */
void atm_os_init(void);

/* A private anonymous mapping, readable and writable. */
int atm_os_map(size_t bytes, void **addr);
/*
 * Address space only: PROT_NONE, not charged. `hint` is where it should lie;
 * the kernel may choose another place, which the caller has to check.
 */
int atm_os_reserve(void *hint, size_t bytes, void **addr);
/* A thread stack, with the protection given (PROT_NONE or PROT_READ|PROT_WRITE). */
int atm_os_map_stack(size_t bytes, int prot, void **addr);
/* `bytes` of a file, shared, in place of whatever is at addr. */
int atm_os_map_shared(void *addr, size_t bytes, int fd, uint64_t offset);
/* Fresh zero pages in place of whatever is at addr. */
int atm_os_map_over(void *addr, size_t bytes);
int atm_os_unmap(void *addr, size_t bytes);
/* PROT_NONE -> readable and writable: charged from here on. */
int atm_os_commit(void *addr, size_t bytes);
/* -> PROT_NONE. */
int atm_os_guard(void *addr, size_t bytes);
/* madvise(MADV_DONTNEED): pages are given back, the range stays usable and reads zero. */
int atm_os_release(void *addr, size_t bytes);
/* mremap; without may_move it fails with -ENOMEM rather than move. */
int atm_os_remap(void *addr, size_t old_bytes, size_t new_bytes, bool may_move, void **new_addr);
/* The phase marker for the tracer (control.h). Always "fails" in the kernel. */
void atm_os_mark_phase(unsigned phase);

static inline size_t atm_page_round(size_t bytes)
{
	return (bytes + atm_page_bytes - 1) & ~(atm_page_bytes - 1);
}

#endif
