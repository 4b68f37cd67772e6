/* SPDX-License-Identifier: BSD-2-Clause */
/* Finding and writing the control block of another process; see policy_ctl.h. */
#include "cli/policy_ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <inttypes.h>
#include <libelf.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cli/elf_symbols.h"

static const char control_symbol[] = "atmalloc_control", counters_symbol[] = "atmalloc_counters";

/* One line of /proc/PID/maps. */
struct mapping {
	uint64_t start, end, offset, inode;
	dev_t device;
	const char *path; /* inside the line */
};

static int __attribute__((format(printf, 4, 5))) fail(int err, char *why, size_t why_bytes, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, why_bytes, fmt, args);
	va_end(args);
	return err;
}

/* The kernel does not say which of its checks refused. */
static const char *not_permitted(void)
{
	return geteuid() ? "not permitted: only its own user or root may look into it"
			 : "not permitted: looking into it takes CAP_SYS_PTRACE, and no security module against it";
}

static bool parse_mapping(char *text, struct mapping *mapping)
{
	unsigned major, minor;
	int path_at = 0;

	text[strcspn(text, "\n")] = 0;
	if (sscanf(text, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %x:%x %" SCNu64 " %n", &mapping->start, &mapping->end,
		   &mapping->offset, &major, &minor, &mapping->inode, &path_at) < 6 ||
	    !path_at)
		return false;
	mapping->device = makedev(major, minor);
	mapping->path = text + path_at;
	return mapping->inode != 0;
}

/*
 * The file behind a mapping: by the mapping itself, which holds for deleted and
 * replaced files, too, but needs privileges; else by its path as the process
 * sees it, if that still is the same file.
 */
static int open_mapping(pid_t pid, const struct mapping *mapping)
{
	char path[4096 + 64];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, (int)pid, mapping->start, mapping->end);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		return fd;
	if ((size_t)snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, mapping->path) >= sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	/* Some file systems show another device in maps than in stat: the inode must do. */
	if (fstat(fd, &st) || st.st_ino != mapping->inode) {
		close(fd);
		return -ESTALE;
	}
	return fd;
}

/* Addresses as the file has them; 0: it has no such symbol. */
struct symbols {
	uint64_t control, counters;
};

static bool note_symbol(void *data, const char *name, const GElf_Sym *symbol)
{
	struct symbols *symbols = data;

	if (strcmp(name, control_symbol) == 0)
		symbols->control = symbol->st_value;
	else if (strcmp(name, counters_symbol) == 0)
		symbols->counters = symbol->st_value;
	return symbols->control && symbols->counters;
}

/* What the mapping of the file's first page has at its start. */
static bool find_base(Elf *elf, uint64_t *base)
{
	uint64_t page_mask = ~((uint64_t)sysconf(_SC_PAGESIZE) - 1);
	size_t segment_cnt = 0;

	if (elf_getphdrnum(elf, &segment_cnt))
		return false;
	for (size_t i = 0; i < segment_cnt; i++) {
		GElf_Phdr segment;

		if (!gelf_getphdr(elf, (int)i, &segment) || segment.p_type != PT_LOAD || segment.p_offset != 0)
			continue;
		*base = segment.p_vaddr & page_mask;
		return true;
	}
	return false;
}

/* 1: found; 0: not in this file; -errno: the file cannot be looked at. */
static int search_mapping(struct policy_ctl *ctl, const struct mapping *mapping)
{
	int fd = open_mapping(ctl->pid, mapping);
	struct symbols symbols = {0};
	uint64_t base = 0;
	Elf *elf;

	if (fd < 0)
		return fd;
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (elf && elf_kind(elf) == ELF_K_ELF && find_base(elf, &base))
		elf_symbols__each(elf, note_symbol, &symbols);
	elf_end(elf);
	close(fd);
	if (!symbols.control)
		return 0;
	ctl->address = mapping->start + (symbols.control - base);
	if (symbols.counters)
		ctl->counters_address = mapping->start + (symbols.counters - base);
	return 1;
}

/* Its maps, or a sentence why not: the process may be gone, somebody else's, or a zombie. */
static FILE *open_maps(pid_t pid, int *err, char *why, size_t why_bytes)
{
	char path[64];
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	if (maps)
		return maps;
	*err = -errno;
	if (errno == ENOENT || errno == ESRCH)
		fail(*err, why, why_bytes, "no such process");
	else if (errno == EACCES || errno == EPERM)
		fail(*err, why, why_bytes, "%s", not_permitted());
	else
		fail(*err, why, why_bytes, "cannot read %s: %s", path, strerror(-*err));
	return NULL;
}

/* Looks through all files mapped from their start: the library may have any name, or be linked in. */
static int find_control(struct policy_ctl *ctl, char *why, size_t why_bytes)
{
	char *text = NULL, blocked[256] = "";
	size_t text_bytes = 0;
	int err = 0, blocked_err = 0, found = 0;
	bool has_any = false;
	FILE *maps = open_maps(ctl->pid, &err, why, why_bytes);

	if (!maps)
		return err;
	errno = 0;
	while (found != 1 && getline(&text, &text_bytes, maps) > 0) {
		struct mapping mapping;

		has_any = true;
		if (!parse_mapping(text, &mapping) || mapping.offset != 0)
			continue;
		found = search_mapping(ctl, &mapping);
		if (found < 0 && strstr(mapping.path, "libatmalloc")) {
			blocked_err = found;
			snprintf(blocked, sizeof(blocked), "%.200s", mapping.path);
		}
	}
	err = errno;
	free(text);
	fclose(maps);
	if (found == 1)
		return 0;
	if (!has_any && err == EACCES)
		return fail(-EACCES, why, why_bytes, "%s", not_permitted());
	if (!has_any)
		return fail(-ESRCH, why, why_bytes, "it has no memory: a kernel thread, or already ended");
	if (blocked_err == -ESTALE || blocked_err == -ENOENT)
		return fail(blocked_err, why, why_bytes,
			    "%s was replaced or deleted since it started: only root can read it", blocked);
	if (blocked_err)
		return fail(blocked_err, why, why_bytes, "cannot read %s: %s", blocked, strerror(-blocked_err));
	return fail(-ENOENT, why, why_bytes,
		    "the bundled allocator is not loaded there (start it with 'alloctrace run' or "
		    "LD_PRELOAD)");
}

static int transfer_failed(int err, const char *what, char *why, size_t why_bytes)
{
	if (err == EPERM || err == EACCES)
		return fail(-EPERM, why, why_bytes, "%s", not_permitted());
	if (err == ESRCH)
		return fail(-ESRCH, why, why_bytes, "no such process");
	return fail(-err, why, why_bytes, "cannot %s its memory: %s", what, strerror(err));
}

int policy_ctl__open(struct policy_ctl *ctl, pid_t pid, char *why, size_t why_bytes)
{
	struct iovec local = {.iov_base = &ctl->control, .iov_len = sizeof(ctl->control)}, remote;
	int err;

	*ctl = (struct policy_ctl){.pid = pid};
	if (elf_version(EV_CURRENT) == EV_NONE)
		return fail(-EINVAL, why, why_bytes, "libelf is too old");
	err = find_control(ctl, why, why_bytes);
	if (err)
		return err;
	remote = (struct iovec){.iov_base = (void *)(uintptr_t)ctl->address, .iov_len = sizeof(ctl->control)};
	/* Another ABI may have a shorter block at the end of a mapping: a part is enough to say so. */
	if (process_vm_readv(pid, &local, 1, &remote, 1, 0) < (ssize_t)offsetof(struct atm_control, policy))
		return transfer_failed(errno, "read", why, why_bytes);
	if (ctl->control.magic != ATM_MAGIC)
		return fail(-EINVAL, why, why_bytes, "what it calls %s is not the bundled allocator's", control_symbol);
	if (ctl->control.abi != ATM_ABI || ctl->control.bytes != sizeof(ctl->control))
		return fail(-EPROTO, why, why_bytes,
			    "its allocator has ABI %u, this program has %d: use the alloctrace it came with",
			    ctl->control.abi, ATM_ABI);
	return 0;
}

int policy_ctl__set(struct policy_ctl *ctl, uint32_t policy, char *why, size_t why_bytes)
{
	/* One aligned word: readers see the old set or the new one, never a mixture. */
	struct iovec local = {.iov_base = &policy, .iov_len = sizeof(policy)};
	struct iovec remote = {
		.iov_base = (void *)(uintptr_t)(ctl->address + offsetof(struct atm_control, policy)),
		.iov_len = sizeof(policy),
	};

	if (process_vm_writev(ctl->pid, &local, 1, &remote, 1, 0) != sizeof(policy))
		return transfer_failed(errno, "write", why, why_bytes);
	ctl->control.policy = policy;
	return 0;
}

static int read_part(const struct policy_ctl *ctl, size_t offset, size_t bytes, struct atm_counters *counters)
{
	struct iovec local = {.iov_base = (char *)counters + offset, .iov_len = bytes};
	struct iovec remote = {.iov_base = (void *)(uintptr_t)(ctl->counters_address + offset), .iov_len = bytes};
	ssize_t got = process_vm_readv(ctl->pid, &local, 1, &remote, 1, 0);

	return got == (ssize_t)bytes ? 0 : got < 0 ? -errno : -EFAULT;
}

int policy_ctl__read_counters(const struct policy_ctl *ctl, struct atm_counters *counters)
{
	const size_t head_bytes = offsetof(struct atm_counters, cells);
	int err;

	memset(counters, 0, sizeof(*counters));
	if (!ctl->counters_address)
		return -ENOENT;
	err = read_part(ctl, 0, head_bytes, counters);
	/* Before its constructor has run it has counted nothing that is shown. */
	if (err || !counters->magic)
		return err;
	if (counters->magic != ATM_MAGIC || counters->abi != ATM_ABI || counters->cell_cnt > ATM_CELL_CNT)
		return -EPROTO;
	/* Cells beyond are not looked at: it would allocate them. */
	return counters->cell_cnt ? read_part(ctl, head_bytes, counters->cell_cnt * sizeof(struct atm_cell), counters)
				  : 0;
}
