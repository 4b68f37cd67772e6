/* SPDX-License-Identifier: BSD-2-Clause */
/* From the maps of the kernel side, summed over CPUs, to a profile. Changes nothing in them. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bpf/alloctrace.skel.h"
#include "bpf/event.h"
#include "cli/ledger.h"
#include "cli/msg.h"
#include "cli/tracer_state.h"

static void add_cell(struct class_stat *stat, const struct at_cell *cell)
{
	struct class_stat part = {
		.error_cnt = cell->errors,
		.last_errno = (int)cell->last_errno,
		.last_errno_ns = cell->last_errno_ns,
		.bytes = cell->bytes,
		.sum_ns = cell->sum_ns,
		.max_ns = cell->max_ns,
	};

	for (int i = 0; i < AT_HIST_CNT; i++) {
		part.hist[i] = cell->hist[i];
		part.call_cnt += cell->hist[i];
	}
	profile__add_class(stat, &part);
}

static int tracer__collect_cells(struct tracer *tracer, struct profile *profile)
{
	struct at_cell *values = calloc((size_t)tracer->cpu_cnt, sizeof(*values));
	int fd = bpf_map__fd(tracer->skel->maps.cells), err = values ? 0 : -ENOMEM;

	for (uint32_t key = 0; !err && key < AT_PHASE_CNT * AT_CLASS_CNT; key++) {
		err = bpf_map_lookup_elem(fd, &key, values);
		for (int cpu = 0; !err && cpu < tracer->cpu_cnt; cpu++)
			add_cell(&profile->phases[key / AT_CLASS_CNT].classes[key % AT_CLASS_CNT], &values[cpu]);
	}
	free(values);
	return err;
}

/* Sums a per-CPU array of counters over the CPUs. */
static int tracer__sum_counters(struct tracer *tracer, const struct bpf_map *map, uint64_t *sums)
{
	uint64_t *values = calloc((size_t)tracer->cpu_cnt, sizeof(*values));
	int fd = bpf_map__fd(map), err = values ? 0 : -ENOMEM;

	for (uint32_t key = 0; !err && key < bpf_map__max_entries(map); key++) {
		err = bpf_map_lookup_elem(fd, &key, values);
		sums[key] = 0;
		for (int cpu = 0; !err && cpu < tracer->cpu_cnt; cpu++)
			sums[key] += values[cpu];
	}
	free(values);
	return err;
}

/* Calls in flight: counted where slots are in task storage, else visible in the array of slots. */
static int tracer__collect_flights(struct tracer *tracer, struct profile *profile)
{
	size_t bytes = tracer->pid_cnt * sizeof(struct at_slot);
	const struct at_slot *slots;

	if (tracer->is_storage)
		return tracer__sum_counters(tracer, tracer->skel->maps.flights, profile->in_flight_cnt);
	slots = mmap(NULL, bytes, PROT_READ, MAP_SHARED, bpf_map__fd(tracer->skel->maps.slots), 0);
	if (slots == MAP_FAILED)
		return -errno;
	for (uint32_t tid = 0; tid < tracer->pid_cnt; tid++)
		if (slots[tid].start_ns && slots[tid].syscall < AT_SYS_CNT)
			profile->in_flight_cnt[slots[tid].syscall]++;
	munmap((void *)slots, bytes);
	return 0;
}

/* Runs and skipped runs of all programs, from the kernel's own books. */
static int tracer__collect_programs(struct tracer *tracer, struct profile *profile)
{
	struct bpf_prog_info info;
	struct bpf_program *prog;
	uint32_t info_bytes;

	bpf_object__for_each_program(prog, tracer->skel->obj)
	{
		if (!bpf_program__autoload(prog))
			continue;
		memset(&info, 0, sizeof(info));
		info_bytes = sizeof(info);
		if (bpf_obj_get_info_by_fd(bpf_program__fd(prog), &info, &info_bytes))
			return -errno;
		/* Waits inside waits: nothing but the lock ledger could lack them. */
		if (prog == tracer->skel->progs.at_wait_btf || prog == tracer->skel->progs.at_got_btf)
			profile->lock_miss_cnt += info.recursion_misses;
		else
			profile->recursion_miss_cnt += info.recursion_misses;
		if (tracer->opts.is_measuring_bpf) {
			profile->bpf_run_cnt += info.run_cnt;
			profile->bpf_ns += info.run_time_ns;
		}
	}
	return 0;
}

/* Page faults that the events counted, and those that the programs saw. */
static int tracer__check_faults(struct tracer *tracer, const struct phase_stat *total, struct profile *profile)
{
	uint64_t event_cnt = tracer->fault_end_cnt - tracer->fault_base_cnt, cell_cnt;
	int err;

	if (!tracer->is_fault_count_sure || tracer->fault_end_cnt < tracer->fault_base_cnt)
		return 0;
	if (!tracer->opts.is_live) {
		err = tracer__read_faults(tracer, &event_cnt);
		if (err)
			return err;
	}
	cell_cnt = total->classes[AT_CLASS_FAULT_MINOR].call_cnt + total->classes[AT_CLASS_FAULT_MAJOR].call_cnt;
	/* Each thread that ran already may have been inside a fault: its end was seen alone. */
	if (tracer->opts.is_live)
		cell_cnt += tracer->fault_cnt;
	if (event_cnt > cell_cnt)
		profile->loss_cnt[AT_LOSS_FAULT_MISSED] = event_cnt - cell_cnt;
	return 0;
}

/* Two runs a call and two a fault, at the cost that calibration found. */
static void tracer__price(struct tracer *tracer, const struct phase_stat *total, struct profile *profile)
{
	profile->is_bpf_measured = tracer->opts.is_measuring_bpf;
	if (profile->is_bpf_measured)
		return;
	for (int class = 1; class < AT_CLASS_CNT; class ++) {
		bool is_fault = profile__class_syscall(class) == AT_SYS_INVALID;
		uint64_t call_cnt = total->classes[class].call_cnt;

		profile->bpf_run_cnt += 2 * call_cnt;
		profile->bpf_ns += call_cnt * (is_fault ? tracer->added_fault_ns : tracer->added_call_ns);
	}
}

static int tracer__collect_counters(struct tracer *tracer, struct profile *profile)
{
	int err = tracer__sum_counters(tracer, tracer->skel->maps.losses, profile->loss_cnt);
	uint64_t full_cnt;

	if (!err)
		err = tracer__sum_counters(tracer, tracer->skel->maps.compats, profile->compat_cnt);
	if (!err)
		err = tracer__sum_counters(tracer, tracer->skel->maps.advices, profile->advice_cnt);
	if (!err)
		err = tracer__sum_counters(tracer, tracer->skel->maps.early_flights, profile->early_flight_cnt);
	if (!err)
		err = tracer__collect_flights(tracer, profile);
	/* A call without room for its start was counted at its exit, too. */
	full_cnt = profile->loss_cnt[AT_LOSS_SLOT_FULL];
	if (full_cnt > profile->loss_cnt[AT_LOSS_NO_START])
		full_cnt = profile->loss_cnt[AT_LOSS_NO_START];
	profile->loss_cnt[AT_LOSS_NO_START] -= full_cnt;
	return err;
}

/* Each CPU has the most that it saw. */
static int tracer__collect_final(struct tracer *tracer, struct profile *profile)
{
	uint64_t *pages = calloc((size_t)tracer->cpu_cnt, sizeof(*pages)), page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	uint32_t key = 0;
	int err = pages ? bpf_map_lookup_elem(bpf_map__fd(tracer->skel->maps.final_pages), &key, pages) : -ENOMEM;

	for (int cpu = 0; !err && cpu < tracer->cpu_cnt; cpu++)
		if (pages[cpu] * page_bytes > profile->final_rss_bytes)
			profile->final_rss_bytes = pages[cpu] * page_bytes;
	free(pages);
	return err;
}

static int tracer__collect_ledgers(struct tracer *tracer, struct profile *profile)
{
	profile->ledgers = tracer->opts.ledgers;
	memcpy(profile->batch_pages, tracer->batches, sizeof(profile->batch_pages));
	profile->commit_start_pages = tracer->skel->bss->commit_start;
	return ledger__collect(
		&(struct ledger_fds){
			.ledgers = bpf_map__fd(tracer->skel->maps.ledgers),
			.locks = bpf_map__fd(tracer->skel->maps.lock_ledgers),
			.refaults = bpf_map__fd(tracer->skel->maps.refault_ledgers),
			.stacks = bpf_map__fd(tracer->skel->maps.stack_ledgers),
		},
		tracer->cpu_cnt, profile);
}

int tracer__collect(struct tracer *tracer, struct profile *profile)
{
	struct phase_stat *total = malloc(sizeof(*total));
	int err = total ? 0 : -ENOMEM;

	profile->tier = tracer->tier;
	profile->has_trace = true;
	profile->has_faults = tracer->has_faults;
	profile->has_charge_check = tracer->has_charge_check;
	for (int phase = 0; phase < AT_PHASE_CNT; phase++)
		if (tracer->skel->bss->phases_seen[phase])
			profile->phases_seen |= 1u << phase;
	if (!err)
		err = tracer__collect_cells(tracer, profile);
	if (!err)
		err = tracer__collect_counters(tracer, profile);
	if (!err)
		err = tracer__collect_programs(tracer, profile);
	if (!err)
		err = tracer__collect_ledgers(tracer, profile);
	if (!err)
		err = tracer__collect_final(tracer, profile);
	/* Of an interval there are none: only the whole is put together. */
	if (!err && tracer->unwind && !unwind__is_running(tracer->unwind))
		err = unwind__collect(tracer->unwind, &profile->callchains);
	if (!err) {
		profile__total(profile, total);
		tracer__price(tracer, total, profile);
		err = tracer__check_faults(tracer, total, profile);
	}
	free(total);
	if (err)
		msg__error("cannot read the counters of the BPF programs: %s", strerror(-err));
	return err;
}
