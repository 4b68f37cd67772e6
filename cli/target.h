/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A command as our child: held until it is released, then run, waited for, and
 * its end passed on. Nothing of ours reaches it: no descriptor, no signal mask
 * or disposition, no ptrace, no no_new_privs. Makes no memory call between
 * release and exec.
 */
#ifndef ALLOCTRACE_CLI_TARGET_H
#define ALLOCTRACE_CLI_TARGET_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "cli/user.h"

struct target_spec {
	char **paths; /* files to try in order, as binary__paths gives them */
	char **argv;
	char **envp;
	const struct user *user;
	int stdin_fd, stdout_fd; /* become the child's; <= 0: it has ours */
};

/* Signals whose dispositions we change and give back. */
enum { TARGET_ACTION_CNT = 3 };

struct target {
	pid_t pid;
	int hold_fd;   /* a byte releases the child, a close ends it */
	int error_fd;  /* why the exec failed; ends without a word when it did not */
	int signal_fd; /* SIGCHLD, and what is forwarded or ignored while it runs */
	sigset_t old_mask;
	struct sigaction old_actions[TARGET_ACTION_CNT];
	bool is_ended;
	int asked_signal; /* latest signal that asked to end while it ran; 0 = none */
	int status;       /* as wait(2) has it; valid when is_ended */
	struct rusage rusage;
	uint64_t start_ns, end_ns; /* release and end, CLOCK_MONOTONIC */
};

/* Takes over the signals and forks the held child. 0, or -errno after saying why; target__abort in both cases undoes
 * it. */
int target__fork(struct target *target, const struct target_spec *spec);
/* Lets it go. 0, or the exit status of a failed start after saying why. */
int target__release(struct target *target, const char *name);
/*
 * Waits for its end, and calls on_fd(data) whenever fd is readable (fd < 0:
 * never). SIGTERM and SIGHUP are passed on to the child. 0 or -errno.
 */
int target__wait(struct target *target, int fd, void (*on_fd)(void *data), void *data);
/* Gives the signals back, but for SIGPIPE, which stays ignored. */
void target__restore_signals(struct target *target);
/* Ends a child that was not released, and undoes target__fork. */
void target__abort(struct target *target);
/* Ends this process as the child ended: does not return when a signal did it. Else the exit status. */
int target__pass_on(const struct target *target);

#endif
