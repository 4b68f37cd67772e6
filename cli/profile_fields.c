/* SPDX-License-Identifier: BSD-2-Clause */
/* The members of struct profile; see profile_fields.h. */
#include "cli/profile_fields.h"

#include "cli/callchain.h"
#include "cli/ledger_fields.h"
#include "cli/profile.h"
#include "cli/render.h"

static const char *class_name(int class)
{
	return profile__class_name(class);
}

static const char *syscall_name(int syscall)
{
	return profile__syscall_name(syscall);
}

static const char *phase_name(int phase)
{
	return profile__phase_name(phase);
}

static const char *batch_name(int batch)
{
	return profile__batch_name(batch);
}

static const char *kind_name(int kind)
{
	return profile__kind_name(kind);
}

static const char *decision_name(int decision)
{
	return render__decision_name(decision);
}

static const char *loss_name(int loss)
{
#define X(id, key, text) [AT_LOSS_##id] = key,
	static const char *const names[AT_LOSS_CNT] = {AT_LOSSES(X)};
#undef X

	return names[loss];
}

static const char *ledger_name(int ledger)
{
	return profile__ledger_name(ledger);
}

static const char *policy_name(int policy)
{
#define X(id, name) [POLICY_BIT_##id] = #name,
	static const char *const names[POLICY_CNT] = { ATM_POLICIES(X) };
#undef X

	return names[policy];
}

/* A band by its upper edge in bytes. */
static const char *band_name(int band)
{
#define X(edge) #edge,
	static const char *const names[ATM_BAND_CNT] = {ATM_BANDS(X)};
#undef X

	return names[band];
}

static const struct field class_fields[] = {
	FIELD(struct class_stat, call_cnt),
	FIELD(struct class_stat, error_cnt),
	FIELD(struct class_stat, last_errno),
	FIELD(struct class_stat, last_errno_ns),
	FIELD(struct class_stat, bytes),
	FIELD(struct class_stat, sum_ns),
	FIELD(struct class_stat, max_ns),
	FIELD_ARRAY(struct class_stat, hist, NULL),
	FIELD_END,
};

static const struct field commit_fields[] = {
	FIELD(struct commit_stat, charged_pages), FIELD(struct commit_stat, uncharged_pages),
	FIELD(struct commit_stat, update_cnt),    FIELD_ARRAY(struct commit_stat, past_cnt, batch_name),
	FIELD(struct commit_stat, peak_pages),    FIELD(struct commit_stat, assumed_cnt),
	FIELD(struct commit_stat, assumed_pages), FIELD(struct commit_stat, shared_pages),
	FIELD(struct commit_stat, checked_pages), FIELD_END,
};

static const struct field vma_fields[] = {
	FIELD(struct vma_stat, start_ns),
	FIELD(struct vma_stat, start_cnt),
	FIELD(struct vma_stat, end_ns),
	FIELD(struct vma_stat, end_cnt),
	FIELD(struct vma_stat, peak_cnt),
	FIELD_ARRAY(struct vma_stat, growth, class_name),
	FIELD_END,
};

static const struct field refault_fields[] = {
	FIELD_OBJECTS(struct at_refault_ledger, kinds, ledger_fields__release_name, ledger_fields__release),
	FIELD(struct at_refault_ledger, max_ns),
	FIELD_ARRAY(struct at_refault_ledger, hist, NULL),
	FIELD_END,
};

static const struct field lock_fields[] = {
	FIELD_OBJECTS(struct at_lock_ledger, kinds, ledger_fields__lock_name, ledger_fields__wait),
	FIELD_OBJECTS(struct at_lock_ledger, classes, class_name, ledger_fields__wait),
	FIELD_END,
};

static const struct field request_fields[] = {
	FIELD_ARRAY(struct atm_requests, malloc_cnt, band_name),
	FIELD_ARRAY(struct atm_requests, free_cnt, band_name),
	FIELD_ARRAY(struct atm_requests, realloc_cnt, band_name),
	FIELD_END,
};

const struct field profile_self_fields[] = {
	FIELD_ARRAY(struct atm_sums, call_cnt, kind_name),
	FIELD_ARRAY(struct atm_sums, error_cnt, kind_name),
	FIELD_ARRAY(struct atm_sums, decision_cnt, decision_name),
	FIELD_OBJECT(struct atm_sums, requests, request_fields),
	FIELD_END,
};

static const struct field phase_fields[] = {
	FIELD_OBJECTS(struct phase_stat, classes, class_name, class_fields),
	FIELD_OBJECT(struct phase_stat, commit, commit_fields),
	FIELD_OBJECT(struct phase_stat, vmas, vma_fields),
	FIELD_OBJECT(struct phase_stat, refault, refault_fields),
	FIELD_OBJECT(struct phase_stat, locks, lock_fields),
	FIELD_OBJECT(struct phase_stat, stacks, ledger_fields__stacks),
	FIELD_OBJECT(struct phase_stat, self, profile_self_fields),
	FIELD_END,
};

static const char *end_name(int end)
{
	return callchain__end_name(end);
}

static const char *origin_name(int origin)
{
	return callchain__origin_name(origin);
}

static const struct field frame_fields[] = {
	FIELD(struct callchain_frame, word),
	FIELD(struct callchain_frame, function),
	FIELD(struct callchain_frame, module),
	FIELD(struct callchain_frame, file),
	FIELD(struct callchain_frame, line),
	FIELD(struct callchain_frame, address),
	FIELD(struct callchain_frame, offset),
	FIELD(struct callchain_frame, is_deleted),
	FIELD_END,
};

static const struct field chain_fields[] = {
	FIELD(struct callchain_chain, first),
	FIELD(struct callchain_chain, cnt),
	FIELD(struct callchain_chain, guess_from),
	FIELD_ENUM(struct callchain_chain, end, AT_END_CNT, end_name),
	FIELD_ENUM(struct callchain_chain, origin, CALLCHAIN_ORIGIN_CNT, origin_name),
	FIELD_END,
};

static const struct field path_fields[] = {
	FIELD(struct callchain_path, chain),
	FIELD_ENUM(struct callchain_path, class, AT_CLASS_CNT, class_name),
	FIELD_ENUM(struct callchain_path, phase, AT_PHASE_CNT, phase_name),
	FIELD(struct callchain_path, tgid),
	FIELD(struct callchain_path, tid),
	FIELD(struct callchain_path, call_cnt),
	FIELD(struct callchain_path, sum_ns),
	FIELD(struct callchain_path, bytes),
	FIELD_END,
};

/* Numbers of frames and chains are checked in saved.c. */
static const struct field callchain_fields[] = {
	FIELD_LIST(struct callchains, frames, frame_cnt, frame_fields),
	FIELD_LIST(struct callchains, frame_of, frame_of_cnt, NULL),
	FIELD_LIST(struct callchains, chains, chain_cnt, chain_fields),
	FIELD_LIST(struct callchains, paths, path_cnt, path_fields),
	FIELD(struct callchains, is_by_thread),
	FIELD(struct callchains, lost_cnt),
	FIELD(struct callchains, cut_lost_cnt),
	FIELD(struct callchains, note_lost_cnt),
	FIELD(struct callchains, table_lost_cnt),
	FIELD_END,
};

const struct field profile_fields[] = {
	FIELD_TEXT(struct profile, version),
	FIELD(struct profile, tier),
	FIELD(struct profile, has_trace),
	FIELD(struct profile, has_faults),
	FIELD(struct profile, has_charge_check),
	FIELD_FLAGS(struct profile, ledgers, LEDGER_CNT, ledger_name),
	FIELD(struct profile, has_self_counts),
	FIELD(struct profile, self_process_cnt),
	FIELD_ARRAY(struct profile, loss_cnt, loss_name),
	FIELD(struct profile, recursion_miss_cnt),
	FIELD_ARRAY(struct profile, early_flight_cnt, syscall_name),
	FIELD_ARRAY(struct profile, in_flight_cnt, syscall_name),
	FIELD_ARRAY(struct profile, compat_cnt, syscall_name),
	FIELD_ARRAY(struct profile, advice_cnt, NULL),
	FIELD(struct profile, lock_miss_cnt),
	FIELD(struct profile, commit_start_pages),
	FIELD(struct profile, bpf_run_cnt),
	FIELD(struct profile, bpf_ns),
	FIELD(struct profile, is_bpf_measured),
	FIELD_TEXT(struct profile, advice),
	FIELD_TEXT(struct profile, kernel),
	FIELD(struct profile, cpu_cnt),
	FIELD(struct profile, page_bytes),
	FIELD(struct profile, ram_pages),
	FIELD_TEXT(struct profile, thp),
	FIELD(struct profile, overcommit_memory),
	FIELD_ARRAY(struct profile, batch_pages, batch_name),
	FIELD(struct profile, max_map_cnt),
	FIELD(struct profile, argv),
	FIELD(struct profile, pid),
	FIELD_TEXT(struct profile, allocator),
	FIELD(struct profile, has_policy),
	FIELD_FLAGS(struct profile, policy, POLICY_CNT, policy_name),
	FIELD(struct profile, tune),
	FIELD(struct profile, has_exit),
	FIELD(struct profile, exit_status),
	FIELD(struct profile, exit_signal),
	FIELD_TEXT(struct profile, note),
	FIELD(struct profile, wall_ns),
	FIELD(struct profile, user_ns),
	FIELD(struct profile, sys_ns),
	FIELD(struct profile, max_rss_bytes),
	FIELD(struct profile, minor_fault_cnt),
	FIELD(struct profile, major_fault_cnt),
	FIELD(struct profile, final_rss_bytes),
	FIELD_FLAGS(struct profile, phases_seen, AT_PHASE_CNT, phase_name),
	FIELD(struct profile, is_tree_asked),
	FIELD_OWNED(struct profile, callchains, callchain_fields),
	FIELD_OBJECTS(struct profile, phases, phase_name, phase_fields),
	FIELD_END,
};
