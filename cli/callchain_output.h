/* SPDX-License-Identifier: BSD-2-Clause */
/* --callchain, --folded and --pprof of the verbs that trace. */
#ifndef ALLOCTRACE_CLI_CALLCHAIN_OUTPUT_H
#define ALLOCTRACE_CLI_CALLCHAIN_OUTPUT_H

#include <stdbool.h>

#include "cli/output.h"
#include "cli/profile.h"
#include "cli/tracer.h"

struct callchain_output {
	bool is_asked;              /* --callchain: in the report */
	const char *folded, *pprof; /* names of files; NULL: none */
	struct output folded_output, pprof_output;
};

#define CALLCHAIN_OUTPUT_OPTIONS(callchain_key, folded_key, pprof_key, group)                                     \
	{"callchain", callchain_key, NULL, 0, "Which code paths made the calls, and their kernel time", group},   \
		{"folded", folded_key, "FILE", 0, "Code paths for flamegraph.pl and speedscope, to FILE", group}, \
	{                                                                                                         \
		"pprof", pprof_key, "FILE", 0, "Code paths for pprof, to FILE", group                             \
	}

enum callchain_mode callchain_output__mode(const struct callchain_output *callchain);
/* Before the work begins. 0, or the exit status after saying why. */
int callchain_output__open(struct callchain_output *callchain);
/* Nothing where nothing was asked for. 0, or the exit status after saying why. */
int callchain_output__write(struct callchain_output *callchain, const struct profile *profile);

#endif
