/* SPDX-License-Identifier: BSD-2-Clause */
/* The walk in user space, where it has nothing but guesses: a return address is one only right after a call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/unwind_walk.h"
#include "tests/scratch.h"

enum { CODE_BYTES = 4096, CODE_AT = 0x7000, STACK_AT = 0x10000, TGID = 77, OBJECT_PC0 = 0x400 };
#define VM_START 0x7f0000000000ull

/* What a caller may have before the address that its call returns to, and what looks a little like that. */
static const struct {
	const char *name, *code;
	uint8_t bytes;
	bool is_call;
} cases[] = {
	{"call rel32", "\xe8\x01\x02\x03\x04", 5, true},
	{"call *%rax", "\xff\xd0", 2, true},
	{"call *%r12", "\x41\xff\xd4", 3, true},
	{"call *8(%rax)", "\xff\x50\x08", 3, true},
	{"call *8(%rsp)", "\xff\x54\x24\x08", 4, true},
	{"call *x(%rip)", "\xff\x15\x01\x02\x03\x04", 6, true},
	{"call *x(%rsp)", "\xff\x94\x24\x01\x02\x03\x04", 7, true},
	{"call *x(%r12)", "\x41\xff\x94\x24\x01\x02\x03\x04", 8, true},
	{"nop", "\x90", 1, false},
	{"jmp rel32", "\xe9\x01\x02\x03\x04", 5, false},
	{"jmp *%rax", "\xff\xe0", 2, false},
	{"push *8(%rax)", "\xff\x70\x08", 3, false},
	{"inc %eax", "\xff\xc0", 2, false},
	{"call, one byte on", "\xe8\x01\x02\x03\x04\x90", 6, false},
	{"call, one byte less", "\xe8\x01\x02\x03", 4, false},
	{"call of another length", "\xff\x50\x08\x90", 4, false},
};
enum { CASE_CNT = sizeof(cases) / sizeof(cases[0]), ENTRY_BYTES = 32 };

struct setup {
	struct unwind_objects objects;
	struct unwind_object object, *all[1];
	struct unwind_process process;
	struct unwind_range range;
	struct at_piece piece;
	struct at_cut *cut;
	struct unwind_chain *chain;
	_Alignas(CODE_BYTES) uint8_t code[CODE_BYTES];
};

/* Where the call of a case returns to, in the code. */
static uint64_t return_at(int number)
{
	return (uint64_t)(number + 1) * ENTRY_BYTES;
}

static struct setup *new_setup(void)
{
	struct setup *setup = aligned_alloc(CODE_BYTES, (sizeof(*setup) + CODE_BYTES - 1) & ~(CODE_BYTES - 1ul));

	assert_non_null(setup);
	memset(setup, 0, sizeof(*setup));
	memset(setup->code, 0x90, sizeof(setup->code));
	for (int i = 0; i < CASE_CNT; i++)
		memcpy(setup->code + return_at(i) - cases[i].bytes, cases[i].code, cases[i].bytes);
	setup->all[0] = &setup->object;
	setup->objects.objects = setup->all;
	setup->objects.object_cnt = 1;
	setup->objects.processes = &setup->process;
	setup->objects.process_cnt = 1;
	setup->objects.store.pieces = &setup->piece;
	setup->process = (struct unwind_process){.tgid = TGID, .range = &setup->range};
	setup->range.cnt = 1;
	/* Without rows: everything is a guess. */
	setup->object.fd = -1;
	setup->object.kernel.object = 1;
	setup->object.kernel.segment_cnt = 1;
	setup->object.kernel.segments[0] =
		(struct at_segment){.file_offset = CODE_AT, .bytes = CODE_BYTES, .pc0 = OBJECT_PC0};
	setup->cut = calloc(1, sizeof(*setup->cut));
	setup->chain = calloc(1, sizeof(*setup->chain));
	assert_non_null(setup->cut);
	assert_non_null(setup->chain);
	return setup;
}

static void free_setup(struct setup *setup)
{
	if (setup->object.fd >= 0)
		close(setup->object.fd);
	free(setup->object.memory);
	free(setup->cut);
	free(setup->chain);
	free(setup);
}

/* Two frames by rbp: one in the code at 0, and its caller, which returns to the case's address; then the end. */
static void walk(struct setup *setup, uint64_t code_address, int number)
{
	const uint64_t stack[] = {STACK_AT + 16, code_address + return_at(number), 0, 0};
	struct at_cut *cut = setup->cut;

	memcpy(cut->stack, stack, sizeof(stack));
	cut->stack_at = STACK_AT;
	cut->stack_bytes = sizeof(stack);
	cut->sp = cut->bp = STACK_AT;
	cut->ip = code_address;
	cut->note.tgid = TGID;
	cut->guess_from = AT_CHAIN_FRAMES;
	unwind_walk__resume(&setup->objects, cut, setup->chain);
}

static void expect_case(const struct setup *setup, int number, uint64_t first, uint64_t second)
{
	const struct unwind_chain *chain = setup->chain;

	if (chain->cnt != (cases[number].is_call ? 2 : 1))
		print_error("%s: %u frames\n", cases[number].name, chain->cnt);
	assert_int_equal(chain->cnt, cases[number].is_call ? 2 : 1);
	assert_int_equal(chain->frames[0], first);
	if (!cases[number].is_call) {
		assert_int_equal(chain->end, AT_END_NO_TABLE);
		return;
	}
	assert_int_equal(chain->frames[1], second);
	assert_int_equal(chain->end, AT_END_OUTERMOST);
	assert_int_equal(chain->guess_from, 1);
}

static uint64_t frame_of(uint64_t pc)
{
	return 1ull << AT_FRAME_BITS | pc;
}

/* The mapping is one that the kernel side saw: of the file, or of memory that stands for one. */
static void check_seen(struct setup *setup)
{
	setup->cut->file = (struct at_file){3, 4};
	setup->object.file = setup->cut->file;
	setup->cut->vm_start = VM_START;
	setup->cut->vm_end = VM_START + CODE_BYTES;
	setup->cut->vm_file_offset = CODE_AT;
	for (int i = 0; i < CASE_CNT; i++) {
		walk(setup, VM_START, i);
		expect_case(setup, i, frame_of(OBJECT_PC0),
			    frame_of(OBJECT_PC0 + return_at(i) - 1)); /* a pc within the call */
	}
}

static void test_file(void **state)
{
	struct setup *setup = new_setup();
	char path[PATH_MAX];

	(void)state;
	setup->object.fd = scratch__file(path);
	assert_true(setup->object.fd >= 0);
	unlink(path);
	assert_int_equal(pwrite(setup->object.fd, setup->code, CODE_BYTES, CODE_AT), CODE_BYTES);
	check_seen(setup);
	/* A file that is shorter by now says nothing of its code. */
	assert_int_equal(ftruncate(setup->object.fd, CODE_AT), 0);
	walk(setup, VM_START, 0);
	assert_int_equal(setup->chain->cnt, 1);
	assert_int_equal(setup->chain->end, AT_END_NO_TABLE);
	free_setup(setup);
}

static void test_memory_of_an_object(void **state)
{
	struct setup *setup = new_setup();

	(void)state;
	setup->object.bytes = CODE_AT + CODE_BYTES;
	setup->object.memory = calloc(1, setup->object.bytes);
	assert_non_null(setup->object.memory);
	memcpy(setup->object.memory + CODE_AT, setup->code, CODE_BYTES);
	check_seen(setup);
	free_setup(setup);
}

/* Generated code: only the process has it, here this one. */
static void test_memory_of_the_process(void **state)
{
	struct setup *setup = new_setup();
	uint64_t address = (uint64_t)(uintptr_t)setup->code;

	(void)state;
	setup->piece = (struct at_piece){.start = address, .bytes = CODE_BYTES};
	setup->cut->note.pid = (uint32_t)getpid();
	for (int i = 0; i < CASE_CNT; i++) {
		walk(setup, address, i);
		expect_case(setup, i, address, address + return_at(i));
	}
	/* Gone. */
	setup->cut->note.pid = 0;
	walk(setup, address, 0);
	assert_int_equal(setup->chain->cnt, 1);
	assert_int_equal(setup->chain->end, AT_END_NO_TABLE);
	free_setup(setup);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_memory_of_an_object),
		cmocka_unit_test(test_memory_of_the_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
