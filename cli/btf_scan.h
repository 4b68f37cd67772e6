/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds type ids in the kernel's BTF by one pass over it. libbpf's parser, which
 * copies and indexes all of it, takes 40 ms for the same, at every start.
 */
#ifndef ALLOCTRACE_CLI_BTF_SCAN_H
#define ALLOCTRACE_CLI_BTF_SCAN_H

#include <stddef.h>

struct btf_scan {
	void *data; /* the whole file */
	size_t data_bytes;
};

/* Reads the file. Returns 0 or -errno; -EINVAL when it is not BTF as we know it. */
int btf_scan__open(struct btf_scan *scan, const char *path);
/* Id of the first type of that kind (BTF_KIND_*) and name, or -ENOENT. */
int btf_scan__find(const struct btf_scan *scan, unsigned kind, const char *name);
/* For all names of one kind at once: ids[i] is the id or -ENOENT. Returns how many it found. */
size_t btf_scan__find_all(const struct btf_scan *scan, unsigned kind, const char *const *names, size_t cnt, int *ids);
void btf_scan__close(struct btf_scan *scan);

#endif
