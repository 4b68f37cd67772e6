/* SPDX-License-Identifier: BSD-2-Clause */
/* Holding, running and waiting for the command; see target.h. */
#include "cli/target.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/limits.h"
#include "cli/msg.h"

/*
 * SIGCHLD ignored by our caller would lose the child's status. A report into a
 * closed pipe, or counters beyond the caller's file size limit, must not kill us.
 */
static const struct {
	int signal;
	void (*handler)(int);
} actions[TARGET_ACTION_CNT] = {{SIGCHLD, SIG_DFL}, {SIGPIPE, SIG_IGN}, {SIGXFSZ, SIG_IGN}};

/* What the child tells us when it could not start. */
struct start_error {
	int status; /* that it exits with */
	int err;    /* positive errno */
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static int take_signals(struct target *target)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGQUIT);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGHUP);
	for (int i = 0; i < TARGET_ACTION_CNT; i++) {
		struct sigaction action = {.sa_handler = actions[i].handler};

		sigaction(actions[i].signal, &action, &target->old_actions[i]);
	}
	sigprocmask(SIG_BLOCK, &mask, &target->old_mask);
	target->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return target->signal_fd < 0 ? -errno : 0;
}

static void give_back_actions(const struct target *target, bool is_child)
{
	for (int i = 0; i < TARGET_ACTION_CNT; i++)
		if (is_child || actions[i].signal != SIGPIPE)
			sigaction(actions[i].signal, &target->old_actions[i], NULL);
}

static _Noreturn void fail_start(int error_fd, int status, int err)
{
	struct start_error error = {.status = status, .err = err};
	ssize_t unused = write(error_fd, &error, sizeof(error));

	(void)unused; /* nobody left to tell */
	_exit(status);
}

/* Tries the files as execvp does, but never through a shell. */
static _Noreturn void exec_first(const struct target_spec *spec, int error_fd)
{
	int err = ENOENT;

	for (char **path = spec->paths; *path; path++) {
		execve(*path, spec->argv, spec->envp);
		if (errno == EACCES)
			err = EACCES; /* what is said unless a later one can be run */
		else if (errno != ENOENT && errno != ENOTDIR)
			fail_start(error_fd, AT_EXIT_NOT_EXECUTABLE, errno);
		else if (!spec->paths[1])
			err = errno;
	}
	fail_start(error_fd, err == ENOENT ? AT_EXIT_NOT_FOUND : AT_EXIT_NOT_EXECUTABLE, err);
}

/* The child. Everything that it needs was made before the fork: from here on it only makes plain calls. */
static _Noreturn void run_child(const struct target *target, const struct target_spec *spec, int hold_fd, int error_fd)
{
	char byte;
	ssize_t got;
	int err;

	/* Our own copy of the writing end would keep us waiting after our parent's death. */
	close(target->hold_fd);
	close(target->error_fd);
	close(target->signal_fd);
	limits__restore();
	err = user__become(spec->user);
	if (err)
		fail_start(error_fd, AT_EXIT_OWN, -err);
	if (spec->stdin_fd > 0)
		dup2(spec->stdin_fd, STDIN_FILENO);
	if (spec->stdout_fd > 0)
		dup2(spec->stdout_fd, STDOUT_FILENO);
	give_back_actions(target, true);
	sigprocmask(SIG_SETMASK, &target->old_mask, NULL);
	do
		got = read(hold_fd, &byte, 1);
	while (got < 0 && errno == EINTR);
	if (got != 1)
		_exit(AT_EXIT_OWN);
	exec_first(spec, error_fd);
}

int target__fork(struct target *target, const struct target_spec *spec)
{
	int hold[2] = {-1, -1}, error[2] = {-1, -1};
	int err;

	*target = (struct target){.pid = -1, .hold_fd = -1, .error_fd = -1, .signal_fd = -1};
	err = take_signals(target);
	if (err)
		goto out;
	if (pipe2(hold, O_CLOEXEC) || pipe2(error, O_CLOEXEC)) {
		err = -errno;
		goto out;
	}
	target->hold_fd = hold[1];
	target->error_fd = error[0];
	fflush(NULL);
	target->pid = fork();
	if (target->pid == 0)
		run_child(target, spec, hold[0], error[1]);
	err = target->pid < 0 ? -errno : 0;
out:
	if (err)
		msg__error("cannot start a process for the command: %s", strerror(-err));
	if (hold[0] >= 0)
		close(hold[0]);
	if (error[1] >= 0)
		close(error[1]);
	return err;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

int target__release(struct target *target, const char *name)
{
	struct start_error error;
	ssize_t got;

	target->start_ns = now_ns();
	got = write(target->hold_fd, "", 1);
	if (got != 1) /* a signal has killed it meanwhile: target__wait will find that */
		msg__info("the command ended before it was released");
	close_fd(&target->hold_fd);
	do
		got = read(target->error_fd, &error, sizeof(error));
	while (got < 0 && errno == EINTR);
	close_fd(&target->error_fd);
	if (got != sizeof(error))
		return 0;
	if (error.status == AT_EXIT_OWN)
		msg__error("cannot become the user of the command: %s", strerror(error.err));
	else
		msg__error("cannot run '%s': %s", name, error.err == ENOENT ? "not found" : strerror(error.err));
	return error.status;
}

/* One look whether it has ended. */
static int reap(struct target *target)
{
	pid_t pid = wait4(target->pid, &target->status, WNOHANG, &target->rusage);

	if (pid < 0 && errno != EINTR)
		return -errno;
	if (pid == target->pid) {
		target->end_ns = now_ns();
		target->is_ended = true;
	}
	return 0;
}

static void take_signal(struct target *target)
{
	struct signalfd_siginfo info;

	while (read(target->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo != SIGCHLD)
			target->asked_signal = (int)info.ssi_signo;
		/* The terminal sends SIGINT and SIGQUIT to the child itself. */
		if ((info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP) && !target->is_ended)
			kill(target->pid, info.ssi_signo);
	}
}

int target__wait(struct target *target, int fd, void (*on_fd)(void *data), void *data)
{
	struct pollfd fds[] = {{.fd = target->signal_fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
	int err = reap(target);

	while (!err && !target->is_ended) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return -errno;
		if (fds[1].revents)
			on_fd(data);
		if (fds[0].revents) {
			take_signal(target);
			err = reap(target);
		}
	}
	return err;
}

void target__restore_signals(struct target *target)
{
	if (target->signal_fd < 0)
		return;
	take_signal(target);
	close_fd(&target->signal_fd);
	give_back_actions(target, false);
	sigprocmask(SIG_SETMASK, &target->old_mask, NULL);
}

void target__abort(struct target *target)
{
	close_fd(&target->hold_fd);
	close_fd(&target->error_fd);
	if (target->pid > 0 && !target->is_ended)
		while (waitpid(target->pid, &target->status, 0) < 0 && errno == EINTR)
			;
	target->is_ended = true;
	target__restore_signals(target);
}

int target__pass_on(const struct target *target)
{
	struct rlimit none = {0, 0};
	struct sigaction action = {.sa_handler = SIG_DFL};
	sigset_t mask;
	int signal;

	if (WIFEXITED(target->status))
		return WEXITSTATUS(target->status);
	signal = WTERMSIG(target->status);
	/* The core, if any, is the command's. Where a program takes the cores, only "not dumpable" stops it. */
	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_DUMPABLE, 0);
	sigaction(signal, &action, NULL);
	sigemptyset(&mask);
	sigaddset(&mask, signal);
	sigprocmask(SIG_UNBLOCK, &mask, NULL);
	kill(getpid(), signal);
	return 128 + signal;
}
