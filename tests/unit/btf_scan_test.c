/* SPDX-License-Identifier: BSD-2-Clause */
/* The BTF scanner against libbpf's parser, and against files that are no BTF. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <bpf/btf.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/btf_scan.h"
#include "tests/scratch.h"

#define VMLINUX "/sys/kernel/btf/vmlinux"

/* A file with these bytes; its name is in `path` until the test unlinks it. */
static void write_file(char path[PATH_MAX], const void *data, size_t bytes)
{
	int fd = scratch__file(path);

	assert_return_code(fd, errno);
	assert_int_equal(write(fd, data, bytes), bytes);
	close(fd);
}

static struct btf *small_btf(void)
{
	struct btf *btf = btf__new_empty();
	int number, structure;

	assert_non_null(btf);
	number = btf__add_int(btf, "number", 4, 0);
	structure = btf__add_struct(btf, "wanted", 8);
	btf__add_field(btf, "a", number, 0, 0);
	btf__add_field(btf, "b", number, 32, 0);
	btf__add_enum(btf, "choice", 4);
	btf__add_enum_value(btf, "one", 1);
	btf__add_array(btf, number, number, 3);
	btf__add_func_proto(btf, number);
	btf__add_func_param(btf, "p", structure);
	btf__add_typedef(btf, "wanted", structure);
	return btf;
}

static void test_small(void **state)
{
	struct btf *btf = small_btf();
	struct btf_scan scan;
	uint32_t bytes;
	const void *data = btf__raw_data(btf, &bytes);
	char path[PATH_MAX];

	(void)state;
	write_file(path, data, bytes);
	assert_int_equal(btf_scan__open(&scan, path), 0);
	assert_int_equal(btf_scan__find(&scan, BTF_KIND_INT, "number"), 1);
	assert_int_equal(btf_scan__find(&scan, BTF_KIND_STRUCT, "wanted"), 2);
	assert_int_equal(btf_scan__find(&scan, BTF_KIND_TYPEDEF, "wanted"), 6);
	assert_int_equal(btf_scan__find(&scan, BTF_KIND_STRUCT, "want"), -ENOENT);
	assert_int_equal(btf_scan__find(&scan, BTF_KIND_FUNC, "wanted"), -ENOENT);
	btf_scan__close(&scan);
	btf_scan__close(&scan);
	assert_int_equal(btf_scan__find(&scan, BTF_KIND_INT, "number"), -ENOENT);
	unlink(path);
	btf__free(btf);
}

/* Every byte of a good file changed in turn, and every shorter file: no crash, no id beyond the types. */
static void test_damaged(void **state)
{
	struct btf *btf = small_btf();
	struct btf_scan scan;
	uint32_t bytes;
	const void *data = btf__raw_data(btf, &bytes);
	char *copy = malloc(bytes), path[PATH_MAX];

	(void)state;
	for (uint32_t i = 0; i < 2 * bytes; i++) {
		memcpy(copy, data, bytes);
		if (i < bytes)
			copy[i] ^= (char)0xff;
		write_file(path, copy, i < bytes ? bytes : i - bytes);
		if (!btf_scan__open(&scan, path)) {
			assert_in_range(btf_scan__find(&scan, BTF_KIND_TYPEDEF, "wanted") + ENOENT, 0, 6 + ENOENT);
			btf_scan__close(&scan);
		}
		unlink(path);
	}
	assert_int_equal(btf_scan__open(&scan, "/nonexistent"), -ENOENT);
	free(copy);
	btf__free(btf);
}

static void test_same_as_libbpf(void **state)
{
	static const char *const names[] = {"btf_trace_sys_enter", "btf_trace_sched_process_exit", "u64",
					    "no_such_type"};
	struct btf_scan scan;
	struct btf *btf;

	(void)state;
	if (btf_scan__open(&scan, VMLINUX)) {
		print_message("no " VMLINUX "\n");
		skip();
	}
	btf = btf__parse(VMLINUX, NULL);
	assert_non_null(btf);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_int_equal(btf_scan__find(&scan, BTF_KIND_TYPEDEF, names[i]),
				 btf__find_by_name_kind(btf, names[i], BTF_KIND_TYPEDEF));
	assert_int_equal(btf_scan__find(&scan, BTF_KIND_FUNC, "schedule"),
			 btf__find_by_name_kind(btf, "schedule", BTF_KIND_FUNC));
	btf__free(btf);
	btf_scan__close(&scan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_same_as_libbpf),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
