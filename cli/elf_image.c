/* SPDX-License-Identifier: BSD-2-Clause */
/* Checked access to an ELF file; see elf_image.h. */
#include "cli/elf_image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* More than real files have; what asks for more is broken, or wants our memory. */
enum { SEGMENT_MAX = 1024 };
#define PART_MAX_BYTES (512ull << 20)
#define PAGE_MASK 4095ull

int elf_image__read(const struct elf_image *image, uint64_t offset, void *buf, size_t bytes)
{
	size_t done = 0;

	if (bytes > image->bytes || offset > image->bytes - bytes)
		return -ENOEXEC;
	if (image->memory) {
		memcpy(buf, image->memory + offset, bytes);
		return 0;
	}
	while (done < bytes) {
		ssize_t got = pread(image->fd, (char *)buf + done, bytes - done, (off_t)(offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got ? -errno : -ENOEXEC;
		done += (size_t)got;
	}
	return 0;
}

uint8_t *elf_image__load(const struct elf_image *image, uint64_t offset, uint64_t bytes)
{
	uint8_t *part;

	if (!bytes || bytes > image->bytes || bytes > PART_MAX_BYTES)
		return NULL;
	part = malloc(bytes);
	if (part && elf_image__read(image, offset, part, bytes)) {
		free(part);
		part = NULL;
	}
	return part;
}

static int read_segments(struct elf_image *image)
{
	size_t cnt = image->header.e_phnum;
	uint64_t lowest = UINT64_MAX;

	if (!cnt || cnt > SEGMENT_MAX || image->header.e_phentsize != sizeof(Elf64_Phdr))
		return -ENOEXEC;
	image->segments = (Elf64_Phdr *)elf_image__load(image, image->header.e_phoff, cnt * sizeof(Elf64_Phdr));
	if (!image->segments)
		return -ENOEXEC;
	image->segment_cnt = cnt;
	for (size_t i = 0; i < cnt; i++)
		if (image->segments[i].p_type == PT_LOAD && image->segments[i].p_vaddr < lowest)
			lowest = image->segments[i].p_vaddr;
	image->base = lowest == UINT64_MAX ? 0 : lowest & ~PAGE_MASK;
	return 0;
}

/* Sections are not needed to run, so that they may be absent or wrong. */
static void read_sections(struct elf_image *image)
{
	const Elf64_Ehdr *header = &image->header;
	const Elf64_Shdr *names;
	char *terminated;

	if (!header->e_shnum || header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shstrndx >= header->e_shnum)
		return;
	image->sections = (Elf64_Shdr *)elf_image__load(image, header->e_shoff, header->e_shnum * sizeof(Elf64_Shdr));
	if (!image->sections)
		return;
	names = &image->sections[header->e_shstrndx];
	image->names = (char *)elf_image__load(image, names->sh_offset, names->sh_size);
	if (!image->names)
		return;
	terminated = realloc(image->names, names->sh_size + 1);
	if (!terminated)
		return;
	image->names = terminated;
	image->names[names->sh_size] = '\0';
	image->name_bytes = names->sh_size;
	image->section_cnt = header->e_shnum;
}

static int read_headers(struct elf_image *image)
{
	int err = elf_image__read(image, 0, &image->header, sizeof(image->header));

	if (err)
		return err;
	if (memcmp(image->header.e_ident, ELFMAG, SELFMAG) != 0 || image->header.e_ident[EI_CLASS] != ELFCLASS64 ||
	    image->header.e_ident[EI_DATA] != ELFDATA2LSB || image->header.e_machine != EM_X86_64)
		return -ENOEXEC;
	err = read_segments(image);
	if (!err)
		read_sections(image);
	return err;
}

int elf_image__open(struct elf_image *image, int fd)
{
	struct stat st;

	*image = (struct elf_image){.fd = fd};
	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOEXEC;
	image->bytes = (uint64_t)st.st_size;
	return read_headers(image);
}

int elf_image__open_memory(struct elf_image *image, const void *memory, size_t bytes)
{
	*image = (struct elf_image){.fd = -1, .memory = memory, .bytes = bytes};
	return read_headers(image);
}

void elf_image__free(struct elf_image *image)
{
	free(image->segments);
	free(image->sections);
	free(image->names);
	*image = (struct elf_image){.fd = -1};
}

const Elf64_Shdr *elf_image__section(const struct elf_image *image, const char *name)
{
	for (size_t i = 0; i < image->section_cnt; i++)
		if (image->sections[i].sh_name < image->name_bytes &&
		    strcmp(image->names + image->sections[i].sh_name, name) == 0)
			return &image->sections[i];
	return NULL;
}

uint8_t *elf_image__load_section(const struct elf_image *image, const Elf64_Shdr *section, size_t *bytes)
{
	if (!section || section->sh_type == SHT_NOBITS || section->sh_flags & SHF_COMPRESSED)
		return NULL;
	*bytes = section->sh_size;
	return elf_image__load(image, section->sh_offset, section->sh_size);
}

int elf_image__offset(const struct elf_image *image, uint64_t address, uint64_t *offset, uint64_t *left_bytes)
{
	for (size_t i = 0; i < image->segment_cnt; i++) {
		const Elf64_Phdr *segment = &image->segments[i];
		uint64_t within = address - segment->p_vaddr;

		if (segment->p_type != PT_LOAD || within >= segment->p_filesz)
			continue;
		*offset = segment->p_offset + within;
		*left_bytes = segment->p_filesz - within;
		return 1;
	}
	return 0;
}

static uint64_t align4(uint64_t bytes)
{
	return (bytes + 3) & ~3ull;
}

/* The GNU build id among the notes of one segment. */
static size_t find_build_id(const uint8_t *notes, uint64_t bytes, uint8_t *id, size_t max_bytes)
{
	uint64_t at = 0, name_at, desc_at;
	Elf64_Nhdr note;

	while (bytes - at >= sizeof(note)) {
		memcpy(&note, notes + at, sizeof(note));
		name_at = at + sizeof(note);
		desc_at = name_at + align4(note.n_namesz);
		if (desc_at > bytes || note.n_descsz > bytes - desc_at)
			return 0;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(notes + name_at, "GNU", 4) == 0 &&
		    note.n_descsz <= max_bytes) {
			memcpy(id, notes + desc_at, note.n_descsz);
			return note.n_descsz;
		}
		at = desc_at + align4(note.n_descsz);
		if (at > bytes)
			return 0;
	}
	return 0;
}

size_t elf_image__build_id(const struct elf_image *image, uint8_t *id, size_t max_bytes)
{
	size_t cnt = 0;

	for (size_t i = 0; !cnt && i < image->segment_cnt; i++) {
		const Elf64_Phdr *segment = &image->segments[i];
		uint8_t *notes = segment->p_type == PT_NOTE
					 ? elf_image__load(image, segment->p_offset, segment->p_filesz)
					 : NULL;

		if (notes)
			cnt = find_build_id(notes, segment->p_filesz, id, max_bytes);
		free(notes);
	}
	return cnt;
}

bool elf_image__debuglink(const struct elf_image *image, char name[ELF_IMAGE_NAME_MAX], uint32_t *crc)
{
	size_t bytes, name_bytes, crc_at;
	uint8_t *link = elf_image__load_section(image, elf_image__section(image, ".gnu_debuglink"), &bytes);
	bool is_good;

	name_bytes = link ? strnlen((const char *)link, bytes) : 0;
	crc_at = (name_bytes + 4) & ~3ull;
	is_good = name_bytes && name_bytes < ELF_IMAGE_NAME_MAX && crc_at + sizeof(*crc) <= bytes &&
		  !memchr(link, '/', name_bytes);
	if (is_good) {
		memcpy(name, link, name_bytes + 1);
		memcpy(crc, link + crc_at, sizeof(*crc));
	}
	free(link);
	return is_good;
}
