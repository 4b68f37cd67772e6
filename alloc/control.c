/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control block and the counters: their storage, the handover of the
 * counters to alloctrace, phases. Formats are in control.h.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "alloc/atmalloc.h"
#include "alloc/heap.h"
#include "alloc/policy.h"
#include "alloc/syscall.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT struct atm_control atmalloc_control = {
	.magic = ATM_MAGIC,
	.abi = ATM_ABI,
	.bytes = sizeof(struct atm_control),
	.policy = POLICY_ALL,
	.policy_default = POLICY_ALL,
#define X(id, name, unit, dflt, help) [ATM_TUNE_##id] = dflt,
	.tune = {ATM_TUNABLES(X)},
#undef X
	/* Until the constructor knows the machine. */
	.commit_batch_fixed_pages = 32,
	.commit_batch_scaled_pages = 32,
	.cpu_cnt = 1,
};

EXPORT struct atm_counters atmalloc_counters;

/* Address of the handover socket, kept for forked children; empty: none. */
static struct sockaddr_un handover_address;
static socklen_t handover_address_bytes;

struct atm_cell *atm_control_cell(uint32_t heap_index)
{
	if (heap_index >= ATM_CELL_CNT)
		return NULL;
	atmalloc_counters.cell_cnt = heap_index + 1;
	return &atmalloc_counters.cells[heap_index];
}

/* ---- handover ---- */

/* Connects and receives the memfd; returns it, or -errno. */
static int receive_memfd(struct atm_handover *handover)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec iov = {.iov_base = handover, .iov_len = sizeof(*handover)};
	struct msghdr message = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	long fd = atm_syscall(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, 0, 0, 0), ret;
	int memfd = -ENOMSG;

	if (fd < 0)
		return (int)fd;
	ret = atm_syscall(SYS_connect, fd, (long)&handover_address, handover_address_bytes, 0, 0, 0);
	if (ret == 0)
		ret = atm_syscall(SYS_recvmsg, fd, (long)&message, MSG_CMSG_CLOEXEC | MSG_WAITALL, 0, 0, 0);
	if (ret == (long)sizeof(*handover) && message.msg_controllen >= sizeof(control.header) &&
	    control.header.cmsg_level == SOL_SOCKET && control.header.cmsg_type == SCM_RIGHTS)
		memcpy(&memfd, CMSG_DATA(&control.header), sizeof(memfd));
	atm_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
	return memfd;
}

/*
 * Maps the shared counters over ours. What is counted so far goes along when
 * keep_bytes says so (the part that may be non-zero, to touch no more pages).
 */
static int hand_over(size_t keep_bytes)
{
	struct atm_handover handover = {0};
	int memfd = receive_memfd(&handover), err = -EPROTO;

	if (memfd < 0)
		return memfd;
	if (handover.magic == ATM_MAGIC && handover.abi == ATM_ABI && handover.bytes == ATM_COUNTERS_BYTES) {
		long ret = atm_syscall(SYS_pwrite64, memfd, (long)&atmalloc_counters, (long)keep_bytes,
				       (long)handover.offset, 0, 0);

		err = ret == (long)keep_bytes ? 0 : (int)ret;
		if (!err)
			err = atm_os_map_shared(&atmalloc_counters, ATM_COUNTERS_BYTES, memfd, handover.offset);
	}
	atm_syscall(SYS_close, memfd, 0, 0, 0, 0, 0);
	if (!err)
		atm_count_call(ATM_KIND_MMAP_FILE, 0);
	return err;
}

static void counters_begin(uint32_t phase)
{
	atmalloc_counters.magic = ATM_MAGIC;
	atmalloc_counters.abi = ATM_ABI;
	atmalloc_counters.pid = (uint32_t)getpid();
	atmalloc_counters.phase = phase;
	atmalloc_counters.phases_seen = 1u << phase;
}

void atm_control_start(void)
{
	const char *name = getenv(ATM_HANDOVER_ENV);
	size_t name_bytes = name ? strlen(name) : 0;

	counters_begin(0);
	if (name_bytes == 0 || name_bytes >= sizeof(handover_address.sun_path))
		return;
	handover_address.sun_family = AF_UNIX;
	memcpy(handover_address.sun_path + 1, name, name_bytes); /* abstract: a zero byte first */
	handover_address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + name_bytes);
	if (hand_over(offsetof(struct atm_counters, cells) + atmalloc_counters.cell_cnt * sizeof(struct atm_cell)))
		handover_address_bytes = 0; /* nobody there: the counters stay private */
}

/* The child counts from zero, in a mapping of its own. */
void atm_control_fork_child(void)
{
	uint32_t phase = atmalloc_counters.phase, cell_cnt = atmalloc_counters.cell_cnt;

	if (!handover_address_bytes)
		/* Pages that the child writes to anyway; the other cells are zero. */
		memset(&atmalloc_counters, 0,
		       offsetof(struct atm_counters, cells) + cell_cnt * sizeof(struct atm_cell));
	else if (hand_over(0))
		atm_os_map_over(&atmalloc_counters, ATM_COUNTERS_BYTES);
	counters_begin(phase);
	atmalloc_counters.cell_cnt = cell_cnt;
}

/* ---- phases ---- */

void atm_control_sum(struct atm_sums *sums)
{
	*sums = atmalloc_counters.live;
	for (unsigned i = 0; i < atmalloc_counters.cell_cnt; i++) {
		const struct atm_cell *cell = &atmalloc_counters.cells[i];

		for (unsigned band = 0; band < ATM_BAND_CNT; band++) {
			sums->requests.malloc_cnt[band] += cell->requests.malloc_cnt[band];
			sums->requests.free_cnt[band] += cell->requests.free_cnt[band];
			sums->requests.realloc_cnt[band] += cell->requests.realloc_cnt[band];
		}
		for (unsigned decision = 0; decision < ATM_DECISION_CNT; decision++)
			sums->decision_cnt[decision] += cell->decision_cnt[decision];
	}
}

EXPORT void atmalloc_phase(unsigned phase)
{
	if (phase >= ATM_PHASE_CNT)
		return;
	/* Summed before the marker, so that the work of it is not billed to the new phase. */
	atm_control_sum(&atmalloc_counters.at_phase[phase]);
	atmalloc_counters.phase = phase;
	atmalloc_counters.phases_seen |= 1u << phase;
	/* The marker itself belongs to the phase that it ends, as the tracer bills it. */
	atmalloc_counters.at_phase[phase].call_cnt[ATM_KIND_MADVISE_PHASE]++;
	atmalloc_counters.at_phase[phase].error_cnt[ATM_KIND_MADVISE_PHASE]++;
	atm_os_mark_phase(phase);
}
