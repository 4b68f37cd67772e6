#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What tracing adds to a call, for alloctrace and for other tools, interleaved in one run.

usage: tracer_bench.py [-r ROUNDS] [--ms MS] [-w WORKLOAD,...] [TOOL...]

Each round starts a program (tests/bench/calls.c) under every tool, in rotated order, has it run
every workload, and does the same bare just before. "added" is the median over the rounds of the
traced time less the bare one beside it, in ns an operation. Tools that are not installed are
named and left out. Needs root.

Workloads: madvise, one that fails at once, the cheapest traced call; pair, mmap and munmap; fault,
a first touch; major, a page that is read from disk; getppid, of a traced process; bystander, the
same of a process that is not traced while the tool watches another; fork, with exit and wait;
madvise2, 4 and 8 of as many threads at once; start, a whole run of a program that does nothing,
for the tools that start theirs.

Tools: run (no ledgers), run-ledgers (all of them), attach and attach-ledgers; strace (-f -c),
strace-seccomp (the same with --seccomp-bpf), perf (trace -s), syscount (libbpf-tools, with latencies,
of a PID). bpftrace by three scripts of tracer_scripts.py: bpftrace-run and bpftrace-attach measure
what run and attach do, bpftrace-short only a count, a sum and a histogram a syscall and a count
of faults. What no tracer goes below, programs that do nothing (floor.c): floor-run, on sys_enter and
sys_exit; floor-clock, the same and the clock at both ends of madvise; floor-attach, on the
tracepoints of the traced syscalls; floor-other, on another syscall's.
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

import tracer_scripts

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OUT = os.path.abspath(os.environ.get("O", f"{ROOT}/.output"))
ALLOCTRACE = f"{OUT}/alloctrace"
CALLS = f"{OUT}/tests/bench/calls"
FLOOR = f"{OUT}/tests/bench/floor"
WORKLOADS = ("madvise", "pair", "fault", "getppid", "bystander")
MORE_WORKLOADS = ("major", "fork", "madvise2", "madvise4", "madvise8", "start")
# Not asked of the running target.
APART = ("bystander", "start")
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
# A tool cannot be asked whether it has attached: it has when nothing has happened in it for so long.
IDLE_S = 1
SETTLE_MAX_S = 30

MEMORY_CALLS = ",".join(tracer_scripts.SYSCALLS)
SCRIPTS = {
    "bpftrace-run": tracer_scripts.full(has_rows=False),
    "bpftrace-attach": tracer_scripts.full(has_rows=True),
    "bpftrace-short": tracer_scripts.SHORT,
}
# Tools that start the target, and tools that are given a PID.
STARTERS = {
    "run": [ALLOCTRACE, "run", "--no-ledgers", "--allocator=system", "--output=/dev/null", "--"],
    "run-ledgers": [ALLOCTRACE, "run", "--allocator=system", "--output=/dev/null", "--"],
    "strace": ["strace", "-f", "-c", "-o", "/dev/null", "-e", "trace=%memory"],
    "strace-seccomp": ["strace", "-f", "--seccomp-bpf", "-c", "-o", "/dev/null", "-e", "trace=%memory"],
    "perf": ["perf", "trace", "-s", "-o", "/dev/null", "-e", MEMORY_CALLS, "--"],
}
WATCHERS = {
    "floor-run": [FLOOR, "all"],
    "floor-clock": [FLOOR, "clock"],
    "floor-attach": [FLOOR, "singles"],
    "floor-other": [FLOOR, "other"],
    "attach": [ALLOCTRACE, "attach", "--no-ledgers", "--output=/dev/null", "-p", "PID"],
    "attach-ledgers": [ALLOCTRACE, "attach", "--output=/dev/null", "-p", "PID"],
    **{tool: ["bpftrace", "-e", script] for tool, script in SCRIPTS.items()},
    "syscount": ["syscount", "-L", "-p", "PID"],
}
# A tool ends with us, whatever ends us: it would go on tracing everything.
with_tracefs = ["setpriv", "--pdeathsig", "KILL", "unshare", "-m", "sh", "-c",
                "mount -t tracefs nodev /sys/kernel/tracing 2>/dev/null; exec \"$@\"", "sh"]


class Unusable(Exception):
    """A tool does not work here; the text says why."""


def start_target(prefix=()):
    return subprocess.Popen([*prefix, CALLS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)


def ask(target, workload, ms):
    """The target's answer, in ns an operation."""
    try:
        target.stdin.write(f"{workload} {ms}\n")
        target.stdin.flush()
        line = target.stdout.readline()
    except BrokenPipeError:
        line = ""
    if not line.strip():
        raise Unusable("the target ended without an answer")
    return float(line)


def answers(target, workloads, ms):
    return {workload: ask(target, workload, ms) for workload in workloads if workload not in APART}


def bystander(ms):
    process = start_target()
    try:
        return ask(process, "getppid", ms)
    finally:
        finish(process)


def start(prefix=()):
    """The shortest of some runs."""
    times = []
    for _ in range(5):
        begin = time.monotonic_ns()
        subprocess.run([*prefix, "true"], check=True, **QUIET)
        times.append(time.monotonic_ns() - begin)
    return min(times)


def finish(target):
    """The end of its input ends it, and what has started it after it."""
    try:
        target.communicate(timeout=60)
    finally:
        if target.poll() is None:
            target.kill()


def end(process):
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise Unusable("does not end when it is asked to") from None


def activity(pid):
    """Time that it ran or waited for a CPU, and how many descriptors it has: one more for each probe."""
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as stat:
        run_ns, wait_ns, _ = (int(word) for word in stat.read().split())
    return run_ns + wait_ns, len(os.listdir(f"/proc/{pid}/fd"))


def settle(process):
    """Waits until it is idle: it opens nothing, and needs less than a hundredth of the time."""
    last_ns, last_cnt = 0, 0
    for _ in range(int(SETTLE_MAX_S / IDLE_S)):
        time.sleep(IDLE_S)
        if process.poll() is not None:
            raise Unusable(f"ended with status {process.returncode}")
        ns, cnt = activity(process.pid)
        if ns - last_ns < IDLE_S * 1e9 / 100 and cnt == last_cnt:
            return
        last_ns, last_cnt = ns, cnt
    raise Unusable(f"is still busy after {SETTLE_MAX_S} s")


def under_watcher(tool, workloads, ms):
    target, watcher = start_target(), None
    try:
        pid = str(target.pid)
        words = [word.replace("TARGET", pid) if word != "PID" else pid for word in WATCHERS[tool]]
        watcher = subprocess.Popen([*with_tracefs, *words], **QUIET)
        settle(watcher)
        ns = answers(target, workloads, ms)
        if "bystander" in workloads:
            ns["bystander"] = bystander(ms)
        return ns
    finally:
        if watcher:
            end(watcher)
        finish(target)


def under_starter(tool, workloads, ms):
    target = start_target([*with_tracefs, *STARTERS[tool]])
    try:
        settle(target)
        ns = answers(target, workloads, ms)
        if "bystander" in workloads:
            ns["bystander"] = bystander(ms)
    finally:
        finish(target)
    if "start" in workloads:
        ns["start"] = start(STARTERS[tool])
    return ns


def bare(workloads, ms):
    target = start_target()
    try:
        ns = answers(target, workloads, ms)
    finally:
        finish(target)
    if "bystander" in workloads:
        ns["bystander"] = bystander(ms)
    if "start" in workloads:
        ns["start"] = start()
    return ns


def measure(tool, workloads, ms):
    return (under_starter if tool in STARTERS else under_watcher)(tool, workloads, ms)


def check_perf():
    """perf trace may run the program and see nothing of it; a cost of nothing would be reported."""
    with tempfile.NamedTemporaryFile(prefix="alloctrace-bench-") as summary:
        words = [word if word != "/dev/null" else summary.name for word in STARTERS["perf"]]
        target = start_target([*with_tracefs, *words])
        try:
            ask(target, "madvise", 20)
        finally:
            finish(target)
        if b"madvise" not in summary.read():
            raise Unusable("it sees no syscalls here")


def usable_tools(tools):
    usable = []
    for tool in tools:
        command = {**STARTERS, **WATCHERS}[tool][0]
        try:
            if not shutil.which(command):
                raise Unusable("is not installed")
            if tool == "perf":
                check_perf()
            elif command not in (ALLOCTRACE, FLOOR):
                measure(tool, ("madvise",), 20)
            usable.append(tool)
        except (Unusable, subprocess.SubprocessError, OSError) as error:
            print(f"{tool}: left out: {error}", file=sys.stderr)
    return usable


def run_rounds(ns, base, workloads, opts):
    tools = list(ns)
    for number in range(opts.rounds):
        first = number % len(tools)
        for tool in tools[first:] + tools[:first]:
            bare_ns = bare(workloads, opts.ms)
            ns[tool].append(measure(tool, workloads, opts.ms))
            base[tool].append(bare_ns)


def print_table(ns, base, tools, workloads):
    print(f"{'added ns':<16}" + "".join(f"{workload:>12}" for workload in workloads))
    print(f"{'(bare)':<16}" + "".join(
        f"{statistics.median(t[w] for tool in tools for t in base[tool]):>12.0f}" for w in workloads))
    for tool in tools:
        row = f"{tool:<16}"
        for w in workloads:
            added = [t[w] - b[w] for t, b in zip(ns[tool], base[tool]) if w in t]
            row += f"{statistics.median(added):>12.0f}" if added else f"{'-':>12}"
        print(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-r", type=int, default=5, metavar="ROUNDS", dest="rounds")
    parser.add_argument("--ms", type=int, default=300)
    parser.add_argument("-w", default=",".join(WORKLOADS), metavar="WORKLOAD,...", dest="workloads")
    parser.add_argument("tools", nargs="*", metavar="TOOL")
    opts = parser.parse_args()
    known = (*STARTERS, *WATCHERS)
    for tool in opts.tools:
        if tool not in known:
            parser.error(f"no tool {tool}; there are {', '.join(known)}")
    workloads = opts.workloads.split(",")
    for workload in workloads:
        if workload not in WORKLOADS + MORE_WORKLOADS:
            parser.error(f"no workload {workload}; there are {', '.join(WORKLOADS + MORE_WORKLOADS)}")
    tools = usable_tools(opts.tools or known)
    if not tools:
        sys.exit("tracer_bench: no tool can be used here")
    ns, base = {tool: [] for tool in tools}, {tool: [] for tool in tools}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run_rounds(ns, base, workloads, opts)
    except KeyboardInterrupt:
        print("interrupted: what there is", file=sys.stderr)
    print_table(ns, base, [tool for tool in tools if ns[tool]], workloads)


main()
