#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 300
"""Nothing is lost and nothing grows under load (docs/exactness.md has the list).

Every count is known beforehand from stress_calls. AT_STRESS=FACTOR multiplies
the work: 100 is the full one (5 million pairs a thread, 100,000 processes, 20,000
threads in sequence), which takes some minutes; docs/overhead.md says what it found.
Arguments choose cases: those of main().
"""
import contextlib
import json
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

from attaching import Attach
from measure import ALLOCTRACE, OUT, PAGE, Results, calls, expect, expect_exact, figure, run

FACTOR = int(os.environ.get("AT_STRESS", "1"))
KNOWN = os.path.abspath(f"{OUT}/tests/trace/known_calls")
TARGET = os.path.abspath(f"{OUT}/tests/trace/stress_calls")
THREADS = 2 * (os.cpu_count() or 1)
PAIRS = 50021 * FACTOR
PROCESSES = 1009 * FACTOR
THREADS_IN_SEQUENCE = 2003 + 200 * FACTOR
CALLS_EACH = 3  # as in stress_calls.c
BIG, SMALL = 101, 11
EPOCHS = 8
CALLERS = 4  # as in stress.h
COUNTS = struct.Struct("4Q")  # struct stress_counts: begun and ended, of pkey_mprotect and of madvise
TIMEOUT_S = 200 + 60 * FACTOR
# What the tool may grow by while it runs: a constant, far below one byte a call.
GROWTH_KB = 1024


class Memory:
    """Samples the resident memory of every alloctrace that this process starts: first and last, in kB."""

    def __init__(self):
        self.first, self.last, self.is_over = None, None, False
        self.thread = threading.Thread(target=self.sample)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.thread.join()

    @staticmethod
    def of_tool():
        """None when there is none."""
        with contextlib.suppress(OSError, StopIteration), open(f"/proc/{running_tool()}/status", encoding="utf-8") as status:
            return int(next(line for line in status if line.startswith("VmRSS")).split()[1])
        return None

    def sample(self):
        while not self.is_over:
            now = self.of_tool()
            if now is not None:
                self.first = self.first or now
                self.last = now
            time.sleep(0.02)


def running_tool():
    """The child that is alloctrace and has its target running; None when there is none."""
    pids = []
    # Children belong to the thread that has started them.
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children", encoding="ascii") as children:
            pids += children.read().split()
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
            if any(os.readlink(f"/proc/{child}/exe") in (TARGET, KNOWN) for child in children.read().split()):
                return int(pid)
    return None


def measured(*command, options=(), program=TARGET):
    """The measured phase of a run of stress_calls that has to be exact."""
    profile, _ = run([*options, "--", program, *map(str, command)], allocator="system", timeout=TIMEOUT_S)
    expect_exact(profile)
    expect(not profile["tool"]["lost"]["never_returned"], f"{profile['tool']}")
    expect(not profile.get("in_flight"), f"in flight: {profile.get('in_flight')}")
    return profile["phases"]["measured"]


def measured_flat(*command, **options):
    """The same, and the tool does not grow meanwhile."""
    with Memory() as memory:
        phase = measured(*command, **options)
    expect(memory.first is not None, "the tool's memory was never seen")
    expect(memory.last - memory.first < GROWTH_KB, f"the tool grew from {memory.first} to {memory.last} kB")
    return phase


def check_pairs(phase, thread_cnt, pair_cnt):
    want = thread_cnt * pair_cnt
    for name in ("mmap.anon", "munmap"):
        got = phase["classes"][name]
        expect((got["calls"], got["errors"], got["bytes"]) == (want, 0, want * PAGE),
               f"{name}: {got['calls']} calls, {got['errors']} errors, {got['bytes']} bytes; expected {want}")


def pairs_on_all_cpus(*options):
    phase = measured_flat("pairs", THREADS, PAIRS, options=options)
    check_pairs(phase, THREADS, PAIRS)
    if not options:
        commit = phase["commit"]
        expect(commit["charged_pages"] >= THREADS * PAIRS, f"charged: {commit}")
        # What the pairs charged has gone again; the threads themselves need no memory of their own but some blocks.
        expect(abs(commit["charged_pages"] - commit["uncharged_pages"]) <= 64, f"the charges do not cancel: {commit}")


def short_processes():
    phase = measured_flat("processes", PROCESSES)
    got = phase["classes"]["munmap"]
    expect((got["calls"], got["errors"]) == (PROCESSES * CALLS_EACH,) * 2, f"munmap: {got}")
    expect(got["bytes"] == 0, f"failing calls have bytes: {got}")
    # Of a process that is none of the target's there would be more than that: whatever its program starts with.
    others = {name: c["calls"] for name, c in phase["classes"].items()
              if c["calls"] and name != "munmap" and not name.startswith(("fault.", "madvise.phase"))}
    expect(not others, f"calls that the target does not make: {others}; all classes: {phase['classes']}")


def failing_and_good():
    got = measured("limited")["classes"]["mmap.anon"]
    expect((got["calls"], got["errors"], got["bytes"]) == (BIG + SMALL, BIG, SMALL << 20), f"mmap.anon: {got}")


def under_another_alloctrace():
    """Two of them trace the same calls: both have them all."""
    with tempfile.NamedTemporaryFile(prefix="alloctrace-test-") as inner:
        outer, _ = run(["--", ALLOCTRACE, "run", "--json", "--output", inner.name, "--allocator=system", "--", TARGET,
                        "pairs", "2", str(PAIRS)], allocator="system", timeout=TIMEOUT_S)
        expect_exact(outer)
        check_pairs(outer["phases"]["measured"], 2, PAIRS)
        profile = json.load(inner)
    expect_exact(profile)
    check_pairs(profile["phases"]["measured"], 2, PAIRS)


def beside_bpftrace():
    """Another tool's programs on the same events and CPUs, and reads of large maps meanwhile."""
    script = "tracepoint:raw_syscalls:sys_enter { @[tid, args->id] = count(); @h[comm] = hist(nsecs % 4096); } " \
             "tracepoint:raw_syscalls:sys_exit { @x[tid, args->id] = count(); } interval:ms:50 { print(@); }"
    other = subprocess.Popen(["unshare", "-m", "sh", "-c", "mount -t tracefs nodev /sys/kernel/tracing 2>/dev/null; "
                              "exec bpftrace -q -e \"$1\"", "sh", script],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        first = other.stdout.read(1)  # it has begun to print, so its programs are on
        expect(first, "bpftrace did not start")
        drain = threading.Thread(target=other.stdout.read)
        drain.start()
        phase = measured("pairs", THREADS, PAIRS)
        expect(other.poll() is None, "bpftrace ended too early")
    finally:
        other.send_signal(signal.SIGINT)
        other.wait()
    drain.join()
    check_pairs(phase, THREADS, PAIRS)


def while_stopped():
    """The tool itself need not run for a call to be counted."""
    stopped = []

    def stop():
        while (pid := running_tool()) is None:
            time.sleep(0.002)
        os.kill(pid, signal.SIGSTOP)
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
            target = int(children.read())
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        # Until it is a zombie: the rest of its calls fell into the stop.
        with contextlib.suppress(OSError):
            while open(f"/proc/{target}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()[0] != "Z":
                time.sleep(0.01)
            stopped.append(pid)
        os.kill(pid, signal.SIGCONT)

    stopper = threading.Thread(target=stop)
    stopper.start()
    phase = measured("pairs", THREADS, PAIRS)
    stopper.join()
    expect(stopped, "the target ended before the tool was stopped")
    check_pairs(phase, THREADS, PAIRS)


def attach_in_mid_call():
    """Threads that never stop calling: what is counted lies between what they had begun and what they had ended."""
    with tempfile.NamedTemporaryFile(prefix="alloctrace-test-") as file:
        file.truncate(COUNTS.size)
        counts = mmap.mmap(file.fileno(), COUNTS.size)
        with subprocess.Popen([TARGET, "endless", file.name]) as target:
            try:
                while not COUNTS.unpack(counts)[-1]:
                    time.sleep(0.01)
                for epoch in range(EPOCHS):
                    check_epoch(target.pid, counts, ("array", "storage")[epoch % 2])
            finally:
                target.kill()


def check_epoch(pid, counts, slots):
    before = COUNTS.unpack(counts)
    with Attach("-p", pid, f"--slots={slots}") as attach:
        attached = COUNTS.unpack(counts)
        time.sleep(0.2)
        ending = COUNTS.unpack(counts)
        report = attach.report()
    after = COUNTS.unpack(counts)
    expect_exact(report)
    for i, name in enumerate(("pkey_mprotect", "madvise.populate")):
        got, begun, ended = report["total"]["classes"][name], 2 * i, 2 * i + 1
        least, most = ending[ended] - attached[begun], after[begun] - before[ended]
        expect(0 < least <= got["calls"] <= most and not got["errors"], f"{name}: {got}, expected {least} to {most}")
    for when in ("in_flight_at_attach", "in_flight"):
        expect(sum(report.get(when, {}).values()) <= CALLERS, f"{when}: {report.get(when)}")


def thread_sequence():
    """Each thread makes two calls that fail, and the C library advises its stack away: one stack for all."""
    phase = measured_flat("threads", THREADS_IN_SEQUENCE, program=KNOWN)
    got = {name: (stat["calls"], stat["errors"]) for name, stat in phase["classes"].items() if stat["calls"]}
    for name in ("munmap", "madvise.other"):
        expect(got[name] == (THREADS_IN_SEQUENCE,) * 2, f"{name}: {got[name]}")
    expect(got["madvise.dontneed"] == (THREADS_IN_SEQUENCE, 0), f"madvise.dontneed: {got['madvise.dontneed']}")
    expect(phase["stacks"]["threads"] == THREADS_IN_SEQUENCE, f"{phase['stacks']}")


def main():
    has_bpftrace = shutil.which("bpftrace") and shutil.which("unshare")
    cases = {
        "pairs": (f"{THREADS} threads, {PAIRS} pairs each", pairs_on_all_cpus),
        "plain": ("the same without ledgers", pairs_on_all_cpus, "--no-ledgers"),
        "processes": (f"{PROCESSES} short processes", short_processes),
        "threads": (f"{THREADS_IN_SEQUENCE} threads, one after the other", thread_sequence),
        "limited": ("mmaps refused by RLIMIT_AS", failing_and_good),
        "stopped": ("while the tool is stopped", while_stopped),
        "attach": (f"attached and detached {EPOCHS} times in the middle of calls", attach_in_mid_call),
        "nested": ("two alloctraces on the same calls", under_another_alloctrace),
        "bpftrace": ("bpftrace on the same events", beside_bpftrace),
    }
    results = Results()
    for name in sys.argv[1:] or cases:
        if name == "bpftrace" and not has_bpftrace:
            results.skip(cases[name][0], "bpftrace is not installed")
        else:
            results.case(*cases[name])
    results.exit()


main()
