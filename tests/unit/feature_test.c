/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the probe says when something is in the way: for each obstacle its own,
 * true sentence, and advice about locked memory only where that is it. Each case is a child that
 * puts the obstacle up and probes; root is needed for it. Other obstacles: tests/vm/check_test.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/feature.h"

enum { CANNOT = 77 }; /* exit status: the obstacle cannot be put up here */

struct findings {
	struct features features;
	char advice[256];
};

/* Probes behind an obstacle. Skips when the tests do not run as root or it cannot be put up. */
static void probe_behind_any(struct findings *findings, int (*put_up)(void))
{
	int fds[2], status;
	pid_t pid;

	if (geteuid())
		skip();
	assert_return_code(pipe(fds), errno);
	pid = fork();
	assert_return_code(pid, errno);
	if (!pid) {
		if (put_up())
			_exit(CANNOT);
		feature__probe(&findings->features);
		feature__advice(&findings->features, 0, findings->advice, sizeof(findings->advice));
		_exit(write(fds[1], findings, sizeof(*findings)) != sizeof(*findings));
	}
	close(fds[1]);
	memset(findings, 0, sizeof(*findings));
	status = read(fds[0], findings, sizeof(*findings)) != sizeof(*findings);
	close(fds[0]);
	if (status) {
		waitpid(pid, &status, 0);
		assert_int_equal(WEXITSTATUS(status), CANNOT);
		skip();
	}
	waitpid(pid, &status, 0);
}

/* The same of one that has nothing to do with locked memory. */
static void probe_behind(struct findings *findings, int (*put_up)(void))
{
	probe_behind_any(findings, put_up);
	assert_null(strstr(findings->advice, "memory"));
}

static void assert_says(const struct findings *findings, const char *words)
{
	if (findings->features.best_tier || !strstr(findings->advice, words))
		fail_msg("tier %d, \"%s\" lacks \"%s\"", findings->features.best_tier, findings->advice, words);
}

static int nothing(void)
{
	return 0;
}

static int become_nobody(void)
{
	return setresuid(65534, 65534, 65534);
}

/* Root in name only. */
static int drop_caps(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

	return (int)syscall(SYS_capset, &header, data);
}

static int limit_memlock(void)
{
	struct rlimit limit = {64 << 10, 64 << 10};

	return setrlimit(RLIMIT_MEMLOCK, &limit);
}

static int hide_btf(void)
{
	return unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	       mount("none", "/sys/kernel", "tmpfs", 0, NULL);
}

/* As a container runtime does: bpf(2) fails with EPERM. */
static int filter_bpf(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_bpf, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {sizeof(filter) / sizeof(filter[0]), filter};

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

/* bpf(2), where it would create a map, is answered by action. Returns the listener of SECCOMP_RET_USER_NOTIF. */
static int filter_maps(uint32_t action, unsigned flags)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_bpf, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, BPF_MAP_CREATE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {sizeof(filter) / sizeof(filter[0]), filter};

	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
}

static int refuse_maps(void)
{
	return filter_maps(SECCOMP_RET_ERRNO | EPERM, 0);
}

/* A kernel before 5.11 that lets a user lock 64 KiB: larger maps fail with EPERM. */
static int refuse_large_maps(void)
{
	int listener = filter_maps(SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER);
	pid_t parent = getpid(), pid = listener < 0 ? -1 : fork();

	if (pid)
		return pid < 0 ? -1 : 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (getppid() == parent) {
		struct seccomp_notif asked = {0};
		struct seccomp_notif_resp answer = {0};
		uint32_t attr[3] = {0}; /* type, bytes of a key, bytes of a value */
		struct iovec to = {attr, sizeof(attr)}, from = {NULL, sizeof(attr)};

		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked))
			break;
		from.iov_base = (void *)asked.data.args[1]; /* NOLINT(performance-no-int-to-ptr) */
		answer.id = asked.id;
		if (process_vm_readv((pid_t)asked.pid, &to, 1, &from, 1, 0) != sizeof(attr) || attr[2] > 64 << 10)
			answer.error = -EPERM;
		else
			answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
	_exit(0);
}

static int enter_user_namespace(void)
{
	static const char map[] = "0 0 1";
	int fd, err;

	if (unshare(CLONE_NEWUSER))
		return -1;
	fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
	err = fd < 0 || write(fd, map, sizeof(map) - 1) != sizeof(map) - 1;
	close(fd);
	return err;
}

static void test_unprivileged(void **state)
{
	struct findings findings;
	char words[64];
	FILE *file;
	int mode;

	(void)state;
	probe_behind(&findings, become_nobody);
	assert_says(&findings, "CAP_BPF and CAP_PERFMON");
	assert_says(&findings, "sudo");
	/* The setting is the reason where it is on. */
	file = fopen("/proc/sys/kernel/unprivileged_bpf_disabled", "r");
	if (file && fscanf(file, "%d", &mode) == 1 && mode) {
		snprintf(words, sizeof(words), "(kernel.unprivileged_bpf_disabled=%d)", mode);
		assert_says(&findings, words);
	} else {
		assert_null(strstr(findings.advice, "unprivileged_bpf_disabled"));
	}
	if (file)
		fclose(file);
}

static void test_without_caps(void **state)
{
	struct findings findings;

	(void)state;
	probe_behind(&findings, drop_caps);
	assert_says(&findings, "needs the capabilities CAP_BPF and CAP_PERFMON");
}

/* Maps have not counted as locked memory since 5.11: the limit changes nothing. */
static void test_memlock_changes_nothing(void **state)
{
	struct findings findings, free_findings;

	(void)state;
	probe_behind(&free_findings, nothing);
	probe_behind(&findings, limit_memlock);
	assert_int_equal(findings.features.best_tier, free_findings.features.best_tier);
	assert_string_equal(findings.advice, free_findings.advice);
}

static void test_without_btf(void **state)
{
	struct findings findings;

	(void)state;
	probe_behind(&findings, nothing);
	if (!findings.features.bpf.is_ok)
		skip();
	probe_behind(&findings, hide_btf);
	assert_says(&findings, "/sys/kernel/btf/vmlinux is missing");
	assert_true(findings.features.bpf.is_ok);
}

static void test_seccomp(void **state)
{
	struct findings findings;

	(void)state;
	probe_behind(&findings, filter_bpf);
	assert_says(&findings, "seccomp");
}

/* No map at all is no matter of its size. */
static void test_maps_refused(void **state)
{
	struct findings findings;

	(void)state;
	probe_behind(&findings, refuse_maps);
	assert_says(&findings, "a seccomp filter (of a container?) refuses creating a BPF map");
}

static void test_memlock(void **state)
{
	struct findings findings;

	(void)state;
	probe_behind_any(&findings, refuse_large_maps);
	assert_says(&findings, "raise the locked-memory limit (ulimit -l unlimited)");
}

static void test_user_namespace(void **state)
{
	struct findings findings;

	(void)state;
	probe_behind(&findings, enter_user_namespace);
	assert_says(&findings, "user namespace");
}

static int enter_pid_namespace(void)
{
	int status;
	pid_t pid;

	if (unshare(CLONE_NEWPID | CLONE_NEWNS))
		return -1;
	pid = fork(); /* only children are in the new namespace */
	if (pid < 0)
		return -1;
	if (pid) {
		waitpid(pid, &status, 0);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
	return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("proc", "/proc", "proc", 0, NULL);
}

static void test_pid_namespace(void **state)
{
	struct findings findings;

	(void)state;
	probe_behind(&findings, nothing);
	if (findings.features.best_tier < 1)
		skip();
	/* Its numbers can be translated. */
	probe_behind(&findings, enter_pid_namespace);
	assert_true(findings.features.is_own_pid_namespace);
	assert_int_equal(findings.features.best_tier, findings.features.task_iter.is_ok ? 1 : 0);
}

/* Advice is only for those who have less than could be had. */
static void test_no_advice_at_the_top(void **state)
{
	struct findings findings;
	char advice[256] = "x";

	(void)state;
	feature__probe(&findings.features);
	feature__advice(&findings.features, findings.features.best_tier, advice, sizeof(advice));
	assert_true(findings.features.best_tier < 1 || !advice[0]);
	feature__advice(&findings.features, 0, advice, sizeof(advice));
	assert_true(advice[0]);
	assert_in_range(findings.features.pid_max, 1, 4 << 20);
}

/* Findings that cannot be provoked on every machine: what they are made to say. */

static struct features all_found(void)
{
	struct features found = {.pid_max = 32768};
	struct feature *const all[] = {
		&found.btf,          &found.bpf,      &found.kernel_read,    &found.tp_btf,
		&found.fault_event,  &found.fentry,   &found.fault_function, &found.charge_function,
		&found.task_storage, &found.vma_iter, &found.lock_events,    &found.task_iter,
		&found.pid_namespace};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		all[i]->is_ok = true;
	return found;
}

static void lose(struct feature *feature, const char *why)
{
	feature->is_ok = false;
	snprintf(feature->why, sizeof(feature->why), "%s", why);
}

static void assert_column(const struct features *features, enum feature_column column, const char *text)
{
	char buf[320];

	feature__column(features, column, buf, sizeof(buf));
	assert_string_equal(buf, text);
}

static void test_all_columns(void **state)
{
	struct features found = all_found();

	(void)state;
	assert_int_equal(feature__best_tier(&found), 2);
	for (int column = 0; column < FEATURE_COLUMN_CNT; column++)
		assert_column(&found, column, "yes");
}

/* A function that is gone costs its own columns and no others. */
static void test_missing_functions(void **state)
{
	struct features found = all_found();

	(void)state;
	lose(&found.charge_function, "this kernel has no function __vm_enough_memory");
	assert_int_equal(feature__best_tier(&found), 2);
	assert_column(&found, FEATURE_COLUMN_CHECK, "no: this kernel has no function __vm_enough_memory");
	assert_column(&found, FEATURE_COLUMN_COMMIT, "yes");
	assert_column(&found, FEATURE_COLUMN_FAULTS, "yes");
	/* Either source of page faults will do. */
	lose(&found.fault_function, "this kernel has no function handle_mm_fault");
	assert_column(&found, FEATURE_COLUMN_FAULTS, "yes");
	lose(&found.fault_event, "no events");
	assert_column(&found, FEATURE_COLUMN_FAULTS, "no: no events");
	assert_column(&found, FEATURE_COLUMN_CALLS, "yes");
	found.fault_function.is_ok = true;
	assert_column(&found, FEATURE_COLUMN_FAULTS, "yes");
	lose(&found.fentry, "no trampolines"); /* then the function is of no use */
	assert_column(&found, FEATURE_COLUMN_FAULTS, "no: no events");
}

/* Without trampolines only what they alone give is gone. */
static void test_without_trampolines(void **state)
{
	struct features found = all_found();

	(void)state;
	lose(&found.fentry, "no trampolines");
	lose(&found.fault_function, "no trampolines");
	lose(&found.charge_function, "no trampolines");
	assert_int_equal(feature__best_tier(&found), 1);
	assert_column(&found, FEATURE_COLUMN_CALLS, "yes");
	assert_column(&found, FEATURE_COLUMN_FAULTS, "yes");
	assert_column(&found, FEATURE_COLUMN_CHECK, "no: no trampolines");
	assert_column(&found, FEATURE_COLUMN_BYSTANDERS, "no: no trampolines");
	lose(&found.vma_iter, "no iterator");
	assert_column(&found, FEATURE_COLUMN_COMMIT,
		      "in part: no iterator; charges of new processes and behind holes are estimated and named");
}

/* Whatever keeps everything away is the reason for every column, but for what the allocator counts itself. */
static void test_obstacles(void **state)
{
	const size_t offsets[] = {offsetof(struct features, bpf), offsetof(struct features, btf),
				  offsetof(struct features, kernel_read), offsetof(struct features, tp_btf),
				  offsetof(struct features, pid_namespace)};
	char advice[256];

	(void)state;
	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		struct features found = all_found();

		lose((struct feature *)((char *)&found + offsets[i]), "the reason");
		/* The probe finds nothing further behind most of them. */
		if (i < 3)
			lose(&found.tp_btf, "the reason");
		assert_int_equal(feature__best_tier(&found), 0);
		found.best_tier = 0;
		feature__advice(&found, 0, advice, sizeof(advice));
		assert_string_equal(advice, "no kernel-side counts: the reason");
		assert_column(&found, FEATURE_COLUMN_REQUESTS, "yes");
		for (int column = 0; column < FEATURE_COLUMN_REQUESTS; column++)
			assert_column(&found, column, "no: the reason");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unprivileged),
		cmocka_unit_test(test_without_caps),
		cmocka_unit_test(test_memlock_changes_nothing),
		cmocka_unit_test(test_without_btf),
		cmocka_unit_test(test_seccomp),
		cmocka_unit_test(test_maps_refused),
		cmocka_unit_test(test_memlock),
		cmocka_unit_test(test_user_namespace),
		cmocka_unit_test(test_pid_namespace),
		cmocka_unit_test(test_no_advice_at_the_top),
		cmocka_unit_test(test_all_columns),
		cmocka_unit_test(test_missing_functions),
		cmocka_unit_test(test_without_trampolines),
		cmocka_unit_test(test_obstacles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
