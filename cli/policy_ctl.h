/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control block of the bundled allocator in a running process, and its counters: found in the
 * mapped library by its symbol, read and changed by the kernel's process_vm
 * calls, whose ptrace access check is the permission check. The process is not
 * stopped. Nothing is printed here.
 */
#ifndef ALLOCTRACE_CLI_POLICY_CTL_H
#define ALLOCTRACE_CLI_POLICY_CTL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "alloc/control.h"

struct policy_ctl {
	pid_t pid;
	uint64_t address;          /* of the control block, in the process */
	uint64_t counters_address; /* of its counters; 0: not known */
	struct atm_control control;
};

/* Finds and reads it. 0, or -errno with a sentence in why. */
int policy_ctl__open(struct policy_ctl *ctl, pid_t pid, char *why, size_t why_bytes);
/* Writes the policy word. 0, or -errno with a sentence in why. */
int policy_ctl__set(struct policy_ctl *ctl, uint32_t policy, char *why, size_t why_bytes);
/* Copies its counters as they are now, untouched cells zero. 0 or -errno; says nothing. */
int policy_ctl__read_counters(const struct policy_ctl *ctl, struct atm_counters *counters);

#endif
