/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums by process and thread: lives of a number, programs, differences, order, CPU time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "cli/processes.h"

/* A row of a thread that made so many calls of a class, 10 ns each. */
static struct at_row row(uint32_t tgid, uint32_t tid, uint64_t start_ns, uint32_t exec_cnt, uint64_t call_cnt)
{
	struct at_row row = {
		.start_ns = start_ns,
		.begin_ns = 1000,
		.tgid = tgid,
		.tid = tid,
		.shown_tgid = tgid,
		.shown_tid = tid,
		.exec_cnt = exec_cnt,
	};

	strcpy(row.comm, tid == tgid ? "leader" : "worker");
	row.classes[AT_CLASS_MUNMAP] = (struct at_row_class){call_cnt, 1, call_cnt * 4096, call_cnt * 10};
	return row;
}

static void add(struct processes *processes, uint32_t tgid, uint32_t tid, uint64_t start_ns, uint32_t exec_cnt,
		uint64_t call_cnt)
{
	struct at_row one = row(tgid, tid, start_ns, exec_cnt, call_cnt);

	assert_int_equal(processes__add_row(processes, &one), 0);
}

static uint64_t calls(const struct process_stat *item)
{
	return item->classes[AT_CLASS_MUNMAP].call_cnt;
}

/* One number, two lives, and a life with two programs: three processes. */
static void test_lives(void **state)
{
	struct processes processes;

	(void)state;
	processes__init(&processes);
	add(&processes, 7, 8, 100, 0, 3);
	add(&processes, 7, 7, 100, 0, 5);
	add(&processes, 7, 7, 100, 1, 11);
	add(&processes, 7, 7, 200, 0, 13);
	assert_int_equal(processes.cnt, 3);
	assert_int_equal(processes.items[0].thread_cnt, 2);
	assert_int_equal(calls(&processes.items[0]), 8);
	assert_string_equal(processes.items[0].comm, "leader");
	processes__sort(&processes);
	assert_int_equal(calls(&processes.items[0]), 13);
	assert_int_equal(calls(&processes.items[1]), 11);
	assert_int_equal(processes.items[2].threads[0].tid, 7);
	/* They are found again after sorting. */
	add(&processes, 7, 9, 100, 0, 1);
	assert_int_equal(processes.cnt, 3);
	assert_int_equal(calls(&processes.items[2]), 9);
	processes__free(&processes);
}

static void test_since(void **state)
{
	struct processes before, now, part;
	uint64_t sum = 0;

	(void)state;
	processes__init(&before);
	processes__init(&now);
	for (uint32_t tgid = 1; tgid <= 300; tgid++) {
		if (tgid % 3)
			add(&before, tgid, tgid, tgid, 0, tgid);
		add(&now, tgid, tgid, tgid, 0, 2 * tgid);
	}
	now.other[AT_CLASS_MUNMAP].call_cnt = 17;
	before.other[AT_CLASS_MUNMAP].call_cnt = 4;
	assert_int_equal(processes__since(&now, &before, &part), 0);
	assert_int_equal(part.cnt, 300);
	for (size_t i = 0; i < part.cnt; i++) {
		uint32_t tgid = part.items[i].tgid;

		assert_int_equal(calls(&part.items[i]), tgid % 3 ? tgid : 2 * tgid);
		assert_int_equal(part.items[i].kept_cnt, 0);
		sum += calls(&part.items[i]);
	}
	assert_int_equal(sum, 300 * 301 / 2 + 3 * (100 * 101 / 2));
	assert_int_equal(part.other[AT_CLASS_MUNMAP].call_cnt, 13);
	processes__free(&before);
	processes__free(&now);
	processes__free(&part);
}

/* Names run out, sums do not. */
static void test_bounds(void **state)
{
	struct processes processes;
	uint64_t sum = 0;
	size_t kept_cnt = 0;

	(void)state;
	processes__init(&processes);
	for (uint32_t i = 0; i < PROCESSES_MAX + 7; i++)
		add(&processes, 10 + i, 10 + i, 1, 0, 2);
	for (uint32_t i = 0; i < PROCESSES_THREAD_MAX; i++)
		add(&processes, 10, 100000 + i, 1, 0, 1);
	assert_int_equal(processes.cnt, PROCESSES_MAX);
	assert_int_equal(processes.rest_cnt, 7);
	assert_int_equal(processes.rest[AT_CLASS_MUNMAP].call_cnt, 14);
	for (size_t i = 0; i < processes.cnt; i++) {
		sum += calls(&processes.items[i]);
		kept_cnt += processes.items[i].kept_cnt;
	}
	assert_int_equal(sum, 2 * PROCESSES_MAX + PROCESSES_THREAD_MAX);
	assert_int_equal(kept_cnt, PROCESSES_THREAD_MAX);
	assert_int_equal(processes.items[0].thread_cnt, 1 + PROCESSES_THREAD_MAX);
	processes__free(&processes);
}

/* Shares are counted in ticks, the total is measured. */
static void test_cpu(void **state)
{
	struct at_cpu none = {0}, no_tick = {.total_ns = 900}, both = {3000, 1000, 10000};

	(void)state;
	assert_int_equal(processes__sys_ns(&none), 0);
	assert_int_equal(processes__sys_ns(&no_tick), 0);
	assert_int_equal(processes__user_ns(&no_tick), 900);
	assert_int_equal(processes__sys_ns(&both), 2500);
	assert_int_equal(processes__user_ns(&both), 7500);
}

/* Sums over threads; peaks and the first and last counts are not sums. */
static void test_ledgers(void **state)
{
	struct processes now, before, part;
	struct at_row one = row(7, 7, 100, 0, 3), two = row(7, 8, 100, 0, 5);

	(void)state;
	one.ledger = (struct at_row_ledger){
		.charged_pages = 11,
		.peak_pages = 40,
		.vma_first_ns = 20,
		.vma_first = 3,
		.vma_last_ns = 30,
		.vma_last = 5,
		.vma_peak = 9,
		.refaults[AT_RELEASE_FREE].released_pages = 2,
		.locks[AT_LOCK_SPIN] = {1, 100, 100},
	};
	two.ledger = (struct at_row_ledger){
		.charged_pages = 13,
		.peak_pages = 50,
		.vma_first_ns = 10,
		.vma_first = 2,
		.vma_last_ns = 25,
		.vma_last = 4,
		.vma_peak = 4,
		.stacks.thread_cnt = 6,
		.locks[AT_LOCK_SPIN] = {2, 70, 60},
	};
	processes__init(&before);
	assert_int_equal(processes__add_row(&before, &one), 0);
	processes__init(&now);
	assert_int_equal(processes__add_row(&now, &one), 0);
	assert_int_equal(processes__add_row(&now, &two), 0);
	assert_int_equal(processes__since(&now, &before, &part), 0);
	for (int i = 0; i < 2; i++) {
		const struct at_row_ledger *ledger = i ? &part.items[0].ledger : &now.items[0].ledger;

		assert_int_equal(ledger->charged_pages, i ? 13 : 24);
		assert_int_equal(ledger->peak_pages, 50);
		assert_int_equal(ledger->vma_first, 2);
		assert_int_equal(ledger->vma_last, 5);
		assert_int_equal(ledger->vma_peak, 9);
		assert_int_equal(ledger->stacks.thread_cnt, 6);
		assert_int_equal(ledger->refaults[AT_RELEASE_FREE].released_pages, i ? 0 : 2);
		assert_int_equal(ledger->locks[AT_LOCK_SPIN].cnt, i ? 2 : 3);
		assert_int_equal(ledger->locks[AT_LOCK_SPIN].sum_ns, i ? 70 : 170);
		assert_int_equal(ledger->locks[AT_LOCK_SPIN].max_ns, 100);
	}
	processes__free(&now);
	processes__free(&before);
	processes__free(&part);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lives), cmocka_unit_test(test_since),   cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_cpu),   cmocka_unit_test(test_ledgers),
	};

	return cmocka_run_group_tests_name("processes", tests, NULL, NULL);
}
