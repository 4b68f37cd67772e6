/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Thread stacks: what the rest of the allocator needs of them. The pthread and
 * C11 thread functions that stack.c exports are declared by the C library.
 */
#ifndef ALLOCTRACE_ALLOC_STACK_H
#define ALLOCTRACE_ALLOC_STACK_H

#include <stddef.h>

/*
 * Gives back every stack that no thread uses, and returns how many bytes those
 * were. Thread-safe; must not be called with any lock of the allocator held.
 */
size_t atm_stack_trim(void);

/* Bytes mapped for stacks that no thread uses. Thread-safe. */
size_t atm_stack_cached_bytes(void);

/*
 * To be called around fork, in any order among the modules: no other lock of
 * the allocator is taken while the one of this module is held.
 */
void atm_stack_fork_prepare(void);
void atm_stack_fork_parent(void);
void atm_stack_fork_child(void);

/*
 * Policy stack (policy_stack.c): maps `bytes` of which the lowest `guard_bytes`
 * are without access and the rest readable and writable. Both are multiples of
 * the page size, guard_bytes may be 0. Returns 0 or -errno, and then nothing is
 * left mapped.
 */
int atm_stack_map(size_t bytes, size_t guard_bytes, void **addr);

/*
 * Starts a detached thread of the library's own, with all signals blocked and a
 * small stack of the C library's. Returns 0 or an error number; keeps errno.
 */
int atm_stack_start_helper(void *(*run)(void *));

#endif
