/* SPDX-License-Identifier: BSD-2-Clause */
/* Attaching, waiting, collecting; see attach.h. */
#include "cli/attach.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "cli/allocators.h"
#include "cli/cmd.h"
#include "cli/host.h"
#include "cli/interval.h"
#include "cli/limits.h"
#include "cli/msg.h"
#include "cli/saved.h"

#define MS_NS 1000000ull

enum {
	ROW_MIN = 4096, /* rows for those to come */
	ROW_MAX = 1 << 16,
	FAULT_THREAD_MAX = 512, /* above, the page fault events are those of all CPUs: three descriptors a thread */
	TICK_MS = 50,           /* how often the end of targets is looked for, and what no event has caught */
	TIDY_MS = 1000,         /* how often rows of the dead are freed, and how long they are left */
	SETTLE_MAX = 100,       /* passes until no new thread is found */
};

struct seen_thread {
	uint32_t tid;
	uint64_t start_ns;
};

struct attach {
	struct attach_opts opts;
	struct choice *choice;
	struct features features;
	struct tracer *tracer;
	struct processes ended; /* rows that were freed */
	struct allocators *allocators;
	struct seen_thread *seen; /* threads with page fault events */
	size_t seen_cnt;
	int signal_fd, signal;
	sigset_t signals, old_mask;
	bool is_masked, is_unsaved;
	uint64_t start_ns, end_ns; /* CLOCK_MONOTONIC */
	uint64_t tidied_ns, interval_start_ns;
	struct profile *before; /* at the last interval */
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static int failed(const char *what, int err)
{
	msg__error("cannot %s: %s", what, strerror(-err));
	return AT_EXIT_OWN;
}

static int hold_signals(struct attach *attach)
{
	sigemptyset(&attach->signals);
	sigaddset(&attach->signals, SIGINT);
	sigaddset(&attach->signals, SIGTERM);
	sigaddset(&attach->signals, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &attach->signals, &attach->old_mask))
		return failed("hold signals back", -errno);
	attach->is_masked = true;
	attach->signal_fd = signalfd(-1, &attach->signals, SFD_CLOEXEC | SFD_NONBLOCK);
	return attach->signal_fd < 0 ? failed("wait for signals", -errno) : 0;
}

static int check_features(struct attach *attach)
{
	char advice[256];

	feature__probe(&attach->features);
	if (attach->features.best_tier >= 1)
		return 0;
	feature__advice(&attach->features, 0, advice, sizeof(advice));
	msg__error("attach needs the kernel's counts, which cannot be had here: %s ('alloctrace check' says more)",
		   advice);
	return AT_EXIT_OWN;
}

static bool is_partial(const struct choice *choice)
{
	for (size_t i = 0; i < choice->cnt; i++)
		if (choice->chosen[i].scope == AT_SCOPE_THREAD)
			return true;
	return false;
}

static int open_tracer(struct attach *attach)
{
	size_t thread_cnt = choice__thread_cnt(attach->choice);
	struct tracer_opts opts = {
		.is_following = attach->opts.is_following,
		.slot_mode = attach->opts.slot_mode,
		.is_measuring_bpf = attach->opts.is_measuring_bpf,
		.ledgers = attach->opts.ledgers,
		.callchains = attach->opts.callchains,
		.is_live = true,
		.is_open = choice__is_open(attach->choice),
		.is_partial = is_partial(attach->choice),
		.has_compat = choice__compat_pid(attach->choice) != 0,
		.is_faulting_wide = choice__is_open(attach->choice) || thread_cnt > FAULT_THREAD_MAX,
		.row_cnt = attach->opts.row_cnt,
	};

	if (!opts.row_cnt)
		opts.row_cnt = 2 * thread_cnt + ROW_MIN < ROW_MAX ? (uint32_t)(2 * thread_cnt) + ROW_MIN : ROW_MAX;
	if (tracer__open(&attach->tracer, &attach->features, &opts) || tracer__start(attach->tracer))
		return AT_EXIT_OWN;
	return 0;
}

static bool has_seen(const struct attach *attach, const struct at_task *task)
{
	for (size_t i = 0; i < attach->seen_cnt; i++)
		if (attach->seen[i].tid == task->tid && attach->seen[i].start_ns == task->start_ns)
			return true;
	return false;
}

/* Page fault events of a thread; that one is gone by now is no matter. */
static int watch_thread(struct attach *attach, const struct at_task *task, bool is_first)
{
	struct seen_thread *seen;
	int err;

	if (attach->seen_cnt >= FAULT_THREAD_MAX * 2 || task->is_dead || has_seen(attach, task))
		return 0;
	seen = realloc(attach->seen, (attach->seen_cnt + 1) * sizeof(*seen));
	if (!seen)
		return -ENOMEM;
	attach->seen = seen;
	seen[attach->seen_cnt++] = (struct seen_thread){task->tid, task->start_ns};
	err = tracer__watch_faults(attach->tracer, (pid_t)task->shown_tid, !is_first);
	return err == -ESRCH ? 0 : err;
}

/* Says what is wanted of all threads in the list; those of wanted processes are counted from here on. */
static int want_all(struct attach *attach, const struct at_task *tasks, size_t cnt)
{
	enum at_scope scope;
	uint64_t start_ns;
	uint32_t id;
	int err = 0;

	for (size_t i = 0; !err && i < cnt; i++) {
		scope = tasks[i].is_dead ? AT_SCOPE_NONE : choice__match(attach->choice, &tasks[i], &id, &start_ns);
		if (scope)
			err = tracer__want(attach->tracer, id, scope, start_ns);
	}
	return err;
}

/*
 * After the pass that has made them known: the order keeps a call that is
 * running from looking like a lost one. Opening events takes its time; all that
 * is counted begins at the same moment.
 */
static int watch_all(struct attach *attach, const struct at_task *tasks, size_t cnt, bool is_first)
{
	uint64_t start_ns;
	uint32_t id;
	int err = 0;

	for (size_t i = 0; !err && i < cnt; i++)
		if (!tasks[i].is_dead && choice__match(attach->choice, &tasks[i], &id, &start_ns))
			err = watch_thread(attach, &tasks[i], is_first);
	for (size_t i = 0; !err && i < cnt; i++)
		if (!tasks[i].is_dead && !tracer__is_watched(attach->tracer, tasks[i].tgid) &&
		    choice__match(attach->choice, &tasks[i], &id, &start_ns))
			err = tracer__watch(attach->tracer, tasks[i].tgid, (pid_t)tasks[i].shown_tgid);
	return err || !is_first ? err : tracer__begin_faults(attach->tracer);
}

/* Those that come are caught by the kernel side. Control groups may be removed, and made again. */
static int open_to_all(struct attach *attach)
{
	const struct choice *choice = attach->choice;
	int err = 0;

	for (size_t i = 0; !err && i < choice->name_cnt; i++)
		err = tracer__open_to_name(attach->tracer, choice->names[i]);
	for (size_t i = 0; !err && i < choice->cgroup_cnt; i++)
		if (choice->root_ids[i])
			err = tracer__open_to_cgroup(attach->tracer, choice->root_ids[i]);
	return err;
}

/* One look at all threads of the system; *new_cnt are those that were not known. */
static int look_around(struct attach *attach, bool is_first, uint32_t *new_cnt)
{
	uint32_t marked_cnt = tracer__attach_state(attach->tracer)->marked_cnt;
	struct at_task *tasks = NULL;
	size_t cnt = 0;
	int err = choice__refresh(attach->choice), status = 0;

	if (!err)
		err = open_to_all(attach);
	if (!err)
		err = tracer__pass(attach->tracer, AT_PASS_LIST, &tasks, &cnt);
	if (!err)
		err = want_all(attach, tasks, cnt);
	if (!err && is_first)
		status = choice__settle(attach->choice, tasks, cnt);
	if (!err && !status)
		err = tracer__pass(attach->tracer, AT_PASS_MARK, NULL, NULL);
	if (!err && !status)
		err = watch_all(attach, tasks, cnt, is_first);
	free(tasks);
	*new_cnt = tracer__attach_state(attach->tracer)->marked_cnt - marked_cnt;
	return err ? failed("find the threads of the targets", err) : status;
}

/* Until nothing is new: a thread may have been started behind the back of a pass. */
static int find_threads(struct attach *attach)
{
	uint32_t new_cnt = 1;
	int status = look_around(attach, true, &new_cnt);

	if (!status && !new_cnt && !choice__is_open(attach->choice)) {
		msg__error("nothing to attach to: the targets have ended");
		return 1;
	}
	if (!status && !new_cnt && attach->choice->name_cnt && !attach->choice->cgroup_cnt) {
		msg__error("--name %s: no process has that name", attach->choice->names[0]);
		return 1;
	}
	for (int i = 0; !status && new_cnt && i < SETTLE_MAX; i++)
		status = look_around(attach, false, &new_cnt);
	return status;
}

/* Everything that has a row, or had. */
static int list_processes(struct attach *attach, struct processes *list)
{
	uint32_t cnt;
	const struct at_row *rows = tracer__rows(attach->tracer, &cnt);
	int err;

	processes__init(list);
	err = processes__add(list, &attach->ended);
	for (uint32_t i = 0; !err && i < cnt; i++)
		if (rows[i].begin_ns)
			err = processes__add_row(list, &rows[i]);
	return err;
}

int attach__open(struct attach **out, struct choice *choice, const struct attach_opts *opts)
{
	struct attach *attach = calloc(1, sizeof(*attach));
	struct processes first;
	int status, err;

	*out = attach;
	processes__init(&first);
	if (!attach)
		return failed("attach", -ENOMEM);
	attach->opts = *opts;
	attach->choice = choice;
	attach->signal_fd = -1;
	processes__init(&attach->ended);
	limits__raise();
	status = opts->save ? saved__check(opts->save) : 0;
	if (!status)
		status = choice__bind(choice);
	if (!status)
		status = check_features(attach);
	if (!status)
		status = hold_signals(attach);
	if (!status)
		status = open_tracer(attach);
	if (!status)
		status = find_threads(attach);
	attach->start_ns = attach->tidied_ns = attach->interval_start_ns = now_ns();
	err = status ? 0 : list_processes(attach, &first);
	if (!status && !err)
		err = allocators__begin(&attach->allocators, &first);
	processes__free(&first);
	if (err)
		status = failed("list the targets", err);
	if (!status)
		msg__info("attached; Ctrl-C ends it with a report");
	return status;
}

/* Takes what rows of the dead hold, and has them used again. */
static int tidy_rows(struct attach *attach, uint64_t at_ns)
{
	uint32_t cnt;
	struct at_row *rows = tracer__rows(attach->tracer, &cnt);
	int err = 0;

	attach->tidied_ns = at_ns;
	for (uint32_t i = 0; !err && i < cnt; i++) {
		uint64_t end_ns = __atomic_load_n(&rows[i].end_ns, __ATOMIC_ACQUIRE);

		/* A dying thread takes page faults after its end. */
		if (!end_ns || end_ns + TIDY_MS * MS_NS > at_ns)
			continue;
		err = processes__add_row(&attach->ended, &rows[i]);
		if (err)
			break;
		memset(&rows[i], 0, sizeof(rows[i]));
		err = tracer__free_row(attach->tracer, i);
	}
	return err;
}

/* What the total has and no row: by threads that got none. */
static void find_other(const struct profile *profile, struct processes *list, uint64_t full_cnt)
{
	list->other_cnt = full_cnt;
	for (int class = 1; class < AT_CLASS_CNT; class ++) {
		struct usage *other = &list->other[class];

		for (int phase = 0; phase < AT_PHASE_CNT; phase++) {
			const struct class_stat *stat = &profile->phases[phase].classes[class];

			other->call_cnt += stat->call_cnt;
			other->error_cnt += stat->error_cnt;
			other->bytes += stat->bytes;
			other->sum_ns += stat->sum_ns;
		}
		for (size_t i = 0; i <= list->cnt; i++) {
			const struct usage *part = i < list->cnt ? &list->items[i].classes[class] : &list->rest[class];

			other->call_cnt -= part->call_cnt < other->call_cnt ? part->call_cnt : other->call_cnt;
			other->error_cnt -= part->error_cnt < other->error_cnt ? part->error_cnt : other->error_cnt;
			other->bytes -= part->bytes < other->bytes ? part->bytes : other->bytes;
			other->sum_ns -= part->sum_ns < other->sum_ns ? part->sum_ns : other->sum_ns;
		}
	}
}

static void fill_target(const struct attach *attach, struct profile *profile, uint64_t end_ns)
{
	struct at_cpu cpu;

	host__fill(profile);
	profile->pid = profile->processes->cnt ? profile->processes->items[0].pid : 0;
	processes__cpu(profile->processes, &cpu);
	profile->wall_ns = end_ns - attach->start_ns;
	profile->user_ns = processes__user_ns(&cpu);
	profile->sys_ns = processes__sys_ns(&cpu);
	for (size_t i = 0; i < profile->processes->cnt; i++) {
		profile->minor_fault_cnt += profile->processes->items[i].classes[AT_CLASS_FAULT_MINOR].call_cnt;
		profile->major_fault_cnt += profile->processes->items[i].classes[AT_CLASS_FAULT_MAJOR].call_cnt;
	}
}

/* All that has been counted so far; NULL after saying why. */
static struct profile *take_profile(struct attach *attach, uint64_t at_ns)
{
	struct profile *profile = profile__new();
	int err = profile ? tracer__pass(attach->tracer, AT_PASS_LOOK, NULL, NULL) : -ENOMEM;

	if (!err) {
		profile->processes = calloc(1, sizeof(*profile->processes));
		err = profile->processes ? 0 : -ENOMEM;
	}
	/* Rows before the totals: what comes between them is seen in the totals alone. */
	if (!err)
		err = list_processes(attach, profile->processes);
	if (!err && !tracer__collect(attach->tracer, profile)) {
		find_other(profile, profile->processes, tracer__attach_state(attach->tracer)->row_full_cnt);
		fill_target(attach, profile, at_ns);
		return profile;
	}
	if (err)
		failed("read what was counted", err);
	profile__free(profile);
	return NULL;
}

/* What `part`, a copy of `now`, has more than the interval before. */
static int part_of(struct attach *attach, const struct profile *now, struct profile *part)
{
	static const struct processes none;
	const struct processes *before = attach->before ? attach->before->processes : &none;
	struct at_cpu cpu;
	int err = processes__since(now->processes, before, part->processes);

	if (err)
		return failed("report an interval", err);
	if (attach->before)
		interval__since(part, attach->before);
	processes__cpu(part->processes, &cpu);
	part->user_ns = processes__user_ns(&cpu);
	part->sys_ns = processes__sys_ns(&cpu);
	part->wall_ns = now->wall_ns - (attach->before ? attach->before->wall_ns : 0);
	return 0;
}

static int take_interval(struct attach *attach, uint64_t at_ns)
{
	struct profile *now = take_profile(attach, at_ns), *part = profile__new();
	struct processes *list = part ? calloc(1, sizeof(*list)) : NULL;
	int status = 0;

	if (!now || !list) {
		status = now ? failed("report an interval", -ENOMEM) : AT_EXIT_OWN;
		profile__free(now);
		profile__free(part);
		free(list);
		return status;
	}
	status = AT_EXIT_OWN;
	*part = *now;
	part->argv = NULL;
	part->tune = NULL;
	part->processes = list;
	part->callchains = NULL;
	if (!part_of(attach, now, part)) {
		processes__sort(part->processes);
		status = attach->opts.on_interval(attach->opts.data, part, attach->interval_start_ns - attach->start_ns,
						  at_ns - attach->start_ns);
	}
	attach->interval_start_ns = at_ns;
	profile__free(part);
	profile__free(attach->before);
	attach->before = now;
	return status;
}

static bool has_ended(struct attach *attach)
{
	uint32_t cnt;
	const struct at_row *rows = tracer__rows(attach->tracer, &cnt);

	if (choice__is_open(attach->choice))
		return false;
	for (uint32_t i = 0; i < cnt; i++)
		if (rows[i].begin_ns && !__atomic_load_n(&rows[i].end_ns, __ATOMIC_ACQUIRE))
			return false;
	return !tracer__attach_state(attach->tracer)->row_full_cnt || choice__has_ended(attach->choice);
}

/* Sleeps until at_ns or the next tick. True when a signal has come. */
static bool sleep_until(struct attach *attach, uint64_t at_ns)
{
	struct pollfd poll_fd = {.fd = attach->signal_fd, .events = POLLIN};
	struct signalfd_siginfo info;
	uint64_t now = now_ns();
	uint64_t wait_ns = at_ns > now ? at_ns - now : 0;

	if (wait_ns > TICK_MS * MS_NS)
		wait_ns = TICK_MS * MS_NS;
	if (poll(&poll_fd, 1, (int)((wait_ns + MS_NS - 1) / MS_NS)) <= 0 ||
	    read(attach->signal_fd, &info, sizeof(info)) != sizeof(info))
		return false;
	attach->signal = (int)info.ssi_signo;
	return true;
}

int attach__wait(struct attach *attach)
{
	uint64_t interval_ns = attach->opts.interval_ns, now;
	uint64_t end_ns = attach->opts.duration_ns ? attach->start_ns + attach->opts.duration_ns : UINT64_MAX;
	uint64_t next_ns = interval_ns ? attach->start_ns + interval_ns : UINT64_MAX;
	uint32_t new_cnt;
	int status = 0, err;

	while (!status) {
		if (sleep_until(attach, next_ns < end_ns ? next_ns : end_ns))
			break;
		now = now_ns();
		if (now >= next_ns) {
			status = take_interval(attach, now);
			while (next_ns <= now)
				next_ns += interval_ns;
		}
		if (status || now >= end_ns || has_ended(attach))
			break;
		if (choice__is_open(attach->choice))
			status = look_around(attach, false, &new_cnt);
		err = now >= attach->tidied_ns + TIDY_MS * MS_NS ? tidy_rows(attach, now) : 0;
		if (err)
			status = failed("keep count of threads", err);
	}
	return status;
}

static int look_at_allocators(struct attach *attach)
{
	struct processes last;
	int err = list_processes(attach, &last);

	if (!err)
		err = allocators__end(attach->allocators, &last, is_partial(attach->choice));
	processes__free(&last);
	return err ? failed("read what allocators counted", err) : 0;
}

int attach__finish(struct attach *attach, struct profile **profile)
{
	*profile = NULL;
	attach->end_ns = now_ns();
	if (attach->is_masked) {
		sigprocmask(SIG_SETMASK, &attach->old_mask, NULL);
		attach->is_masked = false;
	}
	if (look_at_allocators(attach) || tracer__stop(attach->tracer))
		return AT_EXIT_OWN;
	*profile = take_profile(attach, attach->end_ns);
	if (!*profile)
		return AT_EXIT_OWN;
	(*profile)->argv = calloc(2, sizeof(char *));
	if (!(*profile)->argv || !((*profile)->argv[0] = strdup("attach")))
		return failed("keep what was counted", -ENOMEM);
	allocators__fill(attach->allocators, *profile);
	processes__sort((*profile)->processes);
	attach->is_unsaved = attach->opts.save && saved__write_profile(attach->opts.save, *profile);
	return 0;
}

bool attach__is_unsaved(const struct attach *attach)
{
	return attach->is_unsaved;
}

int attach__signal(const struct attach *attach)
{
	return attach->signal;
}

void attach__close(struct attach *attach)
{
	if (!attach)
		return;
	if (attach->is_masked)
		sigprocmask(SIG_SETMASK, &attach->old_mask, NULL);
	if (attach->signal_fd >= 0)
		close(attach->signal_fd);
	tracer__free(attach->tracer);
	processes__free(&attach->ended);
	allocators__free(attach->allocators);
	profile__free(attach->before);
	free(attach->seen);
	free(attach);
}
