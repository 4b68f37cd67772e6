#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 240
"""The scenarios show what the published fixes claim: counts of the measured phase."""
from measure import PAGE, Results, calls, expect, expect_exact, figure, run, value

ITERATIONS = 1000


def measured(scenario, *args, **options):
    profile, stdout = run([scenario, *args], **options)
    expect_exact(profile, has_racing_threads=True)
    return profile["phases"]["measured"], stdout


def check(what, got, low, high=None):
    high = low if high is None else high
    expect(low <= got <= high, f"{what}: {got}, expected {low}" + (f" to {high}" if high != low else ""))


def trim_loop():
    off, _ = measured("trim_loop", policy="-trim")
    on, _ = measured("trim_loop", policy="all")
    check("off: madvise.dontneed", calls(off, "madvise.dontneed"), 1022, 1026)
    check("on: madvise.dontneed", calls(on, "madvise.dontneed"), 0, 2)


def trim_loop_refaults():
    """Touched pages come back by a fault each; the allowance is for pages seen for the first time."""
    off, _ = measured("trim_loop", "--touch", policy="-trim")
    on, _ = measured("trim_loop", "--touch", policy="all")
    check("off: fault.minor", calls(off, "fault.minor"), 1024 * 48, 1024 * 48 + 64)
    check("on: fault.minor", calls(on, "fault.minor"), 0, 64)


def trim_mixed():
    off, _ = measured("trim_mixed", policy="-trim")
    on, _ = measured("trim_mixed", policy="all")
    off_cnt, on_cnt = calls(off, "madvise.dontneed"), calls(on, "madvise.dontneed")
    expect(off_cnt >= 6.7 * max(on_cnt, 1), f"madvise.dontneed: {off_cnt} off, {on_cnt} on: less than 6.7 times fewer")
    # At most one release a free.
    check("off: madvise.dontneed", off_cnt, 512, 1024)


def record_search():
    off, off_out = measured("record_search", "--records", "1000", policy="-trim")
    on, on_out = measured("record_search", "--records", "20000", policy="all")
    check("off: madvise.dontneed", calls(off, "madvise.dontneed"), 998, 1002)
    check("on: madvise.dontneed", calls(on, "madvise.dontneed"), 0, 2)
    off_rate, on_rate = value(off_out, "records_per_s"), value(on_out, "records_per_s")
    expect(on_rate >= 4 * off_rate, f"records/s: {off_rate} off, {on_rate} on: less than 4 times more")
    kernel_ns = sum(c["kernel_ns"] for c in on["classes"].values())
    elapsed_ns = value(on_out, "elapsed_ns")
    expect(kernel_ns < 0.05 * elapsed_ns, f"on: {kernel_ns} ns of {elapsed_ns} in the kernel: 5 % or more")


def pingpong(policy, tune=None):
    return measured("realloc_pingpong", "--iterations", str(ITERATIONS), policy=policy, tune=tune)[0]


def realloc_on():
    phase = pingpong("all")
    check("mmap, munmap and mremap", calls(phase, "mmap.", "munmap", "mremap."), 0)


def realloc_off_copy():
    phase = pingpong("none", "grow=copy")
    # Single pages that pass through the page cache may add munmaps of their own.
    check("mmap.anon", calls(phase, "mmap.anon"), ITERATIONS, ITERATIONS + 8)
    check("munmap", calls(phase, "munmap"), ITERATIONS, 3 * ITERATIONS)
    # The block that grows is of 1023 pages when its contents are copied away.
    check("mmap.anon pages", figure(phase, "bytes", "mmap.anon") // PAGE, 1024 * ITERATIONS, 1032 * ITERATIONS)
    check("munmap pages", figure(phase, "bytes", "munmap") // PAGE, 1023 * ITERATIONS, 1032 * ITERATIONS)
    # The growth in place that is tried first finds its neighbour taken, every time.
    check("mremap.move", calls(phase, "mremap.move"), 0)
    check("mremap.grow that failed", figure(phase, "errors", "mremap.grow"), calls(phase, "mremap.grow"))


def realloc_off_mremap():
    phase = pingpong("none", "grow=mremap")
    check("mremap.move", calls(phase, "mremap.move"), ITERATIONS, ITERATIONS + 8)
    check("mmap.anon", calls(phase, "mmap.anon"), 0, 8)


def realloc_unmaps_tail():
    phase = pingpong("all", "realloc_keep=0")
    check("munmap", calls(phase, "munmap"), ITERATIONS)
    check("munmap pages", figure(phase, "bytes", "munmap") // PAGE, ITERATIONS)
    check("growth in place", calls(phase, "mremap.grow"), ITERATIONS)
    check("moves and new mappings", calls(phase, "mremap.move", "mmap."), 0)


def commit_storm():
    args = ("--processes", "3", "--iterations", "701", "--size", "32M")
    off, _ = measured("commit_storm", *args, policy="-commit")
    on, _ = measured("commit_storm", *args, policy="all")
    check("off: mmap.anon", calls(off, "mmap.anon"), 3 * 701)
    check("off: munmap", calls(off, "munmap"), 3 * 701)
    check("off: pages a mapping", figure(off, "bytes", "munmap") // PAGE // (3 * 701), 8192, 8200)
    check("on: mmap and munmap", calls(on, "mmap.", "munmap"), 0)


def thread_create():
    threads = 7 * 31
    args = ("--outer", "7", "--inner", "31", "--stack-size", "86016", "--guard", "1M")
    off, _ = measured("thread_create", *args, policy="-stack")
    on, _ = measured("thread_create", *args, policy="all")
    for name, phase in (("off", off), ("on", on)):
        check(f"{name}: mmap.stack", calls(phase, "mmap.stack"), threads)
        check(f"{name}: mmap.stack pages", figure(phase, "bytes", "mmap.stack") // PAGE, 277 * threads)
        check(f"{name}: mprotect", calls(phase, "mprotect."), threads)
    check("off: mprotect.guard pages", figure(off, "bytes", "mprotect.guard") // PAGE, 256 * threads)
    check("off: mprotect.commit", calls(off, "mprotect.commit"), 0)
    check("on: mprotect.commit pages", figure(on, "bytes", "mprotect.commit") // PAGE, 21 * threads)
    check("on: mprotect.guard", calls(on, "mprotect.guard"), 0)


def defaults():
    """Every scenario runs with its defaults under the program's own malloc, too."""
    for scenario, requests in (("thread_create", 0), ("realloc_pingpong", 64000), ("commit_storm", 20000),
                               ("trim_loop", 1024), ("trim_mixed", 1024), ("record_search", 5000)):
        for allocator in ("system", "bundled"):
            profile, stdout = run([scenario], allocator=allocator)
            check(f"{scenario}, {allocator}: malloc requested", value(stdout, "malloc"), requests)
            expect(set(profile["phases"]) == {"startup", "measured", "teardown"}, f"phases: {set(profile['phases'])}")


def main():
    results = Results()
    for case in (trim_loop, trim_loop_refaults, trim_mixed, record_search, realloc_on, realloc_off_copy,
                 realloc_off_mremap, realloc_unmaps_tail, commit_storm, thread_create, defaults):
        results.case(case.__name__, case)
    results.exit()


main()
