/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Policy stack: in which order a thread stack and its guard come to be.
 * Off: the whole is mapped read-write and then the guard taken out of it, as
 * glibc did before BZ#18988, so that the guard is charged to the commit account
 * at first, and locked and filled under mlockall(MCL_FUTURE).
 * On: the whole is mapped without access, then the usable part is opened.
 * Both make the same number of calls.
 */
#include <sys/mman.h>

#include "alloc/os.h"
#include "alloc/policy.h"
#include "alloc/probe.h"
#include "alloc/stack.h"

int atm_stack_map(size_t bytes, size_t guard_bytes, void **addr)
{
	bool is_on = atm_policy() & POLICY_STACK;
	char *base;
	int err;

	/* Without a guard there is no order to choose: all is usable at once. */
	err = atm_os_map_stack(bytes, is_on && guard_bytes ? PROT_NONE : PROT_READ | PROT_WRITE, addr);
	if (err)
		return err;
	base = *addr;
	if (guard_bytes == 0)
		err = 0;
	else if (is_on)
		err = atm_os_commit(base + guard_bytes, bytes - guard_bytes);
	else
		err = atm_os_guard(base, guard_bytes);
	if (err) {
		atm_os_unmap(base, bytes);
		return err;
	}
	ATM_DECIDED_GLOBAL(STACK_MAPPED, stack__mapped, base, bytes);
	return 0;
}
