/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tracer against programs whose calls are known in advance, in both slot
 * modes. Needs root and a kernel that can trace; says so and skips otherwise.
 * timeout: 300
 */
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "tests/scratch.h"
#include "tests/trace/known.h"
#include "tests/trace/traced.h"

#define NOBODY 65534

static char known_calls[PROGRAM_BYTES], static_once[PROGRAM_BYTES], m32_calls[PROGRAM_BYTES];

static const struct class_stat *measured(const struct run *run, enum at_class class)
{
	return &run->profile->phases[AT_PHASE_MEASURED].classes[class];
}

/* Calls, all of them failed, of the pair that known_calls' fail() makes. */
static void assert_failing_pairs(const struct run *run, uint64_t cnt)
{
	assert_int_equal(run->total->classes[AT_CLASS_MUNMAP].error_cnt, cnt);
	assert_int_equal(run->total->classes[AT_CLASS_MADVISE_OTHER].error_cnt, cnt);
	assert_int_equal(run->total->classes[AT_CLASS_MADVISE_OTHER].call_cnt, cnt);
	assert_int_equal(run->total->classes[AT_CLASS_MADVISE_OTHER].bytes, 0);
	assert_int_equal(run->profile->advice_cnt[KNOWN_BAD_ADVICE], cnt);
}

static void test_classes(void **state)
{
	struct run run;

	trace(&run, opts_of(state), known_calls, "classes");
	assert_clean_exit(&run);
	assert_exact(&run);
	assert_int_equal(run.profile->loss_cnt[AT_LOSS_CLASS_ASSUMED], 0);
#define X(class, good, bad, good_bytes)                                                                           \
	if (measured(&run, AT_CLASS_##class)->call_cnt != (good) + (bad) ||                                       \
	    measured(&run, AT_CLASS_##class)->error_cnt != (bad) ||                                               \
	    measured(&run, AT_CLASS_##class)->bytes != (uint64_t)(good) * (good_bytes))                           \
		fail_msg(#class ": %lu calls, %lu errors, %lu bytes", measured(&run, AT_CLASS_##class)->call_cnt, \
			 measured(&run, AT_CLASS_##class)->error_cnt, measured(&run, AT_CLASS_##class)->bytes);
	KNOWN_CALLS(X)
#undef X
	assert_int_equal(run.profile->phases_seen, 7);
	assert_int_equal(run.profile->phases[0].classes[AT_CLASS_MADVISE_PHASE].call_cnt, 1);
	assert_int_equal(run.profile->phases[2].classes[AT_CLASS_MADVISE_PHASE].call_cnt, 0);
	assert_int_equal(measured(&run, AT_CLASS_MPROTECT_OTHER)->last_errno, ENOMEM);
	assert_int_equal(measured(&run, AT_CLASS_MMAP_FIXED)->last_errno, EEXIST);
	assert_int_equal(measured(&run, AT_CLASS_BRK_GROW)->last_errno, ENOMEM);
	assert_int_equal(measured(&run, AT_CLASS_PROCESS_MADVISE)->last_errno, EBADF);
	assert_int_equal(run.profile->advice_cnt[KNOWN_BAD_ADVICE], 79);
	assert_int_equal(run.profile->advice_cnt[MADV_RANDOM], 73);
	done(&run);
}

/* Totals by syscall from strace -f -c; false when there is no strace that works here. */
static bool strace_counts(const char *program, const char *n, const char *m, uint64_t cnt[AT_SYS_CNT])
{
	char command[2048], line[256], name[64];
	unsigned long calls;
	FILE *file;

	memset(cnt, 0, AT_SYS_CNT * sizeof(*cnt));
	/* strace leaves out the errors column where there are none: the name is the last word. */
	snprintf(command, sizeof(command),
		 "strace -f -c -e trace=%%memory,madvise -o /dev/stdout %s forks %s %s 2>/dev/null | "
		 "awk '$1 + 0 == $1 && NF >= 5 { print $4, $NF }'",
		 program, n, m);
	file = popen(command, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "%lu %63s", &calls, name) == 2)
			for (int i = 1; i < AT_SYS_CNT; i++)
				if (!strcmp(name, profile__syscall_name(i)))
					cnt[i] += calls;
	return pclose(file) == 0 && cnt[AT_SYS_MMAP];
}

static void test_strace_agrees(void **state)
{
	uint64_t expected[AT_SYS_CNT], seen[AT_SYS_CNT] = {0};
	struct run run;

	if (!strace_counts(known_calls, "7", "5", expected)) {
		print_message("no strace that works here\n");
		skip();
	}
	trace(&run, opts_of(state), known_calls, "forks", "7", "5");
	assert_clean_exit(&run);
	assert_exact(&run);
	for (int i = 1; i < AT_CLASS_CNT; i++)
		seen[profile__class_syscall(i)] += run.total->classes[i].call_cnt;
	for (int i = 1; i < AT_SYS_CNT; i++)
		if (seen[i] != expected[i])
			fail_msg("%s: %lu calls, strace has %lu", profile__syscall_name(i), seen[i], expected[i]);
	done(&run);
}

static void test_thread_sequence(void **state)
{
	struct run run;

	trace(&run, opts_of(state), known_calls, "threads", "20000");
	assert_clean_exit(&run);
	assert_exact(&run);
	assert_failing_pairs(&run, 20000);
	assert_slots_empty();
	done(&run);
}

static void test_failing_calls(void **state)
{
	struct run run;

	trace(&run, opts_of(state), known_calls, "fail", "50000");
	assert_clean_exit(&run);
	assert_exact(&run);
	assert_failing_pairs(&run, 50000);
	assert_slots_empty();
	done(&run);
}

static void test_migration(void **state)
{
	long thread_cnt = 2 * sysconf(_SC_NPROCESSORS_ONLN);
	char n[24];
	struct run run;

	thread_cnt = thread_cnt > 64 ? 64 : thread_cnt;
	snprintf(n, sizeof(n), "%ld", thread_cnt);
	trace(&run, opts_of(state), known_calls, "migrate", n);
	assert_clean_exit(&run);
	assert_exact(&run);
	assert_int_equal(measured(&run, AT_CLASS_MMAP_ANON)->call_cnt, thread_cnt * KNOWN_MIGRATED);
	assert_int_equal(measured(&run, AT_CLASS_MMAP_ANON)->bytes, thread_cnt * KNOWN_MIGRATED * KNOWN_PAGE);
	assert_in_range(measured(&run, AT_CLASS_MUNMAP)->call_cnt, thread_cnt * KNOWN_MIGRATED,
			thread_cnt * (KNOWN_MIGRATED + 1)); /* glibc unmaps some stacks */
	done(&run);
}

/* Whether a program runs here at all, without the tracer. */
static bool can_run(const char *const argv[])
{
	struct child child;
	int status;

	if (access(argv[0], X_OK))
		return false;
	child = hold(argv, 0);
	release(&child);
	assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

static void test_int80(void **state)
{
	struct run run;

	if (!can_run((const char *const[]){known_calls, "int80", NULL})) {
		print_message("this machine has no 32-bit syscalls (int 0x80)\n");
		skip();
	}
	trace(&run, opts_of(state), known_calls, "int80");
	assert_clean_exit(&run);
	assert_exact(&run);
	assert_int_equal(run.profile->compat_cnt[AT_SYS_BRK], KNOWN_INT80);
	assert_int_equal(measured(&run, AT_CLASS_BRK_QUERY)->call_cnt, KNOWN_INT80);
	for (int i = 1; i < AT_SYS_CNT; i++)
		assert_true(i == AT_SYS_BRK || !run.profile->compat_cnt[i]);
	done(&run);
}

static void test_32bit_program(void **state)
{
	struct run run;

	if (!can_run((const char *const[]){m32_calls, NULL})) {
		print_message("this machine has no 32-bit programs (%s)\n", m32_calls);
		skip();
	}
	trace(&run, opts_of(state), m32_calls);
	assert_clean_exit(&run);
	assert_exact(&run);
	assert_in_range(run.profile->compat_cnt[AT_SYS_MMAP], 1009, 1100);
	assert_in_range(run.profile->compat_cnt[AT_SYS_MUNMAP], 1009, 1100);
	for (int i = 1; i < AT_CLASS_CNT; i++)
		assert_true(profile__class_syscall(i) == AT_SYS_INVALID || !run.total->classes[i].call_cnt);
	done(&run);
}

/* Processes, each with one failing pair, that known_calls forks N M makes. */
static uint64_t forks_cnt(uint64_t n, uint64_t m)
{
	return n ? 1 + (n + 1) / 2 * forks_cnt(m, 0) + n / 2 : 1;
}

static void test_following(void **state)
{
	struct run run;

	trace(&run, opts_of(state), known_calls, "forks", "9", "5");
	assert_clean_exit(&run);
	assert_exact(&run);
	assert_failing_pairs(&run, forks_cnt(9, 5));
	done(&run);
}

static void test_not_following(void **state)
{
	struct tracer_opts opts = *opts_of(state);
	struct run run;

	opts.is_following = false;
	trace(&run, &opts, known_calls, "forks", "9", "5");
	assert_clean_exit(&run);
	assert_exact(&run);
	assert_failing_pairs(&run, 1);
	done(&run);
}

static void test_exec(void **state)
{
	struct run run;

	trace(&run, opts_of(state), known_calls, "exec", "4");
	assert_clean_exit(&run);
	assert_exact(&run);
	assert_failing_pairs(&run, 5 * KNOWN_EXEC_CALLS);
	assert_slots_empty();
	done(&run);
}

static void test_exec_from_thread(void **state)
{
	struct run run;

	trace(&run, opts_of(state), known_calls, "exec-thread", "5");
	assert_clean_exit(&run);
	assert_exact(&run);
	assert_failing_pairs(&run, 6 * KNOWN_EXEC_CALLS);
	assert_slots_empty();
	done(&run);
}

static void test_leader_exits_first(void **state)
{
	struct run run;

	trace(&run, opts_of(state), known_calls, "leader");
	assert_clean_exit(&run);
	assert_exact(&run);
	assert_failing_pairs(&run, KNOWN_LEADER_CALLS);
	done(&run);
}

/* Memory that a child shares by an inherited descriptor; its number is written to `arg`. */
static volatile uint64_t *shared_counts(char arg[16], int *fd)
{
	void *mem;

	*fd = memfd_create("counts", 0);
	assert_return_code(*fd, errno);
	assert_return_code(ftruncate(*fd, KNOWN_PAGE), errno);
	mem = mmap(NULL, KNOWN_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	assert_ptr_not_equal(mem, MAP_FAILED);
	snprintf(arg, 16, "%d", *fd);
	return mem;
}

static void test_killed(void **state)
{
	char arg[16];
	int fd;
	volatile uint64_t *counts = shared_counts(arg, &fd);
	struct child child = hold((const char *const[]){known_calls, "spin", arg, NULL}, 0);
	const struct class_stat *munmaps;
	struct run run;

	start(&run, opts_of(state), &child, 1);
	release(&child);
	while (counts[1] < 10000)
		usleep(1000);
	kill(child.pid, SIGKILL);
	assert_int_equal(waitpid(child.pid, &run.status, 0), child.pid);
	stop(&run);
	assert_exact(&run);
	munmaps = &run.total->classes[AT_CLASS_MUNMAP];
	assert_in_range(munmaps->error_cnt, counts[1], counts[0]);
	assert_slots_empty();
	done(&run);
	munmap((void *)counts, KNOWN_PAGE);
	close(fd);
}

static void test_short_children(void **state)
{
	enum { ROUND_CNT = 8, CHILD_CNT = 25 };
	struct child children[CHILD_CNT];
	struct run run;
	int status;

	if (access(static_once, X_OK)) {
		print_message("no static linking here\n");
		skip();
	}
	for (int round = 0; round < ROUND_CNT; round++) {
		for (int i = 0; i < CHILD_CNT; i++)
			children[i] = hold((const char *const[]){static_once, NULL}, 0);
		start(&run, opts_of(state), children, CHILD_CNT);
		for (int i = 0; i < CHILD_CNT; i++)
			release(&children[i]);
		for (int i = 0; i < CHILD_CNT; i++)
			assert_int_equal(waitpid(children[i].pid, &status, 0), children[i].pid);
		stop(&run);
		assert_exact(&run);
		assert_int_equal(run.total->classes[AT_CLASS_MMAP_STACK].call_cnt, CHILD_CNT);
		assert_int_equal(run.total->classes[AT_CLASS_BRK_QUERY].call_cnt % CHILD_CNT, 0);
		done(&run);
	}
}

static void test_kernel_mode_faults(void **state)
{
	struct run run;

	trace(&run, opts_of(state), known_calls, "read");
	assert_clean_exit(&run);
	assert_exact(&run);
	assert_int_equal(measured(&run, AT_CLASS_FAULT_MINOR)->call_cnt, KNOWN_READ_BYTES / KNOWN_PAGE);
	assert_int_equal(measured(&run, AT_CLASS_FAULT_MINOR)->bytes, KNOWN_READ_BYTES);
	done(&run);
}

static void test_populate_has_no_faults(void **state)
{
	struct run run;

	trace(&run, opts_of(state), known_calls, "populate");
	assert_clean_exit(&run);
	assert_exact(&run);
	assert_int_equal(measured(&run, AT_CLASS_FAULT_MINOR)->call_cnt, 0);
	assert_int_equal(measured(&run, AT_CLASS_MMAP_ANON)->call_cnt, 1);
	assert_int_equal(measured(&run, AT_CLASS_MMAP_ANON)->bytes, KNOWN_READ_BYTES);
	done(&run);
}

static void test_faults_equal_rusage(void **state)
{
	char arg[16];
	int fd;
	volatile uint64_t *counts = shared_counts(arg, &fd);
	struct run run;

	trace(&run, opts_of(state), known_calls, "faults", "20000", arg);
	assert_clean_exit(&run);
	assert_exact(&run);
	assert_in_range(counts[0], 20000, 21000);
	assert_int_equal(measured(&run, AT_CLASS_FAULT_MINOR)->call_cnt, counts[0]);
	done(&run);
	munmap((void *)counts, KNOWN_PAGE);
	close(fd);
}

/* True when a thread other than the first is inside the syscall. */
static void test_in_flight(void **state)
{
	struct child child = hold((const char *const[]){known_calls, "in-flight", "60000", NULL}, 0);
	struct run run;

	start(&run, opts_of(state), &child, 1);
	release(&child);
	for (int i = 0; i < 2000 && !is_thread_inside(child.pid, 28); i++)
		usleep(1000);
	if (!is_thread_inside(child.pid, 28)) {
		kill(child.pid, SIGKILL);
		waitpid(child.pid, NULL, 0);
		tracer__free(run.tracer);
		print_message("no userfaultfd here\n");
		skip();
	}
	stop(&run);
	kill(child.pid, SIGKILL);
	waitpid(child.pid, NULL, 0);
	assert_int_equal(run.profile->in_flight_cnt[AT_SYS_MADVISE], 1);
	assert_int_equal(run.total->classes[AT_CLASS_MADVISE_POPULATE].call_cnt, 0);
	assert_true(profile__is_exact(run.profile));
	done(&run);
}

/* Calls that a seccomp filter refuses have no entry: counted as lost, not timed. */
static void test_exit_without_entry(void **state)
{
	struct run run;

	trace(&run, opts_of(state), known_calls, "refused", "89");
	assert_clean_exit(&run);
	assert_int_equal(run.total->classes[AT_CLASS_MUNMAP].error_cnt, 0);
	/* In tier 2 they are no calls at all: the function of the syscall never ran. */
	assert_int_equal(run.profile->loss_cnt[AT_LOSS_NO_START], run.profile->tier == 2 ? 0 : 89);
	assert_int_equal(profile__is_exact(run.profile), run.profile->tier == 2);
	done(&run);
}

static bool set_next_pid(pid_t pid)
{
	FILE *file = fopen("/proc/sys/kernel/ns_last_pid", "w");
	bool is_set = file && fprintf(file, "%d", pid - 1) > 0;

	return (!file || !fclose(file)) && is_set;
}

/* A process of the outside that gets the number of a dead target is not traced. */
static void test_pid_reuse(void **state)
{
	struct child child = hold((const char *const[]){known_calls, "fail", "3", NULL}, 0);
	pid_t target_pid = child.pid;
	struct run run;
	int tries = 50;

	start(&run, opts_of(state), &child, 1);
	release(&child);
	assert_int_equal(waitpid(child.pid, &run.status, 0), child.pid);
	do {
		if (!set_next_pid(target_pid)) {
			tries = 0;
			break;
		}
		child = hold((const char *const[]){known_calls, "fail", "1000", NULL}, 0);
		release(&child);
		assert_int_equal(waitpid(child.pid, &run.status, 0), child.pid);
	} while (child.pid != target_pid && --tries);
	stop(&run);
	assert_exact(&run);
	assert_failing_pairs(&run, 3);
	done(&run);
	if (!tries) {
		print_message("could not make the kernel reuse a PID\n");
		skip();
	}
}

/* Copies a program into a set-user-ID one; false where that cannot work. */
static bool make_setuid(const char *from, const char *to)
{
	char command[3 * PATH_MAX];
	struct statvfs fs;

	snprintf(command, sizeof(command), "cp '%s' '%s' && chmod 4755 '%s'", from, to, to);
	return !system(command) && !statvfs(to, &fs) && !(fs.f_flag & ST_NOSUID);
}

static void test_hidden_faults(void **state)
{
	char program[PATH_MAX];
	int fd = scratch__file(program);
	struct run run;

	assert_return_code(fd, errno);
	close(fd);
	if (access(static_once, X_OK) || !make_setuid(static_once, program)) {
		unlink(program);
		print_message("no set-user-ID programs among temporary files\n");
		skip();
	}
	trace_as(&run, opts_of(state), NOBODY, (const char *const[]){program, NULL});
	unlink(program);
	assert_clean_exit(&run);
	assert_int_equal(run.total->classes[AT_CLASS_MMAP_STACK].call_cnt, 1);
	assert_int_equal(run.profile->loss_cnt[AT_LOSS_FAULT_HIDDEN], run.profile->tier == 2 ? 0 : 1);
	assert_int_equal(profile__is_exact(run.profile), run.profile->tier == 2);
	done(&run);
}

/* Self cost: runs follow from the calls; with the kernel's clock they are at least as many. */
static void test_self_cost(void **state)
{
	struct tracer_opts opts = *opts_of(state);
	uint64_t event_cnt = 0;
	struct run run;

	trace(&run, &opts, known_calls, "fail", "5000");
	for (int i = 0; i < AT_CLASS_CNT; i++)
		event_cnt += run.total->classes[i].call_cnt;
	assert_int_equal(run.profile->bpf_run_cnt, 2 * event_cnt);
	assert_false(run.profile->is_bpf_measured);
	done(&run);
	opts.is_measuring_bpf = true;
	trace(&run, &opts, known_calls, "fail", "5000");
	assert_true(run.profile->is_bpf_measured);
	assert_in_range(run.profile->bpf_run_cnt, 20000, UINT64_MAX);
	assert_in_range(run.profile->bpf_ns, 1, UINT64_MAX);
	done(&run);
}

/* A target that does nothing has nothing: calibration left no trace. */
static void test_calibration_leaves_nothing(void **state)
{
	struct child child = hold((const char *const[]){known_calls, "fail", "1", NULL}, 0);
	struct run run;

	start(&run, opts_of(state), &child, 1);
	stop(&run);
	kill(child.pid, SIGKILL);
	close(child.go);
	waitpid(child.pid, NULL, 0);
	assert_exact(&run);
	for (int i = 0; i < AT_CLASS_CNT; i++)
		assert_int_equal(run.total->classes[i].call_cnt, 0);
	done(&run);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_calibration_leaves_nothing),
		BOTH(test_classes),
		BOTH(test_strace_agrees),
		BOTH(test_thread_sequence),
		BOTH(test_failing_calls),
		BOTH(test_migration),
		BOTH(test_int80),
		BOTH(test_32bit_program),
		BOTH(test_following),
		BOTH(test_not_following),
		BOTH(test_exec),
		BOTH(test_exec_from_thread),
		BOTH(test_leader_exits_first),
		BOTH(test_killed),
		BOTH(test_short_children),
		BOTH(test_kernel_mode_faults),
		BOTH(test_populate_has_no_faults),
		BOTH(test_faults_equal_rusage),
		BOTH(test_in_flight),
		BOTH(test_exit_without_entry),
		BOTH(test_pid_reuse),
		BOTH(test_hidden_faults),
		BOTH(test_self_cost),
	};

	program_beside(known_calls, argv[0], "known_calls");
	program_beside(static_once, argv[0], "static_once");
	program_beside(m32_calls, argv[0], "m32_calls");
	return run_traced(tests, sizeof(tests) / sizeof(tests[0]), argc, argv);
}
