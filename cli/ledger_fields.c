/* SPDX-License-Identifier: BSD-2-Clause */
/* The members of the ledgers; see ledger_fields.h. */
#include "cli/ledger_fields.h"

#include "cli/profile.h"

const char *ledger_fields__release_name(int release)
{
	return profile__release_name(release);
}

const char *ledger_fields__lock_name(int lock)
{
	return profile__lock_name(lock);
}

const struct field ledger_fields__release[] = {
	FIELD(struct at_refault, released_pages),
	FIELD(struct at_refault, release_ns),
	FIELD(struct at_refault, returned_pages),
	FIELD(struct at_refault, refault_ns),
	FIELD_END,
};

const struct field ledger_fields__wait[] = {
	FIELD(struct at_wait, cnt),
	FIELD(struct at_wait, sum_ns),
	FIELD(struct at_wait, max_ns),
	FIELD_END,
};

const struct field ledger_fields__stacks[] = {
	FIELD(struct at_stack_ledger, thread_cnt),    FIELD(struct at_stack_ledger, foreign_cnt),
	FIELD(struct at_stack_ledger, call_cnt),      FIELD(struct at_stack_ledger, call_ns),
	FIELD(struct at_stack_ledger, charged_pages), FIELD(struct at_stack_ledger, uncharged_pages),
	FIELD(struct at_stack_ledger, touched_pages), FIELD(struct at_stack_ledger, huge_pages),
	FIELD(struct at_stack_ledger, fault_ns),      FIELD_END,
};
