/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loads the kernel side, points it at its targets, attaches and detaches it.
 * Nothing is attached or detached while targets run between start and stop.
 */
#include "cli/tracer.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/membarrier.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bpf/alloctrace.skel.h"
#include "bpf/event.h"
#include "cli/ledger.h"
#include "cli/limits.h"
#include "cli/msg.h"
#include "cli/tracer_state.h"

/* Beyond this the array of slots, 128 bytes a tid, is not worth its memory. */
enum { SLOT_ARRAY_PID_MAX = 1 << 16, PAGE_BYTES = 4096 };

/* Line by line; of the verifier's log, which may have a million, the last ones say why. */
static int print_libbpf(enum libbpf_print_level level, const char *fmt, va_list args)
{
	enum { LINE_CNT = 24 };
	char *text, *line, *end;
	int line_cnt = 0;

	if (level == LIBBPF_DEBUG || vasprintf(&text, fmt, args) < 0)
		return 0;
	for (line = text + strlen(text); line > text; line--)
		if (line[-1] == '\n' && *line && ++line_cnt == LINE_CNT)
			break;
	for (; *line; line = end) {
		end = line + strcspn(line, "\n");
		msg__info("%.*s", (int)(end - line), line);
		end += *end == '\n';
	}
	free(text);
	return 0;
}

/* Ledgers that must know of new programs. */
enum { EXEC_LEDGERS = LEDGER_COMMIT | LEDGER_REFAULT | LEDGER_STACKS };

/* Programs on by name; the events of page faults only where they work. */
static int tracer__choose_programs(struct tracer *tracer)
{
	struct alloctrace_bpf *skel = tracer->skel;
	bool is_wide = tracer->tier == 1 && !tracer->has_singles;

	bpf_program__set_autoload(skel->progs.at_enter_btf, is_wide);
	bpf_program__set_autoload(skel->progs.at_exit_btf, is_wide);
	bpf_program__set_autoload(skel->progs.at_fork_btf, true);
	bpf_program__set_autoload(skel->progs.at_die_btf, true);
	bpf_program__set_autoload(skel->progs.at_exec_btf,
				  tracer->has_faults || tracer->opts.is_live || tracer->opts.ledgers & EXEC_LEDGERS);
	bpf_program__set_autoload(skel->progs.at_rename_btf, tracer->opts.is_open);
	bpf_program__set_autoload(skel->progs.at_move_btf, tracer->opts.is_open);
	bpf_program__set_autoload(skel->progs.at_wait_btf, tracer->opts.ledgers & LEDGER_LOCKS);
	bpf_program__set_autoload(skel->progs.at_got_btf, tracer->opts.ledgers & LEDGER_LOCKS);
	bpf_program__set_autoload(skel->progs.at_fault_begin, tracer->has_fault_events);
	bpf_program__set_autoload(skel->progs.at_fault_minor, tracer->has_fault_events);
	bpf_program__set_autoload(skel->progs.at_fault_major, tracer->has_fault_events);
	return tracer->tier == 2 ? tracer__configure_functions(tracer) : 0;
}

/*
 * A map that is not used is small, but there: kernels before 6.8 look through
 * global functions that nobody calls, too (2afae08c9dcb), and take none that uses a
 * map which does not exist.
 */
int tracer__spare_map(struct bpf_map *map)
{
	return bpf_map__set_max_entries(map, 1);
}

/* What is switched off is no part of the programs. */
static int tracer__configure_ledgers(struct tracer *tracer, const struct features *features)
{
	struct alloctrace_bpf *skel = tracer->skel;
	unsigned ledgers = tracer->opts.ledgers;
	uint64_t batches[AT_BATCH_CNT];
	struct ledger_host host;
	int err = 0;
	/* Maps, and the ledgers that they are for. */
	const struct {
		struct bpf_map *map;
		unsigned ledgers;
	} maps[] = {
		{skel->maps.ledgers, LEDGER_COMMIT | LEDGER_VMAS},
		{skel->maps.processes, LEDGER_COMMIT},
		{skel->maps.lock_ledgers, LEDGER_LOCKS},
		{skel->maps.refault_ledgers, LEDGER_REFAULT},
		{skel->maps.stack_ledgers, LEDGER_STACKS},
		{skel->maps.blocks, LEDGER_REFAULT},
		{skel->maps.nodes, LEDGER_REFAULT},
		{skel->maps.ranges, LEDGER_REFAULT | LEDGER_STACKS},
		{skel->maps.place_lists, LEDGER_REFAULT | LEDGER_STACKS},
	};

	ledger__read_host(&host);
	ledger__batches(&host, batches);
	for (int i = 0; i < AT_BATCH_CNT; i++)
		skel->rodata->cfg_batches[i] = tracer->batches[i] = batches[i];
	skel->rodata->cfg_has_commit = ledgers & LEDGER_COMMIT;
	skel->rodata->cfg_has_vmas = ledgers & LEDGER_VMAS;
	skel->rodata->cfg_has_vma_iter = features->vma_iter.is_ok;
	skel->rodata->cfg_is_strict = host.overcommit_memory == 2;
	skel->rodata->cfg_has_locks = ledgers & LEDGER_LOCKS;
	skel->rodata->cfg_has_refaults = ledgers & LEDGER_REFAULT;
	skel->rodata->cfg_has_stacks = ledgers & LEDGER_STACKS;
	skel->rodata->cfg_is_huge = host.is_huge;
	for (size_t i = 0; !err && i < sizeof(maps) / sizeof(maps[0]); i++)
		if (!(ledgers & maps[i].ledgers))
			err = tracer__spare_map(maps[i].map);
	return err;
}

/* Everything that must be known before loading. */
static int tracer__configure(struct tracer *tracer, const struct features *features)
{
	struct alloctrace_bpf *skel = tracer->skel;
	bool is_storage = tracer->opts.slot_mode == SLOT_STORAGE;
	int err;

	tracer->pid_cnt = (uint32_t)features->pid_max;
	if (tracer->opts.slot_mode == SLOT_AUTO)
		is_storage = tracer->pid_cnt > SLOT_ARRAY_PID_MAX && features->task_storage.is_ok;
	skel->rodata->cfg_pid_cnt = tracer->pid_cnt;
	skel->rodata->cfg_is_following = tracer->opts.is_following;
	skel->rodata->cfg_is_storage = is_storage;
	skel->rodata->cfg_has_faults = tracer->has_fault_events;
	tracer->is_storage = is_storage;
	err = tracer__configure_live(tracer);
	if (!err)
		err = tracer__choose_programs(tracer);
	if (err)
		return err;
	/* Whole words, and one more: the verifier does not see that none is begun near the end. */
	tracer->targets_bytes = (tracer->pid_cnt + 15) & ~7u;
	err = bpf_map__set_value_size(skel->maps.targets, (uint32_t)tracer->targets_bytes);
	if (!err)
		err = tracer__configure_ledgers(tracer, features);
	if (!err)
		err = tracer__configure_callchains(tracer);
	if (!err && is_storage)
		err = bpf_map__set_autocreate(skel->maps.slots, false);
	if (!err && !is_storage)
		err = bpf_map__set_autocreate(skel->maps.task_slots, false);
	if (!err && !is_storage)
		err = bpf_map__set_max_entries(skel->maps.slots, tracer->pid_cnt);
	return err;
}

static int tracer__map_targets(struct tracer *tracer)
{
	void *mem = mmap(NULL, tracer->targets_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			 bpf_map__fd(tracer->skel->maps.targets), 0);

	if (mem == MAP_FAILED)
		return -errno;
	tracer->targets = mem;
	return 0;
}

/*
 * libbpf reads the kernel's type information, 5.5 MB, into memory that it allocates, and copies it once more: small
 * page by small page the faults take longer than all the rest. So the heap has huge ones ready, where it may.
 */
static void heap_prepare(void)
{
	enum { HEAP_BYTES = 16 << 20 };
	char *memory;

	mallopt(M_MMAP_THRESHOLD, 2 * HEAP_BYTES);
	mallopt(M_TRIM_THRESHOLD, 4 * HEAP_BYTES);
	memory = malloc(HEAP_BYTES);
	if (memory)
		madvise(memory + (-(uintptr_t)memory & (PAGE_BYTES - 1)), HEAP_BYTES - PAGE_BYTES, MADV_HUGEPAGE);
	free(memory);
}

/* What the heap has too much goes back, and it is as it was. */
static void heap_restore(void)
{
	enum { THRESHOLD_BYTES = 128 << 10 };

	mallopt(M_MMAP_THRESHOLD, THRESHOLD_BYTES);
	mallopt(M_TRIM_THRESHOLD, THRESHOLD_BYTES);
	malloc_trim(0);
}

/* Loads the programs of a tier. */
static int tracer__load(struct tracer *tracer, const struct features *features, int tier)
{
	int err;

	tracer->tier = tier;
	tracer->has_fault_events = features->fault_event.is_ok && !(tier == 2 && features->fault_function.is_ok);
	tracer->has_faults = tracer->has_fault_events || (tier == 2 && features->fault_function.is_ok);
	if (!tracer->has_faults)
		tracer->opts.ledgers &= ~LEDGER_REFAULT;
	if (!features->lock_events.is_ok)
		tracer->opts.ledgers &= ~LEDGER_LOCKS;
	tracer->skel = alloctrace_bpf__open();
	if (!tracer->skel)
		return -errno;
	err = tracer__configure(tracer, features);
	if (!err) {
		heap_prepare();
		err = alloctrace_bpf__load(tracer->skel);
		heap_restore();
	}
	if (err) {
		alloctrace_bpf__destroy(tracer->skel);
		tracer->skel = NULL;
	}
	return err;
}

/* The best tier that loads, or the one that was asked for. Targets that run already are traced in tier 1. */
static int tracer__load_best(struct tracer *tracer, const struct features *features)
{
	int tier = tracer->opts.tier, err;

	if (!tier)
		tier = features->best_tier == 2 && !tracer->opts.is_live ? 2 : 1;
	err = tracer__load(tracer, features, tier);
	if (err && tier == 2 && !tracer->opts.tier) {
		msg__info("tier 2 does not load here (%s), tier 1 is used", strerror(-err));
		err = tracer__load(tracer, features, 1);
	}
	return err;
}

/* Whether the numbers in /proc are those of our pid namespace. */
static bool is_own_proc(void)
{
	char target[16] = "";
	ssize_t bytes = readlink("/proc/self", target, sizeof(target) - 1);

	return bytes > 0 && strtol(target, NULL, 10) == getpid();
}

int tracer__open(struct tracer **out, const struct features *features, const struct tracer_opts *opts)
{
	struct tracer *tracer;
	int err;

	*out = NULL;
	if (opts->callchains != CALLCHAINS_NONE && !is_own_proc()) {
		msg__error("cannot follow callchains: /proc is that of another pid namespace, so that a number there "
			   "is not "
			   "the same process; mount this one's (mount -t proc proc /proc), or run without callchains");
		return -ENOTSUP;
	}
	tracer = calloc(1, sizeof(*tracer));
	if (!tracer) {
		msg__error("cannot set up tracing: out of memory");
		return -ENOMEM;
	}
	tracer->opts = *opts;
	tracer->is_translating = features->is_own_pid_namespace;
	tracer->stats_fd = -1;
	tracer->cpu_cnt = libbpf_num_possible_cpus();
	libbpf_set_print(print_libbpf);
	limits__raise();
	err = tracer->cpu_cnt < 0 ? tracer->cpu_cnt : tracer__load_best(tracer, features);
	if (!err)
		err = tracer__map_targets(tracer);
	if (!err)
		err = tracer__map_live(tracer);
	if (!err)
		err = tracer__open_callchains(tracer);
	if (err) {
		msg__error("cannot load the BPF programs of tier %d: %s (-v shows the kernel's own words)",
			   tracer->tier, strerror(-err));
		tracer__free(tracer);
		return err;
	}
	*out = tracer;
	return 0;
}

int tracer__add_target(struct tracer *tracer, pid_t pid)
{
	uint32_t tgid = tracer__kernel_tgid(tracer, pid);
	int err;

	if (!tgid || tgid >= tracer->pid_cnt) {
		msg__error("cannot trace process %d: kernel.pid_max was %u when tracing was set up", pid,
			   tracer->pid_cnt);
		return -ERANGE;
	}
	if (tracer->has_fault_events) {
		err = tracer__add_threads(tracer, pid);
		if (err) {
			msg__error("cannot watch the page faults of process %d: %s", pid, strerror(-err));
			return err;
		}
	}
	err = tracer__add_callchains(tracer, tgid, pid);
	if (err) {
		msg__error("cannot prepare callchains of process %d: %s", pid, strerror(-err));
		return err;
	}
	__atomic_store_n(&tracer->targets[tgid], AT_PHASE_STARTUP + 1, __ATOMIC_RELEASE);
	tracer->skel->bss->phases_seen[AT_PHASE_STARTUP] = 1;
	return 0;
}

/* Zeroes a map with per-CPU values of value_bytes. */
static int clear_map(const struct bpf_map *map, void *zeroes)
{
	int fd = bpf_map__fd(map), err = 0;

	for (uint32_t key = 0; !err && key < bpf_map__max_entries(map); key++)
		err = bpf_map_update_elem(fd, &key, zeroes, BPF_ANY);
	return err;
}

/* Values of any per-CPU map that is cleared. */
union cleared {
	struct at_cell cell;
	struct at_ledger ledger;
	struct at_lock_ledger locks;
	struct at_refault_ledger refault;
	struct at_stack_ledger stacks;
};

/* Our own process, that calibration made known, is the only one. */
static int tracer__clear_processes(struct tracer *tracer)
{
	uint32_t tgid = tracer__self(tracer);

	tracer->skel->bss->commit_level = 0;
	tracer->skel->bss->commit_start = 0;
	bpf_map_delete_elem(bpf_map__fd(tracer->skel->maps.processes), &tgid);
	return 0;
}

/* All places are of our own process. */
static int clear_places(const struct bpf_map *map)
{
	int fd = bpf_map__fd(map), err;
	unsigned char key[16];

	while (!(err = bpf_map_get_next_key(fd, NULL, key)))
		if ((err = bpf_map_delete_elem(fd, key)) != 0)
			break;
	return err == -ENOENT ? 0 : err;
}

static int tracer__clear_ledgers(struct tracer *tracer, void *zeroes)
{
	const unsigned ledgers = tracer->opts.ledgers;
	int err = 0;

	if (ledgers & (LEDGER_COMMIT | LEDGER_VMAS))
		err = clear_map(tracer->skel->maps.ledgers, zeroes);
	if (!err && ledgers & LEDGER_COMMIT)
		err = tracer__clear_processes(tracer);
	if (!err && ledgers & LEDGER_LOCKS)
		err = clear_map(tracer->skel->maps.lock_ledgers, zeroes);
	if (!err && ledgers & LEDGER_STACKS)
		err = clear_map(tracer->skel->maps.stack_ledgers, zeroes);
	if (err || !(ledgers & LEDGER_REFAULT))
		return err;
	err = clear_map(tracer->skel->maps.refault_ledgers, zeroes);
	if (!err)
		err = clear_places(tracer->skel->maps.blocks);
	if (!err)
		err = clear_places(tracer->skel->maps.nodes);
	if (!err)
		err = clear_places(tracer->skel->maps.ranges);
	return err ? err : clear_places(tracer->skel->maps.place_lists);
}

/* Removes what calibration left. Our slots are empty: no call of ours is running. */
static int tracer__clear(struct tracer *tracer)
{
	const struct bpf_map *maps[] = {tracer->skel->maps.cells,   tracer->skel->maps.losses,
					tracer->skel->maps.compats, tracer->skel->maps.advices,
					tracer->skel->maps.flights, tracer->skel->maps.early_flights};
	void *zeroes = calloc((size_t)tracer->cpu_cnt, sizeof(union cleared));
	int err = zeroes ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < sizeof(maps) / sizeof(maps[0]); i++)
		err = clear_map(maps[i], zeroes);
	if (!err)
		err = tracer__clear_ledgers(tracer, zeroes);
	free(zeroes);
	tracer__clear_live(tracer);
	return err ? err : tracer__clear_callchains(tracer);
}

static int attach(struct bpf_program *prog, struct bpf_link **link)
{
	if (!bpf_program__autoload(prog))
		return 0;
	*link = bpf_program__attach(prog);
	return *link ? 0 : -errno;
}

static void detach(struct bpf_link **link)
{
	bpf_link__destroy(*link);
	*link = NULL;
}

/* Entries last on and first off: a start time never meets the exit of an earlier call. */
static int tracer__attach(struct tracer *tracer)
{
	struct alloctrace_bpf *skel = tracer->skel;
	int err = attach(skel->progs.at_exit_btf, &skel->links.at_exit_btf);

	if (!err)
		err = tracer__attach_singles(tracer, false);
	if (!err)
		err = attach(skel->progs.at_got_btf, &skel->links.at_got_btf);
	if (!err)
		err = attach(skel->progs.at_wait_btf, &skel->links.at_wait_btf);
	if (!err)
		err = attach(skel->progs.at_die_btf, &skel->links.at_die_btf);
	if (!err)
		err = attach(skel->progs.at_fork_btf, &skel->links.at_fork_btf);
	if (!err)
		err = attach(skel->progs.at_exec_btf, &skel->links.at_exec_btf);
	if (!err)
		err = attach(skel->progs.at_rename_btf, &skel->links.at_rename_btf);
	if (!err)
		err = attach(skel->progs.at_move_btf, &skel->links.at_move_btf);
	if (!err)
		err = attach(skel->progs.at_enter_btf, &skel->links.at_enter_btf);
	if (!err && tracer->tier == 2)
		err = tracer__attach_functions(tracer);
	if (!err)
		err = tracer__attach_singles(tracer, true);
	return err;
}

static void tracer__detach(struct tracer *tracer)
{
	struct alloctrace_bpf *skel = tracer->skel;

	tracer__detach_functions(tracer);
	tracer__detach_singles(tracer, true);
	detach(&skel->links.at_enter_btf);
	tracer__detach_singles(tracer, false);
	detach(&skel->links.at_wait_btf);
	detach(&skel->links.at_got_btf);
	detach(&skel->links.at_exit_btf);
	detach(&skel->links.at_fork_btf);
	detach(&skel->links.at_exec_btf);
	detach(&skel->links.at_rename_btf);
	detach(&skel->links.at_move_btf);
	detach(&skel->links.at_die_btf);
}

int tracer__start(struct tracer *tracer)
{
	uint32_t tgid = tracer__self(tracer);
	bool is_calibrated = !tracer->opts.is_measuring_bpf && tgid && tgid < tracer->pid_cnt && !tracer->targets[tgid];
	int err;

	if (is_calibrated)
		tracer__calibrate(tracer, false);
	/* Its thread before the programs, which follow what traced threads start. */
	err = tracer->unwind ? unwind__start(tracer->unwind) : 0;
	if (!err && is_calibrated)
		err = tracer__begin_own_callchains(tracer);
	if (!err)
		err = tracer__attach(tracer);
	if (!err && tracer->has_fault_events && tracer->opts.is_faulting_wide)
		err = tracer__watch_faults_wide(tracer);
	if (!err && is_calibrated) {
		__atomic_store_n(&tracer->targets[tgid], AT_PHASE_STARTUP + 1, __ATOMIC_SEQ_CST);
		tracer__calibrate(tracer, true);
		__atomic_store_n(&tracer->targets[tgid], 0, __ATOMIC_SEQ_CST);
		err = tracer__clear(tracer);
	}
	if (!err && tracer->opts.is_measuring_bpf) {
		tracer->stats_fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
		err = tracer->stats_fd < 0 ? -errno : 0;
	}
	if (err) {
		msg__error("cannot attach the BPF programs: %s (-v shows the kernel's own words)", strerror(-err));
		tracer__detach(tracer);
		return err;
	}
	for (size_t i = 0; i < tracer->fault_cnt; i++)
		tracer__switch_faults(&tracer->faults[i], true);
	return 0;
}

int tracer__stop(struct tracer *tracer)
{
	/* Nothing counts any more: that the programs are still there until tracer__free is no matter. */
	if (tracer->opts.is_live) {
		int err = tracer__end_live(tracer);

		if (tracer->unwind)
			unwind__stop(tracer->unwind);
		return err;
	}
	for (size_t i = 0; i < tracer->fault_cnt; i++)
		tracer__switch_faults(&tracer->faults[i], false);
	tracer__detach(tracer);
	if (tracer->stats_fd >= 0)
		close(tracer->stats_fd);
	tracer->stats_fd = -1;
	/* Programs that are running on other CPUs at this moment have ended when this returns. */
	syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
	if (tracer->unwind)
		unwind__stop(tracer->unwind);
	return 0;
}

void tracer__free(struct tracer *tracer)
{
	if (!tracer)
		return;
	for (size_t i = 0; i < tracer->fault_cnt; i++)
		tracer__close_faults(&tracer->faults[i]);
	free(tracer->faults);
	if (tracer->stats_fd >= 0)
		close(tracer->stats_fd);
	if (tracer->targets)
		munmap(tracer->targets, tracer->targets_bytes);
	tracer__free_live(tracer);
	unwind__free(tracer->unwind);
	tracer__detach_functions(tracer);
	alloctrace_bpf__destroy(tracer->skel);
	free(tracer);
}
