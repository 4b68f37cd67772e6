/* SPDX-License-Identifier: BSD-2-Clause */
/* Looking at executables with libelf; see binary.h. */
#include "cli/binary.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cli/elf_symbols.h"

/* The kernel's own limit on #! lines that name a script. */
enum { SCRIPT_DEPTH_MAX = 5 };

void binary__free_paths(char **paths)
{
	for (size_t i = 0; paths && paths[i]; i++)
		free(paths[i]);
	free(paths);
}

char **binary__paths(const char *name)
{
	const char *search = getenv("PATH");
	size_t cnt = 0, cap = 2;
	char **paths;

	/* execvp's own default when there is no PATH */
	if (!search)
		search = "/bin:/usr/bin";
	for (const char *at = search; *at; at++)
		cap += *at == ':';
	paths = calloc(cap + 1, sizeof(*paths));
	if (!paths)
		return NULL;
	if (!*name || strchr(name, '/')) {
		paths[0] = strdup(name);
		return paths[0] ? paths : (free(paths), NULL);
	}
	for (const char *at = search;; at++) {
		size_t bytes = strcspn(at, ":");

		if (asprintf(&paths[cnt], "%.*s%s%s", (int)bytes, at, bytes ? "/" : "", name) < 0) {
			paths[cnt] = NULL;
			binary__free_paths(paths);
			return NULL;
		}
		if (access(paths[cnt], F_OK) == 0 || errno == EACCES) {
			cnt++;
		} else {
			free(paths[cnt]);
			paths[cnt] = NULL;
		}
		at += bytes;
		if (!*at)
			break;
	}
	return paths;
}

/* Opens path as an ELF file; NULL when it is none. *fd_out is to be closed in any case when >= 0. */
static Elf *open_elf(const char *path, int *fd_out)
{
	Elf *elf = NULL;

	*fd_out = -1;
	if (elf_version(EV_CURRENT) == EV_NONE)
		return NULL;
	*fd_out = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (*fd_out < 0)
		return NULL;
	elf = elf_begin(*fd_out, ELF_C_READ, NULL);
	if (elf && elf_kind(elf) != ELF_K_ELF) {
		elf_end(elf);
		elf = NULL;
	}
	return elf;
}

static bool has_segment(Elf *elf, uint32_t type)
{
	size_t cnt = 0;

	if (elf_getphdrnum(elf, &cnt))
		return false;
	for (size_t i = 0; i < cnt; i++) {
		GElf_Phdr segment;

		if (gelf_getphdr(elf, i, &segment) && segment.p_type == type)
			return true;
	}
	return false;
}

/* A static function of the same name is no malloc; a hidden one is. */
static bool is_function(void *data, const char *name, const GElf_Sym *symbol)
{
	const char *wanted = data;

	return GELF_ST_TYPE(symbol->st_info) == STT_FUNC &&
	       (GELF_ST_BIND(symbol->st_info) != STB_LOCAL || GELF_ST_VISIBILITY(symbol->st_other) != STV_DEFAULT) &&
	       strcmp(name, wanted) == 0;
}

/* The interpreter of a #! script; false when the file is none. */
static bool read_script(const char *path, char *interpreter, size_t interpreter_bytes)
{
	char line[PATH_MAX] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	ssize_t got = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);
	char *start;

	if (fd >= 0)
		close(fd);
	if (got < 3 || line[0] != '#' || line[1] != '!')
		return false;
	start = line + 2 + strspn(line + 2, " \t");
	start[strcspn(start, " \t\n")] = 0;
	return *start && (size_t)snprintf(interpreter, interpreter_bytes, "%s", start) < interpreter_bytes;
}

/* Does the start of this file change identity or gain capabilities? ld.so then ignores LD_PRELOAD paths. */
static bool is_privileged(const char *path, uid_t uid, gid_t gid)
{
	struct stat st;

	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return false;
	if ((st.st_mode & S_ISUID) && st.st_uid != uid)
		return true;
	if ((st.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && st.st_gid != gid)
		return true;
	return uid != 0 && getxattr(path, "security.capability", NULL, 0) > 0;
}

static const char *elf_reason(const char *path, uid_t uid, gid_t gid, bool *is_32bit)
{
	const char *why = NULL;
	int fd;
	Elf *elf = open_elf(path, &fd);

	*is_32bit = elf && gelf_getclass(elf) == ELFCLASS32;
	if (*is_32bit)
		why = "is a 32-bit program; its memory calls are counted, not decoded";
	else if (elf && !has_segment(elf, PT_INTERP))
		why = "is static";
	else if (elf && elf_symbols__each(elf, is_function, "malloc"))
		why = "defines its own malloc";
	else if (elf && is_privileged(path, uid, gid))
		why = "is set-user-ID, set-group-ID or has capabilities";
	elf_end(elf);
	if (fd >= 0)
		close(fd);
	return why;
}

void binary__inspect(const char *path, uid_t uid, gid_t gid, struct binary_finding *finding)
{
	char current[PATH_MAX], next[PATH_MAX];
	const char *why;

	*finding = (struct binary_finding){.is_replaceable = true};
	if ((size_t)snprintf(current, sizeof(current), "%s", path) >= sizeof(current))
		return;
	for (int depth = 0; depth < SCRIPT_DEPTH_MAX && read_script(current, next, sizeof(next)); depth++)
		strcpy(current, next);
	why = elf_reason(current, uid, gid, &finding->is_32bit);
	if (!why)
		return;
	finding->is_replaceable = false;
	/* The end of a long path says more than its start. */
	if (strlen(current) > 100)
		snprintf(finding->why, sizeof(finding->why), "...%s %s", current + strlen(current) - 97, why);
	else
		snprintf(finding->why, sizeof(finding->why), "%s %s", current, why);
}

const char *binary__library_fault(const char *path)
{
	const char *fault = NULL;
	GElf_Ehdr header;
	int fd;
	Elf *elf = open_elf(path, &fd);

	if (fd < 0)
		fault = strerror(errno);
	else if (!elf || !gelf_getehdr(elf, &header))
		fault = "not an ELF file";
	else if (gelf_getclass(elf) != ELFCLASS64 || header.e_machine != EM_X86_64)
		fault = "not a 64-bit x86 library";
	else if (header.e_type != ET_DYN)
		fault = "not a shared object";
	elf_end(elf);
	if (fd >= 0)
		close(fd);
	return fault;
}
