#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What tracing adds to a call, for alloctrace and for other tools, interleaved in one run.

usage: tracer_bench.py [-r ROUNDS] [--ms MS] [TOOL...]

Each round runs every workload of tests/bench/calls.c bare and under every tool, in rotated
order. "added" is the median over the rounds of the traced time less the bare one of the same
round, in ns an operation. "bystander" is getppid() of a process that is not traced while the
tool watches another. Tools that are not installed are named and left out. Needs root.

Tools: run (no ledgers), run-ledgers (all of them), attach (no ledgers), strace (-f -c),
strace-seccomp (the same with --seccomp-bpf), perf (trace -s), bpftrace (count, bytes and
histogram a class, attached to a PID), syscount (libbpf-tools, with latencies, of a PID).
"""
import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OUT = os.path.abspath(os.environ.get("O", f"{ROOT}/.output"))
ALLOCTRACE = f"{OUT}/alloctrace"
CALLS = f"{OUT}/tests/bench/calls"
WORKLOADS = ("madvise", "pair", "fault", "getppid", "bystander")
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
# Time for a tool to attach: it cannot be asked whether it has.
SETTLE_S = 4

SYSCALLS = ("mmap", "munmap", "mprotect", "madvise", "mremap", "brk")
BPFTRACE = "".join(
    f"tracepoint:syscalls:sys_enter_{name} /pid == TARGET/ {{ @start[tid] = nsecs; }} "
    f"tracepoint:syscalls:sys_exit_{name} /@start[tid]/ {{ $ns = nsecs - @start[tid]; @cnt_{name} = count(); "
    f"@sum_{name} = sum($ns); @hist_{name} = hist($ns); delete(@start[tid]); }} " for name in SYSCALLS) + \
    "software:page-faults:1 /pid == TARGET/ { @faults = count(); }"

# Tools that start the target, and tools that are given a PID.
STARTERS = {
    "run": [ALLOCTRACE, "run", "--no-ledgers", "--allocator=system", "--output=/dev/null", "--"],
    "run-ledgers": [ALLOCTRACE, "run", "--allocator=system", "--output=/dev/null", "--"],
    "strace": ["strace", "-f", "-c", "-o", "/dev/null", "-e", "trace=%memory"],
    "strace-seccomp": ["strace", "-f", "--seccomp-bpf", "-c", "-o", "/dev/null", "-e", "trace=%memory"],
    "perf": ["perf", "trace", "-s", "-o", "/dev/null", "-e", ",".join(SYSCALLS), "--"],
}
WATCHERS = {
    "attach": [ALLOCTRACE, "attach", "--no-ledgers", "--output=/dev/null", "-p"],
    "bpftrace": None,
    "syscount": ["syscount", "-L", "-p"],
}
with_tracefs = ["unshare", "-m", "sh", "-c", "mount -t tracefs nodev /sys/kernel/tracing 2>/dev/null; exec \"$@\"", "sh"]


class Unusable(Exception):
    """A tool does not work here; the text says why."""


def start_target(workload, ms, prefix=()):
    name = "getppid" if workload == "bystander" else workload
    return subprocess.Popen([*prefix, CALLS, name, str(ms)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)


def finish_target(target):
    out, _ = target.communicate("g", timeout=120)
    # Some tools print to the same place, after the target's line.
    words = out.split()
    if not words:
        raise Unusable(f"the target ended with status {target.returncode} and printed nothing")
    return float(words[0])


def watch(tool, pid):
    words = ["bpftrace", "-e", BPFTRACE.replace("TARGET", str(pid))] if tool == "bpftrace" else [*WATCHERS[tool], str(pid)]
    watcher = subprocess.Popen([*with_tracefs, *words], **QUIET)
    time.sleep(SETTLE_S)
    if watcher.poll() is not None:
        raise Unusable(f"ended with status {watcher.returncode}")
    return watcher


def end(process, number=signal.SIGINT):
    if process.poll() is None:
        process.send_signal(number)
    process.communicate(timeout=60)


def under_watcher(tool, workload, ms):
    idle = start_target("getppid", ms) if workload == "bystander" else None
    target = None if idle else start_target(workload, ms)
    watcher = None
    try:
        watcher = watch(tool, (idle or target).pid)
        target = target or start_target(workload, ms)
        return finish_target(target)
    finally:
        if watcher:
            end(watcher)
        for process in (idle, target):
            if process and process.poll() is None:
                end(process, signal.SIGKILL)


def under_starter(tool, workload, ms):
    prefix = [*with_tracefs, *STARTERS[tool]]
    if workload != "bystander":
        return finish_target(start_target(workload, ms, prefix))
    idle = start_target("getppid", 1, prefix)
    try:
        time.sleep(SETTLE_S)
        if idle.poll() is not None:
            raise Unusable(f"ended with status {idle.returncode}")
        return finish_target(start_target(workload, ms))
    finally:
        finish_target(idle)


def measure(tool, workload, ms):
    if tool == "bare":
        return finish_target(start_target(workload, ms))
    return (under_starter if tool in STARTERS else under_watcher)(tool, workload, ms)


def check_perf():
    """perf trace may run the program and see nothing of it; a cost of nothing would be reported."""
    with tempfile.NamedTemporaryFile(prefix="alloctrace-bench-") as summary:
        words = [word if word != "/dev/null" else summary.name for word in STARTERS["perf"]]
        finish_target(start_target("madvise", 20, [*with_tracefs, *words]))
        if b"madvise" not in summary.read():
            raise Unusable("it sees no syscalls here")


def usable_tools(tools):
    usable = []
    for tool in tools:
        command = (STARTERS.get(tool) or WATCHERS.get(tool) or [tool])[0]
        try:
            if not shutil.which(command):
                raise Unusable("is not installed")
            measure(tool, "madvise", 20)
            if tool == "perf":
                check_perf()
            usable.append(tool)
        except (Unusable, subprocess.SubprocessError, OSError) as error:
            print(f"{tool}: left out: {error}", file=sys.stderr)
    return usable


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-r", type=int, default=5, metavar="ROUNDS", dest="rounds")
    parser.add_argument("--ms", type=int, default=300)
    parser.add_argument("tools", nargs="*", metavar="TOOL")
    opts = parser.parse_args()
    known = (*STARTERS, *WATCHERS)
    for tool in opts.tools:
        if tool not in known:
            parser.error(f"no tool {tool}; there are {', '.join(known)}")
    tools = usable_tools(opts.tools or known)
    if not tools:
        sys.exit("tracer_bench: no tool can be used here")
    ns = {}
    for number in range(opts.rounds):
        order = ["bare", *tools]
        order = order[number % len(order):] + order[:number % len(order)]
        for workload in WORKLOADS:
            for tool in order:
                ns.setdefault((tool, workload), []).append(measure(tool, workload, opts.ms))
    print(f"{'added ns':<16}" + "".join(f"{workload:>12}" for workload in WORKLOADS))
    print(f"{'(bare)':<16}" + "".join(f"{statistics.median(ns['bare', w]):>12.0f}" for w in WORKLOADS))
    for tool in tools:
        added = [statistics.median(t - b for t, b in zip(ns[tool, w], ns["bare", w])) for w in WORKLOADS]
        print(f"{tool:<16}" + "".join(f"{value:>12.0f}" for value in added))


main()
