/* SPDX-License-Identifier: BSD-2-Clause */
/* What the scenario programs share; see scenario.h. */
#include "scenarios/scenario.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* As AT_PHASE_MARK in bpf/event.h; the scenarios depend on no header of the tools. */
#define PHASE_MARK 0x41540000

static void (*phase_of_allocator)(unsigned phase);

/* Before any phase: a dlsym that finds nothing may allocate its error text. */
__attribute__((constructor)) static void find_phase(void)
{
	void *symbol = dlsym(RTLD_DEFAULT, "atmalloc_phase");

	memcpy(&phase_of_allocator, &symbol, sizeof(symbol));
}

void scenario__phase(enum scenario_phase phase)
{
	int saved_errno = errno;

	if (phase_of_allocator)
		phase_of_allocator(phase);
	else
		madvise(NULL, 0, PHASE_MARK | (int)phase);
	errno = saved_errno;
}

void scenario__fail(const char *what, int err)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(err));
	exit(1);
}

static void print_usage(FILE *to, const struct scenario_option *options)
{
	fprintf(to, "usage: %s", program_invocation_short_name);
	for (; options->unit != SCENARIO_END; options++)
		fprintf(to, " [%s%s]", options->name,
			options->unit == SCENARIO_BYTES   ? " BYTES[K|M|G]"
			: options->unit == SCENARIO_COUNT ? " N"
							  : "");
	fprintf(to, "\n");
}

static _Noreturn void fail_usage(const struct scenario_option *options, const char *why, const char *word)
{
	fprintf(stderr, "%s: %s '%s'; ", program_invocation_short_name, why, word);
	print_usage(stderr, options);
	exit(2);
}

/* Returns 0, or -EINVAL and leaves *value alone. */
static int parse_value(const struct scenario_option *option, const char *text, uint64_t *value)
{
	unsigned shift = 0;
	uint64_t number;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno)
		return -EINVAL;
	if (option->unit == SCENARIO_BYTES && *end) {
		switch (*end++) {
		case 'K': shift = 10; break;
		case 'M': shift = 20; break;
		case 'G': shift = 30; break;
		default: return -EINVAL;
		}
	}
	if (*end || number << shift >> shift != number)
		return -EINVAL;
	number <<= shift;
	if (number < option->min || number > option->max)
		return -EINVAL;
	*value = number;
	return 0;
}

static const struct scenario_option *find_option(const struct scenario_option *options, const char *word)
{
	size_t name_bytes = strcspn(word, "=");

	for (; options->unit != SCENARIO_END; options++)
		if (strlen(options->name) == name_bytes && strncmp(options->name, word, name_bytes) == 0)
			return options;
	return NULL;
}

void scenario__parse(int argc, char **argv, const struct scenario_option *options)
{
	for (int i = 1; i < argc; i++) {
		const char *word = argv[i], *value = strchr(word, '=');
		const struct scenario_option *option = find_option(options, word);

		if (strcmp(word, "--help") == 0) {
			print_usage(stdout, options);
			exit(0);
		}
		if (!option)
			fail_usage(options, "unknown argument", word);
		if (option->unit == SCENARIO_FLAG) {
			if (value)
				fail_usage(options, "no value may follow", option->name);
			*option->value = 1;
			continue;
		}
		if (!value && i + 1 == argc)
			fail_usage(options, "a value must follow", word);
		value = value ? value + 1 : argv[++i];
		if (parse_value(option, value, option->value))
			fail_usage(options, "malformed or out of range:", argv[i]);
	}
}

struct crew {
	const struct scenario_work *work;
	pthread_barrier_t barrier;
	uint64_t begin_ns, end_ns;
};

struct worker {
	struct crew *crew;
	pthread_t thread;
	unsigned number;
};

static void *run_worker(void *arg)
{
	struct worker *worker = arg;
	struct crew *crew = worker->crew;
	const struct scenario_work *work = crew->work;
	bool is_first = worker->number == 0;

	if (work->warm_up)
		work->warm_up(worker->number);
	pthread_barrier_wait(&crew->barrier);
	if (is_first) {
		scenario__phase(SCENARIO_MEASURED);
		crew->begin_ns = scenario__now_ns();
	}
	pthread_barrier_wait(&crew->barrier);
	work->measured(worker->number);
	pthread_barrier_wait(&crew->barrier);
	if (is_first) {
		crew->end_ns = scenario__now_ns();
		scenario__phase(SCENARIO_TEARDOWN);
	}
	pthread_barrier_wait(&crew->barrier);
	if (work->tear_down)
		work->tear_down(worker->number);
	return NULL;
}

uint64_t scenario__run_workers(unsigned worker_cnt, const struct scenario_work *work)
{
	struct worker *workers = calloc(worker_cnt, sizeof(*workers));
	struct crew crew = {.work = work};
	int err;

	if (!workers)
		scenario__fail("calloc", errno);
	err = pthread_barrier_init(&crew.barrier, NULL, worker_cnt);
	if (err)
		scenario__fail("pthread_barrier_init", err);
	for (unsigned i = 0; i < worker_cnt; i++) {
		workers[i].crew = &crew;
		workers[i].number = i;
		err = pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]);
		if (err)
			scenario__fail("pthread_create", err);
	}
	for (unsigned i = 0; i < worker_cnt; i++)
		pthread_join(workers[i].thread, NULL);
	pthread_barrier_destroy(&crew.barrier);
	free(workers);
	return crew.end_ns - crew.begin_ns;
}

void *scenario__malloc(size_t bytes)
{
	void *block = malloc(bytes);

	/* malloc(0) may be NULL by the standard. */
	if (!block && bytes)
		scenario__fail("malloc", errno);
	scenario__use(block);
	return block;
}

void scenario__touch(void *block, size_t bytes)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	volatile char *at = block;

	for (size_t i = 0; i < bytes; i += page_bytes)
		at[i] = 1;
	if (bytes)
		at[bytes - 1] = 1;
}

uint64_t scenario__now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t scenario__random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 2685821657736338717ull;
}

void scenario__report(const struct scenario_requests *requests, uint64_t elapsed_ns, const char *rate_name, double rate)
{
	printf("requested malloc=%ju free=%ju realloc=%ju threads=%ju\n", (uintmax_t)requests->malloc_cnt,
	       (uintmax_t)requests->free_cnt, (uintmax_t)requests->realloc_cnt, (uintmax_t)requests->thread_cnt);
	printf("elapsed_ns=%ju\n", (uintmax_t)elapsed_ns);
	if (rate_name)
		printf("%s=%.0f\n", rate_name, rate);
	if (fflush(stdout))
		scenario__fail("standard output", errno);
}
