/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files that are written and read whole. Written beside their place and renamed
 * onto it: there is the old file or the new one, never a part, and nothing
 * else is left. Functions return 0 or -errno.
 */
#ifndef ALLOCTRACE_CLI_WHOLE_FILE_H
#define ALLOCTRACE_CLI_WHOLE_FILE_H

#include <stddef.h>

/*
 * Could the file be written? Tries, and leaves nothing. What is there already
 * must be a regular file: -EISDIR for a directory, -EINVAL for anything else.
 */
int whole_file__check(const char *path);
/* A file that is replaced keeps its owner, group and mode; a symbolic link is itself replaced. */
int whole_file__write(const char *path, const void *data, size_t bytes);
/* *data is the caller's. -EFBIG when the file has more than most_bytes. */
int whole_file__read(const char *path, size_t most_bytes, char **data, size_t *bytes);

#endif
