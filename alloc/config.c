/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Settings from the environment, and what depends on the machine: RAM as far
 * as this process may use it, CPUs, the two batches of policy commit. Runs in
 * the constructor; must not allocate.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "alloc/heap.h"
#include "alloc/policy.h"
#include "alloc/settings.h"
#include "alloc/syscall.h"

/* Reads a small file; returns its length, 0 when it cannot be read. */
static size_t read_file(const char *path, char *buf, size_t buf_bytes)
{
	long fd = atm_syscall(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0), got;
	size_t bytes = 0;

	if (fd < 0)
		return 0;
	while (bytes + 1 < buf_bytes) {
		got = atm_syscall(SYS_read, fd, (long)buf + (long)bytes, (long)(buf_bytes - 1 - bytes), 0, 0, 0);
		if (got <= 0)
			break;
		bytes += (size_t)got;
	}
	atm_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
	buf[bytes] = '\0';
	return bytes;
}

static uint64_t limit_in_file(const char *path)
{
	char text[32];
	uint64_t bytes = 0;

	if (!read_file(path, text, sizeof(text)) || text[0] < '0' || text[0] > '9')
		return UINT64_MAX; /* "max", or no such file */
	for (const char *c = text; *c >= '0' && *c <= '9'; c++)
		if (__builtin_mul_overflow(bytes, 10, &bytes) ||
		    __builtin_add_overflow(bytes, (uint64_t)(*c - '0'), &bytes))
			return UINT64_MAX;
	return bytes;
}

/* The smallest limit on the way from the cgroup at `path` up to the root of `mount`. */
static uint64_t limit_on_path(const char *mount, const char *path, size_t path_bytes, const char *file)
{
	uint64_t limit = UINT64_MAX;
	char name[512];
	size_t mount_bytes = strlen(mount), file_bytes = strlen(file) + 1;

	for (;; path_bytes--) {
		if (path_bytes > 0 && path[path_bytes - 1] == '/')
			continue; /* "/a/" names the same as "/a" */
		if (mount_bytes + path_bytes + file_bytes > sizeof(name))
			return limit;
		memcpy(name, mount, mount_bytes);
		memcpy(name + mount_bytes, path, path_bytes);
		memcpy(name + mount_bytes + path_bytes, file, file_bytes);
		uint64_t here = limit_in_file(name);

		limit = here < limit ? here : limit;
		while (path_bytes > 0 && path[path_bytes - 1] != '/')
			path_bytes--;
		if (path_bytes == 0)
			return limit;
	}
}

/* The memory limit of this process's cgroup, v2 ("0::PATH") or v1 ("N:...memory...:PATH"). */
static uint64_t cgroup_limit_bytes(void)
{
	static char text[4096]; /* not on the stack of whoever loads us */
	uint64_t limit = UINT64_MAX;

	if (!read_file("/proc/self/cgroup", text, sizeof(text)))
		return limit;
	for (char *line = text, *end; *line; line = end + 1) {
		char *controllers, *path;
		uint64_t here = UINT64_MAX;

		end = strchr(line, '\n');
		if (!end)
			break;
		*end = '\0';
		controllers = strchr(line, ':');
		path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path)
			continue;
		*path++ = '\0';
		if (controllers[1] == '\0')
			here = limit_on_path("/sys/fs/cgroup", path, strlen(path), "/memory.max");
		else if (strstr(controllers + 1, "memory"))
			here = limit_on_path("/sys/fs/cgroup/memory", path, strlen(path), "/memory.limit_in_bytes");
		limit = here < limit ? here : limit;
	}
	return limit;
}

static void machine_start(void)
{
	struct sysinfo info = {0};
	uint64_t limit_bytes, ram_bytes = 0;
	long cpu_cnt = sysconf(_SC_NPROCESSORS_ONLN);

	if (atm_syscall(SYS_sysinfo, (long)&info, 0, 0, 0, 0, 0) == 0)
		ram_bytes = (uint64_t)info.totalram * info.mem_unit;
	limit_bytes = cgroup_limit_bytes();
	if (limit_bytes < ram_bytes)
		ram_bytes = limit_bytes;
	if (cpu_cnt < 1)
		cpu_cnt = 1;
	atmalloc_control.cpu_cnt = (uint64_t)cpu_cnt;
	atmalloc_control.ram_pages = ram_bytes >> atm_page_shift;
	/* max(32, 2 x CPUs) was Linux's batch until 5.8; 5 % of RAM is the patch's bound. */
	atmalloc_control.commit_batch_fixed_pages = cpu_cnt > 16 ? 2 * (uint64_t)cpu_cnt : 32;
	atmalloc_control.commit_batch_scaled_pages = atmalloc_control.ram_pages / (20 * (uint64_t)cpu_cnt);
}

static void warn(const struct settings_error *error, const char *variable)
{
	char what[160];

	strcpy(what, variable);
	strcat(what, " ignored, ");
	strcat(what, error->why);
	strcat(what, ": ");
	atm_warn(what, error->at, error->bytes);
}

void atm_config_start(void)
{
	const char *policy_set = getenv(ATM_POLICY_ENV), *tune_list = getenv(ATM_TUNE_ENV);
	struct settings_error error;
	uint32_t policy;

	machine_start();
	if (policy_set) {
		if (settings__parse_policy(policy_set, atmalloc_control.policy_default, &policy, &error))
			warn(&error, ATM_POLICY_ENV);
		else
			__atomic_store_n(&atmalloc_control.policy, policy, __ATOMIC_RELAXED);
	}
	if (tune_list && settings__parse_tune(tune_list, atmalloc_control.tune, &error))
		warn(&error, ATM_TUNE_ENV);
}
