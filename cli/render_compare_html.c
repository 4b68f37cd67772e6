/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A comparison as one page that needs no network: the JSON document and the
 * latencies, between the fixed texts of cli/page/. What is drawn is decided
 * there. The data cannot end the element that it is in, nor begin another:
 * no character that means something in HTML is left in it.
 */
#include <errno.h>
#include <stdlib.h>

#include "cli/cmd.h"
#include "cli/msg.h"
#include "cli/output.h"
#include "cli/page.h"
#include "cli/render_compare.h"
#include "cli/render_json.h"

/* [largest ns of the bucket, calls] of every bucket from the first to the last that has any; the edges are 0. */
static json_t *histogram_array(const uint64_t hist[AT_HIST_CNT])
{
	json_t *buckets = json_array();
	int first = 0, last = AT_HIST_CNT - 1;

	while (first < AT_HIST_CNT && !hist[first])
		first++;
	while (last >= first && !hist[last])
		last--;
	for (int i = first > 0 ? first - 1 : first; first <= last && i <= last + 1 && i < AT_HIST_CNT; i++)
		json_array_append_new(buckets,
				      json_pack("[I, I]", (json_int_t)at_hist_upper_ns(i), (json_int_t)hist[i]));
	return buckets;
}

static json_t *histograms_object(const struct compare_report *report, const struct comparison *comparison)
{
	json_t *configs = json_object();

	for (size_t config = 0; config < comparison->config_cnt; config++) {
		json_t *classes = json_object();

		for (int class = 1; class < AT_CLASS_CNT; class ++) {
			json_t *buckets = histogram_array(compare__histogram(comparison, config, class));

			if (class != AT_CLASS_MADVISE_PHASE && json_array_size(buckets))
				json_object_set(classes, profile__class_name(class), buckets);
			json_decref(buckets);
		}
		json_object_set_new(configs, report->configs->all[config].name, classes);
	}
	return configs;
}

static void write_escaped(FILE *out, const char *json)
{
	for (const char *at = json; *at; at++)
		if (*at == '<' || *at == '>' || *at == '&')
			fprintf(out, "\\u%04x", *at);
		else
			fputc(*at, out);
}

static int render(FILE *out, const void *data)
{
	const struct compare_report *report = data;
	json_t *document = json_object(), *histograms = json_array();
	char *text;

	json_object_set_new(document, "comparison", render_json__comparison(report));
	for (size_t i = 0; i < report->program_cnt; i++)
		json_array_append_new(histograms, histograms_object(report, report->programs[i].comparison));
	json_object_set_new(document, "histograms", histograms);
	text = json_dumps(document, JSON_COMPACT | JSON_ENSURE_ASCII);
	json_decref(document);
	if (!text)
		return -ENOMEM;
	fputs(page_head, out);
	write_escaped(out, text);
	fputs(page_tail, out);
	free(text);
	return 0;
}

int render_compare__open_page(struct output *page, const char *name)
{
	if (page_head[0])
		return output__open(page, name);
	msg__error("--html: this alloctrace was built without Chart.js, which draws the page; install it (Debian: "
		   "libjs-chart.js) and build again");
	return AT_EXIT_OWN;
}

int render_compare__write_page(struct output *page, const struct compare_report *report)
{
	return output__write(page, render, report);
}
