/* SPDX-License-Identifier: BSD-2-Clause */
/* The machine, for the host part of a profile. */
#ifndef ALLOCTRACE_CLI_HOST_H
#define ALLOCTRACE_CLI_HOST_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/profile.h"

/* Fills kernel, cpu_cnt, page_bytes, ram_pages, thp, overcommit_memory; what cannot be read stays "not known". */
void host__fill(struct profile *profile);
/*
 * The first line of a file, such as a setting of the kernel, without its newline. -errno, and "" as the line, when it
 * cannot be opened or read; -ENODATA: it is empty.
 */
int host__read_line(const char *path, char *line, size_t line_bytes);
/* Governor of the CPU frequency of the first CPU; "" when it is not known. */
void host__governor(char *word, size_t word_bytes);

/* Since the start of the machine, all CPUs together, in seconds. */
struct host_busy {
	double busy_s;   /* by anybody, in user code or in the kernel */
	double stolen_s; /* by other virtual machines on the same hardware */
};
/* False when it is not known. */
bool host__busy(struct host_busy *busy);

#endif
