/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tier 2: programs on the entry and exit of kernel functions. Which of them
 * there are is read from the programs' sections, fentry/FUNCTION and
 * fexit/FUNCTION; which the kernel has, from its type information.
 */
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/alloctrace.skel.h"
#include "cli/feature.h"
#include "cli/msg.h"
#include "cli/tracer_state.h"

enum { HOOK_MAX = 64 };

struct hooks {
	struct bpf_program *progs[HOOK_MAX];
	const char *functions[HOOK_MAX];
	bool has[HOOK_MAX];
	size_t cnt;
};

static bool starts_with(const char *text, const char *start)
{
	return strncmp(text, start, strlen(start)) == 0;
}

static void list_hooks(const struct tracer *tracer, struct hooks *hooks)
{
	struct bpf_program *prog;

	hooks->cnt = 0;
	bpf_object__for_each_program(prog, tracer->skel->obj)
	{
		const char *section = bpf_program__section_name(prog);

		section += *section == '?';
		if ((!starts_with(section, "fentry/") && !starts_with(section, "fexit/")) || hooks->cnt == HOOK_MAX)
			continue;
		hooks->progs[hooks->cnt] = prog;
		hooks->functions[hooks->cnt++] = strchr(section, '/') + 1;
	}
}

/* Whether this session wants the program, if it can be had. */
static bool is_wanted(const struct tracer *tracer, const struct bpf_program *prog)
{
	const struct alloctrace_bpf *skel = tracer->skel;

	if (prog == skel->progs.at_fault_fe || prog == skel->progs.at_fault_fx)
		return tracer->has_faults && !tracer->has_fault_events;
	if (prog == skel->progs.at_charge_fx)
		return tracer->opts.ledgers & LEDGER_COMMIT;
	return true;
}

int tracer__configure_functions(struct tracer *tracer)
{
	struct hooks hooks;
	int err;

	list_hooks(tracer, &hooks);
	if (hooks.cnt == HOOK_MAX)
		return -E2BIG;
	err = feature__find_functions(hooks.functions, hooks.cnt, hooks.has);
	for (size_t i = 0; !err && i < hooks.cnt; i++) {
		if (hooks.has[i])
			bpf_program__set_autoload(hooks.progs[i], is_wanted(tracer, hooks.progs[i]));
		else if (starts_with(hooks.functions[i], "__x64_sys_"))
			err = -ENOENT; /* what is counted in no other way */
		if (!hooks.has[i])
			msg__info("this kernel has no function %s", hooks.functions[i]);
	}
	tracer->has_charge_check = bpf_program__autoload(tracer->skel->progs.at_charge_fx);
	return err;
}

/* Adds the links of one kind of program. */
static int attach_hooks(struct tracer *tracer, const struct hooks *hooks, bool is_exit)
{
	for (size_t i = 0; i < hooks->cnt; i++) {
		struct bpf_program *prog = hooks->progs[i];
		struct bpf_link *link;

		if (!bpf_program__autoload(prog) ||
		    (bpf_program__expected_attach_type(prog) == BPF_TRACE_FEXIT) != is_exit)
			continue;
		link = bpf_program__attach(prog);
		if (!link) {
			msg__info("cannot attach to %s: %s", hooks->functions[i], strerror(errno));
			return -errno;
		}
		tracer->hook_links[tracer->hook_link_cnt++] = link;
	}
	return 0;
}

int tracer__attach_functions(struct tracer *tracer)
{
	struct hooks hooks;
	int err;

	list_hooks(tracer, &hooks);
	tracer->hook_links = calloc(HOOK_MAX, sizeof(struct bpf_link *));
	if (!tracer->hook_links)
		return -ENOMEM;
	err = attach_hooks(tracer, &hooks, true);
	return err ? err : attach_hooks(tracer, &hooks, false);
}

void tracer__detach_functions(struct tracer *tracer)
{
	while (tracer->hook_link_cnt)
		bpf_link__destroy(tracer->hook_links[--tracer->hook_link_cnt]);
	free(tracer->hook_links);
	tracer->hook_links = NULL;
}
