/* SPDX-License-Identifier: BSD-2-Clause */
/* The runs of a comparison; see compare_runs.h. */
#include "cli/compare_runs.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/host.h"
#include "cli/msg.h"
#include "cli/render.h"

/*
 * The environment stands above the stack: its size moves everything that the
 * program has there, which alone can make it faster or slower. So it is another
 * size in every run, and no configuration is always the lucky one.
 */
#define PADDING_NAME "ALLOCTRACE_PADDING"
enum { PADDING_MAX_BYTES = 4096 };

/* Not an exit status: the signal says which that is. */
enum { RUN_INTERRUPTED = -1 };

static const int end_signals[] = {SIGINT, SIGTERM, SIGHUP};
static volatile sig_atomic_t seen_signal;

static void see_signal(int signal)
{
	seen_signal = signal;
}

static int out_of_memory(void)
{
	msg__error("out of memory");
	return AT_EXIT_OWN;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* A scenario's name and arguments, separated by spaces. NULL when out of memory. */
static char **split_words(const char *text)
{
	char *copy = strdup(text), *rest = copy, *word;
	char **words = calloc(strlen(text) / 2 + 2, sizeof(*words));
	size_t cnt = 0;

	if (!copy || !words)
		goto fail;
	words[0] = copy; /* what is freed, even where it is empty */
	while ((word = strsep(&rest, " ")))
		if (*word)
			words[cnt++] = word;
	if (words[0] == copy)
		return words;
	/* leading spaces: the block must begin where words[0] points */
	memmove(copy, words[0], strlen(words[0]) + 1);
	words[0] = copy;
	return words;
fail:
	free(copy);
	free(words);
	return NULL;
}

static int add_program(struct compare_runs *runs, struct compare_report *report, const char *name, char **words)
{
	struct compare_program *program = &report->programs[report->program_cnt];

	runs->words[report->program_cnt++] = words;
	program->name = strdup(name);
	program->notes = calloc(report->configs->cnt, sizeof(*program->notes));
	return words && program->name && program->notes ? 0 : out_of_memory();
}

static char *join_words(char **words)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *memory = open_memstream(&text, &bytes);

	if (!memory)
		return NULL;
	for (char **word = words; *word; word++)
		fprintf(memory, word == words ? "%s" : " %s", *word);
	fclose(memory);
	return text;
}

static int choose_programs(struct compare_runs *runs, char **programs, size_t program_cnt,
			   struct compare_report *report)
{
	size_t cnt = runs->plan->command ? 1 : program_cnt;
	char *name;
	int status = 0;

	report->programs = calloc(cnt, sizeof(*report->programs));
	runs->words = calloc(cnt, sizeof(*runs->words));
	report->shown = calloc(report->configs->cnt, sizeof(*report->shown));
	if (!report->programs || !runs->words || !report->shown)
		return out_of_memory();
	if (runs->plan->command) {
		name = join_words(runs->plan->command);
		status = name ? add_program(runs, report, name, runs->plan->command) : out_of_memory();
		free(name);
	}
	for (size_t i = 0; !runs->plan->command && i < cnt && !status; i++)
		status = add_program(runs, report, programs[i], split_words(programs[i]));
	return status;
}

/* env: the configuration's, and room for the padding. */
static int prepare_run(struct compare_runs *runs, const struct compare_report *report, size_t program, size_t config,
		       char *padding, struct session_run *run)
{
	const struct compare_config *chosen = &report->configs->all[config];
	size_t cnt = 0;
	char **env;
	struct session_config session_config = {
		.policy = chosen->policy,
		.tune = chosen->tune,
		.allocator = chosen->allocator,
		.is_command = runs->plan->command,
		.words = runs->words[program],
	};
	int status;

	while (chosen->env && chosen->env[cnt])
		cnt++;
	env = calloc(cnt + 2, sizeof(*env));
	if (!env)
		return out_of_memory();
	for (size_t i = 0; i < cnt; i++)
		env[i] = chosen->env[i];
	env[cnt] = padding;
	session_config.env = env;
	status = session__prepare(&runs->session, &session_config, run);
	run->config.env = NULL; /* copied, and gone */
	free(env);
	return status;
}

int compare_runs__prepare(struct compare_runs *runs, const struct compare_plan *plan, char **programs,
			  size_t program_cnt, struct compare_report *report)
{
	struct session_opts session_opts = plan->session;
	struct session_run run;
	int status;

	runs->plan = plan;
	stats__seed(&runs->rng, plan->seed);
	report->seed = plan->seed;
	report->wanted_block_cnt = plan->block_cnt;
	report->precision_percent = plan->limit_ns ? plan->precision_percent : 0;
	/* Every run is to find the same input: none. */
	runs->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	session_opts.stdin_fd = runs->null_fd;
	session_opts.stdout_fd = plan->is_showing_output ? -1 : runs->null_fd;
	status = session__open(&runs->session, &session_opts);
	if (!status)
		status = choose_programs(runs, programs, program_cnt, report);
	for (size_t i = 0; i < report->program_cnt && !status; i++)
		for (size_t config = 0; config < report->configs->cnt && !status; config++) {
			run = (struct session_run){0};
			status = prepare_run(runs, report, i, config, NULL, &run);
			session__free_run(&run);
		}
	return status ? status : session__choose_tier(&runs->session);
}

/* How long it will take yet, in seconds: from the runs so far, or what --time leaves. */
static double left_s(const struct compare_runs *runs, size_t all_cnt)
{
	uint64_t elapsed_ns = now_ns() - runs->start_ns, limit_ns = runs->plan->limit_ns;
	double left_ns = (double)elapsed_ns / (double)runs->run_cnt * ((double)all_cnt - (double)runs->run_cnt);

	if (limit_ns && (runs->run_cnt >= all_cnt || left_ns + (double)elapsed_ns > (double)limit_ns))
		left_ns = limit_ns > elapsed_ns ? (double)(limit_ns - elapsed_ns) : 0;
	return left_ns / 1e9;
}

static void show_progress(const struct compare_runs *runs, const struct compare_report *report, size_t block)
{
	size_t block_cnt = runs->plan->block_cnt;
	size_t all_cnt = report->program_cnt * report->configs->cnt * (block_cnt + 1);
	bool is_beyond = block > block_cnt;

	if (!isatty(STDERR_FILENO) || msg__is_quiet())
		return;
	fprintf(stderr, "\r\033[K%zu", runs->run_cnt);
	if (!is_beyond)
		fprintf(stderr, " of %zu", all_cnt);
	fputs(block ? " runs done, block " : " runs done, warm-up", stderr);
	if (block)
		fprintf(stderr, "%zu", block);
	if (block && !is_beyond)
		fprintf(stderr, " of %zu", block_cnt);
	if (runs->run_cnt)
		fprintf(stderr, ", %s %.0f s left", is_beyond ? "at most" : "about", left_s(runs, all_cnt));
	fflush(stderr);
}

static void clear_progress(void)
{
	if (isatty(STDERR_FILENO) && !msg__is_quiet())
		fputs("\r\033[K", stderr);
}

/* 0 when the run counts; else what the comparison ends with. */
static int judge(const struct compare_runs *runs, const struct compare_report *report, const struct session_run *run,
		 size_t program, size_t config, size_t block)
{
	const struct profile *profile = run->profile;

	(void)runs;
	if (!profile->exit_signal && !profile->exit_status)
		return 0;
	clear_progress();
	if (profile->exit_signal)
		msg__error("%s, configuration %s, %s %zu: ended by signal %d (%s); nothing is compared",
			   report->programs[program].name, report->configs->all[config].name,
			   block ? "block" : "warm-up", block ? block : 1, profile->exit_signal,
			   strsignal(profile->exit_signal));
	else
		msg__error("%s, configuration %s, %s %zu: exit status %d, not 0; nothing is compared "
			   "('alloctrace run' shows what it says)",
			   report->programs[program].name, report->configs->all[config].name,
			   block ? "block" : "warm-up", block ? block : 1, profile->exit_status);
	return 1;
}

/* One run; its profile goes to *profile_out when it counts. */
static int run_one(struct compare_runs *runs, struct compare_report *report, size_t program, size_t config,
		   size_t block, struct profile **profile_out)
{
	size_t bytes = stats__random_below(&runs->rng, PADDING_MAX_BYTES);
	char padding[sizeof(PADDING_NAME) + 1 + PADDING_MAX_BYTES] = PADDING_NAME "=";
	struct session_run run = {0};
	int status;

	if (seen_signal)
		return RUN_INTERRUPTED;
	memset(padding + strlen(padding), 'x', bytes);
	show_progress(runs, report, block);
	status = prepare_run(runs, report, program, config, padding, &run);
	if (!status)
		status = session__run(&runs->session, &run);
	if (run.target.asked_signal)
		seen_signal = run.target.asked_signal;
	/* A terminal's Ctrl-C reaches the command, too: its end then is ours to explain, not a failure. */
	if (!status && seen_signal && (run.profile->exit_signal || run.profile->exit_status))
		status = RUN_INTERRUPTED;
	if (!status)
		status = judge(runs, report, &run, program, config, block);
	if (!status) {
		runs->run_cnt++;
		runs->own_cpu_ns += run.profile->user_ns + run.profile->sys_ns;
		if (run.profile->note[0])
			snprintf(report->programs[program].notes[config], sizeof(*report->programs[program].notes),
				 "%s", run.profile->note);
		*profile_out = run.profile;
		run.profile = NULL;
	}
	session__free_run(&run);
	return status;
}

/* One run of each that is not counted: the first one fills caches, and says what there is to compare. */
static int warm_up(struct compare_runs *runs, struct compare_report *report)
{
	for (size_t i = 0; i < report->program_cnt; i++) {
		bool has_phases = true;

		for (size_t config = 0; config < report->configs->cnt; config++) {
			struct profile *profile = NULL;
			int status = run_one(runs, report, i, config, 0, &profile);

			if (status)
				return status;
			has_phases &= render__has_phases(profile);
			if (!report->shown[config])
				report->shown[config] = profile;
			else
				profile__free(profile);
		}
		report->programs[i].comparison = compare__new(report->configs->cnt, report->base, has_phases);
		if (!report->programs[i].comparison)
			return out_of_memory();
	}
	return 0;
}

/* All programs and configurations once, in random order. */
static int run_block(struct compare_runs *runs, struct compare_report *report, size_t block, size_t *order)
{
	size_t config_cnt = report->configs->cnt, cnt = report->program_cnt * config_cnt;
	struct profile *profile = NULL;

	for (size_t i = 0; i < cnt; i++) {
		size_t at = stats__random_below(&runs->rng, i + 1);

		order[i] = order[at];
		order[at] = i;
	}
	for (size_t i = 0; i < cnt; i++) {
		size_t program = order[i] / config_cnt, config = order[i] % config_cnt;
		int status = run_one(runs, report, program, config, block + 1, &profile);

		if (status)
			return status;
		status = compare__add(report->programs[program].comparison, block, config, profile);
		profile__free(profile);
		if (status)
			return out_of_memory();
	}
	return 0;
}

/* Whether another block is to be run. *status: as everywhere. */
static bool goes_on(const struct compare_runs *runs, struct compare_report *report, uint64_t blocks_start_ns,
		    int *status)
{
	const struct compare_plan *plan = runs->plan;
	size_t block = report->block_cnt;
	bool is_precise = block >= plan->block_cnt;
	uint64_t now = now_ns();

	if (!plan->limit_ns || !block)
		return !is_precise;
	for (size_t i = 0; i < report->program_cnt && is_precise; i++)
		if (compare__is_precise(report->programs[i].comparison, plan->precision_percent, plan->seed,
					&is_precise)) {
			*status = out_of_memory();
			return false;
		}
	if (is_precise || block == COMPARE_BLOCK_MAX)
		return false;
	report->is_out_of_time = now + (now - blocks_start_ns) / block - runs->start_ns > plan->limit_ns;
	return !report->is_out_of_time;
}

static int run_blocks(struct compare_runs *runs, struct compare_report *report)
{
	size_t *order = calloc(report->program_cnt * report->configs->cnt, sizeof(*order));
	uint64_t start_ns = now_ns();
	int status = order ? 0 : out_of_memory();

	while (!status && goes_on(runs, report, start_ns, &status)) {
		status = run_block(runs, report, report->block_cnt, order);
		report->block_cnt += !status;
	}
	free(order);
	return status;
}

static double read_load(void)
{
	double load;

	return getloadavg(&load, 1) == 1 ? load : -1;
}

/* A signal lets the run in hand end; one that our caller ignores stays ignored. */
static void take_signals(struct compare_runs *runs)
{
	struct sigaction action = {.sa_handler = see_signal};

	for (size_t i = 0; i < sizeof(end_signals) / sizeof(end_signals[0]); i++) {
		sigaction(end_signals[i], NULL, &runs->old_actions[i]);
		if (runs->old_actions[i].sa_handler != SIG_IGN)
			sigaction(end_signals[i], &action, NULL);
	}
	runs->has_handlers = true;
}

static double timeval_s(struct timeval tv)
{
	return (double)tv.tv_sec + (double)tv.tv_usec / 1e6;
}

/* What the CPUs did beside the runs and ourselves. */
static void fill_others(const struct compare_runs *runs, struct compare_load *load, const struct host_busy *start,
			const struct rusage *own_start)
{
	double elapsed_s = (double)(now_ns() - runs->start_ns) / 1e9, own_s;
	struct host_busy end;
	struct rusage own;

	load->others = load->stolen = -1;
	if (!start || !host__busy(&end))
		return;
	getrusage(RUSAGE_SELF, &own);
	own_s = timeval_s(own.ru_utime) + timeval_s(own.ru_stime) - timeval_s(own_start->ru_utime) -
		timeval_s(own_start->ru_stime) + (double)runs->own_cpu_ns / 1e9;
	load->others = fmax(0, (end.busy_s - start->busy_s - own_s) / elapsed_s);
	load->stolen = fmax(0, (end.stolen_s - start->stolen_s) / elapsed_s);
}

int compare_runs__run(struct compare_runs *runs, struct compare_report *report)
{
	struct host_busy busy_start;
	struct rusage own_start;
	bool has_busy;
	int status;

	take_signals(runs);
	report->load.start = read_load();
	has_busy = host__busy(&busy_start);
	getrusage(RUSAGE_SELF, &own_start);
	runs->start_ns = now_ns();
	status = warm_up(runs, report);
	if (!status)
		status = run_blocks(runs, report);
	clear_progress();
	report->load.end = read_load();
	report->load.own = (double)runs->own_cpu_ns / (double)(now_ns() - runs->start_ns);
	fill_others(runs, &report->load, has_busy ? &busy_start : NULL, &own_start);
	host__governor(report->governor, sizeof(report->governor));
	if (seen_signal && report->block_cnt) {
		report->signal = seen_signal;
		status = 0;
	} else if (seen_signal) {
		msg__error("interrupted before a block was finished: there is nothing to compare");
		status = 128 + (int)seen_signal;
	}
	if (!status && render_compare__finish(report))
		status = out_of_memory();
	return status;
}

void compare_runs__free(struct compare_runs *runs, struct compare_report *report)
{
	for (size_t i = 0; i < report->program_cnt; i++) {
		compare__free(report->programs[i].comparison);
		free(report->programs[i].name);
		free(report->programs[i].notes);
		if (runs->words[i] && !runs->plan->command) {
			free(runs->words[i][0]);
			free(runs->words[i]);
		}
	}
	for (size_t config = 0; report->shown && config < report->configs->cnt; config++)
		profile__free((struct profile *)report->shown[config]);
	free(report->shown);
	free(report->programs);
	free(runs->words);
	for (size_t i = 0; runs->has_handlers && i < sizeof(end_signals) / sizeof(end_signals[0]); i++)
		sigaction(end_signals[i], &runs->old_actions[i], NULL);
	session__close(&runs->session);
	if (runs->null_fd > 0)
		close(runs->null_fd);
}
