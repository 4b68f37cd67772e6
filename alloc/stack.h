/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Thread stacks: which thread has which, and those kept for reuse. All
 * functions are thread-safe.
 */
#ifndef ALLOCTRACE_ALLOC_STACK_H
#define ALLOCTRACE_ALLOC_STACK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "alloc/lock.h"
#include "alloc/stack_tree.h"

/* What a caller's attributes come to, rounded as glibc rounds. */
struct stack_shape {
	size_t stack_bytes; /* what pthread_attr_setstack is told */
	size_t guard_bytes;
	size_t map_bytes;
};

/* A cached stack of exactly this shape, or a new one; NULL when there is no memory. */
struct stack *atm_stack_take(const struct stack_shape *shape);
/* Of a thread that could not be created: nobody has used it. */
void atm_stack_give(struct stack *stack);

/* The calling thread runs on this stack from here on. */
void atm_stack_enter(struct stack *stack);
/* The calling thread is about to end. */
void atm_stack_ended(struct stack *stack);
/* After a successful detach, of which the C library alone knows whether it was right. */
void atm_stack_detached(pthread_t thread);
/* After a successful join: the C library has waited for the kernel to leave the stack. */
void atm_stack_joined(pthread_t thread);
/*
 * Whether the thread is one that a fork left behind in the parent. With the C
 * library's own stacks joining it in the child returns at once; through a
 * descriptor in one of our stacks it would wait for ever.
 */
bool atm_stack_is_orphan(pthread_t thread);
/* The guard of the thread's stack; 0: none, or not one of ours. */
size_t atm_stack_guard_bytes(pthread_t thread);

/*
 * Gives back every stack that no thread uses, and returns how many bytes those
 * were. Must not be called with any lock of the allocator held.
 */
size_t atm_stack_trim(void);

/* Bytes mapped for stacks that no thread uses. */
size_t atm_stack_cached_bytes(void);

/* The lock of this module. No other one is taken while it is held. */
extern struct atm_lock atm_stack_lock;
/* In a forked child, with the lock held: all threads but one are gone. */
void atm_stack_fork_child(void);

/*
 * Policy stack (policy_stack.c): maps `bytes` of which the lowest `guard_bytes`
 * are without access and the rest readable and writable. Both are multiples of
 * the page size, guard_bytes may be 0. Returns 0 or -errno, and then nothing is
 * left mapped.
 */
int atm_stack_map(size_t bytes, size_t guard_bytes, void **addr);

#endif
