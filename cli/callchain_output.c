/* SPDX-License-Identifier: BSD-2-Clause */
/* See callchain_output.h. */
#include "cli/callchain_output.h"

#include "cli/cmd.h"
#include "cli/msg.h"
#include "cli/render_callchain.h"

enum callchain_mode callchain_output__mode(const struct callchain_output *callchain)
{
	if (callchain->pprof)
		return CALLCHAINS_BY_THREAD; /* its samples have the thread as a label */
	return callchain->is_asked || callchain->folded ? CALLCHAINS_ON : CALLCHAINS_NONE;
}

int callchain_output__open(struct callchain_output *callchain)
{
	int status = 0;

	if (callchain->folded)
		status = output__open(&callchain->folded_output, callchain->folded);
	if (!status && callchain->pprof)
		status = output__open(&callchain->pprof_output, callchain->pprof);
	return status;
}

int callchain_output__write(struct callchain_output *callchain, const struct profile *profile)
{
	int status = 0;

	if (!profile->callchains)
		return 0;
	if (callchain->folded)
		status = output__write(&callchain->folded_output, render_callchain__folded, profile);
	if (!status && callchain->pprof)
		status = output__write(&callchain->pprof_output, render_callchain__pprof, profile);
	return status;
}
