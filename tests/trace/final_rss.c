/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads fill memory and give half of it back; then, as the last thing before
 * the end, what the kernel finds resident page by page (smaps_rollup) is written.
 * Arguments: pages a thread, threads; "child": a child does it, "kill": it ends
 * by a signal.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, THREAD_MAX = 64 };

static size_t page_cnt;

static void *fill(void *arg)
{
	size_t bytes = page_cnt * PAGE_BYTES;
	char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED || madvise(pages, bytes, MADV_NOHUGEPAGE))
		_exit(1);
	for (size_t at = 0; at < bytes; at += PAGE_BYTES)
		pages[at] = 1;
	munmap(pages, page_cnt / 2 * PAGE_BYTES);
	return arg;
}

static void report(void)
{
	static char text[4096];
	int fd = open("/proc/self/smaps_rollup", O_RDONLY);
	ssize_t bytes = read(fd, text, sizeof(text) - 1);
	const char *rss = strstr(text, "Rss:");

	if (bytes <= 0 || !rss || write(STDOUT_FILENO, rss, strcspn(rss, "\n") + 1) < 0)
		_exit(1);
}

int main(int argc, char **argv)
{
	size_t thread_cnt = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
	const char *word = argc > 3 ? argv[3] : "";
	pthread_t threads[THREAD_MAX];

	page_cnt = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
	if (thread_cnt > THREAD_MAX)
		return 1;
	if (strcmp(word, "child") == 0 && fork()) {
		wait(NULL);
		_exit(0);
	}
	for (size_t i = 0; i < thread_cnt; i++)
		if (pthread_create(&threads[i], NULL, fill, NULL))
			return 1;
	for (size_t i = 0; i < thread_cnt; i++)
		pthread_join(threads[i], NULL);
	/* All code that is left to run is resident, and stays. */
	if (mlockall(MCL_CURRENT))
		return 1;
	report();
	if (strcmp(word, "kill") == 0)
		raise(SIGKILL);
	_exit(0);
}
