/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Misuse ends in one line on stderr and SIGABRT (B71): never in overlapping
 * blocks, never in an unmap of somebody else's memory. A second free of a small
 * block may be seen only when the block would be handed out again.
 */
#include "tests/alloc/preload.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Sizes that a slab, a page run, and a mapping of their own serve. */
static const size_t sizes[] = {16, 1000, 4096, 5000, 100000, 600 << 10, 2 << 20, 32 << 20};

/* Runs misuse(bytes) in a child: it must abort and say `text`. */
static void expect_abort(void (*misuse)(size_t), size_t bytes, const char *text)
{
	char said[512];
	size_t said_bytes = 0;
	int fds[2], status;
	ssize_t got;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		signal(SIGABRT, SIG_DFL);
		dup2(fds[1], 2);
		close(fds[0]);
		misuse(bytes);
		_exit(0);
	}
	close(fds[1]);
	while ((got = read(fds[0], said + said_bytes, sizeof(said) - 1 - said_bytes)) > 0)
		said_bytes += (size_t)got;
	said[said_bytes] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
		fail_msg("%zu bytes: no abort, status %#x, said '%s'", bytes, status, said);
	if (!strstr(said, text) || strncmp(said, "atmalloc: ", 10) != 0 || strchr(said, '\n') != said + said_bytes - 1)
		fail_msg("%zu bytes: said '%s', not one line with '%s'", bytes, said, text);
}

/* Asks for blocks until the double free is seen; no block may come twice. */
static void use_blocks(size_t bytes)
{
	static void *blocks[600];

	if (bytes > 16384)
		return; /* seen at once */
	for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks); i++) {
		blocks[i] = malloc(bytes);
		for (size_t j = 0; j < i; j++)
			if (blocks[i] == blocks[j])
				_exit(3);
	}
}

static void free_twice(size_t bytes)
{
	char *volatile p = malloc(bytes);

	free(p);
	free(p);
}

/* With another block of the same size in between, and the slab not empty. */
static void free_twice_later(size_t bytes)
{
	char *volatile p = malloc(bytes), *q = malloc(bytes), *keep = malloc(bytes);

	memset(p, 1, bytes);
	memset(q, 1, bytes);
	memset(keep, 1, bytes);
	free(p);
	free(q);
	free(p);
	use_blocks(bytes);
}

static void *free_in_thread(void *p)
{
	free(p);
	return NULL;
}

static void free_twice_elsewhere(size_t bytes)
{
	char *volatile p = malloc(bytes);
	pthread_t thread;

	for (int i = 0; i < 2; i++) {
		pthread_create(&thread, NULL, free_in_thread, p);
		pthread_join(thread, NULL);
	}
	use_blocks(bytes);
}

/* The thread exists before the first free: its creation allocates, and might be given the block. */
static pthread_barrier_t first_free_done;

static void *free_second(void *p)
{
	pthread_barrier_wait(&first_free_done);
	free(p);
	return NULL;
}

static void free_here_then_elsewhere(size_t bytes)
{
	char *volatile p = malloc(bytes), *volatile keep = malloc(bytes);
	pthread_t thread;

	(void)keep;
	pthread_barrier_init(&first_free_done, NULL, 2);
	pthread_create(&thread, NULL, free_second, p);
	free(p);
	pthread_barrier_wait(&first_free_done);
	pthread_join(thread, NULL);
	use_blocks(bytes);
}

static void free_elsewhere_then_here(size_t bytes)
{
	char *volatile p = malloc(bytes);
	pthread_t thread;

	pthread_create(&thread, NULL, free_in_thread, p);
	pthread_join(thread, NULL);
	free(p);
	use_blocks(bytes);
}

static void write_after_free(size_t bytes)
{
	char *volatile p = malloc(bytes);

	free(p);
	memset(p, 1, 8);
	use_blocks(bytes);
}

/* A second free anywhere in the life of a small block, with others around it. */
enum { LIVE_MAX = 700, OLD_CNT = 2000 };
static struct {
	char *live[LIVE_MAX], *old[OLD_CNT];
	size_t live_cnt, old_cnt;
	unsigned seed;
} churn;

static unsigned pick(size_t cnt)
{
	churn.seed = churn.seed * 1664525 + 1013904223;
	return cnt ? (churn.seed >> 8) % (unsigned)cnt : 0;
}

static bool is_live(const char *p)
{
	for (size_t i = 0; i < churn.live_cnt; i++)
		if (churn.live[i] == p)
			return true;
	return false;
}

static void churn_malloc(size_t bytes)
{
	char *p = malloc(bytes);

	if (is_live(p))
		_exit(3);
	memset(p, 1, bytes);
	churn.live[churn.live_cnt++] = p;
}

static void churn_free(void)
{
	size_t at = pick(churn.live_cnt);
	char *p = churn.live[at];

	churn.live[at] = churn.live[--churn.live_cnt];
	churn.old[churn.old_cnt++ % OLD_CNT] = p;
	free(p);
}

/* Up and down, with another top each time. */
static void churn_blocks(size_t bytes, unsigned step_cnt)
{
	size_t goal = pick(LIVE_MAX);

	for (unsigned i = 0; i < step_cnt; i++) {
		if (churn.live_cnt == goal)
			goal = pick(LIVE_MAX);
		if (churn.live_cnt < goal || churn.live_cnt == 0)
			churn_malloc(bytes);
		else
			churn_free();
	}
}

static void free_twice_somewhere(size_t bytes)
{
	char *p;

	churn_blocks(bytes, 500 + pick(3000));
	while (churn.live_cnt > LIVE_MAX / 8)
		churn_free(); /* so that there are some that are not in use */
	churn_malloc(bytes);
	churn_free();
	do
		p = churn.old[pick(churn.old_cnt < OLD_CNT ? churn.old_cnt : OLD_CNT)];
	while (is_live(p));
	free(p);
	churn_blocks(bytes, pick(3000));
	while (churn.live_cnt < LIVE_MAX)
		churn_malloc(bytes);
	use_blocks(bytes);
}

static void free_inside(size_t bytes)
{
	char *volatile p = malloc(bytes);

	free(p + 16);
}

static void free_inside_page(size_t bytes)
{
	char *volatile p = malloc(bytes);

	free(p + 4096);
}

static void free_stack(size_t bytes)
{
	char buf[64];
	char *volatile p = buf;

	(void)bytes;
	free(p);
}

static void free_foreign(size_t bytes)
{
	char *volatile p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	free(p);
}

static void free_after_cut(size_t bytes)
{
	char *volatile p = malloc(bytes), *volatile q = realloc(p, bytes / 4);

	free(q);
	free(q);
}

static void realloc_freed(size_t bytes)
{
	char *volatile p = malloc(bytes);

	free(p);
	p = realloc(p, bytes * 2);
}

static void usable_size_of_freed(size_t bytes)
{
	char *volatile p = malloc(bytes), *volatile keep = malloc(bytes);

	(void)keep;
	free(p);
	if (malloc_usable_size(p) < bytes)
		_exit(1);
}

static void usable_size_inside(size_t bytes)
{
	char *volatile p = malloc(bytes);

	if (malloc_usable_size(p + 16) < bytes)
		_exit(1);
}

static void realloc_freed_in_place(size_t bytes)
{
	char *volatile p = malloc(bytes), *volatile keep = malloc(bytes);

	(void)keep;
	free(p);
	p = realloc(p, bytes);
}

static void realloc_inside(size_t bytes)
{
	char *volatile p = malloc(bytes);

	p = realloc(p + 16, bytes);
}

/* The C library may not have it yet. */
static void (*free_sized_of_ours)(void *p, size_t bytes);
static void (*free_aligned_sized_of_ours)(void *p, size_t align, size_t bytes);

static void free_sized_too_long(size_t bytes)
{
	char *volatile p = malloc(bytes);

	free_sized_of_ours(p, malloc_usable_size(p) + 1);
}

static void free_sized_twice(size_t bytes)
{
	char *volatile p = malloc(bytes), *volatile keep = malloc(bytes);

	(void)keep;
	free_sized_of_ours(p, bytes);
	free_sized_of_ours(p, bytes);
}

static void free_aligned_sized_elsewhere(size_t bytes)
{
	char *volatile p = malloc(bytes);

	free_aligned_sized_of_ours(p, (size_t)1 << 46, bytes);
}

static void double_frees(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		expect_abort(free_twice, sizes[i], "double free");
		expect_abort(free_twice_later, sizes[i], "double free");
		expect_abort(free_twice_elsewhere, sizes[i], "double free");
		expect_abort(free_here_then_elsewhere, sizes[i], "double free");
	}
	expect_abort(free_elsewhere_then_here, 16, "double free");
	expect_abort(free_elsewhere_then_here, 1000, "double free");
	expect_abort(write_after_free, 16, "written to after its free");
	expect_abort(write_after_free, 1000, "written to after its free");
}

static void double_frees_in_any_state(void **state)
{
	static const size_t small[] = {16, 100, 1000, 3000};

	(void)state;
	for (unsigned i = 0; i < 120; i++) {
		churn.seed = i * 2654435761u;
		expect_abort(free_twice_somewhere, small[i % 4], "");
	}
}

/* With policy commit off, a freed large block is unmapped: nothing is known of it. */
static void double_frees_of_unmapped(void **state)
{
	(void)state;
	assert_int_equal(preload.set_policy("none"), 0);
	expect_abort(free_twice, 2 << 20, "not an allocated block");
	expect_abort(free_twice_elsewhere, 32 << 20, "not an allocated block");
	assert_int_equal(preload.set_policy("all"), 0);
}

/* Large blocks are known by their addresses alone. */
static const char *inside_word(size_t bytes)
{
	return bytes < 1 << 20 ? "not the start of a block" : "not an allocated block";
}

static void wrong_addresses(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		if (sizes[i] > 16)
			expect_abort(free_inside, sizes[i], inside_word(sizes[i]));
	expect_abort(free_inside_page, 100000, "block");
	expect_abort(free_inside_page, 2 << 20, "not an allocated block");
	expect_abort(free_stack, 0, "not an allocated block");
	expect_abort(free_foreign, 4096, "not an allocated block");
	expect_abort(free_foreign, 4 << 20, "not an allocated block");
}

static void after_realloc(void **state)
{
	(void)state;
	expect_abort(free_after_cut, 8 << 20, "double free");
	expect_abort(free_after_cut, 2 << 20, "not an allocated block");
	expect_abort(realloc_freed, 100000, "double free");
	expect_abort(realloc_freed, 8 << 20, "use after free");
}

/* What takes a block without freeing it knows a wrong one, too. */
static void uses(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		expect_abort(usable_size_of_freed, sizes[i], "after free");
		expect_abort(realloc_freed_in_place, sizes[i], "after free");
		if (sizes[i] > 16) {
			expect_abort(usable_size_inside, sizes[i], inside_word(sizes[i]));
			expect_abort(realloc_inside, sizes[i], inside_word(sizes[i]));
		}
	}
}

static void sized_frees(void **state)
{
	(void)state;
	*(void **)&free_sized_of_ours = dlsym(RTLD_DEFAULT, "free_sized");
	*(void **)&free_aligned_sized_of_ours = dlsym(RTLD_DEFAULT, "free_aligned_sized");
	assert_true(free_sized_of_ours && free_aligned_sized_of_ours);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		free_sized_of_ours(malloc(sizes[i]), sizes[i]);
		free_aligned_sized_of_ours(aligned_alloc(64, sizes[i]), 64, sizes[i]);
		expect_abort(free_sized_too_long, sizes[i], "free_sized");
		expect_abort(free_sized_twice, sizes[i], "free");
		expect_abort(free_aligned_sized_elsewhere, sizes[i], "free_aligned_sized");
	}
	free_sized_of_ours(NULL, 100);
	free_aligned_sized_of_ours(NULL, 64, 128);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(double_frees),
		cmocka_unit_test(double_frees_in_any_state),
		cmocka_unit_test(double_frees_of_unmapped),
		cmocka_unit_test(wrong_addresses),
		cmocka_unit_test(after_realloc),
		cmocka_unit_test(uses),
		cmocka_unit_test(sized_frees),
	};

	return cmocka_run_group_tests(tests, preload__find, NULL);
}
