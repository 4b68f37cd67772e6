/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the *_cost programs share: work is measured in a new process on the first
 * CPU, which a tracer can be pointed at before it begins; rounds are interleaved,
 * and what is reported is a median over them. Errors end the program.
 */
#ifndef ALLOCTRACE_TESTS_BENCH_COST_H
#define ALLOCTRACE_TESTS_BENCH_COST_H

#include <stdint.h>
#include <sys/types.h>

#include "cli/tracer.h"

enum { COST_ROUND_MAX = 99 };

struct cost_worker {
	pid_t pid;
	int go, result; /* pipes */
};

/* Of arguments [ROUNDS], default 5; with others it ends the program. */
int cost__rounds(int argc, char **argv);
/* Where nothing can be traced it says why and ends the program, with success. */
void cost__probe(struct features *features);

uint64_t cost__now_ns(void);
/* A child that waits, then works: ns an operation. finish lets it, and gives the result. */
void cost__start(struct cost_worker *worker, double (*work)(const void *arg), const void *arg);
double cost__finish(struct cost_worker *worker);
/* The smallest of many values in ns, as ns an operation. */
double cost__best(uint64_t (*batch)(const void *arg), const void *arg, int batch_cnt, int op_cnt);

void cost__die(const char *what);
double cost__median(const double *values, int cnt);
/* Of the differences within rounds. */
double cost__median_added(const double *values, const double *base, int cnt);

#endif
