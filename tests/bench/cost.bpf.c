/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Programs that the benchmarks compare the tracer's with: nothing, the kernel's own way to a callchain, and slots. */
#include "bpf/kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* Of <linux/bpf.h>, beside those of bpf/kernel.h. */
enum { BPF_MAP_TYPE_PERCPU_HASH = 5, BPF_MAP_TYPE_STACK_TRACE = 7, BPF_F_USER_STACK = 1 << 8 };

enum { FRAME_MAX = 127, SLOT_WORD_CNT = 1 << 20, NR_MADVISE = 28 };

const volatile __u32 cfg_tgid;       /* whose callchains */
const volatile __u32 cfg_slot_words; /* from one thread's slot to the next's */

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 1 << 14);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, FRAME_MAX * sizeof(__u64));
} stacks SEC(".maps");

/* key: number of the callchain */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, __s32);
	__type(value, __u64);
} chains SEC(".maps");

/* Words of a size, so that how far apart slots are can be chosen. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SLOT_WORD_CNT);
	__type(key, __u32);
	__type(value, __u64);
} slots SEC(".maps");

SEC("?tp_btf/sys_enter")
int BPF_PROG(at_empty_enter, struct pt_regs *regs, long nr)
{
	return 0;
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(at_empty_exit, struct pt_regs *regs, long ret)
{
	return 0;
}

/* Nothing but the clock, of madvise alone. */
SEC("?tp_btf/sys_enter")
int BPF_PROG(at_clock_enter, struct pt_regs *regs, long nr)
{
	return nr == NR_MADVISE && !bpf_ktime_get_ns();
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(at_clock_exit, struct pt_regs *regs, long ret)
{
	return regs->orig_ax == NR_MADVISE && !bpf_ktime_get_ns();
}

SEC("?tracepoint")
int at_empty_tp(void *ctx)
{
	return 0;
}

/* mmap and munmap, by the frame pointers of user mode. */
SEC("?tp_btf/sys_exit")
int BPF_PROG(at_stackid_exit, struct pt_regs *regs, long ret)
{
	__u64 one = 1, *cnt;
	__s32 number;

	if ((regs->orig_ax != 9 && regs->orig_ax != 11) || bpf_get_current_pid_tgid() >> 32 != cfg_tgid)
		return 0;
	number = bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK);
	if (number < 0)
		return 0;
	cnt = bpf_map_lookup_elem(&chains, &number);
	if (cnt)
		++*cnt;
	else
		bpf_map_update_elem(&chains, &number, &one, BPF_ANY);
	return 0;
}

static __always_inline int slot_write(__u64 word)
{
	__u32 key = ((__u32)bpf_get_current_pid_tgid() * cfg_slot_words) % SLOT_WORD_CNT;
	__u64 *slot = bpf_map_lookup_elem(&slots, &key);

	if (slot)
		*slot = word;
	return 0;
}

SEC("?tp_btf/sys_enter")
int BPF_PROG(at_slot_enter, struct pt_regs *regs, long nr)
{
	return slot_write(1);
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(at_slot_exit, struct pt_regs *regs, long ret)
{
	return slot_write(0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
