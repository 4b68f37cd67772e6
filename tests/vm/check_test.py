#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 900
"""What `alloctrace check` says where something is in the way, on other kernels, booted under qemu as it takes.

Obstacles that this machine can put up itself: tests/unit/feature_test.c. Whatever it is, its own sentence is there, and
none of the others; the limit of locked memory is never it.
"""
import os
import sys

import vm

KERNELS = (("linux-image-cloud-amd64", "6.1"), ("linux-image-6.12-cloud-amd64", "6.12"))
CHECK = "/at/alloctrace check"
NOBODY = "/bin/setpriv --reuid=65534 --regid=65534 --clear-groups"
NO_CAPS = "--bounding-set=-all --inh-caps=-all"
BOTH = f"{NOBODY} --inh-caps=+bpf,+perfmon --ambient-caps=+bpf,+perfmon"
PERF_SETTING = "/proc/sys/kernel/perf_event_paranoid"
BPF_SETTING = "/proc/sys/kernel/unprivileged_bpf_disabled"

CAPS = "needs the capabilities CAP_BPF and CAP_PERFMON: run with sudo, or grant both"
CLOSED = "BPF is closed to ordinary users here (kernel.unprivileged_bpf_disabled={}): run with sudo, or grant"
NO_EVENTS = "page fault events are closed to all but root here (kernel.perf_event_paranoid=3): run with sudo, or set it to 2"
NO_BTF = "/sys/kernel/btf/vmlinux is missing"
UNREADABLE = "kernel lockdown (mode confidentiality) keeps BPF programs from reading kernel memory, even root's: boot without it"
PREEMPTIBLE = "this kernel switches tasks inside such programs (preempt=full or lazy)"
LOCKED_DEBUGFS = "kernel lockdown keeps debugfs closed, even to root"
ROOT_DEBUGFS = "debugfs is open to root only, run with sudo"
NO_DEBUGFS = "cannot be read: mount debugfs"
SENTENCES = (CAPS, *map(CLOSED.format, range(3)), NO_BTF, UNREADABLE, PREEMPTIBLE, LOCKED_DEBUGFS, NO_EVENTS,
             ROOT_DEBUGFS, NO_DEBUGFS)
NEVER = ("ulimit", "locked-memory", "security module", "seccomp")

# Boot parameters: [(case, command, tier, *sentences)]. In this order: a setting of 1 stays.
CASES = {
    "": (
        ("root", CHECK, 2),
        ("64 KiB of locked memory", f"ulimit -l 64; {CHECK}", 2),
        ("ordinary user, setting 2", f"echo 2 >{BPF_SETTING}; {NOBODY} {NO_CAPS} {CHECK}", 0, CLOSED.format(2)),
        ("ordinary user, setting 0", f"echo 0 >{BPF_SETTING}; {NOBODY} {NO_CAPS} {CHECK}", 0, CAPS),
        ("ordinary user, setting 1", f"echo 1 >{BPF_SETTING}; {NOBODY} {NO_CAPS} {CHECK}", 0, CLOSED.format(1)),
        ("root without capabilities", f"/bin/setpriv {NO_CAPS} {CHECK}", 0, CAPS),
        ("only CAP_BPF", f"/bin/setpriv --bounding-set=-all,+bpf --inh-caps=-all {CHECK}", 0, CAPS),
        ("user with both", f"echo 2 >{PERF_SETTING}; {BOTH} {CHECK}", 1, ROOT_DEBUGFS),
        ("user with both, without events", f"echo 3 >{PERF_SETTING}; {BOTH} {CHECK}", 1, NO_EVENTS, ROOT_DEBUGFS),
        ("no debugfs", f"umount /sys/kernel/debug; {CHECK}", 1, NO_DEBUGFS),
        ("no type information", f"mount -t tmpfs none /sys/kernel/btf; {CHECK}", 0, NO_BTF),
    ),
    "preempt=full": (("root", CHECK, 1, PREEMPTIBLE),),
    "lockdown=integrity": (("root", CHECK, 1, LOCKED_DEBUGFS),),
    "lockdown=confidentiality": (("root", CHECK, 0, UNREADABLE),),
}


def wrong(job, tier, *sentences):
    """What is wrong with an answer; None when nothing is."""
    if job.status != (0 if tier else 1) or f"\ntier {tier}: " not in job.output:
        return f"status {job.status}, expected tier {tier}"
    lacking = [sentence for sentence in sentences if sentence not in job.output]
    untrue = [other for other in (*SENTENCES, *NEVER) if other in job.output and other not in sentences]
    return f"lacks {lacking}, says {untrue}" if lacking or untrue else None


def main():
    try:
        vm.need_tools()
        images = [(vm.kernel(package), name) for package, name in KERNELS]
    except vm.Missing as missing:
        print(f"skip other kernels: {missing}")
        return 0
    initramfs, failed = f"{vm.OUT}/vm/check.{os.getpid()}", False
    vm.pack(initramfs, ("alloctrace",), ("setpriv",))
    for args, cases in CASES.items():
        jobs = [[vm.Job(case, command) for case, command, *_ in cases] for _ in images]
        consoles = vm.boot_all([((image, initramfs, jobs[i]), {"args": args, "memory": "1G", "timeout_s": 200,
                                                               "log": f"{vm.OUT}/vm/check.{name}"})
                                for i, (image, name) in enumerate(images)])
        for (_, name), done, console in zip(images, jobs, consoles):
            for job, (case, _, *expected) in zip(done, cases):
                why = wrong(job, *expected)
                title = f"{name} {args}, {case}".replace(" ,", ",")
                print(f"not ok {title}: {why}\n{job.output}" if why else f"ok {title}", flush=True)
                failed = failed or why
            if any(job.status is None for job in done):
                print(f"console of {name}:\n{console[-3000:]}")
    os.unlink(initramfs)
    return 1 if failed else 0


sys.exit(main())
