/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which processes and threads the user wants attached: by number, name or
 * control group. A number is bound to the life that it has when choice__bind
 * is called. Numbers are those of our own pid namespace.
 */
#ifndef ALLOCTRACE_CLI_CHOICE_H
#define ALLOCTRACE_CLI_CHOICE_H

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/event.h"

/* One process or thread by number. */
struct chosen {
	pid_t id;
	enum at_scope scope;
	int pidfd;          /* of its process; readable when all threads have ended */
	uint32_t kernel_id; /* tgid or tid as the kernel numbers it; 0 = not met yet */
	uint64_t start_ns;
};

struct choice {
	struct chosen *chosen;
	size_t cnt;
	const char **names; /* the texts are the caller's, as those of cgroups */
	size_t name_cnt;
	const char **cgroups;
	size_t cgroup_cnt;
	uint64_t *root_ids;   /* of cgroups themselves, as many, renewed like the next; 0 = it was removed */
	uint64_t *cgroup_ids; /* of cgroups and what is below, renewed by choice__refresh */
	size_t cgroup_id_cnt;
};

/* 0, or the exit status after saying what is wrong. list: numbers with commas or blanks between. */
int choice__add_ids(struct choice *choice, const char *option, const char *list, enum at_scope scope);
int choice__add_name(struct choice *choice, const char *name);
int choice__add_cgroup(struct choice *choice, const char *path);
void choice__free(struct choice *choice);

/*
 * Takes hold of the numbers; those that are gone are named and dropped. 0, or
 * the exit status when nothing is left.
 */
int choice__bind(struct choice *choice);
/* Threads that the numbers have at this moment. */
size_t choice__thread_cnt(const struct choice *choice);
/* A process of it that runs a 32-bit program, 0 when there is none. */
pid_t choice__compat_pid(const struct choice *choice);
/* Processes that are not there yet may be meant. */
bool choice__is_open(const struct choice *choice);
/* Looks which control groups there are. 0 or -errno. */
int choice__refresh(struct choice *choice);
/* What is wanted of a thread; *id is what is to be wanted, and *start_ns its life. */
enum at_scope choice__match(struct choice *choice, const struct at_task *task, uint32_t *id, uint64_t *start_ns);
/* After a list of all threads: a number that was not met, or belongs to a kernel thread, is named and dropped. As bind.
 */
int choice__settle(struct choice *choice, const struct at_task *tasks, size_t cnt);
/* All that was chosen by number has ended. */
bool choice__has_ended(const struct choice *choice);

#endif
