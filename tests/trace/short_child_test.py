#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 600
"""A child that ends at once is counted whole: 200 of 200 runs exact (field case B26)."""
import os

from measure import OUT, Results, calls, expect, expect_exact, run

RUNS = 200
CHILD = os.path.abspath(f"{OUT}/tests/trace/static_one_mmap")


def counts(mappings):
    profile, _ = run([*(["--"]), CHILD, str(mappings)], allocator="system")
    expect_exact(profile)
    total = profile["total"]
    return calls(total, "mmap.anon"), {name: s["calls"] for name, s in total["syscalls"].items() if name != "mmap"}


def every_run_is_exact():
    base, others = counts(0)
    expect(counts(7) == (base + 7, others), "7 mappings are not 7 more than none")
    for number in range(RUNS):
        got = counts(1)
        expect(got == (base + 1, others), f"run {number}: {got}, expected {(base + 1, others)}")


def main():
    results = Results()
    if os.path.exists(CHILD):
        results.case(f"{RUNS} of {RUNS} runs exact", every_run_is_exact)
    else:
        with open(CHILD + ".skip", encoding="utf-8") as note:
            results.skip("every run is exact", note.read().strip())
    results.exit()


main()
