#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 120
"""User and system time of attached processes, and the share of it that the classes explain, against /proc/PID/stat.

Both come from the same two measures of the kernel: the time that a thread ran, which is exact, and how many timer ticks met
it in user and in system mode. So the sum must agree within the ticks in which /proc counts, and the parts within what the kernel
makes of another past: it shares out all that a process ever ran, we what it ran while attached.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import servers
from attaching import Attach, Child, run_if_traced
from measure import ALLOCTRACE, Results, expect, expect_exact

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
# Two readings of two numbers, each rounded down, and what the process does between being attached to and the readings.
TICKS = 4
RUN_S = 1.2
SHARE = 0.06  # of all that ran

# Runs for a time: "u" mostly in user mode, "s" mostly in system mode, "t" the same in a thread that ends.
PROGRAM = f"""
import mmap, os, sys, threading, time

def work(is_system):
    zero = os.open("/dev/zero", os.O_RDONLY)
    start = time.thread_time()
    while time.thread_time() - start < {RUN_S}:
        if is_system:
            os.preadv(zero, [place], 0)
            mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
        else:
            sum(range(10000))
    os.close(zero)

place = bytearray(1 << 20)
for line in sys.stdin:
    if line[0] == "t":
        thread = threading.Thread(target=work, args=(True,))
        thread.start()
        thread.join()
    else:
        work(line[0] == "s")
    print("ok", flush=True)
"""


def times_of(pid):
    """(user, system) in ns, of all threads that are and were."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return [int(fields[i]) * TICK_NS for i in (11, 12)]


def attached(pid, work):
    """The saved report of a time in which it did `work`, and what /proc says of that time."""
    with tempfile.NamedTemporaryFile(prefix="alloctrace-test-") as file:
        with Attach("-p", pid, "--save", file.name) as attach:
            before = times_of(pid)
            work()
            after = times_of(pid)
            report = attach.report()
        table = subprocess.run([ALLOCTRACE, "report", file.name], check=True, capture_output=True, text=True).stdout
    return report, table, [b - a for a, b in zip(before, after)]


def check(pid, work, least_system, most_system):
    report, table, (user_ns, sys_ns) = attached(pid, work)
    expect_exact(report, has_racing_threads=True)
    process, = report["processes"]
    total_ns = user_ns + sys_ns
    got = (process["user_ns"], process["sys_ns"])
    what = f"user and system {got[0] / 1e6:.1f} and {got[1] / 1e6:.1f} ms, /proc says {user_ns / 1e6:.0f} and {sys_ns / 1e6:.0f} ms"
    expect(total_ns > 0.8e9 * RUN_S, f"it did not run long: {what}")
    expect(abs(sum(got) - total_ns) <= TICKS * TICK_NS, f"the sum: {what}")
    expect(abs(got[1] - sys_ns) <= TICKS * TICK_NS + SHARE * total_ns, f"the shares: {what}")
    # Which of the two it is, is not left to the same source alone.
    expect(least_system <= got[1] / sum(got) <= most_system, f"expected {least_system} to {most_system} of it in the kernel: {what}")
    expect((report["rusage"]["user_ns"], report["rusage"]["sys_ns"]) == got, f"{report['rusage']}, the only process {got}")
    check_share(report, table, sys_ns, total_ns)


def check_share(report, table, sys_ns, total_ns):
    """The percentage of the table: what the classes have, of the time that /proc says."""
    classes_ns = sum(stat["kernel_ns"] for stat in report["total"]["classes"].values())
    found = re.search(r"^system time .*: (\d+) %", table, re.MULTILINE)
    if not report["rusage"]["sys_ns"]:  # of which there is no share
        expect(not found, table)
        return
    share = int(found.group(1))
    slack_ns = TICKS * TICK_NS + SHARE * total_ns
    low, high = 100 * classes_ns / (sys_ns + slack_ns) - 1, 100 * classes_ns / max(sys_ns - slack_ns, 1) + 1
    expect(low <= share <= high, f"share {share} %, expected {low:.1f} to {high:.1f} %")


def python3(command, least_system, most_system):
    with Child([sys.executable, "-c", PROGRAM]) as child:
        check(child.pid, lambda: child.tell(command), least_system, most_system)


def redis():
    with servers.redis() as (pid, port):
        def work():
            before = sum(times_of(pid))
            while sum(times_of(pid)) - before < RUN_S * 1e9:
                servers.redis_work(port)
        check(pid, work, 0.1, 0.95)


def main():
    results = Results()
    results.case("user time", python3, "u", 0, 0.3)
    results.case("system time", python3, "s", 0.6, 1)
    results.case("of a thread that has ended", python3, "t", 0.6, 1)
    if shutil.which("redis-server") and shutil.which("redis-benchmark"):
        results.case("redis", redis)
    else:
        results.skip("redis", "redis-server is not installed")
    results.exit()


run_if_traced(main)
