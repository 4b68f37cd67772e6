/* SPDX-License-Identifier: BSD-2-Clause */
/* The software events of page faults: opened a thread, with our programs on them. */
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bpf/alloctrace.skel.h"
#include "cli/tracer_state.h"

int tracer__open_faults(struct tracer *tracer, pid_t tid, int cpu, bool is_inherited, struct fault_fds *fds)
{
	static const uint64_t config[FAULT_EVENT_CNT] = {
		[FAULT_MINOR_EVENT] = PERF_COUNT_SW_PAGE_FAULTS_MIN,
		[FAULT_MAJOR_EVENT] = PERF_COUNT_SW_PAGE_FAULTS_MAJ,
		[FAULT_BEGIN_EVENT] = PERF_COUNT_SW_PAGE_FAULTS,
	};
	const struct bpf_program *progs[FAULT_EVENT_CNT] = {
		[FAULT_MINOR_EVENT] = tracer->skel->progs.at_fault_minor,
		[FAULT_MAJOR_EVENT] = tracer->skel->progs.at_fault_major,
		[FAULT_BEGIN_EVENT] = tracer->skel->progs.at_fault_begin,
	};
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.sample_period = 1,
		.disabled = 1,
		.inherit = is_inherited,
		.inherit_thread = is_inherited && !tracer->opts.is_following,
	};
	int i, err = 0;

	*fds = (struct fault_fds){{-1, -1, -1}};
	for (i = 0; i < FAULT_EVENT_CNT; i++) {
		attr.config = config[i];
		fds->fd[i] = (int)syscall(SYS_perf_event_open, &attr, tid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
		if (fds->fd[i] < 0) {
			err = -errno;
			break;
		}
		if (ioctl(fds->fd[i], PERF_EVENT_IOC_SET_BPF, bpf_program__fd(progs[i]))) {
			err = -errno;
			i++;
			break;
		}
	}
	while (err && i > 0)
		close(fds->fd[--i]);
	return err;
}

void tracer__switch_faults(const struct fault_fds *fds, bool is_on)
{
	/* Starts first on and last off: no end is counted by the event that the programs cannot count. */
	for (int i = 0; i < FAULT_EVENT_CNT; i++) {
		int event = is_on ? FAULT_EVENT_CNT - 1 - i : i;

		ioctl(fds->fd[event], is_on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
	}
}

int tracer__read_faults(const struct tracer *tracer, uint64_t *cnt)
{
	uint64_t value;

	*cnt = 0;
	for (size_t i = 0; i < tracer->fault_cnt; i++)
		for (int event = FAULT_MINOR_EVENT; event <= FAULT_MAJOR_EVENT; event++) {
			if (read(tracer->faults[i].fd[event], &value, sizeof(value)) != sizeof(value))
				return -errno;
			*cnt += value;
		}
	return 0;
}

void tracer__close_faults(const struct fault_fds *fds)
{
	for (int i = 0; i < FAULT_EVENT_CNT; i++)
		close(fds->fd[i]);
}

int tracer__add_thread(struct tracer *tracer, pid_t tid, int cpu)
{
	struct fault_fds *faults = realloc(tracer->faults, (tracer->fault_cnt + 1) * sizeof(*faults));
	int err;

	if (!faults)
		return -ENOMEM;
	tracer->faults = faults;
	err = tracer__open_faults(tracer, tid, cpu, tid >= 0, &faults[tracer->fault_cnt]);
	if (!err)
		tracer->fault_cnt++;
	return err;
}

int tracer__add_threads(struct tracer *tracer, pid_t tgid)
{
	char path[64];
	struct dirent *entry;
	DIR *dir;
	int err = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", tgid);
	dir = opendir(path);
	if (!dir)
		return -errno;
	while (!err && (entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.')
			err = tracer__add_thread(tracer, atoi(entry->d_name), -1);
	closedir(dir);
	return err;
}
