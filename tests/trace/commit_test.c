/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The commit and VMA ledgers against programs whose charges are known, and
 * against what the kernel itself says in smaps. Needs root and a kernel that can
 * trace; says so and skips otherwise.
 * timeout: 300
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/ledger.h"
#include "cli/tracer.h"

enum { PAGES_PER_MIB = 256, THREAD_CNT = 8 };

static struct features features;
static char commit_calls[512];

/* One traced run of a pattern; fd is the file that it leaves its sums in. */
struct run {
	struct tracer *tracer;
	struct profile *profile;
	pid_t pid;
	int go, fd;
	uint64_t sums[2];
};

/* TEST_TIER chooses another tier than the best one. */
static const struct tracer_opts *opts_of(void **state)
{
	struct tracer_opts *opts = *state;
	const char *tier = getenv("TEST_TIER");

	opts->tier = tier ? atoi(tier) : 0;
	return opts;
}

/* Starts the pattern, held, with the tracer on it. */
static void hold(struct run *run, const struct tracer_opts *opts, const char *pattern, long n, int thread_cnt)
{
	char fd_text[16], n_text[24], thread_text[16], go;
	int fds[2];

	*run = (struct run){.fd = memfd_create("sums", 0)};
	assert_return_code(run->fd, errno);
	assert_return_code(pipe2(fds, O_CLOEXEC), errno);
	snprintf(fd_text, sizeof(fd_text), "%d", run->fd);
	snprintf(n_text, sizeof(n_text), "%ld", n);
	snprintf(thread_text, sizeof(thread_text), "%d", thread_cnt);
	run->pid = fork();
	assert_return_code(run->pid, errno);
	if (!run->pid) {
		close(fds[1]);
		if (read(fds[0], &go, 1) != 1)
			_exit(126);
		execl(commit_calls, commit_calls, pattern, fd_text, n_text, thread_text, NULL);
		_exit(127);
	}
	close(fds[0]);
	run->go = fds[1];
	assert_return_code(tracer__open(&run->tracer, &features, opts), 0);
	assert_return_code(tracer__add_target(run->tracer, run->pid), 0);
	assert_return_code(tracer__start(run->tracer), 0);
}

static void release(struct run *run)
{
	assert_int_equal(write(run->go, "g", 1), 1);
	close(run->go);
}

static void collect(struct run *run)
{
	assert_return_code(tracer__stop(run->tracer), 0);
	run->profile = profile__new();
	assert_non_null(run->profile);
	assert_return_code(tracer__collect(run->tracer, run->profile), 0);
	assert_int_equal(pread(run->fd, run->sums, sizeof(run->sums), 0), sizeof(run->sums));
}

static void finish(struct run *run)
{
	int status;

	assert_int_equal(waitpid(run->pid, &status, 0), run->pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void done(struct run *run)
{
	tracer__free(run->tracer);
	profile__free(run->profile);
	close(run->fd);
}

static const struct commit_stat *measured(const struct run *run)
{
	return &run->profile->phases[AT_PHASE_MEASURED].commit;
}

static int64_t smaps_change(const struct run *run)
{
	return (int64_t)(run->sums[1] - run->sums[0]);
}

static void trace(struct run *run, const struct tracer_opts *opts, const char *pattern, long n, int thread_cnt)
{
	hold(run, opts, pattern, n, thread_cnt);
	release(run);
	finish(run);
	collect(run);
	if (!profile__is_exact(run->profile))
		fail_msg("%s: not exact", pattern);
}

/*
 * Tier 2: what the kernel's own check has let pass is what the ledger says was
 * charged. Stacks grow on after the ledger's last look; and before 6.12 the kernel
 * charges a mapping before it gives back what lay at its place.
 */
static void assert_checked(const struct run *run, const char *pattern)
{
	const struct commit_stat *commit = measured(run);
	uint64_t charged = commit->charged_pages + commit->shared_pages, checked = commit->checked_pages;

	if (!run->profile->has_charge_check || checked == charged)
		return;
	if (!(strcmp(pattern, "stack") == 0 && checked > charged) &&
	    !(strcmp(pattern, "fixed-rw") == 0 && checked == 256 * PAGES_PER_MIB))
		fail_msg("%s: %lu pages charged, the kernel let %lu pass", pattern, charged, checked);
}

/* Nothing is left of a process that has ended, and what was charged agrees with smaps. */
static void assert_balanced(const struct run *run, const char *pattern)
{
	struct phase_stat *total = malloc(sizeof(*total));

	assert_non_null(total);
	profile__total(run->profile, total);
	assert_checked(run, pattern);
	if (measured(run)->assumed_cnt)
		fail_msg("%s: %lu calls assumed", pattern, measured(run)->assumed_cnt);
	if (profile__net_pages(measured(run)) != smaps_change(run))
		fail_msg("%s: %ld pages net, smaps has %ld", pattern, profile__net_pages(measured(run)),
			 smaps_change(run));
	if (total->commit.charged_pages != total->commit.uncharged_pages)
		fail_msg("%s: %lu pages charged in all, %lu given back", pattern, total->commit.charged_pages,
			 total->commit.uncharged_pages);
	free(total);
}

/* What each pattern charges and gives back, in pages, and in how many updates. */
static const struct row {
	const char *pattern;
	long n; /* MiB, where the pattern has a size */
	uint64_t charged, uncharged, update_cnt;
} rows[] = {
	{"nothing", 1, 0, 0, 0},
	{"rw", 1024, 262144, 0, 1},
	{"none", 1024, 0, 0, 0},
	{"none-rw", 512, 131072, 0, 1},
	{"rw-rw", 512, 0, 0, 0},
	{"touched-none", 1024, 0, 0, 0},
	{"dontneed", 512, 0, 0, 0},
	{"fixed-none", 512, 0, 131072, 1},
	{"fixed-rw", 512, 0, 0, 0},
	{"fixed-on-none", 512, 65536, 0, 1},
	{"shrink", 512, 0, 65536, 1},
	{"grow", 256, 65536, 0, 1},
	{"grow-none", 256, 0, 0, 0},
	{"move-over", 64, 0, 32 * PAGES_PER_MIB, 1},
	{"tail", 512, 0, 32768, 1},
	{"comb", 3, 0, 6, 1},
	{"comb", 1009, 0, 2018, 1},
	{"comb-rw", 3, 1, 0, 1},
	{"brk", 16, 4096, 3072, 2},
	{"file", 1, 16, 0, 2},
	{"fail", 1, 10 * PAGES_PER_MIB, 0, 10},
	{"vfork", 3, 3 * PAGES_PER_MIB, 0, 1},
	{"large", 1009, 1009 * 32768, 1009 * 32768, 2018},
	{"small", 1009, 1009 * 16, 1009 * 16, 2018},
};

/* Where VMAs cannot be listed, what is behind a hole is assumed, and what a new address space has. */
static bool is_assumed(const char *pattern)
{
	return !features.vma_iter.is_ok && !strncmp(pattern, "comb", 4);
}

static void skip_without_iter(void)
{
	if (features.vma_iter.is_ok)
		return;
	print_message("%s\n", features.vma_iter.why);
	skip();
}

static void test_known_charges(void **state)
{
	struct run run;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *row = &rows[i];
		const struct commit_stat *commit;

		if (is_assumed(row->pattern))
			continue;
		trace(&run, opts_of(state), row->pattern, row->n, 0);
		commit = measured(&run);
		if (commit->charged_pages != row->charged || commit->uncharged_pages != row->uncharged ||
		    commit->update_cnt != row->update_cnt)
			fail_msg("%s: %lu pages charged, %lu given back, %lu updates", row->pattern,
				 commit->charged_pages, commit->uncharged_pages, commit->update_cnt);
		assert_balanced(&run, row->pattern);
		done(&run);
	}
}

static bool is_strict(void)
{
	struct ledger_host host;

	ledger__read_host(&host);
	return host.overcommit_memory == 2;
}

/* Under vm.overcommit_memory=2 there is no such thing as an uncharged writable mapping. */
static void test_noreserve(void **state)
{
	struct run run;

	trace(&run, opts_of(state), "noreserve", 1024, 0);
	assert_int_equal(measured(&run)->charged_pages, is_strict() ? 262144 : 0);
	assert_balanced(&run, "noreserve");
	done(&run);
}

/* Since 6.18 or so the kernel gives such a charge back: smaps says whether this one does. */
static void test_untouched_to_none(void **state)
{
	struct run run;

	trace(&run, opts_of(state), "rw-none", 1024, 0);
	assert_int_equal(measured(&run)->charged_pages, 0);
	assert_true(measured(&run)->uncharged_pages == 0 || measured(&run)->uncharged_pages == 262144);
	assert_balanced(&run, "rw-none");
	done(&run);
}

static void test_shared(void **state)
{
	struct run run;

	trace(&run, opts_of(state), "shared", 16, 0);
	assert_int_equal(measured(&run)->shared_pages, (is_strict() ? 2 : 1) * 16 * PAGES_PER_MIB);
	assert_int_equal(measured(&run)->charged_pages, 0);
	assert_balanced(&run, "shared");
	done(&run);
}

/* A stack that grows is charged in page faults; a call afterwards shows it. */
static void test_stack_growth(void **state)
{
	struct run run;

	trace(&run, opts_of(state), "stack", 1, 0);
	assert_in_range(measured(&run)->charged_pages, 200, 300);
	assert_balanced(&run, "stack");
	done(&run);
}

/* A child has what its parent has, and gives it back at its end. */
static void test_fork(void **state)
{
	enum { FORK_CNT = 31 };
	struct run run;

	skip_without_iter();
	trace(&run, opts_of(state), "fork", FORK_CNT, 0);
	assert_int_equal(measured(&run)->charged_pages, FORK_CNT * run.sums[0]);
	assert_int_equal(measured(&run)->uncharged_pages, FORK_CNT * run.sums[0]);
	assert_int_equal(measured(&run)->update_cnt % FORK_CNT, 0);
	assert_balanced(&run, "fork");
	done(&run);
}

/* Children that take another program leave the borrowed memory alone. */
static void test_spawn(void **state)
{
	struct run run;

	trace(&run, opts_of(state), "spawn", 17, 0);
	assert_in_range(measured(&run)->charged_pages, 17 * 50, UINT64_MAX);
	done(&run);
}

/* What the batches are compared with. */
static void test_batches(void **state)
{
	static const struct ledger_host small = {6170904, 2, 0, false}, strict = {6170904, 2, 2, false},
					large = {16777216, 64, 0, false};
	uint64_t batches[AT_BATCH_CNT];

	(void)state;
	ledger__batches(&small, batches);
	assert_int_equal(batches[AT_BATCH_KERNEL], 771363);
	assert_int_equal(batches[AT_BATCH_FIXED], 32);
	assert_int_equal(batches[AT_BATCH_SCALED], 154272);
	ledger__batches(&strict, batches);
	assert_int_equal(batches[AT_BATCH_KERNEL], 12052);
	ledger__batches(&large, batches);
	assert_int_equal(batches[AT_BATCH_KERNEL], 65536);
	assert_int_equal(batches[AT_BATCH_FIXED], 128);
	assert_int_equal(batches[AT_BATCH_SCALED], 13107);
}

static void test_updates_past_batches(void **state)
{
	const uint64_t *batches;
	struct run run;

	trace(&run, opts_of(state), "large", 101, 0);
	batches = run.profile->batch_pages;
	for (int i = 0; i < AT_BATCH_CNT; i++)
		assert_int_equal(measured(&run)->past_cnt[i], 32768 > batches[i] ? 202 : 0);
	done(&run);
	trace(&run, opts_of(state), "small", 101, 0);
	batches = run.profile->batch_pages;
	for (int i = 0; i < AT_BATCH_CNT; i++)
		assert_int_equal(measured(&run)->past_cnt[i], 16 > batches[i] ? 202 : 0);
	done(&run);
}

/*
 * Threads that map and unmap at once. Charges come from the arguments: exact.
 * What is given back is exact but for pages of calls that are named as assumed.
 */
static void assert_storm(struct run *run, const char *pattern, uint64_t pages, bool is_charged)
{
	const struct commit_stat *commit = measured(run);
	uint64_t expected = is_charged ? pages : 0, off;

	assert_int_equal(commit->charged_pages, expected);
	assert_checked(run, pattern);
	off = commit->uncharged_pages > expected ? commit->uncharged_pages - expected
						 : expected - commit->uncharged_pages;
	print_message("%s: %lu of %lu pages assumed\n", pattern, commit->assumed_pages, pages);
	if (off > commit->assumed_pages)
		fail_msg("%s: %lu pages given back, %lu expected, %lu assumed", pattern, commit->uncharged_pages,
			 expected, commit->assumed_pages);
	assert_int_equal(smaps_change(run), 0);
}

static void test_storm(void **state)
{
	enum { N = 2003 };
	struct run run;

	trace(&run, opts_of(state), "storm", N, THREAD_CNT);
	assert_storm(&run, "storm", (uint64_t)N * THREAD_CNT * 32768, true);
	done(&run);
	trace(&run, opts_of(state), "storm-small", N, THREAD_CNT);
	assert_storm(&run, "storm-small", (uint64_t)N * THREAD_CNT * 16, true);
	done(&run);
	trace(&run, opts_of(state), "storm-none", N, THREAD_CNT);
	assert_storm(&run, "storm-none", (uint64_t)N * THREAD_CNT * 32768, false);
	done(&run);
}

/* Sum of the mappings of a live process that have "ac" among their flags, in pages. */
static uint64_t accounted_pages(pid_t pid)
{
	char path[64], line[512];
	uint64_t sum = 0, kib = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		sscanf(line, "Size: %lu kB", &kib);
		if (!strncmp(line, "VmFlags:", 8) && strstr(line, " ac"))
			sum += kib / 4;
	}
	fclose(file);
	return sum;
}

/* From the first instruction of a program on, the ledger has what the kernel has. */
static void test_live_target(void **state)
{
	struct phase_stat *total = malloc(sizeof(*total));
	uint64_t accounted;
	struct run run;

	skip_without_iter();
	hold(&run, opts_of(state), "comb-rw", 101, 0);
	assert_return_code(lockf(run.fd, F_LOCK, 0), errno);
	release(&run);
	while (pread(run.fd, run.sums, sizeof(run.sums), 0) != sizeof(run.sums))
		usleep(1000);
	collect(&run);
	accounted = accounted_pages(run.pid);
	profile__total(run.profile, total);
	assert_int_equal(profile__net_pages(&total->commit), accounted);
	assert_int_equal(total->commit.assumed_cnt, 0);
	assert_in_range(total->commit.peak_pages, accounted, total->commit.charged_pages);
	assert_return_code(lockf(run.fd, F_ULOCK, 0), errno);
	finish(&run);
	free(total);
	done(&run);
}

static const struct vma_stat *vmas(const struct run *run)
{
	return &run->profile->phases[AT_PHASE_MEASURED].vmas;
}

static void test_vmas(void **state)
{
	struct run run;

	trace(&run, opts_of(state), "split", 500, 0);
	assert_int_equal(vmas(&run)->growth[AT_CLASS_MPROTECT_GUARD], 999);
	assert_int_equal(vmas(&run)->end_cnt - vmas(&run)->start_cnt, 999);
	assert_int_equal(vmas(&run)->peak_cnt, vmas(&run)->end_cnt);
	done(&run);
	/* 1 GiB, of it 8 KiB released in every 92 by mapping over: two VMAs a hole. */
	trace(&run, opts_of(state), "decommit", 1024, 0);
	assert_int_equal(vmas(&run)->growth[AT_CLASS_MMAP_FIXED], 2 * 11397);
	assert_int_equal(vmas(&run)->peak_cnt, vmas(&run)->start_cnt + 2 * 11397);
	assert_int_equal(measured(&run)->uncharged_pages, 2 * 11397);
	assert_balanced(&run, "decommit");
	done(&run);
	trace(&run, opts_of(state), "decommit-advice", 1024, 0);
	assert_int_equal(vmas(&run)->peak_cnt, vmas(&run)->start_cnt);
	assert_int_equal(measured(&run)->uncharged_pages, 0);
	done(&run);
}

/* A process that runs into vm.max_map_count: the failing call is an error, and the ledger says why. */
static void test_vma_limit(void **state)
{
	struct run run;

	trace(&run, opts_of(state), "nothing", 1, 0);
	if (run.profile->max_map_cnt > 70000) {
		done(&run);
		print_message("vm.max_map_count is too high to be reached here\n");
		skip();
	}
	done(&run);
	trace(&run, opts_of(state), "exhaust", 70000, 0);
	assert_int_equal(run.profile->phases[AT_PHASE_MEASURED].classes[AT_CLASS_MPROTECT_GUARD].error_cnt, 1);
	assert_int_equal(run.profile->phases[AT_PHASE_MEASURED].classes[AT_CLASS_MPROTECT_GUARD].last_errno, ENOMEM);
	assert_in_range(vmas(&run)->peak_cnt, run.profile->max_map_cnt - 2, run.profile->max_map_cnt + 1);
	assert_balanced(&run, "exhaust");
	done(&run);
}

/* Ledgers that are off have nothing, and change nothing else. */
static void test_off(void **state)
{
	struct tracer_opts opts = *opts_of(state);
	struct run run;

	for (unsigned ledgers = 0; ledgers <= LEDGER_ALL; ledgers++) {
		opts.ledgers = ledgers;
		trace(&run, &opts, "large", 13, 0);
		assert_int_equal(run.profile->ledgers, ledgers);
		assert_int_equal(run.profile->phases[AT_PHASE_MEASURED].classes[AT_CLASS_MUNMAP].call_cnt, 13);
		assert_int_equal(measured(&run)->update_cnt, ledgers & LEDGER_COMMIT ? 26 : 0);
		assert_true(!vmas(&run)->peak_cnt == !(ledgers & LEDGER_VMAS));
		done(&run);
	}
}

static void test_names(void **state)
{
	unsigned ledgers;

	(void)state;
	assert_true(ledger__parse("all", &ledgers));
	assert_int_equal(ledgers, LEDGER_ALL);
	assert_true(ledger__parse("none", &ledgers));
	assert_int_equal(ledgers, 0);
	assert_true(ledger__parse("vmas", &ledgers));
	assert_int_equal(ledgers, LEDGER_VMAS);
	assert_true(ledger__parse("vmas,commit", &ledgers));
	assert_int_equal(ledgers, LEDGER_COMMIT | LEDGER_VMAS);
	assert_true(ledger__parse("stacks,refault,locks,vmas,commit", &ledgers));
	assert_int_equal(ledgers, LEDGER_ALL);
	assert_false(ledger__parse("", &ledgers));
	assert_false(ledger__parse("commit,", &ledgers));
	assert_false(ledger__parse("commits", &ledgers));
}

static struct tracer_opts in_array = {.is_following = true, .slot_mode = SLOT_ARRAY, .ledgers = LEDGER_ALL};
static struct tracer_opts in_storage = {.is_following = true, .slot_mode = SLOT_STORAGE, .ledgers = LEDGER_ALL};

#define BOTH(test)                                                                        \
	{.name = #test "_array", .test_func = test, .initial_state = &in_array},          \
	{                                                                                 \
		.name = #test "_storage", .test_func = test, .initial_state = &in_storage \
	}

static void test_tracing_is_possible(void **state)
{
	char advice[256];

	(void)state;
	feature__advice(&features, 0, advice, sizeof(advice));
	print_message("%s\n", advice);
	skip();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest impossible[] = {cmocka_unit_test(test_tracing_is_possible)};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_batches),
		cmocka_unit_test(test_names),
		BOTH(test_off),
		BOTH(test_known_charges),
		BOTH(test_noreserve),
		BOTH(test_untouched_to_none),
		BOTH(test_shared),
		BOTH(test_stack_growth),
		BOTH(test_fork),
		BOTH(test_spawn),
		BOTH(test_updates_past_batches),
		BOTH(test_storm),
		BOTH(test_live_target),
		BOTH(test_vmas),
		BOTH(test_vma_limit),
	};
	int dir_len = (int)(strrchr(argv[0], '/') ? strrchr(argv[0], '/') - argv[0] : 0);

	snprintf(commit_calls, sizeof(commit_calls), "%.*s/commit_calls", dir_len, argv[0]);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	feature__probe(&features);
	if (features.best_tier < 1)
		return cmocka_run_group_tests(impossible, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
