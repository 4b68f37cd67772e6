/* SPDX-License-Identifier: BSD-2-Clause */
/* Writing a report; see output.h. */
#include "cli/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/msg.h"
#include "cli/plot.h"

/* The text beside a picture has 104 columns at most, and nearly always 90. */
enum { PLOT_TERMINAL_MIN = 100, PLOT_TEXT_COLUMNS = 104, PLOT_MIN = 10, PLOT_MAX = 24 };

static int out_of_memory(void)
{
	msg__error("out of memory");
	return AT_EXIT_OWN;
}

int output__open(struct output *output, const char *name)
{
	output->name = name;
	output->file = !name ? stderr : strcmp(name, "-") == 0 ? stdout : fopen(name, "we");
	if (output->file)
		return 0;
	msg__error("cannot write the report to '%s': %s", name, strerror(errno));
	return AT_EXIT_OWN;
}

bool output__wants_color(const struct output *output, enum color color)
{
	if (color != COLOR_AUTO)
		return color == COLOR_ALWAYS;
	return isatty(fileno(output->file)) && !getenv("NO_COLOR");
}

struct look output__look(const struct output *output, const struct look_opts *opts)
{
	struct look look = {.has_color = output__wants_color(output, opts->color),
			    .is_ascii = !plot__is_utf8() || opts->is_ascii};
	int columns = plot__columns(output->file);

	if (opts->plot == COLOR_NEVER || (opts->plot == COLOR_AUTO && columns < PLOT_TERMINAL_MIN))
		return look;
	look.plot_columns = columns - PLOT_TEXT_COLUMNS;
	if (!columns || look.plot_columns > PLOT_MAX)
		look.plot_columns = PLOT_MAX;
	if (look.plot_columns < PLOT_MIN)
		look.plot_columns = PLOT_MIN;
	return look;
}

static int write_text(struct output *output, int (*render)(FILE *out, const void *data), const void *data, bool is_last)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *memory = open_memstream(&text, &bytes);
	int err;

	if (!memory)
		return out_of_memory();
	err = render(memory, data);
	if (ferror(memory))
		err = -ENOMEM;
	if (fclose(memory) || err) {
		free(text);
		return out_of_memory();
	}
	errno = 0;
	if (fwrite(text, 1, bytes, output->file) != bytes || fflush(output->file) ||
	    (is_last && output->name && output->file != stdout && fclose(output->file)))
		err = errno ? -errno : -EIO;
	free(text);
	/* A reader that has seen enough is no failure of ours. */
	if (!err || err == -EPIPE)
		return 0;
	msg__error("cannot write the report to '%s': %s", output->name ? output->name : "stderr", strerror(-err));
	return AT_EXIT_OWN;
}

int output__write(struct output *output, int (*render)(FILE *out, const void *data), const void *data)
{
	return write_text(output, render, data, true);
}

int output__write_part(struct output *output, int (*render)(FILE *out, const void *data), const void *data)
{
	return write_text(output, render, data, false);
}
