/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A 64-bit x86 ELF file of unknown origin, read with every offset and size
 * checked. Reads, never maps: a file that shrinks must not end us. Not thread-safe.
 */
#ifndef ALLOCTRACE_CLI_ELF_IMAGE_H
#define ALLOCTRACE_CLI_ELF_IMAGE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ELF_IMAGE_NAME_MAX = 256 };

struct elf_image {
	int fd;                /* borrowed; -1: in memory */
	const uint8_t *memory; /* borrowed */
	uint64_t bytes;
	Elf64_Ehdr header;
	Elf64_Phdr *segments;
	size_t segment_cnt;
	Elf64_Shdr *sections; /* 0 when there are none, or they are broken */
	size_t section_cnt;
	char *names; /* of the sections, terminated */
	size_t name_bytes;
	uint64_t base; /* lowest loaded address, of a page */
};

/* 0, -ENOEXEC: no such file, or broken; -ENOMEM, or the error of reading. Free in any case. */
int elf_image__open(struct elf_image *image, int fd);
int elf_image__open_memory(struct elf_image *image, const void *memory, size_t bytes);
void elf_image__free(struct elf_image *image);

/* Exactly so many bytes, or -errno. */
int elf_image__read(const struct elf_image *image, uint64_t offset, void *buf, size_t bytes);
/* A copy of a part of the file, to be freed; NULL when it is not there or unreasonably large. */
uint8_t *elf_image__load(const struct elf_image *image, uint64_t offset, uint64_t bytes);
/* NULL when there is none of the name. */
const Elf64_Shdr *elf_image__section(const struct elf_image *image, const char *name);
/* Its contents, to be freed; *bytes long. NULL for none, or compressed ones. */
uint8_t *elf_image__load_section(const struct elf_image *image, const Elf64_Shdr *section, size_t *bytes);
/* Where in the file the byte at a loaded address is, and how many follow it in its segment; false: nowhere. */
int elf_image__offset(const struct elf_image *image, uint64_t address, uint64_t *offset, uint64_t *left_bytes);
/* Copies the build id, at most max_bytes; returns its length, 0 when there is none. */
size_t elf_image__build_id(const struct elf_image *image, uint8_t *id, size_t max_bytes);
/* The name of the separate debug file, which is no path, and its CRC; false: there is none. */
bool elf_image__debuglink(const struct elf_image *image, char name[ELF_IMAGE_NAME_MAX], uint32_t *crc);

#endif
