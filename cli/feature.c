/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds out by trying what the kernel allows, and why not. Owns the sentences
 * that tell users what stands in the way.
 */
#include "cli/feature.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli/btf_scan.h"
#include "cli/host.h"

#define BTF_PATH "/sys/kernel/btf/vmlinux"
#define FENTRY_FUNC "__x64_sys_madvise"

/* The inode number of the first pid namespace: kernel ABI (PROC_PID_INIT_INO). */
#define INIT_PID_NAMESPACE 0xEFFFFFFCu

enum { PID_LIMIT = 4 << 20 }; /* no kernel has more */

static const struct bpf_insn return_zero[] = {
	{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
	{.code = BPF_JMP | BPF_EXIT},
};
#define RETURN_ZERO_CNT (sizeof(return_zero) / sizeof(return_zero[0]))

static void __attribute__((format(printf, 3, 4))) feature__fail(struct feature *feature, int err, const char *fmt, ...)
{
	va_list args;

	feature->is_ok = false;
	feature->err = err;
	va_start(args, fmt);
	vsnprintf(feature->why, sizeof(feature->why), fmt, args);
	va_end(args);
}

static void feature__pass(struct feature *feature)
{
	*feature = (struct feature){.is_ok = true};
}

static bool has_cap(int cap)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

	if (syscall(SYS_capget, &header, data))
		return false;
	return data[CAP_TO_INDEX(cap)].effective & CAP_TO_MASK(cap);
}

static bool has_bpf_caps(void)
{
	return has_cap(CAP_SYS_ADMIN) || (has_cap(CAP_BPF) && has_cap(CAP_PERFMON));
}

/* Inside a user namespace capabilities say nothing about BPF. */
static bool is_in_user_namespace(void)
{
	char map[64];
	unsigned inside, outside, cnt;

	host__read_line("/proc/self/uid_map", map, sizeof(map));
	return sscanf(map, "%u %u %u", &inside, &outside, &cnt) == 3 && (outside || cnt != UINT32_MAX);
}

static bool has_seccomp(void)
{
	char line[128];
	bool has = false;
	FILE *file = fopen("/proc/self/status", "re");

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, "Seccomp:", 8))
			has = atoi(line + 8) != 0;
	if (file)
		fclose(file);
	return has;
}

static bool is_locked_down(const char *level)
{
	char line[128], active[32];

	host__read_line("/sys/kernel/security/lockdown", line, sizeof(line));
	snprintf(active, sizeof(active), "[%s]", level);
	return strstr(line, active) != NULL;
}

/* Why bpf(2) refused with err something that the kernel could do. */
static void feature__refused(struct feature *feature, const char *what, int err)
{
	if (err == ENOSYS)
		feature__fail(feature, err, "this kernel is built without BPF (CONFIG_BPF_SYSCALL)");
	else if (err != EPERM && err != EACCES)
		feature__fail(feature, err, "%s: %s", what, strerror(err));
	else if (is_in_user_namespace())
		feature__fail(feature, err,
			      "%s is not permitted in a user namespace, whatever its capabilities: "
			      "run as root of the host",
			      what);
	else if (!has_bpf_caps())
		feature__fail(feature, err,
			      "%s needs the capabilities CAP_BPF and CAP_PERFMON: run with sudo, or grant both", what);
	else if (is_locked_down("confidentiality"))
		feature__fail(feature, err, "kernel lockdown (mode confidentiality) forbids %s, even to root", what);
	else if (has_seccomp())
		feature__fail(feature, err,
			      "a seccomp filter (of a container?) refuses %s although the capabilities are there",
			      what);
	else
		feature__fail(feature, err,
			      "a security module or container refuses %s although the capabilities are there", what);
}

static int load_trivial(enum bpf_prog_type type, enum bpf_attach_type attach_type, int btf_id)
{
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = attach_type,
		    .attach_btf_id = btf_id > 0 ? (unsigned)btf_id : 0);
	int fd = bpf_prog_load(type, "at_probe", "Dual BSD/GPL", return_zero, RETURN_ZERO_CNT, &opts);

	return fd < 0 ? -errno : fd;
}

/* 0 or the error. Large ones fail where locked memory is limited, on kernels that still count maps as such
 * (before 5.11). */
static int create_map(uint32_t bytes)
{
	int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "at_probe", sizeof(uint32_t), bytes, 1, NULL);

	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

static void probe_bpf(struct feature *feature)
{
	char unprivileged[16];
	int fd = load_trivial(BPF_PROG_TYPE_TRACEPOINT, 0, 0), err;

	if (fd < 0) {
		feature__refused(feature, "loading a BPF program", -fd);
		host__read_line("/proc/sys/kernel/unprivileged_bpf_disabled", unprivileged, sizeof(unprivileged));
		if (!has_bpf_caps() && !is_in_user_namespace() && atoi(unprivileged) && geteuid())
			feature__fail(feature, -fd,
				      "BPF is closed to ordinary users here (kernel.unprivileged_bpf_disabled=%d): "
				      "run with sudo, or grant CAP_BPF and CAP_PERFMON",
				      atoi(unprivileged));
		return;
	}
	close(fd);
	err = create_map(1 << 20);
	if (!err)
		feature__pass(feature);
	else if (err == EPERM && !create_map(1 << 10))
		feature__fail(feature, EPERM,
			      "BPF programs load but no 1 MiB map: raise the locked-memory limit "
			      "(ulimit -l unlimited)");
	else
		feature__refused(feature, "creating a BPF map", err);
}

/* Refused under the stricter kind of kernel lockdown, and then as if the kernel did not know the helper. */
static void probe_kernel_read(struct feature *feature)
{
	static const struct bpf_insn read_kernel[] = {
		{.code = BPF_ST | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_10, .off = -8},
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_1, .src_reg = BPF_REG_10},
		{.code = BPF_ALU64 | BPF_ADD, .dst_reg = BPF_REG_1, .imm = -8},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_2, .imm = 8},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_3},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_probe_read_kernel},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	int fd = bpf_prog_load(BPF_PROG_TYPE_TRACEPOINT, "at_probe", "Dual BSD/GPL", read_kernel,
			       sizeof(read_kernel) / sizeof(read_kernel[0]), NULL);

	if (fd >= 0) {
		close(fd);
		feature__pass(feature);
	} else if (is_locked_down("confidentiality")) {
		feature__fail(feature, errno,
			      "kernel lockdown (mode confidentiality) keeps BPF programs from reading kernel memory, "
			      "even root's: boot without it");
	} else {
		feature__refused(feature, "a BPF program that reads kernel memory", errno);
	}
}

static void probe_btf(struct feature *feature, struct btf_scan *btf)
{
	int err = btf_scan__open(btf, BTF_PATH);

	if (!err)
		feature__pass(feature);
	else if (err == -ENOENT)
		feature__fail(feature, ENOENT,
			      "no type information in the kernel: " BTF_PATH " is missing (CONFIG_DEBUG_INFO_BTF)");
	else
		feature__fail(feature, -err, BTF_PATH " holds no usable type information: %s", strerror(-err));
}

static void probe_tp_btf(struct feature *feature, const struct btf_scan *btf)
{
	int id = btf_scan__find(btf, BTF_KIND_TYPEDEF, "btf_trace_sys_enter"), fd;

	if (id < 0) {
		feature__fail(feature, ENOENT, "this kernel has no syscall tracepoints (CONFIG_FTRACE_SYSCALLS)");
		return;
	}
	fd = load_trivial(BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP, id);
	if (fd < 0) {
		feature__refused(feature, "a BPF program on a tracepoint", -fd);
		return;
	}
	close(fd);
	feature__pass(feature);
}

static void probe_fentry(struct feature *feature, const struct btf_scan *btf)
{
	int id = btf_scan__find(btf, BTF_KIND_FUNC, FENTRY_FUNC), fd, link;

	if (id < 0) {
		feature__fail(feature, ENOENT, "the kernel's type information lacks " FENTRY_FUNC);
		return;
	}
	fd = load_trivial(BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY, id);
	if (fd < 0) {
		feature__refused(feature, "a BPF trampoline", -fd);
		return;
	}
	link = bpf_raw_tracepoint_open(NULL, fd);
	if (link < 0 && errno != EPERM && errno != EACCES) {
		feature__fail(
			feature, errno,
			"this kernel lets no program onto its functions (CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS): "
			"error %d",
			errno);
	} else if (link < 0) {
		feature__refused(feature, "attaching a BPF trampoline", errno);
	} else {
		feature__pass(feature);
		close(link);
	}
	close(fd);
}

/*
 * Programs on functions may be interrupted by another task where the kernel is
 * preemptible, and then miss what that one does: not exact. The kernel says in
 * debugfs which it is, unless it was built without the choice.
 */
static void probe_preemption(struct feature *feature)
{
	struct utsname kernel;
	char modes[64];
	int err = host__read_line("/sys/kernel/debug/sched/preempt", modes, sizeof(modes));

	if (strstr(modes, "(none)") || strstr(modes, "(voluntary)"))
		return;
	if (!modes[0] && !uname(&kernel) && !strstr(kernel.version, "PREEMPT"))
		return;
	if (modes[0]) {
		feature__fail(feature, ENOTSUP,
			      "this kernel switches tasks inside such programs (preempt=full or lazy), so counts "
			      "would not be exact: boot with preempt=voluntary");
		return;
	}
	feature__fail(feature, ENOTSUP, "whether this kernel switches tasks inside such programs cannot be read: %s",
		      err == -EPERM    ? "kernel lockdown keeps debugfs closed, even to root"
		      : err == -EACCES ? "debugfs is open to root only, run with sudo"
				       : "mount debugfs");
}

/* Whether a kernel function can be a column's source: there, and open to programs. */
static void probe_function(struct feature *feature, const struct feature *fentry, const struct btf_scan *btf,
			   const char *name)
{
	if (!fentry->is_ok)
		*feature = *fentry;
	else if (btf_scan__find(btf, BTF_KIND_FUNC, name) >= 0)
		feature__pass(feature);
	else
		feature__fail(feature, ENOENT, "this kernel has no function %s (renamed, or part of its caller)", name);
}

/* Debian's kernels have a setting above the others', which leaves events to CAP_SYS_ADMIN alone. */
static void refuse_event(struct feature *feature, int err)
{
	char paranoid[16];

	host__read_line("/proc/sys/kernel/perf_event_paranoid", paranoid, sizeof(paranoid));
	if (err != EACCES || has_cap(CAP_SYS_ADMIN) || !has_bpf_caps() || atoi(paranoid) <= 2)
		feature__refused(feature, "a page fault event", err);
	else
		feature__fail(feature, err,
			      "page fault events are closed to all but root here (kernel.perf_event_paranoid=%d): "
			      "run with sudo, or set it to 2",
			      atoi(paranoid));
}

static void probe_fault_event(struct feature *feature)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_PAGE_FAULTS_MIN,
		.sample_period = 1,
		.disabled = 1,
		.inherit = 1,
	};
	int event, prog;

	event = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (event < 0) {
		if (errno == EACCES || errno == EPERM)
			refuse_event(feature, errno);
		else
			feature__fail(feature, errno, "page fault events (perf_event_open): %s", strerror(errno));
		return;
	}
	prog = load_trivial(BPF_PROG_TYPE_PERF_EVENT, 0, 0);
	if (prog < 0)
		feature__refused(feature, "a BPF program on a perf event", -prog);
	else if (ioctl(event, PERF_EVENT_IOC_SET_BPF, prog))
		feature__refused(feature, "a BPF program on a page fault event", errno);
	else
		feature__pass(feature);
	if (prog >= 0)
		close(prog);
	close(event);
}

static void probe_task_storage(struct feature *feature)
{
	int res = libbpf_probe_bpf_map_type(BPF_MAP_TYPE_TASK_STORAGE, NULL);

	if (res == 1)
		feature__pass(feature);
	else
		feature__fail(feature, res < 0 ? -res : EINVAL, "this kernel has no BPF task storage");
}

static void probe_vma_iter(struct feature *feature, const struct btf_scan *btf)
{
	if (btf_scan__find(btf, BTF_KIND_FUNC, "bpf_iter_task_vma_new") >= 0)
		feature__pass(feature);
	else
		feature__fail(feature, ENOENT,
			      "this kernel has no iterator over a process's mappings (6.7 and later do)");
}

static void probe_task_iter(struct feature *feature, const struct btf_scan *btf)
{
	if (btf_scan__find(btf, BTF_KIND_FUNC, "bpf_iter_task") >= 0)
		feature__pass(feature);
	else
		feature__fail(feature, ENOENT, "this kernel has no iterator over processes (5.8 and later do)");
}

/* Programs see the numbers of the first pid namespace; a walk over the tasks that we see translates. */
static void probe_pid_namespace(struct features *features)
{
	struct feature *feature = &features->pid_namespace;
	struct stat st;

	if (stat("/proc/self/ns/pid", &st))
		feature__fail(feature, errno, "/proc/self/ns/pid: %s", strerror(errno));
	else
		features->is_own_pid_namespace = st.st_ino != INIT_PID_NAMESPACE;
	if (features->is_own_pid_namespace && !features->task_iter.is_ok)
		feature__fail(
			feature, ENOTSUP,
			"this is a pid namespace of its own, and this kernel cannot translate its PIDs to the host's: "
			"run with the host's (--pid=host)");
	else if (!feature->err)
		feature__pass(feature);
	/* The kernel's numbers may be higher than those that we can have; 4 Mi is the limit of all kernels. */
	if (features->is_own_pid_namespace)
		features->pid_max = PID_LIMIT;
}

/* Everything below BTF needs it and a working bpf(2). */
static void probe_lock_events(struct feature *feature, const struct btf_scan *btf)
{
	if (btf_scan__find(btf, BTF_KIND_TYPEDEF, "btf_trace_contention_begin") >= 0)
		feature__pass(feature);
	else
		feature__fail(feature, ENOENT, "this kernel has no tracepoints of lock waits (5.19 and later do)");
}

static void probe_tracing(struct features *features, const struct btf_scan *btf)
{
	const struct feature *needed = features->bpf.is_ok ? &features->btf : &features->bpf;

	if (features->bpf.is_ok && features->btf.is_ok) {
		probe_kernel_read(&features->kernel_read);
		needed = &features->kernel_read;
	}
	if (!needed->is_ok) {
		features->kernel_read = *needed;
		features->tp_btf = *needed;
		features->fentry = *needed;
		features->fault_function = *needed;
		features->charge_function = *needed;
		features->fault_event = *needed;
		features->task_storage = *needed;
		features->vma_iter = *needed;
		features->lock_events = *needed;
		features->task_iter = *needed;
		return;
	}
	probe_tp_btf(&features->tp_btf, btf);
	probe_fentry(&features->fentry, btf);
	if (features->fentry.is_ok)
		probe_preemption(&features->fentry);
	probe_function(&features->fault_function, &features->fentry, btf, "handle_mm_fault");
	probe_function(&features->charge_function, &features->fentry, btf, "__vm_enough_memory");
	probe_fault_event(&features->fault_event);
	probe_task_storage(&features->task_storage);
	probe_vma_iter(&features->vma_iter, btf);
	probe_lock_events(&features->lock_events, btf);
	probe_task_iter(&features->task_iter, btf);
}

static int silent(enum libbpf_print_level level, const char *fmt, va_list args)
{
	(void)level;
	(void)fmt;
	(void)args;
	return 0;
}

int feature__find_functions(const char *const *names, size_t cnt, bool *has)
{
	struct btf_scan btf;
	int err = btf_scan__open(&btf, BTF_PATH), *ids = calloc(cnt, sizeof(*ids));

	if (!err && !ids)
		err = -ENOMEM;
	if (!err)
		btf_scan__find_all(&btf, BTF_KIND_FUNC, names, cnt, ids);
	for (size_t i = 0; !err && i < cnt; i++)
		has[i] = ids[i] >= 0;
	btf_scan__close(&btf);
	free(ids);
	return err;
}

void feature__probe(struct features *features)
{
	libbpf_print_fn_t print = libbpf_set_print(silent);
	char line[32];
	struct btf_scan btf;

	*features = (struct features){0};
	host__read_line("/proc/sys/kernel/pid_max", line, sizeof(line));
	features->pid_max = atoi(line);
	if (features->pid_max <= 0)
		features->pid_max = PID_LIMIT;
	probe_bpf(&features->bpf);
	probe_btf(&features->btf, &btf);
	probe_tracing(features, &btf);
	btf_scan__close(&btf);
	probe_pid_namespace(features);
	features->best_tier = feature__best_tier(features);
	libbpf_set_print(print);
}
