/* SPDX-License-Identifier: BSD-2-Clause */
/* A treap of stacks, its priorities hashed from the addresses; see stack_tree.h. */
#include "alloc/stack_tree.h"

static uint32_t priority_of(const struct stack *stack)
{
	return (uint32_t)(((uintptr_t)stack->base >> 12) * 0x9e3779b97f4a7c15ull >> 32);
}

void atm_stack_tree_insert(struct stack **root, struct stack *stack)
{
	struct stack **left = &stack->left, **right = &stack->right, *at;

	while (*root && priority_of(*root) > priority_of(stack))
		root = stack->base < (*root)->base ? &(*root)->left : &(*root)->right;
	/* Splits what was there by address, below the new node. */
	at = *root;
	*root = stack;
	while (at) {
		if (at->base < stack->base) {
			*left = at;
			left = &at->right;
			at = *left;
		} else {
			*right = at;
			right = &at->left;
			at = *right;
		}
	}
	*left = *right = NULL;
}

void atm_stack_tree_remove(struct stack **root, const struct stack *stack)
{
	struct stack *left = stack->left, *right = stack->right;

	while (*root != stack)
		root = stack->base < (*root)->base ? &(*root)->left : &(*root)->right;
	while (left && right) {
		struct stack **top = priority_of(left) > priority_of(right) ? &left : &right;

		*root = *top;
		root = top == &left ? &(*root)->right : &(*root)->left;
		*top = *root;
	}
	*root = left ? left : right;
}

struct stack *atm_stack_tree_find(struct stack *root, uintptr_t addr)
{
	struct stack *at = root;

	while (at) {
		if (addr < (uintptr_t)at->base)
			at = at->left;
		else if (addr >= (uintptr_t)at->base + at->map_bytes)
			at = at->right;
		else
			break;
	}
	return at;
}
