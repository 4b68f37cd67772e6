/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every entry of the malloc family, at its edges. Expected values are those of
 * the C and POSIX standards and, where these leave a choice, of glibc 2.36.
 */
#include "tests/alloc/preload.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

static const size_t sizes[] = {0,      1,      15,     16,      17,      100,     1000,    1025,
			       2048,   4095,   4096,   4097,    5000,    12288,   16384,   16385,
			       100000, 196608, 524289, 1048575, 1048576, 1048577, 3000000, 33554432};
#define SIZE_CNT (sizeof(sizes) / sizeof(*sizes))

/* Not known to the compiler, which would warn. */
static volatile size_t half_max = SIZE_MAX / 2, size_max = SIZE_MAX, odd_align = 24, no_align;

static bool is_aligned(const void *p, size_t align)
{
	return ((uintptr_t)p & (align - 1)) == 0;
}

static void all_sizes(void **state)
{
	(void)state;
	for (size_t i = 0; i < SIZE_CNT; i++) {
		unsigned char *p = malloc(sizes[i]);
		size_t usable = malloc_usable_size(p);

		assert_non_null(p);
		assert_true(is_aligned(p, 16));
		assert_true(usable >= sizes[i]);
		memset(p, 0xa5, usable); /* B46: all of it is the program's */
		assert_int_equal(malloc_usable_size(p), usable);
		free(p);
	}
	assert_int_equal(malloc_usable_size(NULL), 0);
	free(NULL);
}

/* B46: writing all usable bytes of every block damages no other. */
static void usable_bytes_do_not_overlap(void **state)
{
	static unsigned char *blocks[3000];

	(void)state;
	for (size_t i = 0; i < 3000; i++) {
		blocks[i] = malloc(i * 23 + 1);
		assert_non_null(blocks[i]);
		memset(blocks[i], (int)(i % 251), malloc_usable_size(blocks[i]));
	}
	for (size_t i = 0; i < 3000; i++) {
		size_t usable = malloc_usable_size(blocks[i]);

		for (size_t j = 0; j < usable; j += j < 64 || j + 64 > usable ? 1 : 61)
			assert_int_equal(blocks[i][j], i % 251);
		free(blocks[i]);
	}
}

static void calloc_is_zero(void **state)
{
	(void)state;
	for (int round = 0; round < 3; round++)
		for (size_t i = 0; i < SIZE_CNT; i++) {
			unsigned char *p = calloc(1, sizes[i]), *dirty;

			assert_non_null(p);
			for (size_t j = 0; j < sizes[i]; j++)
				if (p[j])
					fail_msg("byte %zu of %zu is not zero", j, sizes[i]);
			memset(p, 0xff, sizes[i]);
			free(p);
			dirty = malloc(sizes[i]);
			memset(dirty, 0xff, sizes[i]);
			free(dirty);
		}
	errno = 0;
	assert_null(calloc(half_max, 3));
	assert_int_equal(errno, ENOMEM);
	errno = 0;
	assert_null(reallocarray(NULL, half_max, 3));
	assert_int_equal(errno, ENOMEM);
}

/* B44, glibc's choices. */
static void zero_sizes(void **state)
{
	void *a = malloc(0), *b = malloc(0), *c = realloc(NULL, 0), *d = malloc(100);

	(void)state;
	assert_non_null(a);
	assert_non_null(b);
	assert_non_null(c);
	assert_true(a != b && b != c && a != c);
	errno = 4711;
	assert_null(realloc(d, 0));
	assert_int_equal(errno, 4711);
	free(a);
	free(b);
	free(c);
}

/* B47: up to the smaller of old usable and new size nothing is lost. */
static void realloc_keeps_contents(void **state)
{
	(void)state;
	for (size_t i = 0; i < SIZE_CNT; i++)
		for (size_t j = 0; j < SIZE_CNT; j++) {
			unsigned char *p = malloc(sizes[i]), *q;
			size_t usable = malloc_usable_size(p), kept;

			if (sizes[j] == 0) {
				free(p);
				continue;
			}
			for (size_t k = 0; k < usable; k += k < 4096 ? 1 : 1021)
				p[k] = (unsigned char)(k * 7 + i);
			q = realloc(p, sizes[j]);
			assert_non_null(q);
			assert_true(malloc_usable_size(q) >= sizes[j]);
			kept = usable < sizes[j] ? usable : sizes[j];
			for (size_t k = 0; k < kept; k += k < 4096 ? 1 : 1021)
				if (q[k] != (unsigned char)(k * 7 + i))
					fail_msg("%zu -> %zu: byte %zu lost", sizes[i], sizes[j], k);
			free(q);
		}
}

/* B43. */
static void odd_alignments(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *p = memalign(no_align, 8), *q = valloc(0), *r = memalign(odd_align, 8), *s = aligned_alloc(64, 1),
	     *t = pvalloc(1);

	(void)state;
	assert_non_null(p);
	assert_non_null(q);
	assert_non_null(r);
	assert_non_null(s);
	assert_non_null(t);
	assert_true(is_aligned(q, page));
	assert_true(is_aligned(r, 32));
	assert_true(is_aligned(s, 64));
	assert_true(is_aligned(t, page));
	assert_true(malloc_usable_size(t) >= page);
	free(p);
	free(q);
	free(r);
	free(s);
	free(t);
	errno = 0;
	assert_null(pvalloc(size_max));
	assert_int_equal(errno, ENOMEM);
	errno = 0;
	assert_null(memalign(size_max, 1));
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_null(aligned_alloc(no_align, 8)); /* C17, and glibc since 2.38 */
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_null(aligned_alloc(odd_align, 48));
	assert_int_equal(errno, EINVAL);
	p = (void *)4711;
	errno = 4711;
	assert_int_equal(posix_memalign(&p, 24, 8), EINVAL);
	assert_int_equal(posix_memalign(&p, 4, 8), EINVAL);
	assert_int_equal(posix_memalign(&p, 0, 8), EINVAL);
	assert_int_equal(errno, 4711);
	assert_int_equal(posix_memalign(&p, 64, half_max), ENOMEM);
	assert_int_equal(errno, ENOMEM); /* as glibc */
	assert_ptr_equal(p, (void *)4711);
}

static void all_alignments(void **state)
{
	(void)state;
	for (size_t align = 8; align <= (size_t)8 << 20; align *= 2)
		for (size_t i = 0; i < SIZE_CNT; i++) {
			void *p = NULL, *q = NULL;

			assert_int_equal(posix_memalign(&p, align, sizes[i]), 0);
			assert_int_equal(posix_memalign(&q, align, sizes[i]), 0);
			assert_true(is_aligned(p, align) && is_aligned(q, align));
			assert_true(malloc_usable_size(p) >= sizes[i]);
			if (sizes[i]) {
				((char *)p)[0] = ((char *)p)[sizes[i] - 1] = 1;
				((char *)q)[0] = ((char *)q)[sizes[i] - 1] = 2;
				assert_int_equal(((char *)p)[0] + ((char *)p)[sizes[i] - 1], 2);
			}
			free(p);
			free(q);
		}
}

/* B53, and sizes that no machine has. */
static void impossible_sizes(void **state)
{
	static const size_t wrong[] = {SIZE_MAX,        SIZE_MAX - 4096, (size_t)PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1,
				       (size_t)1 << 47, (size_t)1 << 60};
	void *p = malloc(1000), *large = malloc(2 << 20);

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		errno = 0;
		assert_null(malloc(wrong[i]));
		assert_int_equal(errno, ENOMEM);
		errno = 0;
		assert_null(calloc(1, wrong[i]));
		assert_int_equal(errno, ENOMEM);
		errno = 0;
		assert_null(realloc(p, wrong[i]));
		assert_int_equal(errno, ENOMEM);
		errno = 0;
		assert_null(realloc(large, wrong[i]));
		assert_int_equal(errno, ENOMEM);
		assert_null(memalign(64, wrong[i]));
	}
	memset(p, 1, 1000); /* a failed realloc leaves the block alone */
	memset(large, 1, 2 << 20);
	free(p);
	free(large);
}

static void check_aligned(void *p, size_t align, size_t bytes)
{
	if (p && bytes < (size_t)1 << 47) {
		assert_true(is_aligned(p, align) && malloc_usable_size(p) >= bytes);
		free(p);
	} else {
		if (p)
			fail_msg("%zu bytes at a multiple of %zu: served", bytes, align);
		assert_int_equal(errno, ENOMEM);
	}
}

/* Sizes whose sum with the alignment is near a limit, or passes it: served in full, or not at all. */
static void impossible_alignments(void **state)
{
	(void)state;
	for (size_t align = 8; align; align *= 2) {
		const size_t limits[] = {0, align, half_max, half_max - align, size_max, size_max - align};

		for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++)
			for (size_t bytes = limits[i] - 2; bytes != limits[i] + 3; bytes++) {
				void *p = NULL;

				errno = 0;
				check_aligned(memalign(align, bytes), align, bytes);
				errno = 0;
				check_aligned(aligned_alloc(align, bytes), align, bytes);
				errno = posix_memalign(&p, align, bytes);
				check_aligned(p, align, bytes);
			}
	}
}

/* B41: free never changes errno, whatever path it takes. */
static void free_keeps_errno(void **state)
{
	(void)state;
	for (size_t i = 0; i < SIZE_CNT; i++)
		for (int is_resized = 0; is_resized < 2; is_resized++) {
			void *p = malloc(sizes[i]);

			if (is_resized && sizes[i] > 1)
				p = realloc(p, sizes[i] - sizes[i] / 3);
			errno = 4711;
			free(p);
			assert_int_equal(errno, 4711);
		}
	errno = 4711;
	free(malloc(10));
	malloc_trim(0);
	assert_int_equal(errno, 4711);
}

/* A20's shape: the tail of a large shrink is unmapped in place, policy realloc on. */
static void large_shrink_stays_in_place(void **state)
{
	unsigned char *p = malloc(32 << 20), *q;

	(void)state;
	memset(p, 7, 256 << 10);
	q = realloc(p, 256 << 10);
	assert_ptr_equal(q, p);
	assert_int_equal(malloc_usable_size(q), 256 << 10);
	assert_int_equal(q[(256 << 10) - 1], 7);
	free(q);
	/* A small shrink of policy realloc changes nothing, so the slack stays usable. */
	p = malloc(4 << 20);
	q = realloc(p, (4 << 20) - 4096);
	assert_ptr_equal(q, p);
	assert_int_equal(malloc_usable_size(q), 4 << 20);
	memset(q, 1, 4 << 20);
	free(q);
}

static void *free_all(void *arg)
{
	void **blocks = arg;

	for (size_t i = 0; i < SIZE_CNT; i++)
		free(blocks[i]);
	return NULL;
}

static void frees_from_another_thread(void **state)
{
	(void)state;
	for (int round = 0; round < 200; round++) {
		void *blocks[SIZE_CNT];
		pthread_t thread;

		for (size_t i = 0; i < SIZE_CNT; i++) {
			blocks[i] = malloc(sizes[i]);
			assert_non_null(blocks[i]);
		}
		assert_int_equal(pthread_create(&thread, NULL, free_all, blocks), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
	}
}

/*
 * A run of pages in place of a slab: the slab's free blocks left marks there,
 * which must not make the run look freed when another thread frees it unwritten.
 */
static void runs_where_slabs_were(void **state)
{
	static void *small[4000], *runs[64], *pins[5];
	pthread_t thread;

	(void)state;
	for (int round = 0; round < 5; round++) {
		for (size_t i = 0; i < 4000; i++)
			small[i] = malloc(500);
		pins[round] = malloc(20000); /* what lies below is then not the top, and keeps its contents */
		for (size_t i = 4000; i-- > 0;)
			free(small[i]);
		for (size_t i = 0; i < 64; i++)
			runs[i] = malloc(4096);
		for (size_t i = 0; i < 64; i += SIZE_CNT) {
			void *blocks[SIZE_CNT] = {NULL};

			for (size_t j = 0; j < SIZE_CNT && i + j < 64; j++)
				blocks[j] = runs[i + j];
			assert_int_equal(pthread_create(&thread, NULL, free_all, blocks), 0);
			assert_int_equal(pthread_join(thread, NULL), 0);
		}
	}
	for (int round = 0; round < 5; round++)
		free(pins[round]);
}

/* B76: what libc allocates inside comes from us, so that free can take it. */
static void libc_functions_use_us(void **state)
{
	char *line = NULL, *text = NULL, *copy = strdup("abc");
	size_t line_bytes = 0;
	FILE *file = fopen("/proc/self/status", "r");

	(void)state;
	assert_non_null(file);
	assert_true(getline(&line, &line_bytes, file) > 0);
	assert_true(asprintf(&text, "%0500d", 1) == 500);
	assert_true(malloc_usable_size(line) >= line_bytes);
	assert_true(malloc_usable_size(text) >= 501);
	assert_true(malloc_usable_size(copy) >= 4);
	free(line);
	free(text);
	free(copy);
	fclose(file);
	free(realpath("/proc/self/exe", NULL));
}

static void side_entries(void **state)
{
	struct mallinfo2 before = mallinfo2(), after;
	void *p = malloc(64 << 20);
	char *text = NULL;
	size_t text_bytes;
	FILE *stream = open_memstream(&text, &text_bytes);

	(void)state;
	after = mallinfo2();
	assert_int_equal(after.hblks, before.hblks + 1);
	/* A mapping that was kept from an earlier block may be a sixteenth longer. */
	assert_in_range(after.hblkhd - before.hblkhd, 64 << 20, 68 << 20);
	free(p);
	after = mallinfo2();
	assert_int_equal(after.hblks, before.hblks);
	assert_int_equal(after.hblkhd, before.hblkhd);
	assert_int_equal(mallopt(M_MMAP_THRESHOLD, 1 << 20), 1);
	assert_int_equal(mallopt(4711, 1), 0);
	assert_int_equal(malloc_info(1, stream), EINVAL);
	assert_int_equal(malloc_info(0, stream), 0);
	fclose(stream);
	assert_non_null(strstr(text, "</malloc>"));
	free(text);
}

/* B52: works where address space is short, and fails as it should. */
static void little_address_space(void **state)
{
	static const rlim_t limits[] = {256 << 20, 1 << 30};
	int status;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			struct rlimit limit = {limits[i], limits[i]};
			size_t got = 0;

			if (setrlimit(RLIMIT_AS, &limit))
				_exit(10);
			while (got < 1000000 && malloc(1000))
				got++;
			if (got == 1000000)
				_exit(limits[i] > 1000000000 ? 0 : 11);
			/* At least half of what the limit allows came out in small blocks. */
			if (errno != ENOMEM || got * 1000 < limits[i] / 2)
				_exit(12);
			errno = 0;
			_exit(malloc(300 << 20) || errno != ENOMEM ? 13 : 0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
}

/*
 * Fills what RLIMIT_AS allows with equal blocks, and gives a piece of address space back. Once a slab's block or a
 * longer one is refused, there must be no pages left for one that is longer still, nor memory that policy commit holds.
 */
struct filling {
	size_t bytes;
	rlim_t limit;
	size_t left_bytes;
};

static void fill_address_space(void *arg)
{
	static const size_t small[] = {16, 80, 640, 1000, 2500, 5000},
			    longer[] = {16384, 20000, 40000, 262144, 600000, 900000, 1 << 20, 3 << 20};
	const struct filling *filling = arg;
	struct rlimit limit = {filling->limit, filling->limit};
	void *left = mmap(NULL, filling->left_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool has_failed = false;

	if (setrlimit(RLIMIT_AS, &limit) || left == MAP_FAILED)
		_exit(10);
	free(malloc(16 << 20));
	while (malloc(filling->bytes))
		;
	munmap(left, filling->left_bytes);
	for (size_t i = 0; i < sizeof(small) / sizeof(*small); i++) {
		unsigned char *p = malloc(small[i]);

		if (p)
			memset(p, 1, malloc_usable_size(p));
		p = p ? realloc(p, 2 * small[i]) : NULL;
		has_failed |= !p;
		free(p);
	}
	for (size_t i = 0; i < sizeof(longer) / sizeof(*longer); i++) {
		void *p = malloc(longer[i]);

		if (p && has_failed)
			_exit(20 + (int)i);
		has_failed |= !p;
		free(p);
	}
}

static void no_request_fails_before_a_longer_one(void **state)
{
	static const size_t fills[] = {1000, 4104, 12000, 100000, 1 << 20},
			    left[] = {4096, 65536, 600000, 1200000, 2500000};
	int failed_cnt = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(fills) / sizeof(*fills); i++)
		for (size_t j = 0; j < sizeof(left) / sizeof(*left); j++) {
			struct filling filling = {fills[i], (192 << 20) + j * 700000, left[j]};
			int status = child__run(fill_address_space, &filling);

			if (status)
				print_message("filled by %zu, %zu left: status %#x\n", fills[i], left[j], status);
			failed_cnt += status != 0;
		}
	assert_int_equal(failed_cnt, 0);
}

/* Not a cancellation point, as glibc's: the line comes whole. */
static void *say_figures(void *arg)
{
	pthread_cancel(pthread_self());
	malloc_stats();
	*(bool *)arg = true;
	pthread_testcancel();
	return NULL;
}

static void figures_of_a_cancelled_thread(void **state)
{
	bool is_said = false;
	pthread_t thread;
	void *result;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, say_figures, &is_said), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_true(is_said);
	assert_ptr_equal(result, PTHREAD_CANCELED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_sizes),
		cmocka_unit_test(usable_bytes_do_not_overlap),
		cmocka_unit_test(calloc_is_zero),
		cmocka_unit_test(zero_sizes),
		cmocka_unit_test(realloc_keeps_contents),
		cmocka_unit_test(odd_alignments),
		cmocka_unit_test(all_alignments),
		cmocka_unit_test(impossible_sizes),
		cmocka_unit_test(impossible_alignments),
		cmocka_unit_test(free_keeps_errno),
		cmocka_unit_test(large_shrink_stays_in_place),
		cmocka_unit_test(frees_from_another_thread),
		cmocka_unit_test(runs_where_slabs_were),
		cmocka_unit_test(libc_functions_use_us),
		cmocka_unit_test(side_entries),
		cmocka_unit_test(little_address_space),
		cmocka_unit_test(no_request_fails_before_a_longer_one),
		cmocka_unit_test(figures_of_a_cancelled_thread),
	};

	return cmocka_run_group_tests(tests, preload__find, NULL);
}
