/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Code paths for people. A line a function; a caller with one callee continues
 * without indentation, figures stand where paths part. What makes up less than
 * a hundredth of its class's time is summed up in a line.
 */
#include "cli/render_callchain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/callchain.h"
#include "cli/format.h"
#include "cli/render.h"

enum { TEXT_BYTES = 1024, SMALL_PERCENT = 1, INDENT_MAX = 60 };

struct node {
	const struct callchain_frame *frame; /* NULL: a mark instead of a frame */
	char *mark;                          /* "[unknown: ...]" */
	bool is_guess;
	uint64_t call_cnt, sum_ns;
	struct node **children;
	size_t child_cnt;
};

static void node__free(struct node *node)
{
	if (!node)
		return;
	for (size_t i = 0; i < node->child_cnt; i++)
		node__free(node->children[i]);
	free(node->children);
	free(node->mark);
	free(node);
}

static bool is_same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

/* To a reader the same place. */
static bool is_same_place(const struct callchain_frame *a, const struct callchain_frame *b)
{
	if (!a || !b || !is_same_text(a->module, b->module))
		return false;
	if (!a->function || !b->function)
		return !a->function && !b->function && a->address == b->address;
	return strcmp(a->function, b->function) == 0 && is_same_text(a->file, b->file) && a->line == b->line;
}

static struct node *find_child(const struct node *parent, const struct callchain_frame *frame, const char *mark,
			       bool is_guess)
{
	for (size_t i = 0; i < parent->child_cnt; i++) {
		struct node *child = parent->children[i];

		if (mark ? child->mark && strcmp(child->mark, mark) == 0
			 : !child->mark && child->is_guess == is_guess && is_same_place(child->frame, frame))
			return child;
	}
	return NULL;
}

/* The child, new where there is none like it; NULL when out of memory. */
static struct node *add_child(struct node *parent, const struct callchain_frame *frame, const char *mark, bool is_guess)
{
	struct node *child = find_child(parent, frame, mark, is_guess), **children;

	if (child)
		return child;
	children = reallocarray(parent->children, parent->child_cnt + 1, sizeof(struct node *));
	if (!children)
		return NULL;
	parent->children = children;
	child = calloc(1, sizeof(*child));
	if (!child)
		return NULL;
	child->frame = frame;
	child->is_guess = is_guess;
	if (mark && !(child->mark = strdup(mark))) {
		free(child);
		return NULL;
	}
	children[parent->child_cnt++] = child;
	return child;
}

static void node__add(struct node *node, const struct callchain_path *path)
{
	node->call_cnt += path->call_cnt;
	node->sum_ns += path->sum_ns;
}

/* One path into the tree, from its outermost frame. */
static int add_path(struct node *root, const struct callchains *chains, const struct callchain_path *path)
{
	const struct callchain_chain *chain = &chains->chains[path->chain];
	char buf[TEXT_BYTES];
	const char *mark = callchain__end(chains, chain, buf, sizeof(buf));
	struct node *node = root;

	node__add(root, path);
	if (mark[0]) {
		node = add_child(root, NULL, mark, false);
		if (!node)
			return -ENOMEM;
		node__add(node, path);
	}
	for (uint32_t i = chain->cnt; i-- > 0;) {
		node = add_child(node, callchain__frame(chains, chain, i), NULL, i >= chain->guess_from);
		if (!node)
			return -ENOMEM;
		node__add(node, path);
	}
	return 0;
}

static int compare_nodes(const void *a, const void *b)
{
	const struct node *x = *(const struct node *const *)a, *y = *(const struct node *const *)b;

	if (x->sum_ns != y->sum_ns)
		return x->sum_ns < y->sum_ns ? 1 : -1;
	return x->call_cnt < y->call_cnt ? 1 : x->call_cnt > y->call_cnt ? -1 : 0;
}

static void sort_tree(struct node *node)
{
	if (node->child_cnt)
		qsort(node->children, node->child_cnt, sizeof(struct node *), compare_nodes);
	for (size_t i = 0; i < node->child_cnt; i++)
		sort_tree(node->children[i]);
}

static double percent(uint64_t part, uint64_t all)
{
	return all ? 100.0 * part / all : 0;
}

static void print_name(FILE *out, const struct node *node)
{
	const struct callchain_frame *frame = node->frame;
	char name[TEXT_BYTES], text[TEXT_BYTES];

	if (node->mark) {
		fprintf(out, "%s\n", format__escape(node->mark, text, sizeof(text)));
		return;
	}
	fputs(format__escape(callchain__name(frame, name, sizeof(name)), text, sizeof(text)), out);
	if (frame->file)
		fprintf(out, "  (%s:%u)", format__escape(callchain__base_name(frame->file), text, sizeof(text)),
			frame->line);
	else if (frame->function && frame->module)
		fprintf(out, "  [%s]", format__escape(callchain__base_name(frame->module), text, sizeof(text)));
	fputs(node->is_guess ? "  (guess)\n" : "\n", out);
}

static void print_figures(FILE *out, uint64_t call_cnt, uint64_t sum_ns, const struct node *root, int indent)
{
	char cnt[FORMAT_BYTES], ns[FORMAT_BYTES];

	fprintf(out, "%5.1f %% %11s %10s  %*s", percent(sum_ns, root->sum_ns), format__count(call_cnt, cnt),
		format__ns(sum_ns, ns), indent < INDENT_MAX ? indent : INDENT_MAX, "");
}

static void print_tree(FILE *out, const struct node *node, const struct node *root, int indent, bool has_figures)
{
	uint64_t rest_cnt = 0, rest_ns = 0, child_calls = 0;
	size_t rest_paths = 0, shown_cnt = 0;

	if (node != root) {
		if (has_figures)
			print_figures(out, node->call_cnt, node->sum_ns, root, indent);
		else
			fprintf(out, "%*s", 32 + (indent < INDENT_MAX ? indent : INDENT_MAX), "");
		print_name(out, node);
	}
	for (size_t i = 0; i < node->child_cnt; i++) {
		child_calls += node->children[i]->call_cnt;
		if (percent(node->children[i]->sum_ns, root->sum_ns) >= SMALL_PERCENT)
			shown_cnt++;
	}
	if (node->child_cnt == 1 && child_calls == node->call_cnt && node != root) {
		print_tree(out, node->children[0], root, indent, false);
		return;
	}
	for (size_t i = 0; i < node->child_cnt; i++) {
		const struct node *child = node->children[i];

		/* At least the worst is shown. */
		if (i < shown_cnt || !i) {
			print_tree(out, child, root, node == root ? 0 : indent + 2, true);
			continue;
		}
		rest_paths++;
		rest_cnt += child->call_cnt;
		rest_ns += child->sum_ns;
	}
	if (!rest_paths)
		return;
	print_figures(out, rest_cnt, rest_ns, root, node == root ? 0 : indent + 2);
	fprintf(out, "%zu more, each less than %d %%\n", rest_paths, SMALL_PERCENT);
}

/* "program 12, allocator 3": whose calls they are. */
static void print_origins(FILE *out, const uint64_t cnt[CALLCHAIN_ORIGIN_CNT])
{
	const char *separator = "by ";
	char text[FORMAT_BYTES];

	for (int origin = 0; origin < CALLCHAIN_ORIGIN_CNT; origin++)
		if (cnt[origin]) {
			fprintf(out, "%s%s %s", separator, callchain__origin_name(origin),
				format__count(cnt[origin], text));
			separator = ", ";
		}
}

static int print_class(FILE *out, const struct profile *profile, enum at_class class, int phase)
{
	const struct callchains *chains = profile->callchains;
	struct node *root = calloc(1, sizeof(*root));
	uint64_t origins[CALLCHAIN_ORIGIN_CNT] = {0};
	char cnt[FORMAT_BYTES], ns[FORMAT_BYTES];
	int err = root ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < chains->path_cnt; i++) {
		const struct callchain_path *path = &chains->paths[i];

		if (path->class != class || (phase >= 0 && path->phase != phase))
			continue;
		origins[chains->chains[path->chain].origin] += path->call_cnt;
		err = add_path(root, chains, path);
	}
	if (!err && root->call_cnt) {
		fprintf(out, "\n%s: %s calls, %s; ", profile__class_name(class), format__count(root->call_cnt, cnt),
			format__ns(root->sum_ns, ns));
		print_origins(out, origins);
		fputc('\n', out);
		sort_tree(root);
		print_tree(out, root, root, 0, true);
	}
	node__free(root);
	return err;
}

struct class_order {
	enum at_class class;
	uint64_t sum_ns;
};

static int compare_classes(const void *a, const void *b)
{
	const struct class_order *x = a, *y = b;

	return x->sum_ns < y->sum_ns ? 1 : x->sum_ns > y->sum_ns ? -1 : (int)x->class - (int)y->class;
}

static void print_losses(FILE *out, const struct callchains *chains)
{
	char cnt[FORMAT_BYTES];

	if (chains->lost_cnt)
		fprintf(out, "%s calls without their callchain: no room for more\n",
			format__count(chains->lost_cnt, cnt));
	if (chains->cut_lost_cnt)
		fprintf(out, "%s callchains cut because too many ended in new code at once\n",
			format__count(chains->cut_lost_cnt, cnt));
	if (chains->note_lost_cnt)
		fprintf(out, "%s changes of mappings missed: callchains may be cut\n",
			format__count(chains->note_lost_cnt, cnt));
	if (chains->table_lost_cnt)
		fprintf(out, "%s unwind tables without room: callchains may be cut\n",
			format__count(chains->table_lost_cnt, cnt));
}

int render_callchain__tree(FILE *out, const struct profile *profile)
{
	int phase = render__has_phases(profile) ? AT_PHASE_MEASURED : -1, err = 0;
	const struct callchains *chains = profile->callchains;
	struct class_order order[AT_CLASS_CNT] = {{0}};

	for (int class = 0; class < AT_CLASS_CNT; class ++)
		order[class].class = (enum at_class) class;
	for (size_t i = 0; i < chains->path_cnt; i++)
		if (phase < 0 || chains->paths[i].phase == phase)
			order[chains->paths[i].class].sum_ns += chains->paths[i].sum_ns;
	qsort(order, AT_CLASS_CNT, sizeof(order[0]), compare_classes);
	fprintf(out, "\nCallchains%s%s\n", phase < 0 ? "" : " of phase ",
		phase < 0 ? "" : profile__phase_name((enum at_phase)phase));
	print_losses(out, chains);
	for (size_t i = 0; !err && i < AT_CLASS_CNT; i++)
		if (order[i].class && order[i].class != AT_CLASS_MADVISE_PHASE)
			err = print_class(out, profile, order[i].class, phase);
	return err;
}
