/* SPDX-License-Identifier: BSD-2-Clause */
/* Telling the allocator of a running process; see allocator.h. */
#include "cli/allocator.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <inttypes.h>
#include <libelf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc/settings.h"
#include "cli/elf_symbols.h"

enum { VERSION_BYTES = 32, FILE_MAX = 512, FILE_MAX_BYTES = 256 << 20, KNOWN_MAX = 256, VALUE_BYTES = 64 };

/*
 * In the order in which they serve malloc where several are there: a library
 * that is preloaded or linked in comes before the C library. X(id, name, is a
 * runtime with a heap of its own).
 */
#define KINDS(X)                       \
	X(GO, "Go", true)              \
	X(JAVA, "Java", true)          \
	X(JEMALLOC, "jemalloc", false) \
	X(MIMALLOC, "mimalloc", false) \
	X(TCMALLOC, "tcmalloc", false) \
	X(MUSL, "musl", false)         \
	X(GLIBC, "glibc", false)

#define X(id, name, is_runtime) KIND_##id,
enum kind { KINDS(X) KIND_CNT };
#undef X

/* A symbol that tells a kind, wherever it is defined. The C libraries' are told by their files, too. */
static const struct {
	const char *symbol;
	enum kind kind;
} marks[] = {
	{"runtime.mallocgc", KIND_GO},
	{"JNI_CreateJavaVM", KIND_JAVA},
	{"je_malloc", KIND_JEMALLOC},
	{"je_mallctl", KIND_JEMALLOC},
	{"mallctl", KIND_JEMALLOC},
	{"_rjem_mallctl", KIND_JEMALLOC},
	{"mi_malloc", KIND_MIMALLOC},
	{"tc_malloc", KIND_TCMALLOC},
	{"TCMallocInternalMalloc", KIND_TCMALLOC},
	{"__libc_malloc_impl", KIND_MUSL},
	{"__malloc_alloc_meta", KIND_MUSL},
	{"__dls3", KIND_MUSL}, /* of its loader, which is the library, too; exported */
	{"__libc_mallopt", KIND_GLIBC},
	{"__libc_memalign", KIND_GLIBC},
	{"_int_malloc", KIND_GLIBC},
};
enum { MARK_CNT = sizeof(marks) / sizeof(marks[0]) };

struct found {
	bool is_there[KIND_CNT];
	char versions[KIND_CNT][VERSION_BYTES];
};

struct file {
	Elf *elf;
	const char *bytes; /* all of it */
	size_t byte_cnt;
	const char *path;
	pid_t pid;
};

/* A text behind `key` in the file: characters that a version may have; "" = not there. */
static void text_behind(const struct file *file, const char *key, char version[VERSION_BYTES])
{
	const char *at = memmem(file->bytes, file->byte_cnt, key, strlen(key));
	size_t used = 0;

	version[0] = 0;
	if (!at)
		return;
	at += strlen(key);
	while (at + used < file->bytes + file->byte_cnt && used + 1 < VERSION_BYTES &&
	       (isalnum((unsigned char)at[used]) || at[used] == '.')) {
		version[used] = at[used];
		used++;
	}
	version[used] = 0;
}

/* "5.3.0-0-g54eaed1d...": the only text of this form in a jemalloc. */
static void version_jemalloc(const struct file *file, char version[VERSION_BYTES])
{
	const char *end = file->bytes + file->byte_cnt;

	for (const char *at = file->bytes; (at = memmem(at, (size_t)(end - at), "-g", 2)) != NULL; at += 2) {
		const char *start = at;
		int major, minor, patch, rest, used = 0;
		char text[VERSION_BYTES] = "";

		while (start > file->bytes && at - start < VERSION_BYTES - 1 &&
		       (isdigit((unsigned char)start[-1]) || start[-1] == '.' || start[-1] == '-'))
			start--;
		memcpy(text, start, (size_t)(at - start));
		if (sscanf(text, "%d.%d.%d-%d%n", &major, &minor, &patch, &rest, &used) == 4 && !text[used]) {
			snprintf(version, VERSION_BYTES, "%d.%d.%d", major, minor, patch);
			return;
		}
	}
}

/* A text that is nothing but "1.2.3": the only one of this form in a musl, whose major version is 1. */
static void version_musl(const struct file *file, char version[VERSION_BYTES])
{
	const char *end = file->bytes + file->byte_cnt;

	for (const char *at = file->bytes; (at = memmem(at, (size_t)(end - at), "\0001.", 3)) != NULL; at++) {
		size_t bytes = strnlen(at + 1, (size_t)(end - at - 1));
		int minor, patch, used = 0;
		char text[VERSION_BYTES];

		if (bytes >= VERSION_BYTES || at + 1 + bytes == end)
			continue;
		memcpy(text, at + 1, bytes + 1);
		if (sscanf(text, "1.%d.%d%n", &minor, &patch, &used) == 2 && (size_t)used == bytes) {
			memcpy(version, text, bytes + 1);
			return;
		}
	}
}

/* The value of a function that does nothing but return a constant: [endbr64] mov $N,%eax; ret. */
static bool constant_of(const struct file *file, const GElf_Sym *symbol, uint32_t *value)
{
	static const char endbr[] = "\xf3\x0f\x1e\xfa";
	size_t segment_cnt = 0;

	if (elf_getphdrnum(file->elf, &segment_cnt))
		return false;
	for (size_t i = 0; i < segment_cnt; i++) {
		GElf_Phdr segment;
		const char *code;
		uint64_t offset;

		if (!gelf_getphdr(file->elf, (int)i, &segment) || segment.p_type != PT_LOAD ||
		    symbol->st_value < segment.p_vaddr || symbol->st_value - segment.p_vaddr >= segment.p_filesz)
			continue;
		offset = segment.p_offset + (symbol->st_value - segment.p_vaddr);
		if (offset > file->byte_cnt || file->byte_cnt - offset < 16)
			return false;
		code = file->bytes + offset;
		if (!memcmp(code, endbr, 4))
			code += 4;
		if (code[0] != '\xb8' || code[5] != '\xc3')
			return false;
		memcpy(value, code + 1, sizeof(*value));
		return true;
	}
	return false;
}

/* 209 is 2.0.9, 20109 is 2.1.9 of later ones. */
static void version_mimalloc(const struct file *file, const GElf_Sym *symbol, char version[VERSION_BYTES])
{
	uint32_t value;

	if (!constant_of(file, symbol, &value))
		return;
	if (value < 10000)
		snprintf(version, VERSION_BYTES, "%u.%u.%u", value / 100, value / 10 % 10, value % 10);
	else
		snprintf(version, VERSION_BYTES, "%u.%u.%u", value / 10000, value / 100 % 100, value % 100);
}

/* JAVA_VERSION="17.0.9" in the file "release" beside lib/. */
static void version_java(const struct file *file, char version[VERSION_BYTES])
{
	const char *lib = NULL;
	char path[4096], line[256];
	FILE *release;

	for (const char *at = file->path; (at = strstr(at, "/lib/")) != NULL; at++)
		lib = at;
	if (!lib || (size_t)snprintf(path, sizeof(path), "/proc/%d/root%.*s/release", (int)file->pid,
				     (int)(lib - file->path), file->path) >= sizeof(path))
		return;
	release = fopen(path, "re");
	while (release && fgets(line, sizeof(line), release))
		if (sscanf(line, "JAVA_VERSION=\"%31[^\"\n]", version) == 1)
			break;
	if (release)
		fclose(release);
}

/* The build information: 32 bytes of head, and then (since Go 1.18) the length of the version and the version. */
static void version_go(const struct file *file, char version[VERSION_BYTES])
{
	static const char magic[] = "\xff Go buildinf:";
	enum { HEAD_BYTES = 32, IS_INLINE = 2 };
	const char *end = file->bytes + file->byte_cnt;
	const char *at = memmem(file->bytes, file->byte_cnt, magic, sizeof(magic) - 1);

	/* Programs that read it have the magic, too. */
	for (; at && end - at > HEAD_BYTES + VERSION_BYTES;
	     at = memmem(at + 1, (size_t)(end - at - 1), magic, sizeof(magic) - 1)) {
		size_t bytes = (unsigned char)at[HEAD_BYTES];

		if (!(at[15] & IS_INLINE) || bytes >= VERSION_BYTES || memcmp(at + HEAD_BYTES + 1, "go", 2) != 0)
			continue;
		snprintf(version, VERSION_BYTES, "%.*s", (int)bytes - 2, at + HEAD_BYTES + 3);
		return;
	}
}

static void find_version(const struct file *file, enum kind kind, char version[VERSION_BYTES])
{
	switch (kind) {
	case KIND_GO: version_go(file, version); break;
	case KIND_JAVA: version_java(file, version); break;
	case KIND_JEMALLOC: version_jemalloc(file, version); break;
	case KIND_TCMALLOC: text_behind(file, "gperftools ", version); break;
	case KIND_MUSL: version_musl(file, version); break;
	case KIND_GLIBC: text_behind(file, "stable release version ", version); break;
	default: break;
	}
	/* The sentence ends there. */
	if (version[0] && version[strlen(version) - 1] == '.')
		version[strlen(version) - 1] = 0;
}

static void note(const struct file *file, enum kind kind, const GElf_Sym *symbol, struct found *found)
{
	if (kind == KIND_MIMALLOC && symbol && !found->versions[kind][0])
		version_mimalloc(file, symbol, found->versions[kind]);
	if (found->is_there[kind] && found->versions[kind][0])
		return;
	found->is_there[kind] = true;
	if (!found->versions[kind][0])
		find_version(file, kind, found->versions[kind]);
}

struct look {
	const struct file *file;
	struct found *found;
};

static bool look_at_symbol(void *data, const char *name, const GElf_Sym *symbol)
{
	const struct look *look = data;

	/* All marks have one of these in their names; most symbols do not. */
	if (!strstr(name, "alloc") && !strstr(name, "mallctl") && !strstr(name, "mi_version") &&
	    !strstr(name, "CreateJavaVM") && !strstr(name, "memalign") && strcmp(name, "__dls3") != 0)
		return false;
	for (int i = 0; i < MARK_CNT; i++)
		if (!strcmp(name, marks[i].symbol))
			note(look->file, marks[i].kind, NULL, look->found);
	if (!strcmp(name, "mi_version"))
		note(look->file, KIND_MIMALLOC, symbol, look->found);
	return false;
}

/* Go programs are told by a section, which stripping leaves; musl by the name of its file. */
static void look_at_file(const struct file *file, struct found *found)
{
	const char *name = strrchr(file->path, '/');
	size_t names = 0;

	name = name ? name + 1 : file->path;
	if (!strncmp(name, "ld-musl-", 8) || !strncmp(name, "libc.musl-", 10))
		note(file, KIND_MUSL, NULL, found);
	if (!strcmp(name, "libjvm.so"))
		note(file, KIND_JAVA, NULL, found);
	if (!elf_getshdrstrndx(file->elf, &names))
		for (Elf_Scn *section = NULL; (section = elf_nextscn(file->elf, section));) {
			GElf_Shdr header;
			const char *section_name =
				gelf_getshdr(section, &header) ? elf_strptr(file->elf, names, header.sh_name) : NULL;

			if (section_name && !strcmp(section_name, ".go.buildinfo"))
				note(file, KIND_GO, NULL, found);
		}
	elf_symbols__each(file->elf, look_at_symbol, &(struct look){file, found});
}

/* The whole file: mapping it would end us when it shrinks. NULL when it is too large, or cannot be read. */
static char *read_file(int fd, size_t bytes)
{
	char *text = bytes && bytes <= FILE_MAX_BYTES ? malloc(bytes) : NULL;
	size_t used = 0;

	while (text && used < bytes) {
		ssize_t got = pread(fd, text + used, bytes - used, (off_t)used);

		if (got <= 0) {
			free(text);
			return NULL;
		}
		used += (size_t)got;
	}
	return text;
}

static void look_into(int fd, size_t bytes, pid_t pid, const char *path, struct found *found)
{
	struct file file = {.path = path, .pid = pid, .byte_cnt = bytes};
	char *text = read_file(fd, bytes);

	if (!text)
		return;
	file.bytes = text;
	file.elf = elf_memory(text, bytes);
	if (file.elf && elf_kind(file.elf) == ELF_K_ELF)
		look_at_file(&file, found);
	elf_end(file.elf);
	free(text);
}

/* Files that were looked at: processes share most of theirs. */
static struct known_file {
	dev_t device;
	ino_t inode;
	struct timespec changed;
	struct found found;
} known_files[KNOWN_MAX];
static size_t known_cnt;

static const struct found *known_file(const struct stat *st)
{
	for (size_t i = 0; i < known_cnt; i++)
		if (known_files[i].device == st->st_dev && known_files[i].inode == st->st_ino &&
		    known_files[i].changed.tv_sec == st->st_ctim.tv_sec &&
		    known_files[i].changed.tv_nsec == st->st_ctim.tv_nsec)
			return &known_files[i].found;
	return NULL;
}

static void add_found(struct found *dst, const struct found *src)
{
	for (int kind = 0; kind < KIND_CNT; kind++) {
		dst->is_there[kind] |= src->is_there[kind];
		if (!dst->versions[kind][0])
			memcpy(dst->versions[kind], src->versions[kind], VERSION_BYTES);
	}
}

static void look_at_mapping(pid_t pid, const char *range, const char *mapped_path, struct found *found)
{
	const struct found *known;
	struct found own = {0};
	char path[4096 + 64];
	struct stat st;
	int fd;

	/* By the mapping itself, which holds for deleted and replaced files; else by its path. */
	snprintf(path, sizeof(path), "/proc/%d/map_files/%s", (int)pid, range);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && (size_t)snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, mapped_path) < sizeof(path))
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode)) {
		known = known_file(&st);
		if (!known)
			look_into(fd, (size_t)st.st_size, pid, mapped_path, &own);
		add_found(found, known ? known : &own);
		if (!known && known_cnt < KNOWN_MAX)
			known_files[known_cnt++] = (struct known_file){st.st_dev, st.st_ino, st.st_ctim, own};
	}
	close(fd);
}

/* The first mapping of each file. A leader that has ended has no memory; its threads have. */
static FILE *open_maps(pid_t pid)
{
	char path[64];
	FILE *maps;
	int first;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	first = maps ? fgetc(maps) : EOF;
	if (first != EOF) {
		ungetc(first, maps);
		return maps;
	}
	if (maps)
		fclose(maps);
	return NULL;
}

static void look_at_maps(pid_t pid, struct found *found)
{
	FILE *maps = open_maps(pid);
	char *line = NULL;
	size_t line_bytes = 0;
	int cnt = 0;

	while (maps && cnt < FILE_MAX && getline(&line, &line_bytes, maps) > 0) {
		uint64_t start, end, offset, inode;
		char range[VALUE_BYTES];
		int path_at = 0;

		line[strcspn(line, "\n")] = 0;
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %" SCNu64 " %n", &start, &end, &offset,
			   &inode, &path_at) < 4 ||
		    !path_at || !inode || offset || line[path_at] != '/')
			continue;
		snprintf(range, sizeof(range), "%" PRIx64 "-%" PRIx64, start, end);
		look_at_mapping(pid, range, line + path_at, found);
		cnt++;
	}
	free(line);
	if (maps)
		fclose(maps);
}

static void write_bundled(const struct atm_control *control, char *text, size_t text_bytes)
{
	char policy[128];

	settings__format_policy(control->policy, policy, sizeof(policy));
	snprintf(text, text_bytes, "bundled, policies %s", policy);
}

void allocator__find(pid_t pid, const struct atm_control *bundled, char *text, size_t text_bytes)
{
	static const char *const names[] = {
#define X(id, name, is_runtime) name,
		KINDS(X)
#undef X
	};
	static const bool are_runtimes[] = {
#define X(id, name, is_runtime) is_runtime,
		KINDS(X)
#undef X
	};
	struct found found = {0};
	size_t used = 0;

	text[0] = 0;
	if (bundled) {
		write_bundled(bundled, text, text_bytes);
		return;
	}
	if (elf_version(EV_CURRENT) == EV_NONE)
		return;
	look_at_maps(pid, &found);
	for (int kind = 0; kind < KIND_CNT && used < text_bytes; kind++) {
		if (!found.is_there[kind])
			continue;
		used += (size_t)snprintf(text + used, text_bytes - used, "%s%s%s%s", used ? ", " : "", names[kind],
					 found.versions[kind][0] ? " " : "", found.versions[kind]);
		if (!are_runtimes[kind])
			break;
	}
}
