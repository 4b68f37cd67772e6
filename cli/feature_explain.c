/* SPDX-License-Identifier: BSD-2-Clause */
/* What findings mean for a report, in words. Asks the kernel nothing. */
#include <stdio.h>

#include "cli/feature.h"

/* The life of processes is seen by BTF tracepoints in tier 2, too. */
int feature__best_tier(const struct features *features)
{
	if (!features->tp_btf.is_ok || !features->pid_namespace.is_ok)
		return 0;
	return features->fentry.is_ok ? 2 : 1;
}

/* What keeps kernel-side counts away; NULL when nothing does. */
static const struct feature *obstacle(const struct features *features)
{
	const struct feature *const needed[] = {&features->bpf, &features->btf, &features->kernel_read,
						&features->tp_btf, &features->pid_namespace};

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (!needed[i]->is_ok)
			return needed[i];
	return NULL;
}

void feature__advice(const struct features *features, int tier, char *buf, size_t buf_bytes)
{
	const struct feature *why = obstacle(features);

	buf[0] = '\0';
	if (tier >= 1) /* what tier 2 adds is for those who ask: alloctrace check */
		return;
	if (!why)
		snprintf(buf, buf_bytes, "tier %d works here but a lower one was asked for: leave out --tier",
			 features->best_tier);
	else
		snprintf(buf, buf_bytes, "no kernel-side counts: %s", why->why);
}

static void explain_faults(const struct features *features, char *buf, size_t buf_bytes)
{
	const struct feature *event = &features->fault_event;

	if (event->is_ok || (feature__best_tier(features) == 2 && features->fault_function.is_ok))
		snprintf(buf, buf_bytes, "yes");
	else
		snprintf(buf, buf_bytes, "no: %s", event->why);
}

static void explain_commit(const struct features *features, char *buf, size_t buf_bytes)
{
	if (features->vma_iter.is_ok)
		snprintf(buf, buf_bytes, "yes");
	else
		snprintf(buf, buf_bytes,
			 "in part: %s; charges of new processes and behind holes are estimated and named",
			 features->vma_iter.why);
}

void feature__column(const struct features *features, enum feature_column column, char *buf, size_t buf_bytes)
{
	const struct feature *why = obstacle(features);
	int tier = feature__best_tier(features);

	if (why && column != FEATURE_COLUMN_REQUESTS)
		snprintf(buf, buf_bytes, "no: %s", why->why);
	else if (column == FEATURE_COLUMN_FAULTS || column == FEATURE_COLUMN_REFAULT)
		explain_faults(features, buf, buf_bytes);
	else if (column == FEATURE_COLUMN_COMMIT)
		explain_commit(features, buf, buf_bytes);
	else if (column == FEATURE_COLUMN_LOCKS && !features->lock_events.is_ok)
		snprintf(buf, buf_bytes, "no: %s", features->lock_events.why);
	else if (column == FEATURE_COLUMN_CHECK && !features->charge_function.is_ok)
		snprintf(buf, buf_bytes, "no: %s", features->charge_function.why);
	else if (column == FEATURE_COLUMN_BYSTANDERS && tier < 2)
		snprintf(buf, buf_bytes, "no: %s", features->fentry.why);
	else
		snprintf(buf, buf_bytes, "yes");
}

const char *feature__column_name(enum feature_column column)
{
	static const char *const names[] = {
#define X(id, name) name,
		FEATURE_COLUMNS(X)
#undef X
	};

	return names[column];
}
