/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process to attach to, which does what it is told and nothing else: a line
 * of standard input is a command, and "ok" on standard output says that it is
 * done. Calls are madvises with an advice that does not exist: the C library makes none.
 *
 *   c N   each thread, the first one too, makes N calls
 *   n     one thread more
 *   f N   a child makes N calls and ends
 *   e     this program again, by exec
 *   w     a thread does that
 *   l     the first thread ends; another one reads commands from then on
 *   b     calls without end, by all threads but the first, with pauses
 *   p N   touches N pages
 *   m N   maps N pages, touches them, has them dropped, touches them again, and unmaps them
 *   k N   maps N pages, and keeps them
 *   a N   N blocks of 48 pages, each freed at once, and one block that is grown N + 2 times
 *   g N   a child does that, and stays
 *   t N   a child made by vfork maps N pages, which stay
 *   v     a thread makes a child by vfork, which stays until it is killed
 *   s T   takes the name T
 *   x N T N children, one after the other, each takes the name T, makes 3 calls and ends
 *   y N D the same, each is moved into the control group of folder D by this process
 *   z N D the same, each moves itself
 *   u     a thread begins a call that does not end
 *   r     and now it does
 *   q     the end
 *
 * usage: attach_calls [THREADS] [NAME]
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, ADVICE = 119, THREAD_MAX = 8192, STACK_BYTES = 64 * 1024 };

static char **own_argv;
static int orders[THREAD_MAX][2]; /* pipes: a long to each thread; < 0: calls without end */
static int done[2];               /* a byte from each when it has made its calls */
static int thread_cnt;

static void call(long n)
{
	for (long i = 0; i < n; i++)
		syscall(SYS_madvise, 0, PAGE, ADVICE);
}

static void fail(const char *what)
{
	perror(what);
	_exit(1);
}

static void say_ok(void)
{
	if (write(STDOUT_FILENO, "ok\n", 3) != 3)
		_exit(1);
}

static void *work(void *arg)
{
	int number = (int)(long)arg;
	long n;

	while (read(orders[number][0], &n, sizeof(n)) == sizeof(n)) {
		while (n < 0) {
			call(7);
			usleep(200);
		}
		call(n);
		if (write(done[1], "d", 1) != 1)
			fail("write");
	}
	return NULL;
}

static void start(void *(*run)(void *arg), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attr, run, arg))
		fail("pthread_create");
}

static void add_thread(void)
{
	if (thread_cnt == THREAD_MAX || pipe2(orders[thread_cnt], O_CLOEXEC))
		fail("pipe");
	start(work, (void *)(long)thread_cnt);
	thread_cnt++;
}

static void order_all(long n)
{
	char byte;

	for (int i = 0; i < thread_cnt; i++)
		if (write(orders[i][1], &n, sizeof(n)) != sizeof(n))
			fail("write");
	for (int i = 0; n >= 0 && i < thread_cnt; i++)
		if (read(done[0], &byte, 1) != 1)
			fail("read");
}

static void fork_one(long n)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("fork");
	if (!pid) {
		call(n);
		_exit(0);
	}
	if (waitpid(pid, NULL, 0) != pid)
		fail("waitpid");
}

static void *exec_self(void *arg)
{
	execv("/proc/self/exe", own_argv);
	fail("execv");
	return arg;
}

static void touch(long n)
{
	static char pages[PAGE * 4096];

	for (long i = 0; i < n && i < 4096; i++)
		((volatile char *)pages)[i * PAGE] = 1;
}

static char *map(long n)
{
	char *pages = mmap(NULL, (size_t)n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		fail("mmap");
	/* A fault a page, whatever the machine makes of huge pages. */
	madvise(pages, (size_t)n * PAGE, MADV_NOHUGEPAGE);
	return pages;
}

static void map_and_drop(long n)
{
	char *pages = map(n);

	for (int round = 0; round < 2; round++) {
		for (long i = 0; i < n; i++)
			((volatile char *)pages)[i * PAGE] = 1;
		if (!round && madvise(pages, (size_t)n * PAGE, MADV_DONTNEED))
			fail("madvise");
	}
	munmap(pages, (size_t)n * PAGE);
}

static void allocate(long n)
{
	enum { BLOCK_BYTES = 48 * PAGE, GROWN_BYTES = 40 };
	char *volatile block;

	for (long i = 0; i < n; i++) {
		block = malloc(BLOCK_BYTES);
		block[0] = 1;
		free(block);
	}
	block = malloc(GROWN_BYTES);
	for (long i = 0; i < n + 2; i++)
		block = realloc(block, (size_t)(GROWN_BYTES + i % 2));
	free(block);
}

static void fork_one_that_stays(long n)
{
	int ready[2];
	char byte;

	if (pipe2(ready, O_CLOEXEC))
		fail("pipe");
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		allocate(n);
		if (write(ready[1], "r", 1) != 1)
			fail("write");
		for (;;)
			pause();
	}
	if (read(ready[0], &byte, 1) != 1)
		fail("read");
	close(ready[0]);
	close(ready[1]);
}

static void move_to(const char *folder, pid_t pid)
{
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
	file = fopen(path, "w");
	if (!file || fprintf(file, "%d", (int)pid) < 1 || fclose(file))
		fail(path);
}

static void fork_short(char how, long n, const char *text)
{
	int ready[2];
	char byte;
	pid_t pid;

	for (long i = 0; i < n; i++) {
		if (pipe2(ready, O_CLOEXEC))
			fail("pipe");
		pid = fork();
		if (!pid) {
			if (how == 'x')
				prctl(PR_SET_NAME, text);
			else if (how == 'z')
				move_to(text, getpid());
			else if (read(ready[0], &byte, 1) != 1)
				fail("read");
			call(3);
			_exit(0);
		}
		if (how == 'y')
			move_to(text, pid);
		if (pid < 0 || write(ready[1], "r", 1) != 1 || waitpid(pid, NULL, 0) != pid)
			fail("fork");
		close(ready[0]);
		close(ready[1]);
	}
}

static void vfork_and_map(long n)
{
	pid_t pid = vfork();

	if (!pid) {
		syscall(SYS_mmap, 0, n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, NULL, 0) != pid)
		fail("vfork");
}

static void *vfork_one(void *arg)
{
	if (!vfork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return arg;
}

/* A fault that nobody answers keeps the call of a thread from ending. */
static struct {
	int fd;
	char *page;
	pthread_t thread;
} stuck;

static void *populate(void *arg)
{
	syscall(SYS_madvise, arg, PAGE, MADV_POPULATE_READ);
	return NULL;
}

static void get_stuck(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register reg = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	struct uffd_msg message;

	stuck.fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	stuck.page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	reg.range.start = (unsigned long)stuck.page;
	reg.range.len = PAGE;
	if (stuck.fd < 0 || ioctl(stuck.fd, UFFDIO_API, &api) || ioctl(stuck.fd, UFFDIO_REGISTER, &reg) ||
	    pthread_create(&stuck.thread, NULL, populate, stuck.page) ||
	    read(stuck.fd, &message, sizeof(message)) != sizeof(message))
		fail("userfaultfd");
}

static void get_loose(void)
{
	struct uffdio_zeropage zero = {.range = {(unsigned long)stuck.page, PAGE}};

	if (ioctl(stuck.fd, UFFDIO_ZEROPAGE, &zero) || pthread_join(stuck.thread, NULL))
		fail("userfaultfd");
	close(stuck.fd);
}

/* A line, byte by byte: nothing is read ahead, so an exec loses none. */
static int read_line(char *line, size_t bytes)
{
	size_t used = 0;

	while (used + 1 < bytes && read(STDIN_FILENO, &line[used], 1) == 1)
		if (line[used++] == '\n')
			break;
	line[used] = 0;
	return used > 0;
}

static void *obey(void *arg)
{
	char line[512];

	while (read_line(line, sizeof(line))) {
		char *text = line + 1;
		long n = strtol(text, &text, 10);

		line[strcspn(line, "\n")] = 0;
		text += *text == ' ';

		switch (line[0]) {
		case 'c':
			call(n);
			order_all(n);
			break;
		case 'n': add_thread(); break;
		case 'f': fork_one(n); break;
		case 'e': exec_self(NULL); break;
		case 'w':
			start(exec_self, NULL);
			pause();
			break;
		case 'l': start(obey, arg); pthread_exit(NULL);
		case 'b': order_all(-1); break;
		case 'p': touch(n); break;
		case 'm': map_and_drop(n); break;
		case 'k': map(n); break;
		case 'a': allocate(n); break;
		case 'g': fork_one_that_stays(n); break;
		case 't': vfork_and_map(n); break;
		case 'v': start(vfork_one, NULL); break;
		case 's': prctl(PR_SET_NAME, text); break;
		case 'x':
		case 'y':
		case 'z': fork_short(line[0], n, text); break;
		case 'u': get_stuck(); break;
		case 'r': get_loose(); break;
		case 'q': _exit(0);
		default: fail("command");
		}
		say_ok();
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	struct rlimit limit;

	own_argv = argv;
	/* Two descriptors a thread. */
	if (!getrlimit(RLIMIT_NOFILE, &limit)) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	if (pipe2(done, O_CLOEXEC))
		fail("pipe");
	if (argc > 2)
		prctl(PR_SET_NAME, argv[2]);
	for (int i = 1; i < (argc > 1 ? atoi(argv[1]) : 1); i++)
		add_thread();
	say_ok();
	obey(NULL);
	return 0;
}
