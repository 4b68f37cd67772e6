/* SPDX-License-Identifier: BSD-2-Clause */
/* Serving and summing the allocator's own counters; see counters.h. */
#include "cli/counters.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* Below this many, dead processes are not looked for. */
enum { SWEEP_MIN_CNT = 64 };

struct slot {
	pid_t pid;
	struct atm_counters *shared;
};

struct counters {
	struct counters_opts opts;
	int fd;
	int spare_fd; /* given up to refuse a process when descriptors run out */
	char name[64];
	struct slot *slots;
	size_t slot_cnt, slot_cap;
	size_t sweep_cnt; /* slots at which dead processes are looked for */
	struct counters_result result;
};

/* struct atm_sums has nothing but u64 counts, so it is summed as an array of them. */
enum { SUM_CNT = sizeof(struct atm_sums) / sizeof(uint64_t) };
_Static_assert(sizeof(struct atm_sums) % sizeof(uint64_t) == 0, "sums are u64 only");

/* The sums now: live, with what the heaps count. The process may still be writing. */
static void read_live(const struct atm_counters *shared, struct atm_sums *now)
{
	uint64_t *requests = (uint64_t *)&now->requests;

	/* Written by the process: not to be trusted. Cells beyond are not looked at, for that would allocate them. */
	size_t cell_cnt = __atomic_load_n(&shared->cell_cnt, __ATOMIC_RELAXED);

	memcpy(now, &shared->live, sizeof(*now));
	if (cell_cnt > ATM_CELL_CNT)
		cell_cnt = ATM_CELL_CNT;
	for (size_t i = 0; i < cell_cnt; i++) {
		const struct atm_cell *cell = &shared->cells[i];
		const uint64_t *cell_requests = (const uint64_t *)&cell->requests;

		for (size_t j = 0; j < sizeof(cell->requests) / sizeof(uint64_t); j++)
			requests[j] += cell_requests[j];
		for (size_t j = 0; j < ATM_DECISION_CNT; j++)
			now->decision_cnt[j] += cell->decision_cnt[j];
	}
}

static void add_difference(struct atm_sums *dst, const struct atm_sums *end, const struct atm_sums *start)
{
	uint64_t *sum = (uint64_t *)dst;
	const uint64_t *to = (const uint64_t *)end, *from = (const uint64_t *)start;

	for (size_t i = 0; i < SUM_CNT; i++)
		sum[i] += to[i] > from[i] ? to[i] - from[i] : 0;
}

void counters__mark(const struct atm_counters *shared, struct counters_mark *mark)
{
	mark->phases_seen = __atomic_load_n(&shared->phases_seen, __ATOMIC_RELAXED);
	read_live(shared, &mark->sums);
}

void counters__add_since(const struct atm_counters *shared, const struct counters_mark *mark,
			 struct atm_sums own[ATM_PHASE_CNT])
{
	const struct atm_sums *start = &mark->sums;
	uint32_t phases_seen = __atomic_load_n(&shared->phases_seen, __ATOMIC_RELAXED) & ~mark->phases_seen;
	struct atm_sums now;
	int phase = 0;

	read_live(shared, &now);
	for (int next = 1; next < ATM_PHASE_CNT; next++) {
		if (!(phases_seen & 1u << next))
			continue;
		add_difference(&own[phase], &shared->at_phase[next], start);
		start = &shared->at_phase[next];
		phase = next;
	}
	add_difference(&own[phase], &now, start);
}

void counters__add_own(const struct atm_counters *shared, struct atm_sums own[ATM_PHASE_CNT])
{
	/*
	 * Every process begins with zero counts. Where it was forked in a later
	 * phase, that phase is marked with zeros and phase 0 comes out empty.
	 */
	static const struct counters_mark zero;

	counters__add_since(shared, &zero, own);
}

void counters__add_sums(struct atm_sums *dst, const struct atm_sums *src)
{
	static const struct atm_sums zero;

	add_difference(dst, src, &zero);
}

/* Takes the counts of a slot into the sums and gives its memory back. */
static void fold(struct counters *counters, struct slot *slot)
{
	struct counters_result *result = &counters->result;
	const struct atm_counters *shared = slot->shared;
	uint32_t phase = __atomic_load_n(&shared->phase, __ATOMIC_RELAXED);

	/* No magic: the process died before it used them. Another ABI: unreadable. */
	if (shared->magic == ATM_MAGIC && shared->abi == ATM_ABI) {
		counters__add_own(shared, result->phases);
		result->process_cnt++;
		result->uncounted_heap_cnt += shared->uncounted_heap_cnt;
		result->phases_seen |= shared->phases_seen & ((1u << ATM_PHASE_CNT) - 1);
		if (phase < ATM_PHASE_CNT)
			result->phases_seen |= 1u << phase;
	}
	munmap(slot->shared, ATM_COUNTERS_BYTES);
	*slot = counters->slots[--counters->slot_cnt];
}

static void sweep_dead(struct counters *counters)
{
	for (size_t i = 0; i < counters->slot_cnt;) {
		struct slot *slot = &counters->slots[i];

		if (slot->pid > 0 && kill(slot->pid, 0) && errno == ESRCH)
			fold(counters, slot);
		else
			i++;
	}
	counters->sweep_cnt = 2 * counters->slot_cnt;
	if (counters->sweep_cnt < SWEEP_MIN_CNT)
		counters->sweep_cnt = SWEEP_MIN_CNT;
}

static int grow_slots(struct counters *counters)
{
	size_t cap = counters->slot_cap ? 2 * counters->slot_cap : SWEEP_MIN_CNT;
	struct slot *slots;

	if (counters->slot_cnt < counters->slot_cap)
		return 0;
	slots = reallocarray(counters->slots, cap, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	counters->slots = slots;
	counters->slot_cap = cap;
	return 0;
}

/*
 * A sealed, sparse memory file for one process, mapped here; its descriptor is
 * the caller's to close. NULL with errno.
 */
static struct atm_counters *new_shared(int *fd_out)
{
	const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	/* Some systems insist on the flag (sysctl vm.memfd_noexec), kernels before 6.3 do not know it. */
	int fd = memfd_create("alloctrace-counters", flags | MFD_NOEXEC_SEAL);
	void *map;

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("alloctrace-counters", flags);
	if (fd < 0)
		return NULL;
	/* Sealed before it is mapped or sent: a process cannot shrink it under our feet. */
	if (ftruncate(fd, ATM_COUNTERS_BYTES) == 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
		map = mmap(NULL, ATM_COUNTERS_BYTES, PROT_READ, MAP_SHARED, fd, 0);
		if (map != MAP_FAILED) {
			*fd_out = fd;
			return map;
		}
	}
	close(fd);
	return NULL;
}

static int send_handover(int peer_fd, int memory_fd)
{
	struct atm_handover handover = {.magic = ATM_MAGIC, .abi = ATM_ABI, .bytes = ATM_COUNTERS_BYTES};
	struct iovec iov = {.iov_base = &handover, .iov_len = sizeof(handover)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &memory_fd, sizeof(int));
	/* A new connection's buffer is empty: this cannot block or be cut short. */
	return sendmsg(peer_fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(handover) ? 0 : -EIO;
}

/* Hands counters to one process. 0 or -errno; the caller closes peer_fd. */
static int serve_peer(struct counters *counters, int peer_fd)
{
	struct ucred peer;
	socklen_t peer_bytes = sizeof(peer);
	struct atm_counters *shared;
	int memory_fd = -1, err;

	if (getsockopt(peer_fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes))
		return -errno;
	if (counters->opts.only_pid && peer.pid != counters->opts.only_pid)
		return 0; /* a child that is not followed, and none is missing */
	if (peer.uid != 0 && peer.uid != counters->opts.uid)
		return -EACCES;
	/* The same process again is a new program (exec): the old one's counts are final. */
	for (size_t i = 0; peer.pid > 0 && i < counters->slot_cnt; i++)
		if (counters->slots[i].pid == peer.pid) {
			fold(counters, &counters->slots[i]);
			break;
		}
	if (counters->slot_cnt >= counters->sweep_cnt)
		sweep_dead(counters);
	err = grow_slots(counters);
	if (err)
		return err;
	shared = new_shared(&memory_fd);
	if (!shared)
		return -ENOMEM;
	err = send_handover(peer_fd, memory_fd);
	close(memory_fd);
	if (err) {
		munmap(shared, ATM_COUNTERS_BYTES);
		return err;
	}
	counters->slots[counters->slot_cnt++] = (struct slot){.pid = peer.pid, .shared = shared};
	return 0;
}

/*
 * A process that waits for an answer must get one: out of descriptors, the
 * spare one is given up for a moment to turn it away.
 */
static void refuse_one(struct counters *counters)
{
	int peer_fd;

	if (counters->spare_fd < 0)
		return;
	close(counters->spare_fd);
	peer_fd = accept4(counters->fd, NULL, NULL, SOCK_CLOEXEC);
	if (peer_fd >= 0) {
		close(peer_fd);
		counters->result.refused_cnt++;
	}
	counters->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void counters__serve(struct counters *counters)
{
	for (;;) {
		int peer_fd = accept4(counters->fd, NULL, NULL, SOCK_CLOEXEC);

		if (peer_fd >= 0) {
			if (serve_peer(counters, peer_fd))
				counters->result.refused_cnt++;
			close(peer_fd);
		} else if (errno == EMFILE || errno == ENFILE) {
			refuse_one(counters);
			return; /* poll says whether there are more */
		} else if (errno != EINTR && errno != ECONNABORTED) {
			return;
		}
	}
}

/* The name is 128 random bits: nobody can guess it, or take it first. */
static int listen_on_new_name(struct counters *counters)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	uint64_t random[2];
	size_t name_bytes;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	snprintf(counters->name, sizeof(counters->name), "%s%016llx%016llx",
		 counters->opts.prefix ? counters->opts.prefix : "alloctrace-", (unsigned long long)random[0],
		 (unsigned long long)random[1]);
	name_bytes = strlen(counters->name);
	memcpy(addr.sun_path + 1, counters->name, name_bytes); /* sun_path[0] = 0: abstract */
	counters->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (counters->fd < 0)
		return -errno;
	if (bind(counters->fd, (struct sockaddr *)&addr, offsetof(struct sockaddr_un, sun_path) + 1 + name_bytes) ||
	    listen(counters->fd, SOMAXCONN))
		return -errno;
	return 0;
}

int counters__open(struct counters **counters_out, const struct counters_opts *opts)
{
	struct counters *counters = calloc(1, sizeof(*counters));
	int err;

	if (!counters)
		return -ENOMEM;
	counters->opts = *opts;
	counters->fd = -1;
	counters->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	counters->sweep_cnt = SWEEP_MIN_CNT;
	err = listen_on_new_name(counters);
	if (err) {
		counters__free(counters);
		return err;
	}
	*counters_out = counters;
	return 0;
}

void counters__set_only_pid(struct counters *counters, pid_t pid)
{
	counters->opts.only_pid = pid;
}

const char *counters__name(const struct counters *counters)
{
	return counters->name;
}

int counters__fd(const struct counters *counters)
{
	return counters->fd;
}

uint64_t counters__live_cnt(const struct counters *counters)
{
	return counters->slot_cnt;
}

void counters__finish(struct counters *counters, struct counters_result *result)
{
	counters__serve(counters);
	close(counters->fd);
	counters->fd = -1;
	while (counters->slot_cnt)
		fold(counters, &counters->slots[counters->slot_cnt - 1]);
	*result = counters->result;
}

void counters__free(struct counters *counters)
{
	if (!counters)
		return;
	while (counters->slot_cnt)
		munmap(counters->slots[--counters->slot_cnt].shared, ATM_COUNTERS_BYTES);
	if (counters->fd >= 0)
		close(counters->fd);
	if (counters->spare_fd >= 0)
		close(counters->spare_fd);
	free(counters->slots);
	free(counters);
}
