/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Code paths as "outermost;...;innermost;class nanoseconds" lines, which
 * flamegraph.pl and speedscope read. What would break a line or end a name (semicolon,
 * control characters, broken UTF-8, backslash) is written as \xNN.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cli/callchain.h"
#include "cli/format.h"
#include "cli/render.h"
#include "cli/render_callchain.h"

enum { TEXT_BYTES = 4096 };

static void print_frame(FILE *out, const char *name, const char *separator)
{
	char text[TEXT_BYTES];

	for (const char *at = format__escape(name, text, sizeof(text)); *at; at++)
		if (*at == ';')
			fputs("\\x3b", out);
		else
			fputc(*at, out);
	fputs(separator, out);
}

static void print_path(FILE *out, const struct profile *profile, const struct callchain_path *path)
{
	const struct callchains *chains = profile->callchains;
	const struct callchain_chain *chain = &chains->chains[path->chain];
	char name[TEXT_BYTES];
	const char *mark = callchain__end(chains, chain, name, sizeof(name));

	if (render__has_phases(profile))
		print_frame(out, profile__phase_name(path->phase), ";");
	if (mark[0])
		print_frame(out, mark, ";");
	for (uint32_t i = chain->cnt; i-- > 0;) {
		print_frame(out, callchain__name(callchain__frame(chains, chain, i), name, sizeof(name)), "");
		fputs(i >= chain->guess_from ? " (guess);" : ";", out);
	}
	fprintf(out, "%s %" PRIu64 "\n", profile__class_name(path->class), path->sum_ns);
}

int render_callchain__folded(FILE *out, const void *data)
{
	const struct profile *profile = data;

	for (size_t i = 0; i < profile->callchains->path_cnt; i++)
		print_path(out, profile, &profile->callchains->paths[i]);
	return 0;
}
