/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whatever end targets take, in the middle of calls too: every call is counted, and
 * nothing is left of them in the tracer's maps. The programs count their calls
 * themselves. Needs root and a kernel that can trace; says so and skips otherwise.
 * timeout: 300
 */
#include "tests/trace/traced.h"

#include "tests/trace/stress.h"

enum { ROUND_CNT = 101 };

static char known_calls[PROGRAM_BYTES], stress_calls[PROGRAM_BYTES];

/* Maps with entries by process. */
static const char *const by_process[] = {"processes", "place_lists", "blocks", "nodes", "ranges"};

static void assert_nothing_left(void)
{
	struct bpf_map_info info;
	char key[64];

	for (size_t i = 0; i < sizeof(by_process) / sizeof(by_process[0]); i++) {
		int fd = map_named(by_process[i], &info);

		assert_in_range(info.key_size, 1, sizeof(key));
		if (!bpf_map_get_next_key(fd, NULL, key))
			fail_msg("%s has an entry of process %d", by_process[i], *(int *)key);
		assert_int_equal(errno, ENOENT);
	}
	assert_slots_empty();
}

static const struct tracer_opts *all_ledgers(void **state)
{
	static struct tracer_opts opts;

	opts = *opts_of(state);
	opts.ledgers = LEDGER_ALL;
	return &opts;
}

/* Calls that were begun and did not come back to the program may have been made or not, and may have failed. */
static void assert_between(const struct run *run, enum at_class class, uint64_t begun_cnt, uint64_t ended_cnt)
{
	const struct class_stat *stat = &run->profile->phases[AT_PHASE_MEASURED].classes[class];

	assert_in_range(begun_cnt - ended_cnt, 0, ROUND_CNT * CALLER_CNT);
	assert_in_range(stat->error_cnt, 0, begun_cnt - ended_cnt); /* those that death interrupted */
	assert_in_range(ended_cnt, ROUND_CNT, UINT64_MAX);
	assert_in_range(stat->call_cnt, ended_cnt, begun_cnt);
	print_message("%s: %lu ended, %lu begun, %lu counted\n", profile__class_name(class), ended_cnt, begun_cnt,
		      stat->call_cnt);
}

/* Processes that one of their threads ends while the others make calls, or are entering or leaving them. */
static void end_in_calls(void **state, const char *how)
{
	struct stress_counts *counts;
	char path[32], n[16];
	struct run run;
	int fd = memfd_create("counts", 0);

	assert_return_code(fd, errno);
	assert_return_code(ftruncate(fd, sizeof(*counts)), errno);
	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(counts, MAP_FAILED);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	snprintf(n, sizeof(n), "%d", ROUND_CNT);
	trace(&run, all_ledgers(state), stress_calls, how, n, path);
	assert_clean_exit(&run);
	assert_exact(&run);
	assert_between(&run, AT_CLASS_PKEY_MPROTECT, counts->protect_begun, counts->protect_ended);
	assert_between(&run, AT_CLASS_MADVISE_POPULATE, counts->populate_begun, counts->populate_ended);
	assert_nothing_left();
	done(&run);
	munmap(counts, sizeof(*counts));
	close(fd);
}

static void test_killed(void **state)
{
	end_in_calls(state, "killed");
}

static void test_left(void **state)
{
	end_in_calls(state, "left");
}

static void test_replaced(void **state)
{
	end_in_calls(state, "replaced");
}

/* Runs a program to its end, with all ledgers; nothing is lost and nothing left. */
#define leave(run, state, ...)                               \
	do {                                                 \
		trace(run, all_ledgers(state), __VA_ARGS__); \
		assert_clean_exit(run);                      \
		assert_exact(run);                           \
		assert_nothing_left();                       \
	} while (0)

/* Threads and processes one after the other, and threads at once. */
static void test_sequences(void **state)
{
	struct run run;

	leave(&run, state, known_calls, "threads", "211");
	assert_int_equal(run.total->classes[AT_CLASS_MADVISE_OTHER].error_cnt, 211);
	done(&run);
	leave(&run, state, stress_calls, "processes", "101");
	assert_int_equal(run.profile->phases[AT_PHASE_MEASURED].classes[AT_CLASS_MUNMAP].error_cnt, 101 * 3);
	done(&run);
	leave(&run, state, stress_calls, "pairs", "4", "5003");
	assert_int_equal(run.profile->phases[AT_PHASE_MEASURED].classes[AT_CLASS_MUNMAP].call_cnt, 4 * 5003);
	done(&run);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_killed),
		BOTH(test_left),
		BOTH(test_replaced),
		BOTH(test_sequences),
	};

	program_beside(known_calls, argv[0], "known_calls");
	program_beside(stress_calls, argv[0], "stress_calls");
	return run_traced(tests, sizeof(tests) / sizeof(tests[0]), argc, argv);
}
