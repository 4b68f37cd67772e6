/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The record of a mapped thread stack, and a tree of them by address. The tree
 * has no lock; whoever owns the root sees to it. Allocates nothing.
 */
#ifndef ALLOCTRACE_ALLOC_STACK_TREE_H
#define ALLOCTRACE_ALLOC_STACK_TREE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

union start {
	void *(*posix)(void *);
	int (*c11)(void *);
};

/* Of a thread that runs on a stack. Both set: waiting for the kernel to leave. */
enum { THREAD_DETACHED = 1, THREAD_ENDED = 2 };

/*
 * One mapped stack. All fields but the atomic ones belong to atm_stack_lock, or, while
 * has_thread and not yet created, to the creator.
 */
struct stack {
	struct stack *left, *right;  /* tree of all mapped stacks, by address */
	struct stack *older, *newer; /* `cached` or `leaving`, whichever it is on */
	char *base;
	size_t map_bytes, guard_bytes;
	bool has_thread;
	bool is_orphan; /* cached in a forked child: its thread stayed in the parent */
	bool is_c11;
	union start start;
	void *arg;
	_Atomic pid_t tid; /* 0 until the thread runs */
	_Atomic unsigned thread_state;
};

void atm_stack_tree_insert(struct stack **root, struct stack *stack);
/* The stack is in the tree. */
void atm_stack_tree_remove(struct stack **root, const struct stack *stack);
/* The stack that the address lies in; NULL: none. */
struct stack *atm_stack_tree_find(struct stack *root, uintptr_t addr);

#endif
