/* SPDX-License-Identifier: BSD-2-Clause */
/* One pass over raw BTF (linux/btf.h). Trusts no length that it finds there. */
#include "cli/btf_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/btf.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_all(int fd, char *buf, size_t bytes)
{
	size_t done = 0;
	ssize_t got;

	while (done < bytes) {
		got = read(fd, buf + done, bytes - done);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EINVAL;
		done += (size_t)got;
	}
	return 0;
}

static int check_header(const struct btf_scan *scan)
{
	const struct btf_header *header = scan->data;
	size_t rest;

	if (scan->data_bytes < sizeof(*header) || header->magic != BTF_MAGIC || header->version != BTF_VERSION ||
	    header->hdr_len < sizeof(*header) || header->hdr_len > scan->data_bytes)
		return -EINVAL;
	rest = scan->data_bytes - header->hdr_len;
	if (header->type_off % 4 || header->type_off > rest || header->type_len > rest - header->type_off)
		return -EINVAL;
	if (header->str_off > rest || header->str_len > rest - header->str_off || !header->str_len)
		return -EINVAL;
	/* So that every name ends. */
	if (((const char *)scan->data)[header->hdr_len + header->str_off + header->str_len - 1] != '\0')
		return -EINVAL;
	return 0;
}

/* Maps the file where the kernel can (6.16); reading it takes a call a page. */
static int load(struct btf_scan *scan, int fd, size_t bytes)
{
	void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	bool is_mapped = data != MAP_FAILED;

	if (!is_mapped)
		data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED)
		return -errno;
	scan->data = data;
	scan->data_bytes = bytes;
	if (is_mapped)
		return 0;
	madvise(data, bytes, MADV_HUGEPAGE);
	return read_all(fd, data, bytes);
}

int btf_scan__open(struct btf_scan *scan, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err = 0;
	struct stat st;

	*scan = (struct btf_scan){0};
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		err = -errno;
	else if (st.st_size <= 0)
		err = -EINVAL;
	if (!err)
		err = load(scan, fd, (size_t)st.st_size);
	if (!err)
		err = check_header(scan);
	close(fd);
	if (err)
		btf_scan__close(scan);
	return err;
}

/* Bytes that follow a type's fixed part; -1 for a kind that is not known. */
static long extra_bytes(const struct btf_type *type)
{
	long vlen = BTF_INFO_VLEN(type->info);

	switch (BTF_INFO_KIND(type->info)) {
	case BTF_KIND_PTR:
	case BTF_KIND_FWD:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case BTF_KIND_FLOAT:
	case BTF_KIND_TYPE_TAG: return 0;
	case BTF_KIND_INT: return sizeof(__u32);
	case BTF_KIND_ARRAY: return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION: return vlen * (long)sizeof(struct btf_member);
	case BTF_KIND_ENUM: return vlen * (long)sizeof(struct btf_enum);
	case BTF_KIND_ENUM64: return vlen * (long)sizeof(struct btf_enum64);
	case BTF_KIND_FUNC_PROTO: return vlen * (long)sizeof(struct btf_param);
	case BTF_KIND_VAR: return sizeof(struct btf_var);
	case BTF_KIND_DATASEC: return vlen * (long)sizeof(struct btf_var_secinfo);
	case BTF_KIND_DECL_TAG: return sizeof(struct btf_decl_tag);
	default: return -1;
	}
}

/* Puts a type's id to those of the names that are its own. Returns how many more are found. */
static size_t match(const char *type_name, int id, const char *const *names, size_t cnt, int *ids)
{
	size_t found_cnt = 0;

	for (size_t i = 0; i < cnt; i++)
		if (ids[i] < 0 && !strcmp(type_name, names[i])) {
			ids[i] = id;
			found_cnt++;
		}
	return found_cnt;
}

size_t btf_scan__find_all(const struct btf_scan *scan, unsigned kind, const char *const *names, size_t cnt, int *ids)
{
	const struct btf_header *header = scan->data;
	const char *types, *end, *strings;
	size_t found_cnt = 0;

	for (size_t i = 0; i < cnt; i++)
		ids[i] = -ENOENT;
	if (!header)
		return 0;
	types = (const char *)scan->data + header->hdr_len + header->type_off;
	end = types + header->type_len;
	strings = (const char *)scan->data + header->hdr_len + header->str_off;
	for (int id = 1; found_cnt < cnt && end - types >= (long)sizeof(struct btf_type); id++) {
		const struct btf_type *type = (const void *)types;
		long extra = extra_bytes(type);

		if (BTF_INFO_KIND(type->info) == kind && type->name_off < header->str_len)
			found_cnt += match(strings + type->name_off, id, names, cnt, ids);
		types += sizeof(*type);
		if (extra < 0 || extra > end - types)
			break;
		types += extra;
	}
	return found_cnt;
}

int btf_scan__find(const struct btf_scan *scan, unsigned kind, const char *name)
{
	int id;

	btf_scan__find_all(scan, kind, &name, 1, &id);
	return id;
}

void btf_scan__close(struct btf_scan *scan)
{
	if (scan->data)
		munmap(scan->data, scan->data_bytes);
	*scan = (struct btf_scan){0};
}
