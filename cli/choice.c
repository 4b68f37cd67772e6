/* SPDX-License-Identifier: BSD-2-Clause */
/* Finding the processes that the user means; see choice.h. */
#include "cli/choice.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/msg.h"

/* Control groups nest; deeper ones are not looked at. */
enum { CGROUP_DEPTH_MAX = 32 };

static int out_of_memory(void)
{
	msg__error("out of memory");
	return AT_EXIT_OWN;
}

static int add_id(struct choice *choice, pid_t id, enum at_scope scope)
{
	struct chosen *chosen;

	for (size_t i = 0; i < choice->cnt; i++)
		if (choice->chosen[i].id == id && choice->chosen[i].scope == scope)
			return 0;
	chosen = realloc(choice->chosen, (choice->cnt + 1) * sizeof(*chosen));
	if (!chosen)
		return out_of_memory();
	choice->chosen = chosen;
	chosen[choice->cnt++] = (struct chosen){.id = id, .scope = scope, .pidfd = -1};
	return 0;
}

int choice__add_ids(struct choice *choice, const char *option, const char *list, enum at_scope scope)
{
	int status = 0;

	for (const char *at = list; !status;) {
		size_t bytes = strcspn(at, ", \n\t"), digits = strspn(at, "0123456789");
		long id = bytes && digits == bytes && bytes <= 9 ? strtol(at, NULL, 10) : 0;

		if (id <= 0) {
			msg__error("%s %s: '%.*s' is not a %s number", option, list, (int)bytes, at,
				   scope == AT_SCOPE_THREAD ? "thread" : "process");
			return AT_EXIT_USAGE;
		}
		status = add_id(choice, (pid_t)id, scope);
		at += bytes;
		at += strspn(at, ", \n\t");
		if (!*at)
			break;
	}
	return status;
}

static int add_text(const char ***texts, size_t *cnt, const char *text)
{
	const char **more = realloc(*texts, (*cnt + 1) * sizeof(*more));

	if (!more)
		return out_of_memory();
	*texts = more;
	more[(*cnt)++] = text;
	return 0;
}

int choice__add_name(struct choice *choice, const char *name)
{
	if (!*name) {
		msg__error("--name: an empty name is nobody's");
		return AT_EXIT_USAGE;
	}
	return add_text(&choice->names, &choice->name_cnt, name);
}

int choice__add_cgroup(struct choice *choice, const char *path)
{
	struct statfs fs;

	if (statfs(path, &fs)) {
		msg__error("--cgroup %s: %s", path, strerror(errno));
		return AT_EXIT_USAGE;
	}
	if (fs.f_type != CGROUP2_SUPER_MAGIC) {
		msg__error(
			"--cgroup %s: not a control group of version 2; those are directories below where cgroup2 is "
			"mounted, mostly /sys/fs/cgroup",
			path);
		return AT_EXIT_USAGE;
	}
	return add_text(&choice->cgroups, &choice->cgroup_cnt, path);
}

void choice__free(struct choice *choice)
{
	for (size_t i = 0; i < choice->cnt; i++)
		if (choice->chosen[i].pidfd >= 0)
			close(choice->chosen[i].pidfd);
	free(choice->chosen);
	free(choice->names);
	free(choice->cgroups);
	free(choice->cgroup_ids);
	free(choice->root_ids);
	*choice = (struct choice){0};
}

bool choice__is_open(const struct choice *choice)
{
	return choice->name_cnt || choice->cgroup_cnt;
}

/* A number in a file of /proc/ID, on the line that begins with key; -1 = not there. */
static long read_status(pid_t id, const char *key)
{
	char path[64], line[256];
	long value = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)id);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, key, strlen(key)))
			value = atol(line + strlen(key));
	if (file)
		fclose(file);
	return value;
}

static bool is_readable(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	return poll(&poll_fd, 1, 0) == 1 && poll_fd.revents & POLLIN;
}

/* False after saying why. */
static bool bind_one(struct chosen *chosen)
{
	const char *kind = chosen->scope == AT_SCOPE_THREAD ? "thread" : "process";
	long tgid = read_status(chosen->id, "Tgid:");

	if (tgid > 0 && tgid != chosen->id && chosen->scope == AT_SCOPE_PROCESS) {
		msg__error("process %d: it is a thread of process %ld: attach to that, or to the thread with --tid",
			   (int)chosen->id, tgid);
		return false;
	}
	chosen->pidfd = pidfd_open(tgid > 0 ? (pid_t)tgid : chosen->id, 0);
	if (chosen->pidfd < 0) {
		msg__error("%s %d: %s", kind, (int)chosen->id,
			   errno == ESRCH || errno == EINVAL ? "no such process" : strerror(errno));
		return false;
	}
	if (is_readable(chosen->pidfd)) {
		msg__error("%s %d: it has ended already, and waits for its parent to notice (a zombie)", kind,
			   (int)chosen->id);
		return false;
	}
	if (tgid == getpid()) {
		msg__error("%s %d: alloctrace cannot be attached to itself", kind, (int)chosen->id);
		return false;
	}
	return true;
}

static void drop(struct choice *choice, size_t i)
{
	if (choice->chosen[i].pidfd >= 0)
		close(choice->chosen[i].pidfd);
	memmove(&choice->chosen[i], &choice->chosen[i + 1], (choice->cnt - i - 1) * sizeof(*choice->chosen));
	choice->cnt--;
}

/* Something is left to be traced, or was never asked for by number. */
static int status_of(const struct choice *choice)
{
	return choice->cnt || choice__is_open(choice) ? 0 : 1;
}

int choice__bind(struct choice *choice)
{
	for (size_t i = 0; i < choice->cnt;)
		if (bind_one(&choice->chosen[i]))
			i++;
		else
			drop(choice, i);
	return status_of(choice);
}

size_t choice__thread_cnt(const struct choice *choice)
{
	size_t cnt = 0;

	for (size_t i = 0; i < choice->cnt; i++) {
		long threads =
			choice->chosen[i].scope == AT_SCOPE_THREAD ? 1 : read_status(choice->chosen[i].id, "Threads:");

		cnt += threads > 0 ? (size_t)threads : 1;
	}
	return cnt;
}

static bool is_compat(pid_t pid)
{
	unsigned char head[EI_NIDENT];
	char path[64];
	bool is = false;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	is = read(fd, head, sizeof(head)) == sizeof(head) && !memcmp(head, ELFMAG, SELFMAG) &&
	     head[EI_CLASS] == ELFCLASS32;
	close(fd);
	return is;
}

pid_t choice__compat_pid(const struct choice *choice)
{
	for (size_t i = 0; i < choice->cnt; i++)
		if (is_compat(choice->chosen[i].id))
			return choice->chosen[i].id;
	return 0;
}

static int add_cgroup_id(struct choice *choice, uint64_t id)
{
	uint64_t *ids = realloc(choice->cgroup_ids, (choice->cgroup_id_cnt + 1) * sizeof(*ids));

	if (!ids)
		return -ENOMEM;
	choice->cgroup_ids = ids;
	ids[choice->cgroup_id_cnt++] = id;
	return 0;
}

/* The inode number of a control group's directory is its id. */
static int walk_cgroup(struct choice *choice, int dir_fd, int depth)
{
	struct dirent *entry;
	struct stat st;
	int err = 0;
	DIR *dir;

	if (fstat(dir_fd, &st)) {
		err = -errno;
		close(dir_fd);
		return err;
	}
	dir = fdopendir(dir_fd);
	if (!dir) {
		err = -errno;
		close(dir_fd);
		return err;
	}
	err = add_cgroup_id(choice, st.st_ino);
	while (!err && depth < CGROUP_DEPTH_MAX && (entry = readdir(dir)) != NULL) {
		int fd;

		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		fd = openat(dir_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0)
			err = walk_cgroup(choice, fd, depth + 1);
	}
	closedir(dir);
	return err;
}

int choice__refresh(struct choice *choice)
{
	int err = 0;

	choice->cgroup_id_cnt = 0;
	if (choice->cgroup_cnt && !choice->root_ids)
		choice->root_ids = calloc(choice->cgroup_cnt, sizeof(*choice->root_ids));
	if (choice->cgroup_cnt && !choice->root_ids)
		return -ENOMEM;
	for (size_t i = 0; !err && i < choice->cgroup_cnt; i++) {
		int fd = open(choice->cgroups[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		size_t root = choice->cgroup_id_cnt;

		/* One that was removed has nothing left to trace. */
		if (fd >= 0)
			err = walk_cgroup(choice, fd, 0);
		choice->root_ids[i] = root < choice->cgroup_id_cnt ? choice->cgroup_ids[root] : 0;
	}
	return err;
}

/* Its own number as seen by us; for a process also that of any of its threads' process. */
static bool is_met(const struct chosen *chosen, const struct at_task *task)
{
	bool is_thread = chosen->scope == AT_SCOPE_THREAD;

	if (chosen->kernel_id)
		return chosen->kernel_id == (is_thread ? task->tid : task->tgid) &&
		       chosen->start_ns == (is_thread ? task->start_ns : task->process_start_ns);
	/* Whoever has the number now is the one that bind took hold of, as long as that has not ended. */
	return chosen->id == (pid_t)(is_thread ? task->shown_tid : task->shown_tgid) && !is_readable(chosen->pidfd);
}

static enum at_scope want_process(const struct at_task *task, uint32_t *id, uint64_t *start_ns)
{
	*id = task->tgid;
	*start_ns = task->process_start_ns;
	return AT_SCOPE_PROCESS;
}

enum at_scope choice__match(struct choice *choice, const struct at_task *task, uint32_t *id, uint64_t *start_ns)
{
	enum at_scope scope = AT_SCOPE_NONE;

	if (task->is_kernel)
		return AT_SCOPE_NONE;
	for (size_t i = 0; i < choice->cnt && scope != AT_SCOPE_PROCESS; i++) {
		struct chosen *chosen = &choice->chosen[i];

		if (!is_met(chosen, task))
			continue;
		scope = chosen->scope;
		*id = scope == AT_SCOPE_THREAD ? task->tid : task->tgid;
		*start_ns = scope == AT_SCOPE_THREAD ? task->start_ns : task->process_start_ns;
		chosen->kernel_id = *id;
		chosen->start_ns = *start_ns;
	}
	if (scope == AT_SCOPE_PROCESS || (int)task->shown_tgid == getpid())
		return scope;
	for (size_t i = 0; i < choice->name_cnt; i++)
		if (!strncmp(choice->names[i], task->process_comm, AT_COMM_BYTES - 1))
			return want_process(task, id, start_ns);
	for (size_t i = 0; i < choice->cgroup_id_cnt; i++)
		if (choice->cgroup_ids[i] == task->cgroup_id)
			return want_process(task, id, start_ns);
	return scope;
}

static bool is_kernel_thread(const struct chosen *chosen, const struct at_task *tasks, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++)
		if (tasks[i].is_kernel && (pid_t)tasks[i].shown_tid == chosen->id)
			return true;
	return false;
}

int choice__settle(struct choice *choice, const struct at_task *tasks, size_t cnt)
{
	for (size_t i = 0; i < choice->cnt;) {
		const struct chosen *chosen = &choice->chosen[i];

		if (chosen->kernel_id) {
			i++;
			continue;
		}
		msg__error("%s %d: %s", chosen->scope == AT_SCOPE_THREAD ? "thread" : "process", (int)chosen->id,
			   is_kernel_thread(chosen, tasks, cnt)
				   ? "it is a thread of the kernel: it has no memory of its own and makes no calls"
				   : "it ended before it could be attached to");
		drop(choice, i);
	}
	return status_of(choice);
}

bool choice__has_ended(const struct choice *choice)
{
	for (size_t i = 0; i < choice->cnt; i++)
		if (!is_readable(choice->chosen[i].pidfd))
			return false;
	return true;
}
