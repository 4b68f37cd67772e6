/* SPDX-License-Identifier: BSD-2-Clause */
/* Names, order and origin of code paths. Pure; see callchain.h. */
#include "cli/callchain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *callchain__end_text(enum at_end end)
{
	static const char *const texts[] = {"",
#define X(id, key, text) text,
					    AT_ENDS(X)
#undef X
	};

	return texts[end < AT_END_CNT ? end : 0];
}

const char *callchain__end_name(enum at_end end)
{
	static const char *const names[] = {"invalid",
#define X(id, key, text) key,
					    AT_ENDS(X)
#undef X
	};

	return names[end < AT_END_CNT ? end : 0];
}

const char *callchain__origin_name(enum callchain_origin origin)
{
	static const char *const names[] = {
#define X(id, name) name,
		CALLCHAIN_ORIGINS(X)
#undef X
	};

	return names[origin];
}

const char *callchain__base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

const char *callchain__name(const struct callchain_frame *frame, char *buf, size_t buf_bytes)
{
	if (frame->function && frame->function[0])
		return frame->function;
	if (frame->module)
		snprintf(buf, buf_bytes, "[%s+0x%llx]", callchain__base_name(frame->module),
			 (unsigned long long)frame->address);
	else
		snprintf(buf, buf_bytes, "[0x%llx]", (unsigned long long)frame->address);
	return buf;
}

const char *callchain__end(const struct callchains *chains, const struct callchain_chain *chain, char *buf,
			   size_t buf_bytes)
{
	const char *text = callchain__end_text(chain->end);
	const struct callchain_frame *last = chain->cnt ? callchain__frame(chains, chain, chain->cnt - 1) : NULL;

	if (!text[0])
		return "";
	if (chain->end != AT_END_NO_TABLE)
		snprintf(buf, buf_bytes, "[unknown: %s]", text);
	else
		snprintf(buf, buf_bytes, "[unknown: %s %s]", text,
			 last && last->module ? callchain__base_name(last->module) : "generated code");
	return buf;
}

/* The Go runtime's layer above the system, and its heap. */
static bool is_go_allocator_function(const char *name)
{
	static const char *const starts[] = {"(*mheap)",    "(*pageAlloc)",  "mallocgc",  "persistentalloc",
					     "mmap",        "munmap",        "madvise",   "sysAlloc",
					     "sysReserve",  "sysMap",        "sysUnused", "sysUsed",
					     "sysHugePage", "sysNoHugePage", "sysFree",   "sysFault"};
	static const char package[] = "runtime.";

	if (strncmp(name, package, sizeof(package) - 1) != 0)
		return false;
	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
		if (strncmp(name + sizeof(package) - 1, starts[i], strlen(starts[i])) == 0)
			return true;
	return false;
}

/* Functions of C and C++ that ask an allocator for memory or give it back. */
static bool is_allocator_function(const char *name)
{
	static const char *const names[] = {
		"malloc",          "calloc",
		"realloc",         "free",
		"cfree",           "memalign",
		"aligned_alloc",   "posix_memalign",
		"valloc",          "pvalloc",
		"reallocarray",    "malloc_trim",
		"free_sized",      "free_aligned_sized",
		"operator new",    "operator delete",
		"__libc_malloc",   "__libc_calloc",
		"__libc_realloc",  "__libc_free",
		"__libc_memalign", "_int_malloc",
		"_int_free",       "_int_realloc",
		"sysmalloc",       "systrim",
		"sysmalloc_mmap",  "new_heap",
		"heap_trim",       "grow_heap",
		"shrink_heap",     "arena_get2",
		"tcache_init",     "__malloc_fork_unlock_child",
		"munmap_chunk",    "mremap_chunk",
		"alloc_group",     "alloc_slot",
		"alloc_meta",      "__malloc_alloc_meta",
		"get_meta",        "__libc_malloc_impl",
	};
	size_t bytes = strcspn(name, "(.@[");

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i]) == bytes && strncmp(name, names[i], bytes) == 0)
			return true;
	return strncmp(name, "operator new", 12) == 0 || strncmp(name, "operator delete", 15) == 0 ||
	       strncmp(name, "__rust_alloc", 12) == 0 || strncmp(name, "__rdl_", 6) == 0 ||
	       is_go_allocator_function(name);
}

static bool is_allocator_module(const char *module)
{
	static const char *const names[] = {"libjemalloc", "libmimalloc", "libtcmalloc", "libatmalloc"};
	const char *base = callchain__base_name(module);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strncmp(base, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

static bool is_thread_function(const char *name)
{
	return strncmp(name, "pthread_create", 14) == 0 || strncmp(name, "__pthread_create", 16) == 0 ||
	       strncmp(name, "allocate_stack", 14) == 0 || strcmp(name, "start_thread") == 0 ||
	       strncmp(name, "__nptl_", 7) == 0 || strncmp(name, "pthread_join", 12) == 0;
}

static bool is_loader_module(const char *module)
{
	const char *base = callchain__base_name(module);

	/* Not musl's, which is its C library, too. */
	return strncmp(base, "ld-linux", 8) == 0 || strncmp(base, "ld.so", 5) == 0 || strncmp(base, "ld-2.", 5) == 0;
}

/* The C library and loader in one. Stripped, it does not say which of its functions are malloc's. */
static bool is_musl_module(const char *module)
{
	return strncmp(callchain__base_name(module), "ld-musl", 7) == 0;
}

/*
 * The innermost frame that tells: an allocator's, the loader's, or one that makes threads' stacks.
 * start_thread, which is in every chain of a thread, tells only when it is next to the call.
 */
static enum callchain_origin origin_of(const struct callchains *chains, const struct callchain_chain *chain)
{
	bool is_within_libc = true, is_unsure = false;

	if (!chain->cnt)
		return CALLCHAIN_UNKNOWN;
	for (uint32_t i = 0; i < chain->cnt; i++) {
		const struct callchain_frame *frame = callchain__frame(chains, chain, i);
		const char *name = frame->function ? frame->function : "";

		if ((frame->module && is_allocator_module(frame->module)) || is_allocator_function(name))
			return CALLCHAIN_ALLOCATOR;
		if (is_thread_function(name) && (i < 3 || strcmp(name, "start_thread") != 0))
			return CALLCHAIN_THREADS;
		if (frame->module && is_loader_module(frame->module))
			return CALLCHAIN_LOADER;
		is_within_libc = is_within_libc && frame->module && is_musl_module(frame->module);
		is_unsure |= is_within_libc && !frame->function;
	}
	/* What a cut chain did not come to may have been an allocator's function. */
	if (is_unsure || (chain->end != AT_END_OUTERMOST && chain->end != AT_END_DEEP))
		return CALLCHAIN_UNKNOWN;
	return CALLCHAIN_PROGRAM;
}

static int compare_paths(const void *a, const void *b)
{
	const struct callchain_path *x = a, *y = b;

	if (x->sum_ns != y->sum_ns)
		return x->sum_ns < y->sum_ns ? 1 : -1;
	if (x->call_cnt != y->call_cnt)
		return x->call_cnt < y->call_cnt ? 1 : -1;
	return x->chain < y->chain ? -1 : x->chain > y->chain;
}

void callchain__finish(struct callchains *chains)
{
	for (size_t i = 0; i < chains->chain_cnt; i++)
		chains->chains[i].origin = origin_of(chains, &chains->chains[i]);
	if (chains->path_cnt)
		qsort(chains->paths, chains->path_cnt, sizeof(*chains->paths), compare_paths);
}

void callchain__free(struct callchains *chains)
{
	if (!chains)
		return;
	for (size_t i = 0; i < chains->frame_cnt; i++) {
		free(chains->frames[i].function);
		free(chains->frames[i].module);
		free(chains->frames[i].file);
	}
	free(chains->frames);
	free(chains->frame_of);
	free(chains->chains);
	free(chains->paths);
	free(chains);
}
