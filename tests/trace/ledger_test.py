#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 240
"""The ledgers of `run`: what the published fixes of stack and commit charge, and how ledgers are switched."""
import subprocess

from measure import ALLOCTRACE, OUT, Results, expect, run


def check(what, got, low, high=None):
    high = low if high is None else high
    expect(low <= got <= high, f"{what}: {got}, expected {low}" + (f" to {high}" if high != low else ""))


def measured(scenario, *args, **options):
    profile, _ = run([scenario, *args], **options)
    return profile["phases"]["measured"]["commit"]


def past(commit, batch):
    return commit["batches"][batch]["past"]


def commit_storm():
    """Off: 8192 pages charged and given back an operation, two updates past the fixed batch; on: nothing."""
    processes, iterations = 3, 701
    args = ("--processes", str(processes), "--iterations", str(iterations), "--size", "32M")
    off = measured("commit_storm", *args, policy="-commit")
    on = measured("commit_storm", *args, policy="all")
    operations = processes * iterations
    # The block's own header may add a page or two to 8192.
    check("off: charged a mapping", off["charged_pages"] // operations, 8192, 8200)
    check("off: uncharged", off["uncharged_pages"], off["charged_pages"], off["charged_pages"] + 64 * 8200)
    check("off: past the fixed batch", past(off, "fixed"), 2 * operations, 2 * operations + 2 * processes)
    if off["batches"]["scaled"]["pages"] > 8200:
        check("off: past the scaled batch", past(off, "scaled"), 0, 2 * processes)
    check("on: charged", on["charged_pages"], 0, 64 * processes)
    check("assumed", off["assumed_calls"] + on["assumed_calls"], 0)


def thread_create():
    """Stacks of 277 pages, 21 of them usable: 277 charged at the mmap without the fix, 21 at the mprotect with it."""
    threads = 7 * 31
    args = ("--outer", "7", "--inner", "31", "--stack-size", "86016", "--guard", "1M")
    off = measured("thread_create", *args, policy="-stack")
    on = measured("thread_create", *args, policy="all")
    for name, commit, pages in (("off", off, 277), ("on", on, 21)):
        # Pages that threads' races hid are named.
        check(f"{name}: charged", commit["charged_pages"], pages * threads - commit["assumed_pages"],
              pages * threads + commit["assumed_pages"])
    # The mmap; its guard's mprotect where the kernel gives that charge back; the munmap.
    check("off: past the fixed batch", past(off, "fixed"), threads, 3 * threads)
    check("on: past the fixed batch", past(on, "fixed"), 0)


def switches():
    every = {"commit", "vmas", "refault", "locks", "stacks"}
    for words, keys in (((), every), (("--no-ledgers",), set()), (("--ledgers", "vmas"), {"vmas"}),
                        (("--ledgers=commit",), {"commit"}), (("--ledgers=commit,vmas",), {"commit", "vmas"}),
                        (("--ledgers=refault",), {"refault"}), (("--ledgers=locks",), {"locks"}),
                        (("--ledgers=stacks",), {"stacks"}), (("--ledgers=all",), every)):
        profile, _ = run([*words, "trim_loop"])
        got = every & set(profile["total"])
        expect(got == keys, f"{words}: {got}, expected {keys}")


def warning():
    """More than 80 % of the VMAs that a process may have is worth a line; a third is not."""
    with open("/proc/sys/vm/max_map_count", encoding="ascii") as limit:
        if int(limit.read()) != 65530:
            return
    for pattern, n, is_near in (("split", "11000", False), ("split", "27000", True)):
        words = [ALLOCTRACE, "run", "--allocator=system", "--", f"{OUT}/tests/trace/commit_calls", pattern, "-1", n]
        report = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False).stderr
        expect(("WARNING" in report) == is_near, f"{pattern} {n}: {report}")
        expect(" % of vm.max_map_count (65,530)" in report, f"{pattern} {n}: no share of the limit: {report}")


def main():
    results = Results()
    for case in (commit_storm, thread_create, switches, warning):
        results.case(case.__name__, case)
    results.exit()


main()
