/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames to names; see symbol.h. */
#include "cli/symbol.h"

#include <elfutils/libdw.h>
#include <errno.h>
#include <fcntl.h>
#include <libelf.h>
#include <libiberty/demangle.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#include "cli/lzma_text.h"
#include "cli/msg.h"
#include "cli/symbol_table.h"

enum { BUILD_ID_MAX = 64 };
#define DEBUG_MAX_BYTES (4ull << 30)

/* What is known of an object while its frames are named. */
struct module {
	const struct unwind_object *object;
	struct elf_image image;
	struct symbol_table symbols;
	int debug_fd; /* the separate debug file; -1: none */
	Dwarf *dwarf;
};

/*
 * Where separate debug files may be: in the process's own tree, and in ours, where the files of a container that has
 * none may be installed. Each must say that it belongs to the very build.
 */
enum place { PLACE_PROCESS, PLACE_OURS, PLACE_CNT };

static int open_in(const struct module *module, enum place place, const char *path)
{
	struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, .resolve = RESOLVE_IN_ROOT};

	if (place == PLACE_OURS)
		return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (module->object->root_fd < 0)
		return -1;
	return (int)syscall(SYS_openat2, module->object->root_fd, path, &how, sizeof(how));
}

static bool has_build_id(int fd, const uint8_t *id, size_t id_bytes)
{
	uint8_t found[BUILD_ID_MAX];
	struct elf_image image;
	bool is_same = !elf_image__open(&image, fd) && elf_image__build_id(&image, found, sizeof(found)) == id_bytes &&
		       memcmp(found, id, id_bytes) == 0;

	elf_image__free(&image);
	return is_same;
}

static int open_by_build_id(const struct module *module)
{
	static const char dir[] = "/usr/lib/debug/.build-id/";
	char path[sizeof(dir) + 2 * BUILD_ID_MAX + sizeof("/.debug")];
	uint8_t id[BUILD_ID_MAX];
	size_t bytes = elf_image__build_id(&module->image, id, sizeof(id)), at;
	int fd = -1;

	if (bytes < 2)
		return -1;
	at = (size_t)sprintf(path, "%s%02x/", dir, id[0]);
	for (size_t i = 1; i < bytes; i++)
		at += (size_t)sprintf(path + at, "%02x", id[i]);
	strcpy(path + at, ".debug");
	for (enum place place = 0; fd < 0 && place < PLACE_CNT; place++) {
		fd = open_in(module, place, path);
		if (fd >= 0 && !has_build_id(fd, id, bytes)) {
			close(fd);
			fd = -1;
		}
	}
	return fd;
}

static bool has_crc(int fd, uint32_t wanted)
{
	uint8_t buf[1 << 16];
	uLong crc = crc32(0, NULL, 0);
	struct stat st;
	ssize_t got;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > DEBUG_MAX_BYTES)
		return false;
	while ((got = read(fd, buf, sizeof(buf))) > 0)
		crc = crc32(crc, buf, (uInt)got);
	return !got && crc == wanted;
}

/* The file that a debuglink names, beside the object's own or where distributions have them. */
static int open_linked(const struct module *module, enum place place, const char *link, uint32_t crc)
{
	static const char *const patterns[] = {"%.*s/%s", "%.*s/.debug/%s", "/usr/lib/debug%.*s/%s"};
	const struct unwind_object *object = module->object;
	const char *path = object->path + (place == PLACE_PROCESS ? object->root_bytes : 0);
	const char *slash = strrchr(path, '/');
	char name[4096 * 2];
	int fd;

	for (size_t i = 0; slash && i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		snprintf(name, sizeof(name), patterns[i], (int)(slash - path), path, link);
		fd = open_in(module, place, name);
		if (fd < 0 || has_crc(fd, crc)) {
			if (fd >= 0)
				return fd;
			continue;
		}
		msg__info("%s is not the debug file of %s: its CRC differs", name, path);
		close(fd);
	}
	return -1;
}

static int open_by_debuglink(const struct module *module)
{
	char link[ELF_IMAGE_NAME_MAX];
	uint32_t crc;
	int fd = -1;

	if (elf_image__debuglink(&module->image, link, &crc))
		for (enum place place = 0; fd < 0 && place < PLACE_CNT; place++)
			fd = open_linked(module, place, link, crc);
	return fd;
}

static bool add_symbols_of(struct module *module, int fd)
{
	struct elf_image image;
	bool has_any = !elf_image__open(&image, fd) && symbol_table__add(&module->symbols, &image, SHT_SYMTAB);

	elf_image__free(&image);
	return has_any;
}

/* The compressed symbol table that some distributions leave in stripped files. */
static bool add_mini_symbols(struct module *module)
{
	size_t bytes, plain_bytes;
	uint8_t *packed =
		elf_image__load_section(&module->image, elf_image__section(&module->image, ".gnu_debugdata"), &bytes);
	uint8_t *plain = packed ? lzma_text__unpack(packed, bytes, &plain_bytes) : NULL;
	struct elf_image image = {.fd = -1};
	bool has_any = plain && !elf_image__open_memory(&image, plain, plain_bytes) &&
		       symbol_table__add(&module->symbols, &image, SHT_SYMTAB);

	elf_image__free(&image);
	free(plain);
	free(packed);
	return has_any;
}

static void open_module(struct module *module, const struct unwind_object *object)
{
	int err;

	*module = (struct module){.object = object, .debug_fd = -1};
	err = object->memory ? elf_image__open_memory(&module->image, object->memory, object->bytes)
			     : elf_image__open(&module->image, object->fd);
	if (err)
		return;
	module->debug_fd = open_by_build_id(module);
	if (module->debug_fd < 0)
		module->debug_fd = open_by_debuglink(module);
	if (!symbol_table__add(&module->symbols, &module->image, SHT_SYMTAB) &&
	    (module->debug_fd < 0 || !add_symbols_of(module, module->debug_fd)))
		add_mini_symbols(module);
	symbol_table__add(&module->symbols, &module->image, SHT_DYNSYM);
	if (object->is_go)
		symbol_table__add_go(&module->symbols, &module->image);
	symbol_table__sort(&module->symbols);
	if (module->debug_fd >= 0)
		module->dwarf = dwarf_begin(module->debug_fd, DWARF_C_READ);
	if (!module->dwarf && object->fd >= 0)
		module->dwarf = dwarf_begin(object->fd, DWARF_C_READ);
}

static void close_module(struct module *module)
{
	dwarf_end(module->dwarf);
	if (module->debug_fd >= 0)
		close(module->debug_fd);
	symbol_table__free(&module->symbols);
	elf_image__free(&module->image);
}

/* The compilation unit of an address; by search where the file has no index of them. */
static Dwarf_Die *find_unit(Dwarf *dwarf, uint64_t address, Dwarf_Die *unit)
{
	Dwarf_Off offset = 0, next;
	size_t header_bytes;

	if (dwarf_addrdie(dwarf, address, unit))
		return unit;
	while (!dwarf_nextcu(dwarf, offset, &next, &header_bytes, NULL, NULL, NULL)) {
		if (dwarf_offdie(dwarf, offset + header_bytes, unit) && dwarf_haspc(unit, address) > 0)
			return unit;
		offset = next;
	}
	return NULL;
}

static void fill_line(const struct module *module, uint64_t address, struct callchain_frame *frame)
{
	Dwarf_Die memory, *unit = module->dwarf ? find_unit(module->dwarf, address, &memory) : NULL;
	Dwarf_Line *line = unit ? dwarf_getsrc_die(unit, address) : NULL;
	const char *file = line ? dwarf_linesrc(line, NULL, NULL) : NULL;
	int number = 0;

	if (!file || dwarf_lineno(line, &number) || number <= 0)
		return;
	frame->file = strdup(file);
	frame->line = (uint32_t)number;
}

/* In the words of its language: C++, Rust, or as it is. Without a version after @. */
static char *demangle(const char *name)
{
	char *plain = rust_demangle(name, DMGL_NO_OPTS);

	if (!plain)
		plain = cplus_demangle_v3(name, DMGL_ANSI);
	return plain ? plain : strndup(name, strcspn(name, "@"));
}

/* The path without what /proc/PID/maps adds to it. */
static char *plain_path(const char *path, bool *is_deleted)
{
	static const char deleted[] = " (deleted)";
	size_t bytes = strlen(path), tail = sizeof(deleted) - 1;

	*is_deleted = bytes > tail && strcmp(path + bytes - tail, deleted) == 0;
	return strndup(path, *is_deleted ? bytes - tail : bytes);
}

static void fill_frame(const struct module *module, struct callchain_frame *frame)
{
	uint32_t pc = (uint32_t)frame->word;
	uint64_t address = module->object->base + pc;
	const struct symbol *symbol = symbol_table__find(&module->symbols, address);

	frame->address = address;
	frame->module = plain_path(module->object->path, &frame->is_deleted);
	if (symbol) {
		frame->function = demangle(symbol->name);
		frame->offset = address - symbol->start;
	}
	fill_line(module, address, frame);
}

struct frame_order {
	uint64_t word;
	size_t frame;
};

static int compare_order(const void *a, const void *b)
{
	const struct frame_order *x = a, *y = b;

	return x->word < y->word ? -1 : x->word > y->word;
}

/* One object at a time is open. */
void symbol__resolve(const struct unwind_objects *objects, struct callchains *chains)
{
	struct frame_order *order = calloc(chains->frame_cnt + 1, sizeof(*order));
	struct module module = {.debug_fd = -1};

	if (!order)
		return;
	elf_version(EV_CURRENT);
	for (size_t i = 0; i < chains->frame_cnt; i++)
		order[i] = (struct frame_order){chains->frames[i].word, i};
	qsort(order, chains->frame_cnt, sizeof(*order), compare_order);
	for (size_t i = 0; i < chains->frame_cnt; i++) {
		struct callchain_frame *frame = &chains->frames[order[i].frame];
		const struct unwind_object *object =
			unwind_objects__get(objects, (uint32_t)(frame->word >> AT_FRAME_BITS));

		if (!object) {
			frame->address = frame->word;
			continue;
		}
		if (module.object != object) {
			if (module.object)
				close_module(&module);
			open_module(&module, object);
		}
		fill_frame(&module, frame);
	}
	if (module.object)
		close_module(&module);
	free(order);
}
