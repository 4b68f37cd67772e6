/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * attach, as far as the kernel side is concerned: passes over threads, who is
 * wanted, rows, and the tracepoints of single syscalls, which cost other
 * processes less than sys_enter and sys_exit do.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bpf/alloctrace.skel.h"
#include "cli/msg.h"
#include "cli/tracepoint.h"
#include "cli/tracer_state.h"

/* The syscalls after which an address space may be gone. */
static const char *const last_names[] = {"exit_group", "execve", "execveat"};
enum { LAST_CNT = sizeof(last_names) / sizeof(last_names[0]), SINGLE_MAX = 2 * (AT_SYS_CNT - 1) + LAST_CNT };

/* In a pid namespace of its own even our own number is not the kernel's. */
static bool has_passes(const struct tracer *tracer)
{
	return tracer->opts.is_live || tracer->is_translating;
}

static int configure_rows(struct tracer *tracer)
{
	struct alloctrace_bpf *skel = tracer->skel;
	int err;

	/* The maps stay, see tracer__configure_ledgers. */
	if (!tracer->opts.is_live)
		return bpf_map__set_max_entries(skel->maps.wanted, 1);
	skel->rodata->cfg_has_rows = true;
	skel->rodata->cfg_is_partial = tracer->opts.is_partial;
	skel->rodata->cfg_is_open = tracer->opts.is_open;
	skel->rodata->cfg_row_cnt = tracer->opts.row_cnt;
	err = bpf_map__set_max_entries(skel->maps.rows, tracer->opts.row_cnt);
	return err ? err : bpf_map__set_max_entries(skel->maps.free_rows, tracer->opts.row_cnt);
}

int tracer__configure_live(struct tracer *tracer)
{
	struct alloctrace_bpf *skel = tracer->skel;
	int root_fd = -ENOTSUP;

	tracer->is_fault_count_sure = true;
	if (tracer->opts.is_live && !tracer->opts.has_compat)
		root_fd = tracepoint__root();
	tracer->has_singles = root_fd >= 0;
	if (root_fd >= 0)
		close(root_fd);
	else if (tracer->opts.is_live)
		msg__info("tracing all syscalls, not the single ones: %s",
			  tracer->opts.has_compat ? "a target is a 32-bit program" : strerror(-root_fd));
	bpf_program__set_autoload(skel->progs.at_enter_tp, tracer->has_singles);
	bpf_program__set_autoload(skel->progs.at_exit_tp, tracer->has_singles);
	bpf_program__set_autoload(skel->progs.at_last_tp, tracer->has_singles && tracer->opts.ledgers & LEDGER_COMMIT);
	bpf_program__set_autoload(skel->progs.at_tasks, has_passes(tracer));
	return configure_rows(tracer);
}

/* The memory of an array of values, which the kernel side shares. NULL with errno set. */
static void *map_memory(const struct bpf_map *map, size_t bytes)
{
	void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);

	return mem == MAP_FAILED ? NULL : mem;
}

static size_t rows_bytes(const struct tracer *tracer)
{
	return tracer->opts.row_cnt * sizeof(struct at_row);
}

int tracer__map_live(struct tracer *tracer)
{
	if (!has_passes(tracer))
		return 0;
	tracer->attach = map_memory(tracer->skel->maps.attach_state, sizeof(*tracer->attach));
	if (!tracer->attach)
		return -errno;
	if (tracer->opts.is_live)
		tracer->rows = map_memory(tracer->skel->maps.rows, rows_bytes(tracer));
	if (tracer->opts.is_live && !tracer->rows)
		return -errno;
	tracer->pass_link = bpf_program__attach_iter(tracer->skel->progs.at_tasks, NULL);
	return tracer->pass_link ? 0 : -errno;
}

/* Reads a pass to its end. */
static int read_pass(int fd, struct at_task **tasks, size_t *task_cnt)
{
	size_t cap = 0, used = 0;
	char *bytes = NULL, *more;
	ssize_t got;

	do {
		if (cap - used < 64 * sizeof(struct at_task)) {
			cap = 2 * cap + 4096 * sizeof(struct at_task);
			more = realloc(bytes, cap);
			if (!more) {
				free(bytes);
				return -ENOMEM;
			}
			bytes = more;
		}
		got = read(fd, bytes + used, cap - used);
		if (got > 0)
			used += (size_t)got;
	} while (got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN)));
	if (got < 0 || !tasks) {
		free(bytes);
		return got < 0 ? -errno : 0;
	}
	*tasks = (struct at_task *)bytes;
	*task_cnt = used / sizeof(struct at_task);
	return 0;
}

int tracer__pass(struct tracer *tracer, enum at_pass pass, struct at_task **tasks, size_t *task_cnt)
{
	int fd, err;

	__atomic_store_n(&tracer->attach->pass, pass, __ATOMIC_SEQ_CST);
	fd = bpf_iter_create(bpf_link__fd(tracer->pass_link));
	if (fd < 0)
		return -errno;
	err = read_pass(fd, tasks, task_cnt);
	close(fd);
	return err;
}

/* Events go on counting what the cells no longer do: their counts are read first. */
int tracer__end_live(struct tracer *tracer)
{
	if (tracer__read_faults(tracer, &tracer->fault_end_cnt))
		tracer->is_fault_count_sure = false;
	tracer->attach->is_over = true;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	memset(tracer->targets, 0, tracer->targets_bytes);
	/* Programs that are running on other CPUs at this moment have ended when this returns. */
	syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
	return 0;
}

uint32_t tracer__self(struct tracer *tracer)
{
	if (!has_passes(tracer))
		return (uint32_t)getpid();
	if (!tracer->attach->self_tgid && tracer__pass(tracer, AT_PASS_LOOK, NULL, NULL))
		return 0;
	return tracer->attach->self_tgid;
}

uint32_t tracer__kernel_tgid(struct tracer *tracer, pid_t pid)
{
	struct at_task *tasks = NULL;
	uint32_t tgid = 0;
	size_t cnt = 0;

	if (!has_passes(tracer))
		return (uint32_t)pid;
	if (tracer__pass(tracer, AT_PASS_LIST, &tasks, &cnt))
		return 0;
	for (size_t i = 0; i < cnt; i++)
		if ((pid_t)tasks[i].shown_tid == pid)
			tgid = tasks[i].tgid;
	free(tasks);
	return tgid;
}

/* Calibration has given a row to each thread of ours that made a call; there is one. */
void tracer__clear_live(struct tracer *tracer)
{
	if (!tracer->opts.is_live)
		return;
	memset(tracer->rows, 0, tracer->attach->row_next * sizeof(*tracer->rows));
	tracer->attach->row_next = 0;
	tracer->attach->row_full_cnt = 0;
}

int tracer__want(struct tracer *tracer, uint32_t id, enum at_scope scope, uint64_t start_ns)
{
	struct at_wanted wanted = {.start_ns = start_ns, .scope = scope};

	if (id >= tracer->pid_cnt)
		return -ERANGE;
	return bpf_map_update_elem(bpf_map__fd(tracer->skel->maps.wanted), &id, &wanted, BPF_ANY) ? -errno : 0;
}

static int open_to(struct tracer *tracer, const struct bpf_map *map, const void *key)
{
	const uint8_t value = 1;

	if (bpf_map_update_elem(bpf_map__fd(map), key, &value, BPF_ANY))
		return -errno;
	__atomic_store_n(&tracer->attach->is_open, 1, __ATOMIC_SEQ_CST);
	return 0;
}

int tracer__open_to_name(struct tracer *tracer, const char *name)
{
	char key[AT_COMM_BYTES] = {0};

	memcpy(key, name, strnlen(name, sizeof(key) - 1));
	return open_to(tracer, tracer->skel->maps.open_names, key);
}

int tracer__open_to_cgroup(struct tracer *tracer, uint64_t id)
{
	return open_to(tracer, tracer->skel->maps.open_cgroups, &id);
}

int tracer__begin_faults(struct tracer *tracer)
{
	return tracer__read_faults(tracer, &tracer->fault_base_cnt);
}

int tracer__watch(struct tracer *tracer, uint32_t tgid, pid_t pid)
{
	if (tgid >= tracer->pid_cnt)
		return -ERANGE;
	tracer->skel->bss->phases_seen[AT_PHASE_STARTUP] = 1;
	__atomic_store_n(&tracer->targets[tgid], AT_PHASE_STARTUP + 1, __ATOMIC_SEQ_CST);
	/* After that, so that no later change of its mappings goes unseen. */
	tracer__add_callchains(tracer, tgid, pid); /* what it lacks is counted, and in the chains */
	return 0;
}

bool tracer__is_watched(const struct tracer *tracer, uint32_t tgid)
{
	return tgid < tracer->pid_cnt && __atomic_load_n(&tracer->targets[tgid], __ATOMIC_SEQ_CST);
}

int tracer__watch_faults(struct tracer *tracer, pid_t tid, bool is_maybe_inherited)
{
	int err;

	if (is_maybe_inherited || tracer->opts.is_partial)
		tracer->is_fault_count_sure = false;

	if (!tracer->has_fault_events || tracer->opts.is_faulting_wide)
		return 0;
	err = tracer__add_thread(tracer, tid, -1);
	if (!err)
		tracer__switch_faults(&tracer->faults[tracer->fault_cnt - 1], true);
	return err;
}

int tracer__watch_faults_wide(struct tracer *tracer)
{
	int err = 0;

	/* These count the faults of everybody. */
	tracer->is_fault_count_sure = false;
	for (int cpu = 0; !err && cpu < tracer->cpu_cnt; cpu++) {
		err = tracer__add_thread(tracer, -1, cpu);
		if (err == -ENODEV) /* a CPU that is not there now */
			err = 0;
	}
	return err;
}

struct at_row *tracer__rows(struct tracer *tracer, uint32_t *used_cnt)
{
	uint32_t next = __atomic_load_n(&tracer->attach->row_next, __ATOMIC_SEQ_CST);

	/* Threads that come at once may overshoot. */
	*used_cnt = next < tracer->opts.row_cnt ? next : tracer->opts.row_cnt;
	return tracer->rows;
}

int tracer__free_row(struct tracer *tracer, uint32_t number)
{
	return bpf_map_update_elem(bpf_map__fd(tracer->skel->maps.free_rows), NULL, &number, BPF_ANY) ? -errno : 0;
}

const struct at_attach *tracer__attach_state(const struct tracer *tracer)
{
	return tracer->attach;
}

static int attach_single(struct tracer *tracer, int root_fd, const struct bpf_program *prog, const char *event,
			 const char *syscall)
{
	struct bpf_link *link;
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "syscalls/sys_%s_%s", event, syscall);
	fd = tracepoint__open(root_fd, name);
	if (fd < 0) {
		msg__info("tracepoint %s: %s", name, strerror(-fd));
		return fd;
	}
	link = bpf_program__attach_perf_event(prog, fd);
	if (!link) {
		close(fd);
		return -errno;
	}
	tracer->singles[tracer->single_cnt++] = link;
	return 0;
}

int tracer__attach_singles(struct tracer *tracer, bool is_enter)
{
	struct alloctrace_bpf *skel = tracer->skel;
	const struct bpf_program *prog = is_enter ? skel->progs.at_enter_tp : skel->progs.at_exit_tp;
	int root_fd, err = 0;

	if (!tracer->has_singles)
		return 0;
	if (!tracer->singles)
		tracer->singles = calloc(SINGLE_MAX, sizeof(*tracer->singles));
	if (!tracer->singles)
		return -ENOMEM;
	root_fd = tracepoint__root();
	if (root_fd < 0)
		return root_fd;
	for (int syscall = 1; !err && syscall < AT_SYS_CNT; syscall++)
		err = attach_single(tracer, root_fd, prog, is_enter ? "enter" : "exit", profile__syscall_name(syscall));
	for (int i = 0; !err && is_enter && bpf_program__autoload(skel->progs.at_last_tp) && i < LAST_CNT; i++)
		err = attach_single(tracer, root_fd, skel->progs.at_last_tp, "enter", last_names[i]);
	close(root_fd);
	return err;
}

/* Entries are behind the exits in the list. */
void tracer__detach_singles(struct tracer *tracer, bool is_enter)
{
	size_t keep = is_enter ? AT_SYS_CNT - 1 : 0;

	while (tracer->single_cnt > keep)
		bpf_link__destroy(tracer->singles[--tracer->single_cnt]);
}

void tracer__free_live(struct tracer *tracer)
{
	tracer__detach_singles(tracer, false);
	free(tracer->singles);
	bpf_link__destroy(tracer->pass_link);
	if (tracer->rows)
		munmap(tracer->rows, rows_bytes(tracer));
	if (tracer->attach)
		munmap(tracer->attach, sizeof(*tracer->attach));
}
