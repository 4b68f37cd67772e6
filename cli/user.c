/* SPDX-License-Identifier: BSD-2-Clause */
/* Finding and becoming the user of the command; see user.h. */
#include "cli/user.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/msg.h"

static bool parse_id(const char *text, id_t *id)
{
	char *end;
	unsigned long value;

	if (!text || *text < '0' || *text > '9')
		return false;
	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || *end || value >= (id_t)-1)
		return false;
	*id = value;
	return true;
}

static int load_groups(struct user *user, const char *name)
{
	int cnt = 0;

	getgrouplist(name, user->gid, NULL, &cnt);
	user->groups = calloc(cnt ? cnt : 1, sizeof(*user->groups));
	if (!user->groups)
		return -ENOMEM;
	if (getgrouplist(name, user->gid, user->groups, &cnt) < 0)
		return -EAGAIN; /* it changed in between */
	user->group_cnt = cnt;
	return 0;
}

/* sudo replaces some of these and keeps others, as its policy says: correct only what is root's. */
static void set_environment(const struct passwd *entry)
{
	static const char *const names[] = {"USER", "LOGNAME"};
	const char *home = getenv("HOME");
	const struct passwd *root;
	char entry_name[256], entry_home[4096];

	/* getpwuid reuses its result */
	if (strlen(entry->pw_name) >= sizeof(entry_name) || strlen(entry->pw_dir) >= sizeof(entry_home))
		return;
	strcpy(entry_name, entry->pw_name);
	strcpy(entry_home, entry->pw_dir);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *value = getenv(names[i]);

		if (!value || strcmp(value, "root") == 0)
			setenv(names[i], entry_name, 1);
	}
	root = getpwuid(0);
	if (!home || (root && strcmp(home, root->pw_dir) == 0))
		setenv("HOME", entry_home, 1);
}

int user__resolve(const char *wanted, struct user *user)
{
	const char *sudo_uid = geteuid() == 0 ? getenv("SUDO_UID") : NULL;
	const struct passwd *entry;
	id_t id = 0;
	int err;

	*user = (struct user){.uid = getuid(), .gid = getgid()};
	if (wanted) {
		entry = parse_id(wanted, &id) ? getpwuid(id) : getpwnam(wanted);
		if (!entry) {
			msg__error("--user %s: no such user", wanted);
			return -ENOENT;
		}
	} else {
		if (!parse_id(sudo_uid, &id))
			return 0;
		entry = getpwuid(id);
	}
	if (!entry) { /* sudo by someone who is in no passwd: ids only */
		user->uid = id;
		if (parse_id(getenv("SUDO_GID"), &id))
			user->gid = id;
		user->is_other = user->uid != getuid();
		return 0;
	}
	if (entry->pw_uid == getuid())
		return 0;
	if (geteuid() != 0) {
		msg__error("--user %s: only root may run a command as another user", wanted);
		return -EPERM;
	}
	user->is_other = true;
	user->uid = entry->pw_uid;
	user->gid = entry->pw_gid;
	if (!wanted && parse_id(getenv("SUDO_GID"), &id))
		user->gid = id;
	err = load_groups(user, entry->pw_name);
	if (err) {
		msg__error("cannot read the groups of %s: %s", entry->pw_name, strerror(-err));
		return err;
	}
	set_environment(entry);
	return 0;
}

void user__free(struct user *user)
{
	free(user->groups);
	user->groups = NULL;
}

int user__become(const struct user *user)
{
	if (!user->is_other)
		return 0;
	if (setgroups(user->group_cnt, user->groups) || setresgid(user->gid, user->gid, user->gid) ||
	    setresuid(user->uid, user->uid, user->uid))
		return -errno;
	return 0;
}
