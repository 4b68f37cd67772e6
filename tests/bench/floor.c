/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What no tracer can go below: hooks with programs that do nothing, until SIGINT
 * or SIGTERM. KIND: `all`, sys_enter and sys_exit, as run has them; `clock`, the
 * same with a look at the clock in madvise; `singles`, the
 * tracepoints of the memory syscalls, as attach has them; `other`, the tracepoints
 * of a syscall that nobody makes: all that is left is the kernel's slow way
 * through a syscall, which any tracepoint of any syscall turns on for all.
 * usage: floor KIND
 */
#include <bpf/libbpf.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bpf/event.h"
#include "cli/tracepoint.h"
#include "tests/bench/cost.skel.h"

static int fail(const char *what, int err)
{
	fprintf(stderr, "floor: %s: %s\n", what, strerror(-err));
	return err;
}

/* Both ends of one syscall. */
static int hook_single(const struct bpf_program *prog, int root_fd, const char *syscall)
{
	static const char *const sides[] = {"enter", "exit"};
	char name[64];
	int fd;

	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "syscalls/sys_%s_%s", sides[i], syscall);
		fd = tracepoint__open(root_fd, name);
		if (fd < 0)
			return fail(name, fd);
		/* The link lives as long as we do. */
		if (!bpf_program__attach_perf_event(prog, fd))
			return fail(name, -errno);
	}
	return 0;
}

static int hook_singles(const struct bpf_program *prog)
{
#define X(id, name, nr, ia32, ia32_2) name,
	static const char *const syscalls[] = { AT_SYSCALLS(X) };
#undef X
	int root_fd = tracepoint__root(), err = root_fd < 0 ? fail("tracefs", root_fd) : 0;

	for (size_t i = 0; !err && i < sizeof(syscalls) / sizeof(syscalls[0]); i++)
		err = hook_single(prog, root_fd, syscalls[i]);
	return err;
}

static int hook_other(const struct bpf_program *prog)
{
	int root_fd = tracepoint__root();

	return root_fd < 0 ? fail("tracefs", root_fd) : hook_single(prog, root_fd, "sethostname");
}

static int hook(struct cost_bpf *skel, const char *kind)
{
	bool is_all = !strcmp(kind, "all"), is_clock = !strcmp(kind, "clock");
	int err;

	bpf_program__set_autoload(skel->progs.at_empty_enter, is_all);
	bpf_program__set_autoload(skel->progs.at_empty_exit, is_all);
	bpf_program__set_autoload(skel->progs.at_clock_enter, is_clock);
	bpf_program__set_autoload(skel->progs.at_clock_exit, is_clock);
	bpf_program__set_autoload(skel->progs.at_empty_tp, !is_all && !is_clock);
	err = cost_bpf__load(skel);
	if (err)
		return fail("cannot load the programs", err);
	if (!is_all && !is_clock)
		return strcmp(kind, "singles") ? hook_other(skel->progs.at_empty_tp)
					       : hook_singles(skel->progs.at_empty_tp);
	err = cost_bpf__attach(skel);
	return err ? fail("cannot attach the programs", err) : 0;
}

int main(int argc, char **argv)
{
	static const char *const kinds[] = {"all", "clock", "singles", "other"};
	const char *kind = NULL;
	struct cost_bpf *skel;
	sigset_t ends;
	int err, number;

	for (size_t i = 0; argc == 2 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(argv[1], kinds[i]))
			kind = kinds[i];
	if (!kind) {
		fprintf(stderr, "usage: floor all|clock|singles|other\n");
		return 2;
	}
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	skel = cost_bpf__open();
	err = skel ? hook(skel, kind) : fail("cannot open the programs", -errno);
	if (!err)
		sigwait(&ends, &number);
	cost_bpf__destroy(skel);
	return err != 0;
}
