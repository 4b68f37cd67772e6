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

static const char control_symbol[] = "atmalloc_control";

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

/* The symbol's address relative to the start of the mapping of the file's first page. */
static bool find_symbol(Elf *elf, uint64_t *relative)
{
	uint64_t page_mask = ~((uint64_t)sysconf(_SC_PAGESIZE) - 1), base = UINT64_MAX;
	size_t segment_cnt = 0;

	if (elf_getphdrnum(elf, &segment_cnt))
		return false;
	for (size_t i = 0; i < segment_cnt; i++) {
		GElf_Phdr segment;

		if (gelf_getphdr(elf, i, &segment) && segment.p_type == PT_LOAD && segment.p_offset == 0)
			base = segment.p_vaddr & page_mask;
	}
	for (Elf_Scn *section = NULL; base != UINT64_MAX && (section = elf_nextscn(elf, section));) {
		GElf_Shdr header;
		Elf_Data *data;

		if (!gelf_getshdr(section, &header) || header.sh_type != SHT_DYNSYM || !header.sh_entsize)
			continue;
		data = elf_getdata(section, NULL);
		for (size_t i = 0; data && i < header.sh_size / header.sh_entsize; i++) {
			GElf_Sym symbol;
			const char *name;

			if (!gelf_getsym(data, i, &symbol) || symbol.st_shndx == SHN_UNDEF)
				continue;
			name = elf_strptr(elf, header.sh_link, symbol.st_name);
			if (name && strcmp(name, control_symbol) == 0) {
				*relative = symbol.st_value - base;
				return true;
			}
		}
	}
	return false;
}

/* 1: found; 0: not in this file; -errno: the file cannot be looked at. */
static int search_mapping(pid_t pid, const struct mapping *mapping, uint64_t *address)
{
	int fd = open_mapping(pid, mapping);
	uint64_t relative;
	bool is_found;
	Elf *elf;

	if (fd < 0)
		return fd;
	elf = elf_begin(fd, ELF_C_READ, NULL);
	is_found = elf && elf_kind(elf) == ELF_K_ELF && find_symbol(elf, &relative);
	elf_end(elf);
	close(fd);
	if (is_found)
		*address = mapping->start + relative;
	return is_found;
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
static int find_control(pid_t pid, uint64_t *address, char *why, size_t why_bytes)
{
	char *text = NULL, blocked[256] = "";
	size_t text_bytes = 0;
	int err = 0, blocked_err = 0, found = 0;
	bool has_any = false;
	FILE *maps = open_maps(pid, &err, why, why_bytes);

	if (!maps)
		return err;
	errno = 0;
	while (found != 1 && getline(&text, &text_bytes, maps) > 0) {
		struct mapping mapping;

		has_any = true;
		if (!parse_mapping(text, &mapping) || mapping.offset != 0)
			continue;
		found = search_mapping(pid, &mapping, address);
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
	err = find_control(pid, &ctl->address, why, why_bytes);
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
