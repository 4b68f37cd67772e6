/* SPDX-License-Identifier: BSD-2-Clause */
/* Small pictures of one line; see plot.h. */
#include "cli/plot.h"

#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <sys/ioctl.h>

/* What a picture is drawn with: solid, the solid's end by eighths, the interval, the median in it. */
struct ink {
	const char *solid, *eighths[8], *shade, *mark;
};

static const struct ink unicode = {
	.solid = "\u2588",
	.eighths = {"", "\u258f", "\u258e", "\u258d", "\u258c", "\u258b", "\u258a", "\u2589"},
	.shade = "\u2592",
	.mark = "\u2503",
};
static const struct ink ascii = {
	.solid = "#", .eighths = {"", "#", "#", "#", "#", "#", "#", "#"}, .shade = "-", .mark = "|"};

/* A bar without an interval worth a column ends where it ends, to an eighth of a column. */
static int draw_solid(FILE *out, double columns, int width, const struct ink *ink)
{
	int full = (int)columns, eighth = (int)((columns - full) * 8 + 0.5);

	if (eighth == 8) {
		full++;
		eighth = 0;
	}
	if (full >= width) {
		full = width;
		eighth = 0;
	}
	if (!full && !eighth && columns > 0)
		eighth = 1;
	for (int i = 0; i < full; i++)
		fputs(ink->solid, out);
	fputs(ink->eighths[eighth], out);
	return full + (eighth > 0);
}

void plot__bar(FILE *out, const struct plot_bar *bar, int width, bool is_ascii)
{
	const struct ink *ink = is_ascii ? &ascii : &unicode;
	double scale = width / bar->most;
	int low = (int)(bar->low * scale), median = (int)(bar->median * scale), high = (int)(bar->high * scale),
	    used = 0;

	if (high >= width)
		high = width - 1;
	if (median > high)
		median = high;
	if (low > median)
		low = median;
	if (low == high) {
		used = draw_solid(out, bar->median * scale, width, ink);
	} else {
		for (; used <= high; used++)
			fputs(used < low ? ink->solid : used == median ? ink->mark : ink->shade, out);
	}
	fprintf(out, "%*s", width - used, "");
}

bool plot__is_utf8(void)
{
	setlocale(LC_CTYPE, "");
	return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

int plot__columns(FILE *out)
{
	struct winsize size;

	return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}
