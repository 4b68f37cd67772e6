/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * USDT probes of provider `atmalloc`: one nop each until a tracer puts a
 * breakpoint there. They stand at decisions, never on the paths that most
 * requests take. docs/policies.md lists them with their arguments.
 */
#ifndef ALLOCTRACE_ALLOC_PROBE_H
#define ALLOCTRACE_ALLOC_PROBE_H

#include <sys/sdt.h>

#include "alloc/policy.h"

#define ATM_PROBE(name, addr, bytes) DTRACE_PROBE2(atmalloc, name, addr, bytes)

/* A decision of this heap: counted, and shown to tracers, so that the two counts agree. */
#define ATM_DECIDED(heap, id, probe, addr, bytes)                \
	do {                                                     \
		(heap)->cell->decision_cnt[ATM_DECISION_##id]++; \
		ATM_PROBE(probe, addr, bytes);                   \
	} while (0)

/* The same where there is no heap. */
#define ATM_DECIDED_GLOBAL(id, probe, addr, bytes)     \
	do {                                           \
		atm_count_decision(ATM_DECISION_##id); \
		ATM_PROBE(probe, addr, bytes);         \
	} while (0)

#endif
