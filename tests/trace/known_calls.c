/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A target that makes a known number of calls: known_calls PATTERN [N [M]].
 * Each pattern's own calls are made between the phase markers; all it needs from
 * the C library it has got before. Exits with 0, or 1 when a call of its own
 * went otherwise than planned.
 */
#include "tests/trace/known.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/mman.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/trace/phases.h"

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

#define X(class, good, bad, bytes) GOOD_##class = good, BAD_##class = bad,
enum { KNOWN_CALLS(X) };
#undef X

static char *self;

static char *map(size_t len, int prot, int flags, int fd)
{
	return (char *)syscall(SYS_mmap, 0, len, prot, flags, fd, 0);
}

static void map_some(int good, int bad, int prot, int flags, int fd)
{
	for (int i = 0; i < good; i++) {
		char *mem = map(KNOWN_LEN - 1, prot, flags, fd);

		expect(mem != MAP_FAILED);
		expect(!syscall(SYS_munmap, mem, KNOWN_LEN));
	}
	for (int i = 0; i < bad; i++)
		expect(map(0, prot, flags, fd) == MAP_FAILED);
}

static void pattern_mmap(char *pages, int file)
{
	map_some(GOOD_MMAP_ANON, BAD_MMAP_ANON, RW, ANON, -1);
	map_some(GOOD_MMAP_FILE, BAD_MMAP_FILE, PROT_READ, MAP_PRIVATE, file);
	map_some(GOOD_MMAP_RESERVE - 4, BAD_MMAP_RESERVE, PROT_NONE, ANON, -1);
	map_some(4, 0, RW, ANON | MAP_NORESERVE, -1);
	map_some(GOOD_MMAP_STACK, BAD_MMAP_STACK, PROT_NONE, ANON | MAP_STACK, -1);
	for (int i = 0; i < GOOD_MMAP_FIXED; i++)
		expect(syscall(SYS_mmap, pages, KNOWN_LEN, RW, ANON | MAP_FIXED, -1, 0) == (long)pages);
	for (int i = 0; i < BAD_MMAP_FIXED; i++)
		expect(syscall(SYS_mmap, pages, KNOWN_LEN, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == -1);
	for (int i = 0; i < BAD_MUNMAP / 2; i++) {
		expect(syscall(SYS_munmap, pages, (size_t)-4096) == -1);
		expect(syscall(SYS_munmap, pages + 1, KNOWN_PAGE) == -1);
	}
}

static void pattern_mprotect(char *pages, char *hole)
{
	for (int i = 0; i < GOOD_MPROTECT_COMMIT; i++) {
		expect(!syscall(SYS_mprotect, pages, KNOWN_PAGE, PROT_NONE));
		for (int j = 0; !i && j < BAD_MPROTECT_COMMIT; j++)
			expect(syscall(SYS_mprotect, pages + 1, KNOWN_PAGE, RW) == -1);
		expect(!syscall(SYS_mprotect, pages, KNOWN_PAGE, RW));
	}
	for (int i = 0; i < BAD_MPROTECT_GUARD; i++)
		expect(syscall(SYS_mprotect, hole, KNOWN_PAGE, PROT_NONE) == -1);
	for (int i = 0; i < GOOD_MPROTECT_OTHER; i++)
		expect(!syscall(SYS_mprotect, pages, KNOWN_PAGE, i % 2 ? RW : PROT_READ));
	for (int i = 0; i < BAD_MPROTECT_OTHER; i++)
		expect(syscall(SYS_mprotect, hole, KNOWN_PAGE, RW) == -1);
	for (int i = 0; i < GOOD_PKEY_MPROTECT; i++)
		expect(!syscall(SYS_pkey_mprotect, pages, KNOWN_LEN, RW, -1));
	for (int i = 0; i < BAD_PKEY_MPROTECT; i++)
		expect(syscall(SYS_pkey_mprotect, hole, KNOWN_LEN, RW, -1) == -1);
}

static void advise(int cnt, char *addr, int advice, int result)
{
	for (int i = 0; i < cnt; i++)
		expect(syscall(SYS_madvise, addr, KNOWN_LEN, advice) == result);
}

static void pattern_madvise(char *pages, int pidfd)
{
	struct iovec range = {pages, KNOWN_LEN};

	advise(GOOD_MADVISE_DONTNEED, pages, MADV_DONTNEED, 0);
	advise(BAD_MADVISE_DONTNEED, pages + 1, MADV_DONTNEED, -1);
	advise(GOOD_MADVISE_FREE, pages, MADV_FREE, 0);
	advise(BAD_MADVISE_FREE, pages + 1, MADV_FREE, -1);
	/* These may not be built into the kernel: an unaligned address fails anyway. */
	advise(BAD_MADVISE_HUGEPAGE, pages + 1, MADV_HUGEPAGE, -1);
	advise(BAD_MADVISE_NOHUGEPAGE, pages + 1, MADV_NOHUGEPAGE, -1);
	advise(GOOD_MADVISE_POPULATE - 8, pages, MADV_POPULATE_READ, 0);
	advise(8, pages, MADV_POPULATE_WRITE, 0);
	advise(BAD_MADVISE_POPULATE, pages + 1, MADV_POPULATE_WRITE, -1);
	advise(GOOD_MADVISE_OTHER, pages, MADV_RANDOM, 0);
	advise(BAD_MADVISE_OTHER, pages, KNOWN_BAD_ADVICE, -1);
	for (int i = 0; i < GOOD_PROCESS_MADVISE; i++)
		expect(syscall(SYS_process_madvise, pidfd, &range, 1, MADV_COLD, 0) == KNOWN_LEN);
	for (int i = 0; i < BAD_PROCESS_MADVISE; i++)
		expect(syscall(SYS_process_madvise, -1, &range, 1, MADV_COLD, 0) == -1);
}

/* pages has KNOWN_LEN mapped bytes, and nothing mapped behind for as many. */
static void pattern_mremap(char *pages, char *target)
{
	for (int i = 0; i < GOOD_MREMAP_GROW; i++) {
		expect(syscall(SYS_mremap, pages, KNOWN_LEN, KNOWN_LEN + KNOWN_PAGE, 0) == (long)pages);
		expect(syscall(SYS_mremap, pages, KNOWN_LEN + KNOWN_PAGE, KNOWN_LEN, 0) == (long)pages);
	}
	for (int i = 0; i < BAD_MREMAP_GROW; i++)
		expect(syscall(SYS_mremap, pages + 1, KNOWN_PAGE, KNOWN_LEN, 0) == -1);
	for (int i = 0; i < BAD_MREMAP_SHRINK; i++)
		expect(syscall(SYS_mremap, pages + 1, KNOWN_LEN, KNOWN_PAGE, 0) == -1);
	for (int i = 0; i < GOOD_MREMAP_MOVE; i++) {
		char *from = i % 2 ? target : pages, *to = i % 2 ? pages : target;

		expect(syscall(SYS_mremap, from, KNOWN_LEN, KNOWN_LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to) == (long)to);
	}
	for (int i = 0; i < BAD_MREMAP_MOVE; i++)
		expect(syscall(SYS_mremap, pages + 1, KNOWN_LEN, KNOWN_LEN, MREMAP_MAYMOVE | MREMAP_FIXED, target) ==
		       -1);
}

static void pattern_brk(void)
{
	long start = syscall(SYS_brk, 0);

	for (int i = 0; i < GOOD_BRK_GROW; i++) {
		expect(syscall(SYS_brk, start + KNOWN_PAGE) == start + KNOWN_PAGE);
		expect(syscall(SYS_brk, start) == start);
	}
	for (int i = 0; i < BAD_BRK_GROW; i++)
		expect(syscall(SYS_brk, (1UL << 47) - 4096) == start);
	for (int i = 0; i < GOOD_BRK_QUERY - 1; i++)
		expect(syscall(SYS_brk, 0) == start);
}

static void classes(void)
{
	char *area = map(64 * KNOWN_LEN, PROT_NONE, ANON, -1), *pages, *target;
	int file = memfd_create("known", MFD_CLOEXEC), pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	expect(area != MAP_FAILED && file >= 0 && pidfd >= 0 && !ftruncate(file, KNOWN_LEN));
	pages = area + KNOWN_LEN;
	target = area + 8 * KNOWN_LEN;
	munmap(area, 64 * KNOWN_LEN);
	expect(mmap(pages, KNOWN_LEN, RW, ANON | MAP_FIXED, -1, 0) == pages);
	mark(1);
	pattern_mmap(pages, file);
	pattern_mprotect(pages, area);
	pattern_madvise(pages, pidfd);
	pattern_mremap(pages, target);
	pattern_brk();
	mark(2);
}

/* The same, between two signals from whoever attaches. */
static void held(void)
{
	sigset_t set;
	int number;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	expect(write(STDOUT_FILENO, "ok\n", 3) == 3);
	sigwait(&set, &number);
	classes();
	expect(write(STDOUT_FILENO, "ok\n", 3) == 3);
	sigwait(&set, &number);
}

/* N failing munmaps and N failing madvises. */
static void fail(long n)
{
	for (long i = 0; i < n; i++) {
		expect(syscall(SYS_munmap, 1, 0) == -1);
		expect(syscall(SYS_madvise, 0, KNOWN_PAGE, KNOWN_BAD_ADVICE) == -1);
	}
}

static void *fail_once(void *arg)
{
	fail(1);
	return arg;
}

/* N threads, one after the other, each with one failing munmap and madvise. */
static void threads(long n)
{
	pthread_t thread;

	mark(1);
	for (long i = 0; i < n; i++) {
		expect(!pthread_create(&thread, NULL, fail_once, NULL));
		expect(!pthread_join(thread, NULL));
	}
	mark(2);
}

static void *migrate_one(void *arg)
{
	int cpu_cnt = (int)sysconf(_SC_NPROCESSORS_CONF);
	cpu_set_t cpus;

	for (int i = 0; i < KNOWN_MIGRATED; i++) {
		char *mem = map(KNOWN_PAGE, RW, ANON, -1);

		expect(mem != MAP_FAILED && !syscall(SYS_munmap, mem, KNOWN_PAGE));
		if (i % 16)
			continue;
		CPU_ZERO(&cpus);
		CPU_SET((i / 16) % cpu_cnt, &cpus);
		sched_setaffinity(0, sizeof(cpus), &cpus);
	}
	return arg;
}

/* N threads that change their CPU all the time. */
static void migrate(long n)
{
	pthread_t all[64];

	mark(1);
	for (long i = 0; i < n; i++)
		expect(!pthread_create(&all[i], NULL, migrate_one, NULL));
	for (long i = 0; i < n; i++)
		expect(!pthread_join(all[i], NULL));
	mark(2);
}

static long int80(long nr, long arg)
{
	long ret;

	__asm__ volatile("int $0x80" : "=a"(ret) : "a"(nr), "b"(arg) : "memory", "r8", "r9", "r10", "r11");
	return ret;
}

/* 32-bit calls of a 64-bit process: 12 is chdir there, 45 is brk. */
static void int80_calls(void)
{
	static const char here[] = ".";
	char *low = mmap(NULL, KNOWN_PAGE, RW, ANON | MAP_32BIT, -1, 0);

	expect(low != MAP_FAILED);
	strcpy(low, here);
	mark(1);
	for (int i = 0; i < KNOWN_INT80; i++) {
		expect(int80(12, (long)low) == 0);
		int80(45, 0);
		syscall(SYS_brk, 0);
	}
	mark(2);
}

static pid_t vfork_exec(void)
{
	pid_t pid = vfork();

	if (pid)
		return pid;
	execl(self, self, "fail", "1", NULL);
	_exit(127);
}

/* A tree: N children, each with M of its own, each making one failing pair; every second by vfork and exec. */
static void forks(long n, long m)
{
	pid_t pid;
	int status;

	fail(1);
	for (long i = 0; i < n; i++) {
		pid = i % 2 ? vfork_exec() : fork();
		if (!pid) {
			forks(m, 0);
			_exit(failed);
		}
		expect(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
	}
}

static void *exec_self(void *arg)
{
	long n = (long)arg;
	char left[16];

	snprintf(left, sizeof(left), "%ld", n - 1);
	execl(self, self, n % 2 ? "exec-thread" : "exec", left, NULL);
	_exit(127);
}

/* Replaces itself N times, from a second thread or from the only one. */
static void execs(long n, int is_thread)
{
	pthread_t thread;

	fail(KNOWN_EXEC_CALLS);
	if (!n)
		return;
	if (!is_thread)
		exec_self((void *)n);
	expect(!pthread_create(&thread, NULL, exec_self, (void *)n));
	pause();
}

static void *outlive_leader(void *arg)
{
	usleep(50000);
	fail(KNOWN_LEADER_CALLS);
	_exit(failed);
	return arg;
}

static void leader(void)
{
	pthread_t thread;

	expect(!pthread_create(&thread, NULL, outlive_leader, NULL));
	pthread_exit(NULL);
}

/*
 * Calls until it is killed. counts[0] is raised before each call and counts[1]
 * after it, in memory that the test shares.
 */
static void spin(int fd)
{
	volatile uint64_t *counts = mmap(NULL, KNOWN_PAGE, RW, MAP_SHARED, fd, 0);

	for (;;) {
		counts[0]++;
		syscall(SYS_munmap, 1, 0);
		counts[1]++;
	}
}

/* Kernel-mode faults: read() into memory that was never touched. */
static void read_fresh(void)
{
	char *mem = mmap(NULL, KNOWN_READ_BYTES, RW, ANON, -1, 0);
	int fd = open("/dev/zero", O_RDONLY);

	madvise(mem, KNOWN_READ_BYTES, MADV_NOHUGEPAGE);
	mark(1);
	expect(syscall(SYS_read, fd, mem, KNOWN_READ_BYTES) == KNOWN_READ_BYTES);
	mark(2);
}

static void populate(void)
{
	mark(1);
	expect(map(KNOWN_READ_BYTES, RW, ANON | MAP_POPULATE, -1) != MAP_FAILED);
	mark(2);
}

/* Touches N pages by N/4 in each of four threads. */
static void *touch(void *arg)
{
	volatile char *mem = arg;
	long n = *(long *)(uintptr_t)mem;

	for (long i = 1; i <= n; i++)
		mem[i * KNOWN_PAGE] = 1;
	return NULL;
}

/* Reports the kernel's own count of its page faults in the memory behind fd. */
static void faults(long n, int fd)
{
	volatile uint64_t *counts = mmap(NULL, KNOWN_PAGE, RW, MAP_SHARED | MAP_POPULATE, fd, 0);
	struct rusage before, after;
	pthread_t all[4];

	expect(!getrusage(RUSAGE_SELF, &before) && !getrusage(RUSAGE_SELF, &after));
	getrusage(RUSAGE_SELF, &before);
	mark(1);

	for (int i = 0; i < 4; i++) {
		char *mem = mmap(NULL, (n / 4 + 1) * KNOWN_PAGE, RW, ANON, -1, 0);

		madvise(mem, (n / 4 + 1) * KNOWN_PAGE, MADV_NOHUGEPAGE);
		*(long *)mem = n / 4;
		expect(!pthread_create(&all[i], NULL, touch, mem));
	}
	for (int i = 0; i < 4; i++)
		expect(!pthread_join(all[i], NULL));
	mark(2);
	getrusage(RUSAGE_SELF, &after);
	counts[0] = (uint64_t)(after.ru_minflt - before.ru_minflt);
}

/* N munmaps that a seccomp filter refuses: they have an exit and no entry. */
static void refused(long n)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {sizeof(filter) / sizeof(filter[0]), filter};

	expect(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog));
	for (long i = 0; i < n; i++)
		expect(syscall(SYS_munmap, 1, 0) == -1 && errno == EPERM);
	_exit(failed);
}

static void *stuck(void *arg)
{
	syscall(SYS_madvise, arg, KNOWN_LEN, MADV_POPULATE_READ);
	return NULL;
}

/* A thread inside an madvise whose page fault nobody answers. N: the process lives N ms more; 0: it becomes `fail 3`.
 */
static void in_flight(long n)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	char *mem = mmap(NULL, KNOWN_LEN, RW, ANON, -1, 0);
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register reg = {
		.range = {(uintptr_t)mem, KNOWN_LEN},
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	struct uffd_msg message;
	pthread_t thread;

	expect(fd >= 0 && !ioctl(fd, UFFDIO_API, &api) && !ioctl(fd, UFFDIO_REGISTER, &reg));
	expect(!pthread_create(&thread, NULL, stuck, mem));
	/* The fault says that the thread is inside. */
	expect(read(fd, &message, sizeof(message)) == sizeof(message));
	if (n) {
		usleep((useconds_t)n * 1000);
		_exit(failed);
	}
	execl(self, self, "fail", "3", NULL);
	_exit(127);
}

int main(int argc, char **argv)
{
	const char *pattern = argc > 1 ? argv[1] : "";
	long n = argc > 2 ? atol(argv[2]) : 0, m = argc > 3 ? atol(argv[3]) : 0;

	self = argv[0];
	if (!strcmp(pattern, "classes"))
		classes();
	else if (!strcmp(pattern, "held"))
		held();
	else if (!strcmp(pattern, "fail"))
		fail(n);
	else if (!strcmp(pattern, "threads"))
		threads(n);
	else if (!strcmp(pattern, "migrate"))
		migrate(n);
	else if (!strcmp(pattern, "int80"))
		int80_calls();
	else if (!strcmp(pattern, "forks"))
		forks(n, m);
	else if (!strncmp(pattern, "exec", 4))
		execs(n, !strcmp(pattern, "exec-thread"));
	else if (!strcmp(pattern, "leader"))
		leader();
	else if (!strcmp(pattern, "spin"))
		spin((int)n);
	else if (!strcmp(pattern, "read"))
		read_fresh();
	else if (!strcmp(pattern, "populate"))
		populate();
	else if (!strcmp(pattern, "faults"))
		faults(n, (int)m);
	else if (!strcmp(pattern, "refused"))
		refused(n);
	else if (!strcmp(pattern, "in-flight"))
		in_flight(n);
	else
		failed = 1;
	return failed;
}
