/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * commit_reclaim=thread: a heap's held set has one user at a time. Each of the
 * two is stopped in the middle of its use, at an munmap that a seccomp listener
 * lets wait, and the other must not have come to the set meanwhile.
 */
#include "tests/alloc/preload.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "alloc/atmalloc.h"

#pragma weak atmalloc_get_counter

#define MIB ((size_t)1 << 20)
#define BLOCK_BYTES (5 * MIB)
#define WAIT_MAX_MS 60000
/* Status of a child that cannot have a listener. */
#define CANNOT 77

static atomic_int listener; /* of the owner's munmap calls, and of those of threads that it starts */
static atomic_int owner_tid, go;
static atomic_bool is_done;

static uint64_t held_bytes(void)
{
	uint64_t bytes = 0;

	CHILD_CHECK(atmalloc_get_counter("held.now_bytes", &bytes) == 0);
	return bytes;
}

static void burst(void)
{
	free(malloc(BLOCK_BYTES));
}

static void sleep_ms(unsigned ms)
{
	usleep(ms * 1000);
}

/* From here on each munmap of 1 MiB or more by this thread waits for an answer. */
static void listen_to_munmap(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, MIB, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(filter) / sizeof(*filter), .filter = filter};
	long fd;

	free(malloc(100)); /* no segment is sought later on, with an munmap of what lies wrong */
	CHILD_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	if (fd < 0)
		_exit(CANNOT);
	owner_tid = (int)syscall(SYS_gettid);
	listener = (int)fd;
}

/* The thread whose munmap waits; 0: none that could make one is left. */
static int wait_for_call(uint64_t *id)
{
	struct seccomp_notif call = {0};
	struct pollfd poll_fd = {.events = POLLIN};

	while (!listener)
		sleep_ms(1);
	poll_fd.fd = listener;
	CHILD_CHECK(poll(&poll_fd, 1, WAIT_MAX_MS) == 1);
	if (!(poll_fd.revents & POLLIN))
		return 0;
	CHILD_CHECK(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) == 0);
	*id = call.id;
	return (int)call.pid;
}

static void let_go(uint64_t id)
{
	struct seccomp_notif_resp answer = {.id = id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};

	CHILD_CHECK(ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0);
}

static void *answer_all(void *arg)
{
	uint64_t id;

	while (wait_for_call(&id))
		let_go(id);
	return arg;
}

static bool is_in_futex(int tid)
{
	char path[64], text[16] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	file = fopen(path, "r");
	CHILD_CHECK(file);
	if (!fgets(text, sizeof(text), file))
		text[0] = '\0';
	fclose(file);
	return atoi(text) == SYS_futex;
}

/* ---- the owner is at its set ---- */

static void *fill_the_batch(void *arg)
{
	void *blocks[3];

	for (int i = 0; i < 3; i++)
		blocks[i] = malloc(BLOCK_BYTES);
	listen_to_munmap();
	free(blocks[0]);
	free(blocks[1]);
	free(blocks[2]); /* the oldest goes for it */
	is_done = true;
	return arg;
}

static void stop_the_owner(void *arg)
{
	pthread_t owner, answerer;
	uint64_t id;

	(void)arg;
	/* Two blocks may be held; what has been for 20 ms is the thread's, which looks every 10. */
	CHILD_CHECK(preload.set_tune("commit_batch=2560,commit_hold=10000,commit_reclaim=request") == 0);
	CHILD_CHECK(pthread_create(&owner, NULL, fill_the_batch, NULL) == 0);
	CHILD_CHECK(wait_for_call(&id) == owner_tid);
	CHILD_CHECK(held_bytes() > 0 && held_bytes() <= 2 * BLOCK_BYTES);
	CHILD_CHECK(preload.set_tune("commit_hold=20,commit_reclaim=thread") == 0);
	/* Each burst of this thread's goes at a pass of the library's over all heaps. */
	uint64_t owners_bytes = held_bytes();

	for (int i = 0; i < 3; i++) {
		burst();
		for (int ms = 0; held_bytes() > owners_bytes && ms < WAIT_MAX_MS; ms++)
			sleep_ms(1);
		sleep_ms(50);
		CHILD_CHECK(held_bytes() == owners_bytes);
	}
	CHILD_CHECK(!is_done);
	let_go(id);
	CHILD_CHECK(pthread_create(&answerer, NULL, answer_all, NULL) == 0);
	CHILD_CHECK(pthread_join(owner, NULL) == 0);
	for (int ms = 0; held_bytes() && ms < WAIT_MAX_MS; ms++)
		sleep_ms(1);
	CHILD_CHECK(held_bytes() == 0);
}

/* ---- the library's thread is at the owner's set ---- */

static void *burst_and_ask_again(void *arg)
{
	listen_to_munmap();
	burst(); /* starts the library's thread, for which the listener is, too */
	while (!go)
		sleep_ms(1);
	burst();
	is_done = true;
	return arg;
}

static void stop_the_thread(void *arg)
{
	pthread_t owner, answerer;
	uint64_t id = 0;
	int tid;

	(void)arg;
	CHILD_CHECK(preload.set_tune("commit_hold=20,commit_reclaim=thread") == 0);
	CHILD_CHECK(pthread_create(&owner, NULL, burst_and_ask_again, NULL) == 0);
	tid = wait_for_call(&id);
	CHILD_CHECK(tid && tid != owner_tid);
	go = 1;
	for (int ms = 0; !is_done && !is_in_futex(owner_tid) && ms < WAIT_MAX_MS; ms++)
		sleep_ms(1);
	CHILD_CHECK(!is_done && is_in_futex(owner_tid));
	let_go(id);
	CHILD_CHECK(pthread_create(&answerer, NULL, answer_all, NULL) == 0);
	CHILD_CHECK(pthread_join(owner, NULL) == 0);
	CHILD_CHECK(is_done);
}

static void run_or_skip(void (*work)(void *arg))
{
	int status = child__run(work, NULL);

	if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT) {
		print_message("no seccomp listener for munmap\n");
		skip();
	}
	assert_int_equal(status, 0);
}

static void the_thread_waits_for_the_owner(void **state)
{
	(void)state;
	run_or_skip(stop_the_owner);
}

static void the_owner_waits_for_the_thread(void **state)
{
	(void)state;
	run_or_skip(stop_the_thread);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_thread_waits_for_the_owner),
		cmocka_unit_test(the_owner_waits_for_the_thread),
	};

	return cmocka_run_group_tests(tests, preload__find, NULL);
}
