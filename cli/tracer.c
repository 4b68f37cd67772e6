/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loads the kernel side, points it at its targets, reads its counters. Nothing
 * is attached or detached while targets run between start and stop.
 */
#include "cli/tracer.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/membarrier.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bpf/alloctrace.skel.h"
#include "bpf/event.h"
#include "cli/ledger.h"
#include "cli/msg.h"

/* Beyond this the array of slots, 64 bytes a tid, is not worth its memory. */
enum { SLOT_ARRAY_PID_MAX = 1 << 16 };

/* The page fault events, in the order in which they are set up and enabled. */
enum fault_event { FAULT_MINOR_EVENT, FAULT_MAJOR_EVENT, FAULT_BEGIN_EVENT, FAULT_EVENT_CNT };

/* The events of one thread and of what it starts later. */
struct fault_fds {
	int fd[FAULT_EVENT_CNT];
};

struct tracer {
	struct alloctrace_bpf *skel;
	struct tracer_opts opts;
	bool has_faults;
	bool is_storage; /* slots are in task storage */
	uint64_t batches[AT_BATCH_CNT];
	uint32_t pid_cnt;
	uint8_t *targets; /* the map's own memory */
	size_t targets_bytes;
	struct fault_fds *faults;
	size_t fault_cnt;
	int stats_fd;                           /* while open, the kernel times all BPF programs */
	int cpu_cnt;                            /* possible CPUs: values of a per-CPU map */
	uint64_t added_call_ns, added_fault_ns; /* to one of the target's, by calibration */
};

static int print_libbpf(enum libbpf_print_level level, const char *fmt, va_list args)
{
	char line[512];

	if (level == LIBBPF_DEBUG)
		return 0;
	vsnprintf(line, sizeof(line), fmt, args);
	line[strcspn(line, "\n")] = '\0';
	msg__info("%s", line);
	return 0;
}

/* Kernels before 5.11 count maps as locked memory. Where it fails, loading says so. */
static void raise_memlock(void)
{
	struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};

	setrlimit(RLIMIT_MEMLOCK, &unlimited);
}

/* Programs on by name; the events of page faults only where they work. */
static void tracer__choose_programs(struct tracer *tracer)
{
	struct alloctrace_bpf *skel = tracer->skel;

	bpf_program__set_autoload(skel->progs.at_enter_btf, true);
	bpf_program__set_autoload(skel->progs.at_exit_btf, true);
	bpf_program__set_autoload(skel->progs.at_fork_btf, true);
	bpf_program__set_autoload(skel->progs.at_die_btf, true);
	bpf_program__set_autoload(skel->progs.at_exec_btf, tracer->has_faults || tracer->opts.ledgers & LEDGER_COMMIT);
	bpf_program__set_autoload(skel->progs.at_fault_begin, tracer->has_faults);
	bpf_program__set_autoload(skel->progs.at_fault_minor, tracer->has_faults);
	bpf_program__set_autoload(skel->progs.at_fault_major, tracer->has_faults);
}

/* What is switched off is no part of the programs, and has no maps. */
static int tracer__configure_ledgers(struct tracer *tracer, const struct features *features)
{
	struct alloctrace_bpf *skel = tracer->skel;
	unsigned ledgers = tracer->opts.ledgers;
	uint64_t batches[AT_BATCH_CNT];
	struct ledger_host host;
	int err = 0;

	ledger__read_host(&host);
	ledger__batches(&host, batches);
	for (int i = 0; i < AT_BATCH_CNT; i++)
		skel->rodata->cfg_batches[i] = tracer->batches[i] = batches[i];
	skel->rodata->cfg_has_commit = ledgers & LEDGER_COMMIT;
	skel->rodata->cfg_has_vmas = ledgers & LEDGER_VMAS;
	skel->rodata->cfg_has_vma_iter = features->vma_iter.is_ok;
	skel->rodata->cfg_is_strict = host.overcommit_memory == 2;
	if (!ledgers)
		err = bpf_map__set_autocreate(skel->maps.ledgers, false);
	if (!err && !(ledgers & LEDGER_COMMIT))
		err = bpf_map__set_autocreate(skel->maps.processes, false);
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
	skel->rodata->cfg_has_faults = tracer->has_faults;
	tracer->is_storage = is_storage;
	tracer__choose_programs(tracer);
	tracer->targets_bytes = (tracer->pid_cnt + 7) & ~7u;
	err = bpf_map__set_value_size(skel->maps.targets, (uint32_t)tracer->targets_bytes);
	if (!err)
		err = tracer__configure_ledgers(tracer, features);
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

int tracer__open(struct tracer **out, const struct features *features, const struct tracer_opts *opts)
{
	struct tracer *tracer = calloc(1, sizeof(*tracer));
	int err;

	*out = NULL;
	if (!tracer) {
		msg__error("cannot set up tracing: out of memory");
		return -ENOMEM;
	}
	tracer->opts = *opts;
	tracer->has_faults = features->fault_event.is_ok;
	tracer->stats_fd = -1;
	tracer->cpu_cnt = libbpf_num_possible_cpus();
	libbpf_set_print(print_libbpf);
	raise_memlock();
	tracer->skel = alloctrace_bpf__open();
	err = tracer->skel ? 0 : -errno;
	if (!err)
		err = tracer->cpu_cnt < 0 ? tracer->cpu_cnt : 0;
	if (!err)
		err = tracer__configure(tracer, features);
	if (!err)
		err = alloctrace_bpf__load(tracer->skel);
	if (!err)
		err = tracer__map_targets(tracer);
	if (err) {
		msg__error("cannot load the BPF programs: %s (-v shows the kernel's own words)", strerror(-err));
		tracer__free(tracer);
		return err;
	}
	*out = tracer;
	return 0;
}

/* Opens the events of one thread, switched off. With `inherit` its later threads and children have them too. */
static int open_fault_events(struct tracer *tracer, pid_t tid, bool is_inherited, struct fault_fds *fds)
{
	static const uint64_t config[FAULT_EVENT_CNT] = {
		[FAULT_MINOR_EVENT] = PERF_COUNT_SW_PAGE_FAULTS_MIN,
		[FAULT_MAJOR_EVENT] = PERF_COUNT_SW_PAGE_FAULTS_MAJ,
		[FAULT_BEGIN_EVENT] = PERF_COUNT_SW_PAGE_FAULTS,
	};
	const struct bpf_program *progs[FAULT_EVENT_CNT] = {
		[FAULT_MINOR_EVENT] = tracer->skel->progs.at_fault_minor,
		[FAULT_MAJOR_EVENT] = tracer->skel->progs.at_fault_major,
		[FAULT_BEGIN_EVENT] = tracer->skel->progs.at_fault_begin,
	};
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.sample_period = 1,
		.disabled = 1,
		.inherit = is_inherited,
		.inherit_thread = is_inherited && !tracer->opts.is_following,
	};
	int i, err = 0;

	*fds = (struct fault_fds){{-1, -1, -1}};
	for (i = 0; i < FAULT_EVENT_CNT; i++) {
		attr.config = config[i];
		fds->fd[i] = (int)syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
		if (fds->fd[i] < 0) {
			err = -errno;
			break;
		}
		if (ioctl(fds->fd[i], PERF_EVENT_IOC_SET_BPF, bpf_program__fd(progs[i]))) {
			err = -errno;
			i++;
			break;
		}
	}
	while (err && i > 0)
		close(fds->fd[--i]);
	return err;
}

static void switch_fault_events(const struct fault_fds *fds, bool is_on)
{
	/* Ends first on and last off: an end without a start counts nothing, the reverse neither. */
	for (int i = 0; i < FAULT_EVENT_CNT; i++) {
		int event = is_on ? i : FAULT_EVENT_CNT - 1 - i;

		ioctl(fds->fd[event], is_on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
	}
}

static void close_fault_events(const struct fault_fds *fds)
{
	for (int i = 0; i < FAULT_EVENT_CNT; i++)
		close(fds->fd[i]);
}

static int tracer__add_thread(struct tracer *tracer, pid_t tid)
{
	struct fault_fds *faults = realloc(tracer->faults, (tracer->fault_cnt + 1) * sizeof(*faults));
	int err;

	if (!faults)
		return -ENOMEM;
	tracer->faults = faults;
	err = open_fault_events(tracer, tid, true, &faults[tracer->fault_cnt]);
	if (!err)
		tracer->fault_cnt++;
	return err;
}

/* The process is held, so the list of its threads does not change. */
static int tracer__add_threads(struct tracer *tracer, pid_t tgid)
{
	char path[64];
	struct dirent *entry;
	DIR *dir;
	int err = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", tgid);
	dir = opendir(path);
	if (!dir)
		return -errno;
	while (!err && (entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.')
			err = tracer__add_thread(tracer, atoi(entry->d_name));
	closedir(dir);
	return err;
}

int tracer__add_target(struct tracer *tracer, pid_t tgid)
{
	int err;

	if (tgid <= 0 || (uint32_t)tgid >= tracer->pid_cnt) {
		msg__error("cannot trace process %d: kernel.pid_max was %u when tracing was set up", tgid,
			   tracer->pid_cnt);
		return -ERANGE;
	}
	if (tracer->has_faults) {
		err = tracer__add_threads(tracer, tgid);
		if (err) {
			msg__error("cannot watch the page faults of process %d: %s", tgid, strerror(-err));
			return err;
		}
	}
	__atomic_store_n(&tracer->targets[tgid], AT_PHASE_STARTUP + 1, __ATOMIC_RELEASE);
	tracer->skel->bss->phases_seen[AT_PHASE_STARTUP] = 1;
	return 0;
}

/* Calibration: what our programs add to a call and to a fault, on this process. */

enum { CALIB_BATCH_CNT = 10, CALIB_CALL_CNT = 100, CALIB_PAGE_CNT = 32, PAGE_BYTES = 4096 };

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* The cheapest traced call: an unaligned address is refused at once. */
static uint64_t calibrate_call_ns(void)
{
	uint64_t best_ns = UINT64_MAX, start_ns, ns;

	for (int batch = 0; batch < CALIB_BATCH_CNT; batch++) {
		start_ns = now_ns();
		for (int i = 0; i < CALIB_CALL_CNT; i++)
			syscall(SYS_madvise, 1, 0, MADV_DONTNEED);
		ns = (now_ns() - start_ns) / CALIB_CALL_CNT;
		if (ns < best_ns)
			best_ns = ns;
	}
	return best_ns;
}

static uint64_t calibrate_fault_ns(char *pages)
{
	uint64_t best_ns = UINT64_MAX, start_ns, ns;

	for (int batch = 0; batch < CALIB_BATCH_CNT; batch++) {
		madvise(pages, CALIB_PAGE_CNT * PAGE_BYTES, MADV_DONTNEED);
		start_ns = now_ns();
		for (int i = 0; i < CALIB_PAGE_CNT; i++)
			((volatile char *)pages)[i * PAGE_BYTES] = 1;
		ns = (now_ns() - start_ns) / CALIB_PAGE_CNT;
		if (ns < best_ns)
			best_ns = ns;
	}
	return best_ns;
}

/* First without the programs, then with them: what is left in added_*_ns is the difference. */
static void tracer__calibrate(struct tracer *tracer, bool is_traced)
{
	struct fault_fds fds;
	bool has_fds = false;
	uint64_t call_ns, fault_ns = 0;
	char *pages =
		mmap(NULL, CALIB_PAGE_CNT * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (is_traced && tracer->has_faults)
		has_fds = !open_fault_events(tracer, 0, false, &fds);
	if (has_fds)
		switch_fault_events(&fds, true);
	call_ns = calibrate_call_ns();
	if (pages != MAP_FAILED) {
		madvise(pages, CALIB_PAGE_CNT * PAGE_BYTES, MADV_NOHUGEPAGE);
		fault_ns = calibrate_fault_ns(pages);
		munmap(pages, CALIB_PAGE_CNT * PAGE_BYTES);
	}
	if (has_fds)
		close_fault_events(&fds);
	if (is_traced) {
		tracer->added_call_ns = call_ns > tracer->added_call_ns ? call_ns - tracer->added_call_ns : 0;
		tracer->added_fault_ns = fault_ns > tracer->added_fault_ns ? fault_ns - tracer->added_fault_ns : 0;
	} else {
		tracer->added_call_ns = call_ns;
		tracer->added_fault_ns = fault_ns;
	}
}

/* Zeroes a map with per-CPU values of value_bytes. */
static int clear_map(const struct bpf_map *map, void *zeroes)
{
	int fd = bpf_map__fd(map), err = 0;

	for (uint32_t key = 0; !err && key < bpf_map__max_entries(map); key++)
		err = bpf_map_update_elem(fd, &key, zeroes, BPF_ANY);
	return err;
}

_Static_assert(sizeof(struct at_ledger) <= sizeof(struct at_cell), "zeroes are enough");

/* Our own process, that calibration made known, is the only one. */
static int tracer__clear_ledgers(struct tracer *tracer, void *zeroes)
{
	uint32_t tgid = (uint32_t)getpid();
	int err = 0;

	if (tracer->opts.ledgers)
		err = clear_map(tracer->skel->maps.ledgers, zeroes);
	if (err || !(tracer->opts.ledgers & LEDGER_COMMIT))
		return err;
	tracer->skel->bss->commit_level = 0;
	tracer->skel->bss->commit_start = 0;
	bpf_map_delete_elem(bpf_map__fd(tracer->skel->maps.processes), &tgid);
	return 0;
}

/* Removes what calibration left. Our slots are empty: no call of ours is running. */
static int tracer__clear(struct tracer *tracer)
{
	const struct bpf_map *maps[] = {tracer->skel->maps.cells, tracer->skel->maps.losses, tracer->skel->maps.compats,
					tracer->skel->maps.advices, tracer->skel->maps.flights};
	void *zeroes = calloc((size_t)tracer->cpu_cnt, sizeof(struct at_cell));
	int err = zeroes ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < sizeof(maps) / sizeof(maps[0]); i++)
		err = clear_map(maps[i], zeroes);
	if (!err)
		err = tracer__clear_ledgers(tracer, zeroes);
	free(zeroes);
	return err;
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
		err = attach(skel->progs.at_die_btf, &skel->links.at_die_btf);
	if (!err)
		err = attach(skel->progs.at_fork_btf, &skel->links.at_fork_btf);
	if (!err)
		err = attach(skel->progs.at_exec_btf, &skel->links.at_exec_btf);
	if (!err)
		err = attach(skel->progs.at_enter_btf, &skel->links.at_enter_btf);
	return err;
}

static void tracer__detach(struct tracer *tracer)
{
	struct alloctrace_bpf *skel = tracer->skel;

	detach(&skel->links.at_enter_btf);
	detach(&skel->links.at_exit_btf);
	detach(&skel->links.at_fork_btf);
	detach(&skel->links.at_exec_btf);
	detach(&skel->links.at_die_btf);
}

int tracer__start(struct tracer *tracer)
{
	uint32_t tgid = (uint32_t)getpid();
	bool is_calibrated = !tracer->opts.is_measuring_bpf && tgid < tracer->pid_cnt && !tracer->targets[tgid];
	int err;

	if (is_calibrated)
		tracer__calibrate(tracer, false);
	err = tracer__attach(tracer);
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
		switch_fault_events(&tracer->faults[i], true);
	return 0;
}

int tracer__stop(struct tracer *tracer)
{
	for (size_t i = 0; i < tracer->fault_cnt; i++)
		switch_fault_events(&tracer->faults[i], false);
	tracer__detach(tracer);
	if (tracer->stats_fd >= 0)
		close(tracer->stats_fd);
	tracer->stats_fd = -1;
	/* Programs that are running on other CPUs at this moment have ended when this returns. */
	syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
	return 0;
}

/* Collecting */

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
	uint64_t event_cnt = 0, cell_cnt, value;

	for (size_t i = 0; i < tracer->fault_cnt; i++)
		for (int event = FAULT_MINOR_EVENT; event <= FAULT_MAJOR_EVENT; event++) {
			if (read(tracer->faults[i].fd[event], &value, sizeof(value)) != sizeof(value))
				return -errno;
			event_cnt += value;
		}
	cell_cnt = total->classes[AT_CLASS_FAULT_MINOR].call_cnt + total->classes[AT_CLASS_FAULT_MAJOR].call_cnt;
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
		err = tracer__collect_flights(tracer, profile);
	/* A call without room for its start was counted at its exit, too. */
	full_cnt = profile->loss_cnt[AT_LOSS_SLOT_FULL];
	if (full_cnt > profile->loss_cnt[AT_LOSS_NO_START])
		full_cnt = profile->loss_cnt[AT_LOSS_NO_START];
	profile->loss_cnt[AT_LOSS_NO_START] -= full_cnt;
	return err;
}

static int tracer__collect_ledgers(struct tracer *tracer, struct profile *profile)
{
	profile->ledgers = tracer->opts.ledgers;
	memcpy(profile->batch_pages, tracer->batches, sizeof(profile->batch_pages));
	profile->commit_start_pages = tracer->skel->bss->commit_start;
	if (!profile->ledgers)
		return 0;
	return ledger__collect(bpf_map__fd(tracer->skel->maps.ledgers), tracer->cpu_cnt, profile);
}

int tracer__collect(struct tracer *tracer, struct profile *profile)
{
	struct phase_stat *total = malloc(sizeof(*total));
	int err = total ? 0 : -ENOMEM;

	profile->tier = 1;
	profile->has_trace = true;
	profile->has_faults = tracer->has_faults;
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

void tracer__free(struct tracer *tracer)
{
	if (!tracer)
		return;
	for (size_t i = 0; i < tracer->fault_cnt; i++)
		close_fault_events(&tracer->faults[i]);
	free(tracer->faults);
	if (tracer->stats_fd >= 0)
		close(tracer->stats_fd);
	if (tracer->targets)
		munmap(tracer->targets, tracer->targets_bytes);
	alloctrace_bpf__destroy(tracer->skel);
	free(tracer);
}
