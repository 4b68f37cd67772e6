/* SPDX-License-Identifier: BSD-2-Clause */
/* The figures of a report by name; see figure.h. */
#include "cli/figure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/profile_fields.h"
#include "cli/render_json.h"

/* The phase marker is our own call: no sum has it. */
#define MARKER "madvise.phase"

/* Sums that the document does not have. */
static const struct figure sums[] = {
	{"calls", "", COMPARE_UNIT_CNT, false},
	{"kernel_ns", "", COMPARE_UNIT_NS, false},
	{"faults", "", COMPARE_UNIT_CNT, false},
	{"lost", "", COMPARE_UNIT_CNT, true},
};
enum { SUM_CNT = sizeof(sums) / sizeof(sums[0]) };

/* Short names: X(short, full). */
#define SHORT_NAMES(X)                    \
	X("max_rss", "max_rss_bytes")     \
	X("final_rss", "final_rss_bytes") \
	X("refault.pages", "refault.returned_pages")

/* What percents are of: X(part, whole). `errors` are of their calls anyway. */
#define WHOLES(X)                            \
	X("vmas.peak", "vmas.max_map_count") \
	X("refault.returned_pages", "refault.released_pages")

static bool ends_with(const char *text, const char *end)
{
	size_t bytes = strlen(text), end_bytes = strlen(end);

	return bytes >= end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

static enum compare_unit unit_of(const char *name)
{
	if (ends_with(name, "_ns"))
		return COMPARE_UNIT_NS;
	return ends_with(name, "bytes") ? COMPARE_UNIT_BYTES : COMPARE_UNIT_CNT;
}

static bool is_named(const struct figures *figures, const char *name)
{
	for (size_t i = 0; i < figures->cnt; i++)
		if (strcmp(figures->all[i].name, name) == 0)
			return true;
	return false;
}

/* munmap is a class and a syscall, and both are the same: the first stays. */
static int add(struct figures *figures, const char *name, const char *path, bool is_of_run)
{
	struct figure *grown;

	if (is_named(figures, name))
		return 0;
	grown = reallocarray(figures->all, figures->cnt + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	figures->all = grown;
	grown += figures->cnt++;
	*grown = (struct figure){.unit = unit_of(name), .is_of_run = is_of_run};
	snprintf(grown->name, sizeof(grown->name), "%s", name);
	snprintf(grown->path, sizeof(grown->path), "%s", path);
	return 0;
}

static bool is_of_class_or_syscall(const char *path)
{
	return strncmp(path, "classes/", 8) == 0 || strncmp(path, "syscalls/", 9) == 0;
}

/* Every number below object. name and path: where it is; both are put back. */
static int add_numbers(struct figures *figures, const json_t *object, char *name, char *path, bool is_of_run)
{
	size_t name_bytes = strlen(name), path_bytes = strlen(path);
	const char *key;
	json_t *value;
	int err = 0;

	json_object_foreach((json_t *)object, key, value)
	{
		/* a class is named without "classes", and its calls without "calls" */
		bool is_group = !path_bytes && (strcmp(key, "classes") == 0 || strcmp(key, "syscalls") == 0 ||
						strcmp(key, "rusage") == 0);
		bool is_itself = strcmp(key, "calls") == 0 && is_of_class_or_syscall(path);

		if (!is_group && !is_itself)
			snprintf(name + name_bytes, FIGURE_NAME_BYTES - name_bytes, "%s%s", name_bytes ? "." : "", key);
		snprintf(path + path_bytes, FIGURE_PATH_BYTES - path_bytes, "%s%s", path_bytes ? "/" : "", key);
		if (json_is_object(value))
			err = add_numbers(figures, value, name, path, is_of_run);
		else if (json_is_number(value))
			err = add(figures, name, path, is_of_run);
		name[name_bytes] = path[path_bytes] = 0;
		if (err)
			break;
	}
	return err;
}

/* A profile that has all there can be, so that its document has every key. */
static struct profile *full_profile(void)
{
	struct profile *profile = profile__new();

	if (!profile)
		return NULL;
	fields__set_all(profile_fields, profile);
	profile->phases_seen = 1;
	return profile;
}

int figures__list(struct figures *figures)
{
	struct profile *profile = full_profile();
	json_t *document = profile ? render_json__document(profile) : NULL, *part = json_object();
	char name[FIGURE_NAME_BYTES] = "", path[FIGURE_PATH_BYTES] = "";
	int err = document && part ? 0 : -ENOMEM;

	*figures = (struct figures){0};
	for (int i = 0; i < SUM_CNT && !err; i++)
		err = add(figures, sums[i].name, sums[i].path, sums[i].is_of_run);
	if (!err)
		err = add_numbers(figures, json_object_get(document, "total"), name, path, false);
	if (!err)
		json_object_set(part, "rusage", json_object_get(document, "rusage"));
	if (!err)
		err = add_numbers(figures, part, name, path, true);
	json_decref(part);
	json_decref(document);
	profile__free(profile);
	return err;
}

void figures__free(struct figures *figures)
{
	free(figures->all);
	*figures = (struct figures){0};
}

static const struct figure *find_full(const struct figures *figures, const char *name, size_t bytes)
{
	for (size_t i = 0; i < figures->cnt; i++)
		if (strlen(figures->all[i].name) == bytes && memcmp(figures->all[i].name, name, bytes) == 0)
			return &figures->all[i];
	return NULL;
}

const struct figure *figures__find(const struct figures *figures, const char *name, size_t bytes)
{
#define X(word, full)                                                    \
	if (bytes == sizeof(word) - 1 && memcmp(name, word, bytes) == 0) \
		return find_full(figures, full, sizeof(full) - 1);
	SHORT_NAMES(X)
#undef X
	return find_full(figures, name, bytes);
}

const struct figure *figures__whole(const struct figures *figures, const struct figure *figure)
{
	size_t bytes = strlen(figure->name);

	if (ends_with(figure->name, ".errors"))
		return find_full(figures, figure->name, bytes - strlen(".errors"));
#define X(part, whole)                       \
	if (strcmp(figure->name, part) == 0) \
		return find_full(figures, whole, sizeof(whole) - 1);
	WHOLES(X)
#undef X
	return NULL;
}

/* The detail of a class, syscall or allocator: not worth a place in a list of all. */
static bool is_detail(const struct figure *figure)
{
	return is_of_class_or_syscall(figure->path) ? !ends_with(figure->path, "/calls")
						    : strncmp(figure->path, "self_", 5) == 0 ||
							      strchr(figure->name, '.') != strrchr(figure->name, '.');
}

/* A beginning that a name must have, and whether details are wanted. */
struct filter {
	const char *name;
	size_t bytes;
	bool has_details;
};

static bool passes(const struct figure *figure, const struct filter *filter)
{
	return strncmp(figure->name, filter->name, filter->bytes) == 0 && (filter->has_details || !is_detail(figure));
}

const char *figures__known(const struct figures *figures, const char *name, size_t bytes, char *buf, size_t buf_bytes)
{
	const char *dot = memchr(name, '.', bytes), *last = memrchr(name, '.', bytes);
	const struct figure *class = last ? find_full(figures, name, (size_t)(last - name)) : NULL;
	bool is_class = class && strncmp(class->path, "classes/", 8) == 0;
	const struct filter filters[] = {
		/* "munmap.error": what munmap has; "madvise.dontned": madvise's classes; all */
		{name, is_class ? (size_t)(last - name) : bytes, true},
		{name, dot ? (size_t)(dot - name) : bytes, false},
		{name, 0, false},
	};
	size_t used = 0;

	buf[0] = 0;
	for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]) && !used; i++)
		for (size_t at = 0; at < figures->cnt && used < buf_bytes; at++)
			if (passes(&figures->all[at], &filters[i]))
				used += (size_t)snprintf(buf + used, buf_bytes - used, "%s%s", used ? ", " : "",
							 figures->all[at].name);
	return buf;
}

/* The number at a path; false when there is none. */
static bool number_at(const json_t *object, const char *path, double *value)
{
	char key[FIGURE_PATH_BYTES];

	for (; *path; path += *path == '/') {
		size_t bytes = strcspn(path, "/");

		memcpy(key, path, bytes);
		key[bytes] = 0;
		path += bytes;
		object = json_object_get(object, key);
	}
	*value = json_number_value(object);
	return json_is_number(object);
}

/* Sum of a key over all classes but the marker, of those that are syscalls, or of all. */
static bool sum_classes(const json_t *phase, const char *key, bool has_faults, double *value)
{
	const char *name;
	json_t *class;

	*value = 0;
	json_object_foreach(json_object_get(phase, "classes"), name, class)
	{
		if (strcmp(name, MARKER) != 0 && (has_faults || strncmp(name, "fault.", 6) != 0))
			*value += json_number_value(json_object_get(class, key));
	}
	return json_object_get(phase, "classes");
}

static bool sum_of(const char *name, const json_t *document, const json_t *phase, double *value)
{
	const json_t *self = json_object_get(phase, "self_counts"), *tool = json_object_get(document, "tool");
	double more = 0;
	const char *key;
	json_t *number;

	if (strcmp(name, "kernel_ns") == 0)
		return sum_classes(phase, "kernel_ns", true, value);
	if (strcmp(name, "faults") == 0) {
		bool is_there = number_at(phase, "faults/minor", value) && number_at(phase, "faults/major", &more);

		*value += more;
		return is_there;
	}
	if (strcmp(name, "calls") == 0 && sum_classes(phase, "calls", false, value))
		return true;
	*value = 0;
	json_object_foreach(strcmp(name, "lost") == 0 ? json_object_get(tool, "lost") : (json_t *)self, key, number)
	{
		if (strcmp(key, MARKER) != 0 && strcmp(key, "never_returned") != 0)
			*value += json_number_value(number);
	}
	return strcmp(name, "lost") == 0 ? json_object_get(tool, "lost") : self;
}

/* What the document leaves out where it is 0, by what must be there then. */
static bool is_zero_left_out(const struct figure *figure, const json_t *phase)
{
	double calls;
	char path[FIGURE_PATH_BYTES];

	if (strncmp(figure->path, "decisions/", 10) == 0 || strncmp(figure->path, "self_errors/", 12) == 0)
		return json_object_get(phase, "self_counts");
	if (strncmp(figure->path, "vmas/growth/", 12) == 0)
		return json_object_get(phase, "vmas");
	if (strncmp(figure->path, "classes/", 8) != 0)
		return false;
	/* durations of no call */
	snprintf(path, sizeof(path), "%.*scalls", (int)(strrchr(figure->path, '/') + 1 - figure->path), figure->path);
	return number_at(phase, path, &calls) && calls == 0;
}

/* What the phase marker has in a figure of its syscall. */
static double marker_part(const struct figure *figure, const json_t *phase)
{
	char path[FIGURE_PATH_BYTES];
	double part;

	if (strncmp(figure->path, "syscalls/madvise/", 17) != 0)
		return 0;
	snprintf(path, sizeof(path), "classes/" MARKER "/%s", figure->path + 17);
	return number_at(phase, path, &part) ? part : 0;
}

bool figure__in_phase(const struct figure *figure, const json_t *document, const json_t *phase, double *value)
{
	char path[FIGURE_PATH_BYTES + 16];

	if (!figure->path[0])
		return sum_of(figure->name, document, phase, value);
	if (number_at(figure->is_of_run ? document : phase, figure->path, value)) {
		*value -= marker_part(figure, phase);
		return true;
	}
	*value = 0;
	if (!figure->is_of_run && is_zero_left_out(figure, phase))
		return true;
	/* Not traced: as the allocator counted itself. */
	if (json_object_get(phase, "classes") || strncmp(figure->path, "classes/", 8) != 0 ||
	    !ends_with(figure->path, "/calls"))
		return false;
	snprintf(path, sizeof(path), "self_counts/%s", figure->name);
	return number_at(phase, path, value);
}

/* The figure of a comparison with this key, '.' and '_' alike; -1: none. */
static int find_key(const char *name)
{
	char key[COMPARE_NAME_BYTES];

	for (int figure = COMPARE_PROCESS; figure < COMPARE_FIGURE_CNT; figure++) {
		const char *at = compare__key(figure, key), *want = name;

		while (*at && (*at == *want || (*at == '_' && *want == '.')))
			at++, want++;
		if (!*at && !*want)
			return figure;
	}
	return -1;
}

size_t figure__parts(const struct figure *figure, enum compare_figure parts[FIGURE_PART_MAX])
{
	bool is_time = figure->unit == COMPARE_UNIT_NS;
	int first = is_time ? COMPARE_CLASS_KERNEL : COMPARE_CLASS_CALLS, key;
	const char *name = strchr(figure->path, '/');
	const char *rest = name ? strchr(name + 1, '/') : NULL;
	bool is_faults = strncmp(figure->name, "faults", 6) == 0;
	size_t cnt = 0;

	if (strcmp(figure->name, "calls") == 0 || strcmp(figure->name, "kernel_ns") == 0) {
		parts[0] = is_time ? COMPARE_KERNEL : COMPARE_CALLS;
		return 1;
	}
	key = find_key(figure->name);
	if (key >= 0) {
		parts[0] = key;
		return 1;
	}
	if (!is_faults && (!rest || (strcmp(rest, "/calls") != 0 && strcmp(rest, "/kernel_ns") != 0)))
		return 0;
	for (int class = 1; class < AT_CLASS_CNT; class ++) {
		const char *class_name = profile__class_name(class);
		const char *syscall = profile__syscall_name(profile__class_syscall(class));
		size_t bytes = rest ? (size_t)(rest - name - 1) : 0;
		bool is_part;

		if (is_faults)
			is_part = !syscall &&
				  (strcmp(figure->name, "faults") == 0 || is_time ||
				   strcmp(class_name + strlen("fault."), figure->name + strlen("faults.")) == 0);
		else if (strncmp(figure->path, "classes/", 8) == 0)
			is_part = strlen(class_name) == bytes && memcmp(class_name, name + 1, bytes) == 0;
		else
			is_part = class != AT_CLASS_MADVISE_PHASE && syscall && strlen(syscall) == bytes &&
				  memcmp(syscall, name + 1, bytes) == 0;
		if (is_part)
			parts[cnt++] = first + class;
	}
	return cnt;
}
