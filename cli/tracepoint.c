/* SPDX-License-Identifier: BSD-2-Clause */
/* Tracepoints as perf events; see tracepoint.h. */
#include "cli/tracepoint.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/* A file system of no mount point: it is gone with its descriptor. */
static int open_detached(void)
{
	int fs = fsopen("tracefs", FSOPEN_CLOEXEC), root, err = 0;

	if (fs < 0)
		return -errno;
	root = fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) ? -1 : fsmount(fs, FSMOUNT_CLOEXEC, 0);
	if (root < 0)
		err = -errno;
	close(fs);
	return err ? err : root;
}

static bool is_tracefs(int fd)
{
	struct statfs fs;

	return !fstatfs(fd, &fs) && fs.f_type == TRACEFS_MAGIC;
}

int tracepoint__root(void)
{
	static const char *const places[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		int fd = open(places[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (fd >= 0 && is_tracefs(fd))
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return open_detached();
}

static int read_id(int root_fd, const char *name)
{
	char path[128], text[16] = "";
	int fd, err = 0;

	snprintf(path, sizeof(path), "events/%s/id", name);
	fd = openat(root_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (read(fd, text, sizeof(text) - 1) < 0)
		err = -errno;
	close(fd);
	return err ? err : atoi(text);
}

int tracepoint__open(int root_fd, const char *name)
{
	int id = read_id(root_fd, name), fd;
	struct perf_event_attr attr = {.type = PERF_TYPE_TRACEPOINT, .size = sizeof(attr), .sample_period = 1};

	if (id <= 0)
		return id ? id : -ENOENT;
	attr.config = id;
	/* A program on it runs on all CPUs, whichever the event is on. */
	fd = (int)syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}
