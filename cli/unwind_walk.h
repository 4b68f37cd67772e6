/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The walk of bpf/unwind.bpf.h in user space, on a copy of the stack: for chains
 * that came to code whose table was not there yet. Same rules, same order.
 */
#ifndef ALLOCTRACE_CLI_UNWIND_WALK_H
#define ALLOCTRACE_CLI_UNWIND_WALK_H

#include "cli/unwind_objects.h"

struct unwind_chain {
	uint64_t frames[AT_CHAIN_FRAMES + 1];
	uint32_t cnt, guess_from;
	enum at_end end;
};

/* Goes on where the kernel side stopped. */
void unwind_walk__resume(const struct unwind_objects *objects, const struct at_cut *cut, struct unwind_chain *chain);

#endif
