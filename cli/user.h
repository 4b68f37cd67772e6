/* SPDX-License-Identifier: BSD-2-Clause */
/* Who the command runs as: the caller, the user behind sudo, or --user. */
#ifndef ALLOCTRACE_CLI_USER_H
#define ALLOCTRACE_CLI_USER_H

#include <stdbool.h>
#include <sys/types.h>

struct user {
	bool is_other; /* the command changes to these ids before it is run */
	uid_t uid;
	gid_t gid;
	gid_t *groups;
	int group_cnt;
};

/*
 * wanted: --user (a name or a number), NULL when not given. 0, or -errno after
 * saying why. Sets HOME, USER and LOGNAME of this process, and so of the
 * command, where they still are those of root.
 */
int user__resolve(const char *wanted, struct user *user);
void user__free(struct user *user);
/* Becomes the user, for good. Allocates nothing: for a child after fork. 0 or -errno. */
int user__become(const struct user *user);

#endif
