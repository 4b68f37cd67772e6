/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unwind tables of real libraries, every row against what libdw makes of the
 * same .eh_frame; and broken files, which must give an error and no row.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/code_rows.h"
#include "cli/gopclntab.h"
#include "cli/unwind_table.h"

/* What rows have of rbx. */
static uint32_t rbx_of_libdw(Dwarf_Frame *frame)
{
	Dwarf_Op *ops, ops_mem[3];
	size_t cnt;
	int64_t offset;

	dwarf_frame_register(frame, 3, ops_mem, &ops, &cnt);
	if (!cnt) /* no rule */
		return 0;
	if (cnt != 2 || ops[0].atom != DW_OP_call_frame_cfa || ops[1].atom != DW_OP_plus_uconst)
		return AT_RBX_LOST;
	offset = -(int64_t)ops[1].number;
	return offset > 0 && offset % 8 == 0 && offset / 8 <= AT_RBX_MAX ? (uint32_t)(offset / 8) : AT_RBX_LOST;
}

/* CFA = register + offset, as a rule; *is_other: not one that a row has. */
static uint32_t rule_of_register(uint64_t reg, int64_t offset, uint32_t rbp, uint32_t rbx, bool *is_other)
{
	*is_other |= offset < 0 || offset % 8;
	switch (reg) {
	case 3: return AT_RULE_OF_SPECIAL(AT_SPECIAL_BX, offset / 8, rbp, rbx);
	case 6: return AT_RULE(AT_RULE_BP, offset / 8, rbp, rbx);
	case 7:
		return offset / 8 > AT_OFFSET_MAX ? AT_RULE_FAR(offset / 8, rbp)
						  : AT_RULE(AT_RULE_SP, offset / 8, rbp, rbx);
	default: *is_other = true; return 0;
	}
}

/* What libdw says of a pc, as a rule. *is_other: it has one that a row cannot express. */
static uint32_t rule_of_libdw(Dwarf_CFI *cfi, uint64_t pc, bool *is_other)
{
	Dwarf_Frame *frame = NULL;
	Dwarf_Op *ops, ops_mem[3];
	size_t cnt;
	bool is_signal;
	uint32_t rule = AT_RULE_NONE, rbp = 0, rbx;
	int64_t offset;

	*is_other = false;
	if (dwarf_cfi_addrframe(cfi, pc, &frame))
		return AT_RULE_NONE;
	dwarf_frame_info(frame, NULL, NULL, &is_signal);
	if (is_signal) {
		free(frame);
		return AT_RULE_SIGNAL;
	}
	if (!dwarf_frame_register(frame, 16, ops_mem, &ops, &cnt) && !cnt && ops == ops_mem) {
		free(frame);
		return AT_RULE_END; /* undefined */
	}
	*is_other = cnt != 2 || ops[0].atom != DW_OP_call_frame_cfa || ops[1].atom != DW_OP_plus_uconst ||
		    ops[1].number != (uint64_t)-8;
	dwarf_frame_register(frame, 6, ops_mem, &ops, &cnt);
	if (cnt == 2 && ops[0].atom == DW_OP_call_frame_cfa && ops[1].atom == DW_OP_plus_uconst) {
		offset = -(int64_t)ops[1].number;
		*is_other |= offset % 8 != 0;
		rbp = (uint32_t)(offset / 8);
	} else if (cnt == 1 && ops[0].atom == DW_OP_breg6 && !ops[0].number) {
		rbp = AT_RBP_AT_RBP;
	} else if (cnt || (ops && ops != ops_mem)) {
		*is_other = true;
	}
	rbx = rbx_of_libdw(frame);
	dwarf_frame_cfa(frame, &ops, &cnt);
	if (cnt == 1 && ops[0].atom >= DW_OP_breg0 && ops[0].atom <= DW_OP_breg31) {
		rule = rule_of_register(ops[0].atom - DW_OP_breg0, (int64_t)ops[0].number, rbp, rbx, is_other);
	} else if (cnt == 1 && ops[0].atom == DW_OP_bregx) {
		rule = rule_of_register(ops[0].number, (int64_t)ops[0].number2, rbp, rbx, is_other);
	} else if (cnt == 9 && ops[0].atom == DW_OP_breg7 && ops[5].atom == DW_OP_ge) {
		rule = AT_RULE_OF_SPECIAL(AT_SPECIAL_PLT, ops[4].atom - DW_OP_lit0, rbp, rbx);
	} else if (cnt == 2 && ops[0].atom == DW_OP_breg6 && ops[1].atom == DW_OP_deref) {
		rule = AT_RULE(AT_RULE_DEREF, -(int64_t)ops[0].number / 8, rbp, rbx);
	} else {
		*is_other = true;
	}
	free(frame);
	return rule;
}

static bool is_of_code(uint32_t rule)
{
	/* No caller, by .eh_frame or as the program begins there. */
	if (rule == AT_RULE_END)
		return true;
	return AT_RULE_TYPE(rule) == AT_RULE_SPECIAL && AT_RULE_SPECIAL_TYPE(rule) == AT_SPECIAL_CODE;
}

/* The first and the last pc of every row. */
static void compare_with_libdw(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct unwind_table table;
	struct elf_image image;
	size_t equal_cnt = 0, other_cnt = 0;
	Dwarf_CFI *cfi;
	Elf *elf;

	assert_return_code(fd, errno);
	assert_int_equal(elf_image__open(&image, fd), 0);
	assert_int_equal(unwind_table__build(&table, &image), 0);
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	cfi = dwarf_getcfi_elf(elf);
	assert_non_null(cfi);
	for (uint32_t i = 0; i < table.row_cnt; i++) {
		uint32_t last = i + 1 < table.row_cnt ? table.rows[i + 1].pc - 1 : table.rows[i].pc;
		uint32_t pcs[2] = {table.rows[i].pc, last};

		for (int end = 0; end < 2; end++) {
			bool is_other;
			uint32_t wanted = rule_of_libdw(cfi, image.base + pcs[end], &is_other);

			assert_int_equal(unwind_table__rule(table.rows, table.row_cnt, pcs[end]), table.rows[i].rule);
			if (is_other)
				wanted = AT_RULE_NONE;
			if (is_of_code(table.rows[i].rule)) {
				assert_true(wanted == AT_RULE_NONE || wanted == AT_RULE_END);
				continue;
			}
			if (table.rows[i].rule != wanted)
				fail_msg("%s: pc %#x: rule %#x, libdw has %#x", path, pcs[end], table.rows[i].rule,
					 wanted);
			other_cnt += is_other;
			equal_cnt++;
		}
	}
	printf("%s: %u rows, %zu pcs equal, of them %zu that rows cannot express\n", path, table.row_cnt, equal_cnt,
	       other_cnt);
	/* Nearly all of a real file can be expressed; else the comparison would mean little. */
	assert_true(other_cnt * 50 < equal_cnt + 50);
	dwarf_cfi_end(cfi);
	elf_end(elf);
	unwind_table__free(&table);
	elf_image__free(&image);
	close(fd);
}

static void test_rows_equal_libdw(void **state)
{
	static const char *const patterns[] = {"/proc/self/exe",
					       "/lib/x86_64-linux-gnu/libc.so.6",
					       "/lib/x86_64-linux-gnu/libm.so.6",
					       "/lib64/ld-linux-x86-64.so.2",
					       "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
					       "/usr/lib/x86_64-linux-gnu/libelf.so.1",
					       "/usr/bin/python3",
					       "/usr/bin/redis-server",
					       "/bin/sh"};
	size_t cnt = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (!access(patterns[i], R_OK)) {
			compare_with_libdw(patterns[i]);
			cnt++;
		}
	assert_true(cnt >= 4);
}

/* The fuzz target does more of this; here a few thousand files each time, the same ones. */
/* What the code says, where .eh_frame says it, too: the depth of the stack. */
static void compare_code_with_table(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t same_cnt = 0, other_cnt = 0, silent_cnt = 0;
	struct unwind_draft draft = {0};
	struct unwind_table table;
	struct elf_image image;

	assert_return_code(fd, errno);
	assert_int_equal(elf_image__open(&image, fd), 0);
	assert_int_equal(unwind_table__build(&table, &image), 0);
	/* As if there were no table. */
	assert_int_equal(code_rows__read(&image, NULL, 0, &draft), 0);
	for (size_t i = 0; i < draft.cnt; i++) {
		uint32_t rule = draft.rows[i].rule;
		uint32_t wanted = unwind_table__rule(table.rows, table.row_cnt, draft.rows[i].pc);

		if (!draft.rows[i].rank || AT_RULE_TYPE(wanted) != AT_RULE_SP) {
			silent_cnt++;
			continue;
		}
		assert_true(is_of_code(rule));
		if (AT_RULE_SPECIAL_OFFSET(rule) == AT_RULE_OFFSET(wanted))
			same_cnt++;
		else
			other_cnt++;
	}
	printf("%s: %u rows of its table; of the code's, %zu have the same depth, %zu another, %zu cannot be "
	       "compared\n",
	       path, table.row_cnt, same_cnt, other_cnt, silent_cnt);
	/* Few functions are known to be such without their symbols; but what is known of them is right. */
	assert_true(same_cnt > 1000);
	assert_true(other_cnt * 500 < same_cnt);
	free(draft.rows);
	unwind_table__free(&table);
	elf_image__free(&image);
	close(fd);
}

static void test_code_equals_table(void **state)
{
	static const char *const paths[] = {"/proc/self/exe", "/lib/x86_64-linux-gnu/libc.so.6",
					    "/usr/bin/redis-server"};

	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (!access(paths[i], R_OK))
			compare_code_with_table(paths[i]);
}

/* What Go's switch of stacks does to reach its structures, at offsets that no version has. */
__asm__(".pushsection .rodata\n"
	"go_switch:\n"
	"push %rbp\n mov %rsp, %rbp\n mov 16(%rsp), %rdi\n mov %fs:-8, %rax\n"
	"mov 40(%rax), %rbx\n cmp 88(%rbx), %rax\n je 1f\n mov (%rbx), %rdx\n cmp %rdx, %rax\n je 1f\n"
	"cmp 328(%rbx), %rax\n jne 1f\n mov %rdx, %r14\n mov 72(%rdx), %rsp\n mov (%rdi), %rdi\n call *%rdi\n"
	"mov %fs:-8, %rax\n mov 40(%rax), %rbx\n mov 328(%rbx), %rax\n mov 72(%rax), %rsp\n mov 136(%rax), %rbp\n"
	"movq $0, 72(%rax)\n pop %rbp\n ret\n 1: ud2\n"
	"go_switch_end:\n"
	/* Go 1.16 to 1.20: by way of rbx, and rbp is left as it is. */
	"go_old_switch:\n"
	"mov 8(%rsp), %rdi\n mov %fs:-8, %rax\n"
	"mov 56(%rax), %rbx\n cmp 72(%rbx), %rax\n je 1f\n mov (%rbx), %rdx\n cmp %rdx, %rax\n je 1f\n"
	"cmp 248(%rbx), %rax\n jne 1f\n mov 64(%rdx), %rbx\n mov %rbx, %rsp\n mov (%rdi), %rdi\n call *%rdi\n"
	"mov %fs:-8, %rax\n mov 56(%rax), %rbx\n mov 248(%rbx), %rax\n mov 64(%rax), %rsp\n"
	"movq $0, 64(%rax)\n ret\n 1: ud2\n"
	"go_old_switch_end:\n"
	".popsection\n");
extern const uint8_t go_switch[], go_switch_end[], go_old_switch[], go_old_switch_end[];

static void test_go_layout(void **state)
{
	struct at_go go;

	(void)state;
	assert_true(gopclntab__layout(go_switch, (size_t)(go_switch_end - go_switch), &go));
	assert_int_equal(go.g_m, 40);
	assert_int_equal(go.m_curg, 328);
	assert_int_equal(go.sched_sp, 72);
	assert_int_equal(go.sched_pc, 80);
	assert_int_equal(go.sched_bp, 136);
	/* Half of it does not tell. */
	assert_false(gopclntab__layout(go_switch, (size_t)(go_switch_end - go_switch) / 2, &go));
	assert_true(gopclntab__layout(go_old_switch, (size_t)(go_old_switch_end - go_old_switch), &go));
	assert_int_equal(go.g_m, 56);
	assert_int_equal(go.m_curg, 248);
	assert_int_equal(go.sched_sp, 64);
	assert_int_equal(go.sched_pc, 72);
	assert_int_equal(go.sched_bp, 112);
}

static void test_broken_files(void **state)
{
	const char *path = "/lib64/ld-linux-x86-64.so.2";
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t random = 1;
	struct stat st;
	uint8_t *good, *bad;

	(void)state;
	assert_return_code(fd, errno);
	assert_return_code(fstat(fd, &st), errno);
	good = malloc((size_t)st.st_size);
	bad = malloc((size_t)st.st_size);
	assert_int_equal(read(fd, good, (size_t)st.st_size), st.st_size);
	for (int round = 0; round < 300; round++) {
		struct elf_image image;
		struct unwind_table table;
		size_t bytes = (size_t)st.st_size;

		memcpy(bad, good, bytes);
		for (int i = 0; i < 1 << round % 12; i++) {
			random = random * 6364136223846793005 + 1442695040888963407;
			/* Half of them among the headers. */
			bad[(random >> 20) % (i % 2 ? bytes : 1024)] = (uint8_t)(random >> 12);
		}
		if (round % 3 == 0)
			bytes = (random >> 30) % bytes;
		if (!elf_image__open_memory(&image, bad, bytes) && !unwind_table__build(&table, &image)) {
			for (uint32_t i = 1; i < table.row_cnt; i++)
				assert_true(table.rows[i].pc > table.rows[i - 1].pc);
			unwind_table__free(&table);
		}
		elf_image__free(&image);
	}
	free(good);
	free(bad);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows_equal_libdw),
		cmocka_unit_test(test_code_equals_table),
		cmocka_unit_test(test_go_layout),
		cmocka_unit_test(test_broken_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
