/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the scenario programs share: phase markers, argument parsing, worker
 * threads, the report of what was requested. Plain programs that work under
 * any malloc. Nothing here allocates or makes a memory syscall while the
 * measured phase runs, except the marker itself.
 */
#ifndef ALLOCTRACE_SCENARIOS_SCENARIO_H
#define ALLOCTRACE_SCENARIOS_SCENARIO_H

#include <stddef.h>
#include <stdint.h>

enum scenario_phase { SCENARIO_STARTUP = 0, SCENARIO_MEASURED = 1, SCENARIO_TEARDOWN = 2 };

/*
 * Marks a phase: through atmalloc_phase() where the bundled allocator is
 * loaded (so that its own counters follow), else by the madvise that the
 * tracer knows (docs/output.md, "Phases"). Keeps errno.
 */
void scenario__phase(enum scenario_phase phase);

enum scenario_unit {
	SCENARIO_END = 0, /* closes a table of options */
	SCENARIO_COUNT,   /* a decimal number */
	SCENARIO_BYTES,   /* a number with K, M or G (powers of 1024) */
	SCENARIO_FLAG,    /* takes no value; sets 1 */
};

/* One option; *value holds the default. The last one given wins. */
struct scenario_option {
	enum scenario_unit unit;
	const char *name; /* "--pages" */
	uint64_t *value;
	uint64_t min, max; /* of a number, inclusive */
};

/*
 * Parses "--name VALUE", "--name=VALUE" and "--flag". A wrong argument ends the
 * program with status 2 and one line on stderr that says what was wrong and
 * how it is used; --help prints that use and ends with status 0.
 */
void scenario__parse(int argc, char **argv, const struct scenario_option *options);

/* Ends the program with status 1 and one line on stderr; err is an errno. */
_Noreturn void scenario__fail(const char *what, int err);

/* What the worker threads do; `worker` counts from 0. */
struct scenario_work {
	void (*warm_up)(unsigned worker);   /* startup; may be NULL */
	void (*measured)(unsigned worker);  /* the measured phase */
	void (*tear_down)(unsigned worker); /* teardown; may be NULL */
};

/*
 * Runs `work` on worker_cnt new threads. Worker 0 marks the phases, each while
 * all other workers wait, so that counts fall in a phase exactly. Returns the
 * nanoseconds between the two markers.
 */
uint64_t scenario__run_workers(unsigned worker_cnt, const struct scenario_work *work);

/* As malloc; no memory ends the program. */
void *scenario__malloc(size_t bytes);

/* Writes one byte to each page of the block, so that all of it becomes resident. */
void scenario__touch(void *block, size_t bytes);

/* Nanoseconds of the monotonic clock. */
uint64_t scenario__now_ns(void);

/* A step of a small generator (xorshift64*); *state must not be 0. */
uint64_t scenario__random(uint64_t *state);

/* What the program itself asked for in the measured phase. */
struct scenario_requests {
	uint64_t malloc_cnt, free_cnt, realloc_cnt, thread_cnt;
};

/*
 * Prints "requested malloc=N free=N realloc=N threads=N" and "elapsed_ns=N",
 * and "NAME=N" when rate_name is given, on stdout.
 */
void scenario__report(const struct scenario_requests *requests, uint64_t elapsed_ns, const char *rate_name,
		      double rate);

/*
 * Makes the compiler believe that the block is read and written here, so that
 * no malloc and free around it are elided.
 */
static inline void scenario__use(void *block)
{
	__asm__ volatile("" : : "r"(block) : "memory");
}

#endif
