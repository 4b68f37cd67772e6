/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tracepoints by name, as perf events. Their numbers are read from tracefs:
 * where it is mounted, or else in an instance of our own that nobody sees and
 * that ends with us.
 */
#ifndef ALLOCTRACE_CLI_TRACEPOINT_H
#define ALLOCTRACE_CLI_TRACEPOINT_H

/* A descriptor of tracefs' top, or -errno. To be closed. */
int tracepoint__root(void);
/* name: "syscalls/sys_enter_mmap". A perf event of all processes on all CPUs, switched off; or -errno. */
int tracepoint__open(int root_fd, const char *name);

#endif
