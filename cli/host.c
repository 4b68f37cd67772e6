/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading what the machine is; see host.h. */
#include "cli/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

int host__read_line(const char *path, char *line, size_t line_bytes)
{
	FILE *file;
	int err = 0;

	line[0] = '\0';
	file = fopen(path, "re");
	if (!file)
		return -errno;
	errno = 0;
	if (!fgets(line, (int)line_bytes, file)) {
		err = errno ? -errno : -ENODATA;
		line[0] = '\0';
	}
	line[strcspn(line, "\n")] = '\0';
	fclose(file);
	return err;
}

/* "always [madvise] never": the word in brackets. */
static void pick_word(const char *line, char *word, size_t word_bytes)
{
	const char *start = strchr(line, '['), *end = start ? strchr(start, ']') : NULL;

	if (end && (size_t)(end - start) <= word_bytes)
		snprintf(word, word_bytes, "%.*s", (int)(end - start - 1), start + 1);
}

void host__fill(struct profile *profile)
{
	struct utsname uts;
	char line[256];

	if (uname(&uts) == 0)
		snprintf(profile->kernel, sizeof(profile->kernel), "%s", uts.release);
	profile->cpu_cnt = sysconf(_SC_NPROCESSORS_ONLN);
	profile->page_bytes = sysconf(_SC_PAGESIZE);
	profile->ram_pages = sysconf(_SC_PHYS_PAGES);
	if (!host__read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line)))
		pick_word(line, profile->thp, sizeof(profile->thp));
	profile->overcommit_memory = -1;
	if (!host__read_line("/proc/sys/vm/overcommit_memory", line, sizeof(line)))
		profile->overcommit_memory = atoi(line);
}

void host__governor(char *word, size_t word_bytes)
{
	host__read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", word, word_bytes);
}

bool host__busy(struct host_busy *busy)
{
	unsigned long long user, nice, system, idle, iowait, irq, softirq, steal;
	double tick_cnt = (double)sysconf(_SC_CLK_TCK);
	char line[256];

	if (host__read_line("/proc/stat", line, sizeof(line)) ||
	    sscanf(line, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &iowait, &irq,
		   &softirq, &steal) != 8)
		return false;
	busy->busy_s = (double)(user + nice + system + irq + softirq) / tick_cnt;
	busy->stolen_s = (double)steal / tick_cnt;
	return true;
}
