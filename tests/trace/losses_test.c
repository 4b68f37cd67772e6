/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each reason why something is not counted, brought about on purpose: it is
 * named with the right number, and the report is exact or not as it should be.
 * What a healthy kernel does not do is written into the tracer's maps. Needs root
 * and a kernel that can trace; says so and skips otherwise.
 * Elsewhere: no_start and fault_hidden in tracer_test.c, class_assumed in
 * locks_test.py, refault_full in refault_test.py, stack_full in stacks_test.py.
 */
#include "tests/trace/traced.h"

#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "tests/trace/known.h"

enum { PROCESS_ROOM = 1 << 16, PID_MARGIN = 4000, LATE_CNT = 5, LATE_THREAD_CNT = 3, LATE_CALL_CNT = 331 };

static char known_calls[PROGRAM_BYTES], stress_calls[PROGRAM_BYTES];

/* What is lost for this reason, and that nothing else is, but perhaps the page faults of what was lost. */
static void assert_lost(const struct run *run, enum at_loss reason, uint64_t cnt)
{
	bool has_lost_threads = reason == AT_LOSS_SLOT_FULL || reason == AT_LOSS_FORK_FULL;

	for (int i = 0; i < AT_LOSS_CNT; i++)
		if (run->profile->loss_cnt[i] != (i == (int)reason ? cnt : 0) &&
		    !(i == AT_LOSS_FAULT_MISSED && has_lost_threads))
			fail_msg("loss %d: %lu", i, run->profile->loss_cnt[i]);
	assert_int_equal(profile__is_exact(run->profile), reason == AT_LOSS_NEVER_RETURNED);
}

/* A thread of the program is inside an madvise that does not end by itself. */
static struct child get_stuck(struct run *run, const struct tracer_opts *opts)
{
	struct child child = hold((const char *const[]){known_calls, "in-flight", "60000", NULL}, 0);

	start(run, opts, &child, 1);
	release(&child);
	for (int i = 0; i < 20000 && !is_thread_inside(child.pid, 28); i++)
		usleep(1000);
	assert_true(is_thread_inside(child.pid, 28));
	return child;
}

static void end_stuck(struct run *run, const struct child *child)
{
	kill(child->pid, SIGKILL);
	assert_int_equal(waitpid(child->pid, &run->status, 0), child->pid);
	stop(run);
	assert_int_equal(run->total->classes[AT_CLASS_MADVISE_POPULATE].call_cnt, 1);
	assert_int_equal(run->total->classes[AT_CLASS_MADVISE_POPULATE].error_cnt, 1);
	assert_int_equal(run->profile->in_flight_cnt[AT_SYS_MADVISE], 0);
}

/* Killed in mid-call: the kernel ends the call first, so it is one that failed. */
static void test_killed_inside(void **state)
{
	struct run run;
	struct child child = get_stuck(&run, opts_of(state));

	end_stuck(&run, &child);
	assert_exact(&run);
	done(&run);
}

/* The same when another thread's exec ends the one that is inside. */
static void test_exec_while_inside(void **state)
{
	struct run run;

	trace(&run, opts_of(state), known_calls, "in-flight", "0");
	assert_clean_exit(&run);
	assert_exact(&run);
	assert_int_equal(run.total->classes[AT_CLASS_MADVISE_POPULATE].call_cnt, 1);
	assert_int_equal(run.total->classes[AT_CLASS_MADVISE_POPULATE].error_cnt, 1);
	assert_int_equal(run.total->classes[AT_CLASS_MADVISE_OTHER].call_cnt, 3);
	done(&run);
}

/* The thread dies and its call has no end: no call, never in flight, and the slot is free again. */
static void test_never_returned(void **state)
{
	struct child child = hold((const char *const[]){known_calls, "fail", "1", NULL}, 0);
	uint64_t counts[1024] = {1};
	uint32_t key = AT_SYS_MUNMAP;
	struct bpf_map_info info;
	struct at_slot *slots;
	struct run run;
	size_t bytes;

	start(&run, opts_of(state), &child, 1);
	slots = map_slots(&bytes);
	slots[child.pid].syscall = AT_SYS_MUNMAP;
	slots[child.pid].start_ns = 1;
	assert_return_code(bpf_map_update_elem(map_named("flights", &info), &key, counts, BPF_ANY), errno);
	kill(child.pid, SIGKILL);
	close(child.go);
	assert_int_equal(waitpid(child.pid, &run.status, 0), child.pid);
	assert_int_equal(slots[child.pid].start_ns, 0);
	munmap(slots, bytes);
	stop(&run);
	assert_lost(&run, AT_LOSS_NEVER_RETURNED, 1);
	assert_int_equal(run.profile->in_flight_cnt[AT_SYS_MUNMAP], 0);
	assert_int_equal(run.total->classes[AT_CLASS_MUNMAP].call_cnt, 0);
	done(&run);
}

/* The end of a call was not seen: it is lost when the thread enters the next one. */
static void test_no_end(void **state)
{
	struct child child = hold((const char *const[]){known_calls, "fail", "7", NULL}, 0);
	const struct tracer_opts *opts = opts_of(state);
	struct at_slot slot = {.start_ns = 1, .syscall = AT_SYS_MREMAP};
	uint64_t counts[1024] = {1};
	uint32_t key = AT_SYS_MREMAP;
	struct bpf_map_info info;
	struct run run;
	int pidfd = (int)syscall(SYS_pidfd_open, child.pid, 0), tid = child.pid;

	start(&run, opts, &child, 1);
	if (opts->slot_mode == SLOT_STORAGE)
		assert_return_code(bpf_map_update_elem(map_named("task_slots", &info), &pidfd, &slot, BPF_ANY), errno);
	else
		assert_return_code(bpf_map_update_elem(map_named("slots", &info), &tid, &slot, BPF_ANY), errno);
	assert_return_code(bpf_map_update_elem(map_named("flights", &info), &key, counts, BPF_ANY), errno);
	close(pidfd);
	release(&child);
	assert_int_equal(waitpid(child.pid, &run.status, 0), child.pid);
	stop(&run);
	assert_clean_exit(&run);
	assert_lost(&run, AT_LOSS_NO_END, 1);
	assert_slots_empty();
	assert_int_equal(run.profile->in_flight_cnt[AT_SYS_MREMAP], 0);
	assert_int_equal(run.total->classes[AT_CLASS_MADVISE_OTHER].call_cnt, 7);
	for (int i = AT_CLASS_MREMAP_GROW; i <= AT_CLASS_MREMAP_MOVE; i++)
		assert_int_equal(run.total->classes[i].call_cnt, 0);
	done(&run);
}

/* The clock of the CPU that sees the end is behind: the call is counted, without time. */
static void test_clock_back(void **state)
{
	struct run run;
	struct child child = get_stuck(&run, opts_of(state));
	struct at_slot *slots;
	size_t bytes, found_cnt = 0;

	slots = map_slots(&bytes);
	for (size_t i = 0; i < bytes / sizeof(*slots); i++)
		if (slots[i].start_ns) {
			found_cnt++;
			slots[i].start_ns = UINT64_MAX / 2;
		}
	munmap(slots, bytes);
	assert_int_equal(found_cnt, 1);
	end_stuck(&run, &child);
	assert_lost(&run, AT_LOSS_CLOCK_BACK, 1);
	assert_int_equal(run.total->classes[AT_CLASS_MADVISE_POPULATE].sum_ns, 0);
	done(&run);
}

/* Traces a program as if no process or thread could have a higher number than it has. */
static void trace_highest(struct run *run, const struct tracer_opts *opts, const char *const argv[])
{
	int pid_max = features.pid_max;
	struct child child = hold(argv, 0);

	/* Not shortly before the numbers begin anew. */
	while (child.pid > pid_max - PID_MARGIN) {
		kill(child.pid, SIGKILL);
		close(child.go);
		assert_int_equal(waitpid(child.pid, &run->status, 0), child.pid);
		child = hold(argv, 0);
	}
	features.pid_max = child.pid + 1;
	start(run, opts, &child, 1);
	features.pid_max = pid_max;
	release(&child);
	assert_int_equal(waitpid(child.pid, &run->status, 0), child.pid);
	stop(run);
}

/* Threads with numbers for which there is no slot: their calls are lost, all of them. */
static void test_slot_full(void **state)
{
	struct tracer_opts opts = *opts_of(state);
	struct run run;

	/* The C library's own call at a thread's end is the third. */
	trace_highest(&run, &opts, (const char *const[]){known_calls, "threads", "53", NULL});
	assert_lost(&run, AT_LOSS_SLOT_FULL, 53 * 3);
	assert_int_equal(run.total->classes[AT_CLASS_MADVISE_OTHER].call_cnt, 0);
	assert_int_equal(run.total->classes[AT_CLASS_MADVISE_DONTNEED].call_cnt, 0);
	done(&run);
}

/* Children with numbers that cannot be marked: they are not followed. */
static void test_target_full(void **state)
{
	struct run run;

	trace_highest(&run, opts_of(state), (const char *const[]){stress_calls, "processes", "47", NULL});
	assert_lost(&run, AT_LOSS_FORK_FULL, 47);
	assert_int_equal(run.total->classes[AT_CLASS_MUNMAP].error_cnt, 0);
	done(&run);
}

/* Leaves room for some processes in the commit ledger. */
static void fill_commit_ledger(uint32_t room)
{
	struct bpf_map_info info;
	struct at_process nobody = {0};
	int fd = map_named("processes", &info);

	assert_int_equal(info.max_entries, PROCESS_ROOM);
	for (uint32_t key = 1u << 30, i = room; i < PROCESS_ROOM; key++, i++)
		assert_return_code(bpf_map_update_elem(fd, &key, &nobody, BPF_NOEXIST), errno);
}

/* The commit ledger has room for one process more, the program; its children find none. */
static void test_ledger_full(void **state)
{
	struct child child = hold((const char *const[]){stress_calls, "processes", "43", NULL}, 0);
	struct tracer_opts opts = *opts_of(state);
	struct run run;

	opts.ledgers = LEDGER_COMMIT;
	start(&run, &opts, &child, 1);
	fill_commit_ledger(1);
	release(&child);
	assert_int_equal(waitpid(child.pid, &run.status, 0), child.pid);
	stop(&run);
	assert_lost(&run, AT_LOSS_LEDGER_FULL, 43);
	assert_int_equal(run.total->classes[AT_CLASS_MUNMAP].error_cnt, 43 * 3);
	done(&run);
}

/* barrier: all are there, so that none changes mappings while pthread_create() makes a stack accessible. */
static void *fail_some(void *barrier)
{
	pthread_barrier_wait(barrier);
	for (int i = 0; i < LATE_CALL_CNT; i++)
		if (syscall(SYS_munmap, 1, 0) != -1)
			_exit(1);
	return NULL;
}

/* One that runs already when tracing begins, and calls from several threads. */
static struct child hold_late(void)
{
	struct child child;
	pthread_t threads[LATE_THREAD_CNT];
	pthread_barrier_t barrier;
	int fds[2];
	char go;

	assert_return_code(pipe2(fds, O_CLOEXEC), errno);
	child = (struct child){.pid = fork(), .go = fds[1]};
	assert_return_code(child.pid, errno);
	if (!child.pid) {
		close(fds[1]);
		if (read(fds[0], &go, 1) != 1)
			_exit(126);
		pthread_barrier_init(&barrier, NULL, LATE_THREAD_CNT);
		for (int i = 0; i < LATE_THREAD_CNT; i++)
			if (pthread_create(&threads[i], NULL, fail_some, &barrier))
				_exit(1);
		for (int i = 0; i < LATE_THREAD_CNT; i++)
			pthread_join(threads[i], NULL);
		_exit(0);
	}
	close(fds[0]);
	return child;
}

/* The same of processes that are older than the tracing: each is looked for once, not at each call. */
static void test_ledger_full_late(void **state)
{
	struct child children[LATE_CNT];
	struct tracer_opts opts = *opts_of(state);
	struct run run;

	for (int i = 0; i < LATE_CNT; i++)
		children[i] = hold_late();
	opts.ledgers = LEDGER_COMMIT;
	start(&run, &opts, children, LATE_CNT);
	fill_commit_ledger(0);
	for (int i = 0; i < LATE_CNT; i++)
		release(&children[i]);
	for (int i = 0; i < LATE_CNT; i++) {
		assert_int_equal(waitpid(children[i].pid, &run.status, 0), children[i].pid);
		assert_clean_exit(&run);
	}
	stop(&run);
	assert_lost(&run, AT_LOSS_LEDGER_FULL, LATE_CNT);
	assert_int_equal(run.total->classes[AT_CLASS_MUNMAP].error_cnt, LATE_CNT * LATE_THREAD_CNT * LATE_CALL_CNT);
	assert_int_equal(run.profile->commit_start_pages, 0);
	done(&run);
}

/* The events of page faults call their programs every other time only. */
static void halve_events(void)
{
	char path[64], target[64];
	uint64_t every_other = 2;
	int set_cnt = 0;

	for (int fd = 0; fd < 1024; fd++) {
		ssize_t used;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		used = readlink(path, target, sizeof(target));
		if (used > 0 && strncmp(target, "anon_inode:[perf_event]", (size_t)used) == 0)
			set_cnt += ioctl(fd, PERF_EVENT_IOC_PERIOD, &every_other) == 0;
	}
	assert_true(set_cnt > 0);
}

/* Faults that the kernel counted and the programs did not see. */
static void test_fault_missed(void **state)
{
	const struct tracer_opts *opts = opts_of(state);
	uint64_t seen_cnt, missed_cnt;
	struct child child;
	struct run run;

	if ((opts->tier ? opts->tier : features.best_tier) == 2) {
		print_message("tier 2 counts page faults in the kernel's function, not by events\n");
		skip();
	}
	child = hold((const char *const[]){known_calls, "read", NULL}, 0);
	start(&run, opts, &child, 1);
	halve_events();
	release(&child);
	assert_int_equal(waitpid(child.pid, &run.status, 0), child.pid);
	stop(&run);
	assert_clean_exit(&run);
	seen_cnt =
		run.total->classes[AT_CLASS_FAULT_MINOR].call_cnt + run.total->classes[AT_CLASS_FAULT_MAJOR].call_cnt;
	missed_cnt = run.profile->loss_cnt[AT_LOSS_FAULT_MISSED];
	assert_lost(&run, AT_LOSS_FAULT_MISSED, missed_cnt);
	assert_in_range(missed_cnt, KNOWN_READ_BYTES / KNOWN_PAGE / 2, UINT64_MAX);
	/* One more of each of two kinds. */
	assert_in_range(missed_cnt, seen_cnt, seen_cnt + 2);
	done(&run);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_killed_inside),
		BOTH(test_exec_while_inside),
		{"test_never_returned", test_never_returned, NULL, NULL, &in_array},
		BOTH(test_no_end),
		{"test_clock_back", test_clock_back, NULL, NULL, &in_array},
		{"test_slot_full", test_slot_full, NULL, NULL, &in_array},
		{"test_target_full", test_target_full, NULL, NULL, &in_array},
		BOTH(test_ledger_full),
		BOTH(test_ledger_full_late),
		{"test_fault_missed", test_fault_missed, NULL, NULL, &in_array},
	};

	program_beside(known_calls, argv[0], "known_calls");
	program_beside(stress_calls, argv[0], "stress_calls");
	return run_traced(tests, sizeof(tests) / sizeof(tests[0]), argc, argv);
}
