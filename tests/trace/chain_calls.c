/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls with a known caller at every level. usage: chain_calls SCENARIO [ARG].
 * Each makes CALL_CNT calls of madvise(MADV_NOHUGEPAGE), on a chain of functions
 * that the test knows. No function ends in a call, so that none is left out.
 */
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

enum { CALL_CNT = 13, SIGNAL_CNT = 503, PAGE_BYTES = 4096 };

#define LEVEL static __attribute__((noinline, noclone, noipa)) void
/* After the last call of a function: keeps it from being a jump. */
#define END __asm__ volatile("" ::: "memory")

static char *page;
static volatile sig_atomic_t signal_cnt;

LEVEL advise(void)
{
	madvise(page, PAGE_BYTES, MADV_NOHUGEPAGE);
	END;
}

LEVEL inner(void)
{
	for (int i = 0; i < CALL_CNT; i++)
		advise();
	END;
}

LEVEL middle(void)
{
	inner();
	END;
}

LEVEL plain(void)
{
	middle();
	END;
}

LEVEL big_frame(void)
{
	volatile char buf[600 * 1024];

	buf[0] = 1;
	middle();
	buf[sizeof(buf) - 1] = buf[0];
}

LEVEL variable_frame(void)
{
	volatile char *buf = alloca((size_t)getpid() % 1000 + 100);

	buf[0] = 1;
	middle();
	buf[1] = buf[0];
}

/* A frame that must be aligned and has a variable size: gcc finds its caller through a pointer. */
LEVEL aligned_frame(void)
{
	volatile char aligned[64] __attribute__((aligned(64)));
	volatile char *buf = alloca((size_t)getpid() % 1000 + 100);

	aligned[0] = buf[0] = 1;
	middle();
	aligned[1] = buf[1] = aligned[0];
}

LEVEL recurse(int depth)
{
	if (depth > 1)
		recurse(depth - 1);
	else
		inner();
	END;
}

static int compare(const void *a, const void *b)
{
	static bool has_called;

	if (!has_called) {
		has_called = true;
		inner();
	}
	return *(const int *)a - *(const int *)b;
}

LEVEL sorting(void)
{
	int numbers[] = {3, 1, 2, 5, 4};

	qsort(numbers, 5, sizeof(int), compare);
	END;
}

static void handle(int number)
{
	(void)number;
	inner();
	END;
}

LEVEL signalled(int flags)
{
	struct sigaction action = {.sa_handler = handle, .sa_flags = flags};

	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
	END;
}

LEVEL signalled_elsewhere(void)
{
	static char stack[64 * 1024];
	stack_t other = {.ss_sp = stack, .ss_size = sizeof(stack)};

	sigaltstack(&other, NULL);
	signalled(SA_ONSTACK);
	END;
}

static void handle_timer(int number)
{
	(void)number;
	advise();
	signal_cnt++;
}

LEVEL work(unsigned *state)
{
	char text[64];

	*state = *state * 1103515245 + 12345;
	snprintf(text, sizeof(text), "%u %s", *state, "text");
	free(malloc(strlen(text)));
	END;
}

/* At whatever instruction the timer finds it: also in the first and the last one of functions. */
LEVEL interrupted(void)
{
	struct sigaction action = {.sa_handler = handle_timer, .sa_flags = SA_RESTART};
	struct itimerval timer = {{0, 211}, {0, 211}};
	unsigned state = 1;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	while (signal_cnt < SIGNAL_CNT)
		work(&state);
	timer = (struct itimerval){{0, 0}, {0, 0}};
	setitimer(ITIMER_REAL, &timer, NULL);
	fprintf(stderr, "signals=%d\n", (int)signal_cnt);
}

static void *thread_main(void *arg)
{
	middle();
	END;
	return arg;
}

LEVEL threaded(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, thread_main, NULL);
	pthread_join(thread, NULL);
}

/* The library calls back from its constructor, and when it is called. */
void chain_call_back(void);
void chain_call_back(void)
{
	inner();
	END;
}

LEVEL loaded(const char *library)
{
	void *handle_of = dlopen(library, RTLD_NOW | RTLD_GLOBAL);

	if (!handle_of) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
}

LEVEL allocating(void)
{
	for (int i = 0; i < CALL_CNT; i++)
		free(malloc(64 << 20));
	END;
}

LEVEL mapping(void)
{
	for (int i = 0; i < CALL_CNT; i++)
		page = mmap(NULL, 3 * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	END;
}

int main(int argc, char **argv)
{
	const char *scenario = argc > 1 ? argv[1] : "", *arg = argc > 2 ? argv[2] : "";

	page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#define CASE(name, call)                   \
	if (strcmp(scenario, name) == 0) { \
		call;                      \
		return 0;                  \
	}
	CASE("plain", plain())
	CASE("big_frame", big_frame())
	CASE("variable_frame", variable_frame())
	CASE("aligned_frame", aligned_frame())
	CASE("recurse", recurse(atoi(arg)))
	CASE("sorting", sorting())
	CASE("signalled", signalled(0))
	CASE("signalled_elsewhere", signalled_elsewhere())
	CASE("interrupted", interrupted())
	CASE("threaded", threaded())
	CASE("loaded", loaded(arg))
	CASE("allocating", allocating())
	CASE("mapping", mapping())
	return 2;
}
