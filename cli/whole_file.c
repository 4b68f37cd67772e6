/* SPDX-License-Identifier: BSD-2-Clause */
/* Writing and reading files whole; see whole_file.h. */
#include "cli/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What stands in the file's place now; *is_there false: nothing. */
static int look(const char *path, struct stat *old, bool *is_there)
{
	*is_there = lstat(path, old) == 0;
	if (!*is_there)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISDIR(old->st_mode))
		return -EISDIR;
	return S_ISREG(old->st_mode) || S_ISLNK(old->st_mode) ? 0 : -EINVAL;
}

/* A new file beside `path`; its name goes to temporary. */
static int create(const char *path, char temporary[PATH_MAX], int *fd)
{
	const char *slash = strrchr(path, '/');
	int dir_bytes = slash ? (int)(slash + 1 - path) : 0;

	if (!path[dir_bytes])
		return slash ? -EISDIR : -ENOENT;
	if (snprintf(temporary, PATH_MAX, "%.*s.alloctrace-XXXXXX", dir_bytes, path) >= PATH_MAX)
		return -ENAMETOOLONG;
	*fd = mkostemp(temporary, O_CLOEXEC);
	return *fd < 0 ? -errno : 0;
}

int whole_file__check(const char *path)
{
	char temporary[PATH_MAX];
	struct stat old;
	bool is_there;
	int fd, err = look(path, &old, &is_there);

	if (!err)
		err = create(path, temporary, &fd);
	if (err)
		return err;
	close(fd);
	return unlink(temporary) ? -errno : 0;
}

static int write_all(int fd, const char *data, size_t bytes)
{
	while (bytes) {
		ssize_t done = write(fd, data, bytes);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done ? -errno : -EIO;
		data += done;
		bytes -= (size_t)done;
	}
	return fsync(fd) && errno != EINVAL ? -errno : 0;
}

/* As an old regular file had it, where we may; a new one as the umask has it. */
static int set_rights(int fd, const struct stat *old, bool is_there)
{
	mode_t mask;

	if (is_there && S_ISREG(old->st_mode)) {
		if (fchown(fd, old->st_uid, old->st_gid) && errno != EPERM)
			return -errno;
		return fchmod(fd, old->st_mode & 0777) ? -errno : 0;
	}
	mask = umask(0);
	umask(mask);
	return fchmod(fd, 0666 & ~mask) ? -errno : 0;
}

int whole_file__write(const char *path, const void *data, size_t bytes)
{
	char temporary[PATH_MAX];
	sigset_t all, before;
	struct stat old;
	bool is_there;
	int fd, err = look(path, &old, &is_there);

	if (err)
		return err;
	/* A Ctrl-C waits until the temporary file has gone. */
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	err = create(path, temporary, &fd);
	if (err)
		goto out;
	err = write_all(fd, data, bytes);
	if (!err)
		err = set_rights(fd, &old, is_there);
	if (close(fd) && !err)
		err = -errno;
	if (!err && rename(temporary, path))
		err = -errno;
	if (err)
		unlink(temporary);
out:
	sigprocmask(SIG_SETMASK, &before, NULL);
	return err;
}

static int read_all(int fd, size_t most_bytes, char **data, size_t *bytes)
{
	size_t room_bytes = 0;

	for (;;) {
		ssize_t done;

		if (*bytes == room_bytes) {
			char *grown = realloc(*data, room_bytes = room_bytes ? 2 * room_bytes : 64 << 10);

			if (!grown)
				return -ENOMEM;
			*data = grown;
		}
		done = read(fd, *data + *bytes, room_bytes - *bytes);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done ? -errno : 0;
		*bytes += (size_t)done;
		if (*bytes > most_bytes)
			return -EFBIG;
	}
}

int whole_file__read(const char *path, size_t most_bytes, char **data, size_t *bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err;

	*data = NULL;
	*bytes = 0;
	if (fd < 0)
		return -errno;
	err = read_all(fd, most_bytes, data, bytes);
	close(fd);
	if (!err)
		return 0;
	free(*data);
	*data = NULL;
	return err;
}
