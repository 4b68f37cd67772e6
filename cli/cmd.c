/* SPDX-License-Identifier: BSD-2-Clause */
/* The verb table; see cmd.h. */
#include "cli/cmd.h"

#include <linux/types.h>
#include <stdio.h>
#include <string.h>

#include "alloc/control.h"
#include "bpf/event.h"
#include "cli/msg.h"

const struct verb cmd_verbs[] = {
	{"run", "run a scenario or a command and report what its memory calls cost", cmd_run, &cmd_run_argp},
	{"compare", "compare policies, allocators and settings, with statistics", cmd_compare, &cmd_compare_argp},
	{"attach", "trace processes that run already", cmd_attach, &cmd_attach_argp},
	{"report", "show a saved profile or comparison again", cmd_report, &cmd_report_argp},
	{"policy", "show or change the policies of a running process", cmd_policy, &cmd_policy_argp},
	{"list", "list scenarios, policies, tunables and allocators", cmd_list, &cmd_list_argp},
	{"check", "say what this machine and these privileges allow", cmd_check, &cmd_check_argp},
	{"help", "explain a verb", cmd_help, &cmd_help_argp},
	{NULL, NULL, NULL, NULL},
};

const struct verb *cmd__find(const char *name)
{
	for (const struct verb *verb = cmd_verbs; verb->name; verb++)
		if (strcmp(verb->name, name) == 0)
			return verb;
	return NULL;
}

int cmd__unknown(const char *name)
{
	char known[256] = "";
	size_t used = 0;

	for (const struct verb *verb = cmd_verbs; verb->name && used < sizeof(known); verb++)
		used += snprintf(known + used, sizeof(known) - used, "%s%s", used ? ", " : "", verb->name);
	msg__error("unknown verb '%s'; known: %s", name, known);
	return AT_EXIT_USAGE;
}

void cmd__print_version(void)
{
	printf("alloctrace %s (library ABI %d, event ABI %d)\n", AT_VERSION, ATM_ABI, AT_EVENT_ABI);
}
