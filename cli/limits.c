/* SPDX-License-Identifier: BSD-2-Clause */
/* See limits.h. */
#include "cli/limits.h"

#include <stdbool.h>
#include <sys/resource.h>

/* Maps, programs and links take about 70 descriptors, page fault events three a thread. */
enum { NOFILE_MIN = 1024 };

static struct rlimit old_nofile, old_memlock;
static bool is_raised;

static void raise_nofile(void)
{
	struct rlimit limit = old_nofile;

	if (limit.rlim_max < NOFILE_MIN) {
		limit.rlim_cur = limit.rlim_max = NOFILE_MIN;
		if (!setrlimit(RLIMIT_NOFILE, &limit))
			return;
	}
	limit.rlim_cur = limit.rlim_max = old_nofile.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

void limits__raise(void)
{
	struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};

	if (is_raised || getrlimit(RLIMIT_NOFILE, &old_nofile) || getrlimit(RLIMIT_MEMLOCK, &old_memlock))
		return;
	is_raised = true;
	raise_nofile();
	setrlimit(RLIMIT_MEMLOCK, &unlimited); /* kernels before 5.11 count maps as locked memory */
}

void limits__restore(void)
{
	if (!is_raised)
		return;
	setrlimit(RLIMIT_NOFILE, &old_nofile);
	setrlimit(RLIMIT_MEMLOCK, &old_memlock);
}
