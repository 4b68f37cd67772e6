/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of the tracer share; nobody else includes it. Functions return
 * 0 or -errno and say nothing: tracer.c and tracer_collect.c do.
 */
#ifndef ALLOCTRACE_CLI_TRACER_STATE_H
#define ALLOCTRACE_CLI_TRACER_STATE_H

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"
#include "cli/tracer.h"
#include "cli/unwind.h"

struct alloctrace_bpf;
struct bpf_map;

/* The page fault events, in the order in which they are set up and switched off. */
enum fault_event { FAULT_MINOR_EVENT, FAULT_MAJOR_EVENT, FAULT_BEGIN_EVENT, FAULT_EVENT_CNT };

/* The events of one thread and of what it starts later. */
struct fault_fds {
	int fd[FAULT_EVENT_CNT];
};

struct tracer {
	struct alloctrace_bpf *skel;
	struct tracer_opts opts;
	int tier;
	bool has_faults;
	bool has_fault_events; /* by software events, not at a function */
	bool is_storage;       /* slots are in task storage */
	uint64_t batches[AT_BATCH_CNT];
	uint32_t pid_cnt;
	uint8_t *targets; /* the map's own memory */
	size_t targets_bytes;
	struct fault_fds *faults;
	size_t fault_cnt;
	struct unwind *unwind;                  /* NULL: no callchains */
	int stats_fd;                           /* while open, the kernel times all BPF programs */
	int cpu_cnt;                            /* possible CPUs: values of a per-CPU map */
	uint64_t added_call_ns, added_fault_ns; /* to one of the target's, by calibration */
	bool is_translating;                    /* we are in a pid namespace of its own */
	/* tier 2: */
	struct bpf_link **hook_links; /* in the order of their attaching */
	size_t hook_link_cnt;
	bool has_charge_check; /* the kernel's own check of charges is counted */
	/* attach: */
	bool has_singles; /* the tracepoints of single syscalls, not sys_enter and sys_exit */
	struct bpf_link **singles;
	size_t single_cnt;
	struct at_row *rows; /* the map's own memory, as the next */
	struct at_attach *attach;
	struct bpf_link *pass_link;
	bool is_fault_count_sure;               /* no fault can be in the counts of two events */
	uint64_t fault_base_cnt, fault_end_cnt; /* of the events, when the first target was watched, and at the end */
};

/* A map that this session does not use; before loading. */
int tracer__spare_map(struct bpf_map *map);

/* Tier 2, before loading; exits are attached before entries, and detached after them. */
int tracer__configure_functions(struct tracer *tracer);
int tracer__attach_functions(struct tracer *tracer);
void tracer__detach_functions(struct tracer *tracer);

/* attach, before loading; after it; its links, in the order of their attaching. */
int tracer__configure_live(struct tracer *tracer);
int tracer__map_live(struct tracer *tracer);
int tracer__attach_singles(struct tracer *tracer, bool is_enter);
void tracer__detach_singles(struct tracer *tracer, bool is_enter);
int tracer__watch_faults_wide(struct tracer *tracer);
/* No call and no fault that begins from here on is counted; those that run are, if they end in time. */
int tracer__end_live(struct tracer *tracer);
void tracer__free_live(struct tracer *tracer);
/* Removes what calibration left. */
void tracer__clear_live(struct tracer *tracer);
/* A process that we see by this number, as the kernel numbers it; 0 = there is none. */
uint32_t tracer__kernel_tgid(struct tracer *tracer, pid_t pid);
/* Our own process as the kernel numbers it; 0 when that cannot be found out. */
uint32_t tracer__self(struct tracer *tracer);

/*
 * Opens the events of one thread on all CPUs (cpu -1), or of all threads on one
 * CPU (tid -1), switched off. Inherited ones are those of its later threads and children, too.
 */
int tracer__open_faults(struct tracer *tracer, pid_t tid, int cpu, bool is_inherited, struct fault_fds *fds);
/* The same, into the list that is switched, read and closed with the tracer. */
int tracer__add_thread(struct tracer *tracer, pid_t tid, int cpu);
void tracer__switch_faults(const struct fault_fds *fds, bool is_on);
void tracer__close_faults(const struct fault_fds *fds);
/* Faults that ended, as the events themselves have counted them. */
int tracer__read_faults(const struct tracer *tracer, uint64_t *cnt);
/* All threads of a process that is held, so that the list of them does not change. */
int tracer__add_threads(struct tracer *tracer, pid_t tgid);

/* First without the programs, then with them: what is left in added_*_ns is the difference. */
void tracer__calibrate(struct tracer *tracer, bool is_traced);

/* Callchains: nothing is done where they are off. */
int tracer__configure_callchains(struct tracer *tracer);
int tracer__open_callchains(struct tracer *tracer);
int tracer__add_callchains(struct tracer *tracer, uint32_t tgid, pid_t pid);
/* Before and after calibration, which makes calls of our own. */
int tracer__begin_own_callchains(struct tracer *tracer);
int tracer__clear_callchains(struct tracer *tracer);

#endif
