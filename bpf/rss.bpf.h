/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What is resident in a process; above all when it asks to end (exit_group): its memory is still
 * all there, and it makes no more. A process that a signal ends asks nothing.
 *
 * Since 6.2 (f1a7941243c1) the kernel keeps a share of each count per CPU, 2 x
 * CPUs pages or more: with them left out, the figure of a small program would be
 * mostly error. No helper reads memory that is per CPU, and a kernel need not
 * name its variables (KALLSYMS_ALL). So where a CPU's copies begin is seen from
 * a map of ours: its value's address there, less the one that stands for all CPUs.
 */
#ifndef ALLOCTRACE_BPF_RSS_BPF_H
#define ALLOCTRACE_BPF_RSS_BPF_H

enum { RSS_CPU_MAX = 8192 };

struct rss_shares {
	__u64 counters; /* addresses */
	__u64 common;
	__s64 sum;
};

/* To the verifier a pointer is no number until it has been through memory. */
static __always_inline __u64 rss_number_of(const void *pointer)
{
	__u64 number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), &pointer);
	return number;
}

static long rss_add_share(__u32 cpu, void *ctx)
{
	struct rss_shares *shares = ctx;
	__u32 key = 0;
	__u64 *copy = bpf_map_lookup_percpu_elem(&final_pages, &key, cpu);
	__s32 share;

	if (!copy)
		return 1; /* all CPUs were there */
	if (!bpf_probe_read_kernel(&share, sizeof(share),
				   (void *)(shares->counters + rss_number_of(copy) - shares->common)))
		shares->sum += share;
	return 0;
}

static __always_inline __u64 rss_common(void)
{
	__u64 common = 0, map = rss_number_of(&final_pages);

	bpf_probe_read_kernel(&common, sizeof(common), (void *)(map + bpf_core_field_offset(struct bpf_array, pptrs)));
	return common;
}

/*
 * A function for each way, so that the offsets of the other kernels' fields stay in code that is never reached. The
 * older one's threads keep what they have not handed in: up to 64 pages each, those of others out of sight.
 */
static __noinline __s64 rss_by_cpu(const struct task_struct *task, __u32 part)
{
	struct rss_shares shares = {.common = rss_common()};
	__u64 step_bytes = bpf_core_type_size(struct percpu_counter), at;
	const struct percpu_counter *counter;

	/* Not rss_stat[part], nor a plain product: the step would be that of our own struct, as a shift. */
	barrier_var(step_bytes);
	at = bpf_core_field_offset(struct mm_struct___percpu, rss_stat) + part * step_bytes;
	counter = (const void *)((__u64)BPF_CORE_READ(task, mm) + at);
	shares.counters = (__u64)BPF_CORE_READ(counter, counters);
	if (shares.counters && shares.common)
		bpf_loop(RSS_CPU_MAX, rss_add_share, &shares, 0);
	return shares.sum + BPF_CORE_READ(counter, count);
}

static __noinline __s64 rss_by_thread(const struct task_struct *task, __u32 part)
{
	const struct mm_struct___atomic *mm = (const void *)task->mm;
	const struct task_struct___rss *own = (const void *)task;

	return BPF_CORE_READ(mm, rss_stat.count[part].counter) + BPF_CORE_READ(own, rss_stat.count[part]);
}

static __always_inline __s64 rss_part(const struct task_struct *task, __u32 part)
{
	if (bpf_core_field_exists(struct task_struct___rss, rss_stat))
		return rss_by_thread(task, part);
	return rss_by_cpu(task, part);
}

static __noinline int rss_look(__u64 nr)
{
	static const __u32 parts[] = {MM_FILEPAGES, MM_ANONPAGES, MM_SHMEMPAGES};
	struct task_struct *task = bpf_get_current_task_btf();
	__u8 *target = target_of(task->tgid);
	__s64 pages = 0;
	__u32 key = 0;
	__u64 *most;

	if (!target || !*target || !task->mm || is_compat(task) != (nr == NR_IA32_EXIT_GROUP))
		return 0;
	for (int i = 0; i < 3; i++)
		pages += rss_part(task, parts[i]);
	most = bpf_map_lookup_elem(&final_pages, &key);
	if (most && pages > (__s64)*most)
		*most = pages;
	return 0;
}

/* Of the processes that ended, the one that held most: what rusage's peak means, too. */
static __always_inline void rss_last_look(__u64 nr)
{
	if (nr == NR_EXIT_GROUP || nr == NR_IA32_EXIT_GROUP)
		rss_look(nr);
}

#endif
