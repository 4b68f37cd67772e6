#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 240
"""The refault ledger, against a program whose releases and refaults are known."""
from measure import OUT, Results, expect, expect_exact, run

AREA = 37  # pages of the area of place_calls
CALLS = f"{OUT}/tests/trace/place_calls"

# Pattern, n, kind of release, pages released, pages that came back, page faults.
KNOWN = (
    ("dontneed", 101, "dontneed", 101 * AREA, 101 * AREA, 101 * AREA),
    ("scattered", 11, "dontneed", 11 * 18, 11 * 18, 11 * 18),
    ("untouched", 7, "dontneed", 0, 0, AREA),
    ("read-write", 13, "dontneed", 13 * AREA, 13 * AREA, 13 * AREA),
    ("free", 17, "free", 17 * AREA, 0, 0),  # nobody needs the memory: it is never taken
    ("unmap", 19, "unmap", 19 * AREA, 18 * AREA, 19 * AREA),
    ("unmap-elsewhere", 23, "unmap", 23 * AREA, 23 * AREA, 24 * AREA),
    ("unmap-other-size", 1, "unmap", AREA, 0, 3 * AREA),
    ("fixed", 29, "unmap", 29 * AREA, 29 * AREA, 29 * AREA),
    ("brk", 31, "unmap", 31 * AREA, 30 * AREA, 31 * AREA),
    ("move", 7, "dontneed", 7 * AREA, 7 * AREA, 7 * AREA),
    ("shrink", 11, "unmap", 11 * (AREA - 1), 11 * (AREA - 1), 11 * (AREA - 1)),
    ("fail", 5, "dontneed", 0, 0, 0),
    ("slow", 3, "dontneed", 3 * AREA, 3 * AREA, 3 * AREA),
)


def measured(pattern, n):
    profile, _ = run(["--", CALLS, pattern, str(n)], allocator="system")
    return profile, profile["phases"]["measured"]


def known(pattern, n, kind, released, returned, faults):
    profile, phase = measured(pattern, n)
    ledger = phase["refault"]
    got = ledger["kinds"][kind]
    expect_exact(profile)
    # A page fault or two more may be the program's own.
    expect(faults <= phase["faults"]["minor"] <= faults + 2 or pattern == "read-write", f"faults: {phase['faults']}")
    expect((got["released_pages"], got["returned_pages"]) == (released, returned), f"{got}")
    expect((ledger["released_pages"], ledger["returned_pages"]) == (released, returned), f"sum: {ledger}")
    expect((got["refault_ns"] > 0) == (returned > 0), f"{got}")
    share = min(1, returned / released) if released else 0
    wasted = got["refault_ns"] + share * got["release_ns"]
    expect(abs(ledger["wasted_ns"] - wasted) <= 1, f"wasted {ledger['wasted_ns']}, not {wasted}")
    if returned:
        expect(sum(pages for _, pages in ledger["away_histogram"]) == returned, f"histogram: {ledger}")
        expect(ledger["away_p50_ns"] <= ledger["away_p99_ns"] <= ledger["away_max_ns"], f"{ledger}")
    else:
        expect("away_p50_ns" not in ledger, f"times of pages that never came back: {ledger}")


def away():
    """Pages that are away for 30 ms are not back sooner, and not later than the run was long."""
    profile, phase = measured("slow", 3)
    ledger = phase["refault"]
    expect(29_000_000 <= min(edge for edge, _ in ledger["away_histogram"]), f"{ledger['away_histogram']}")
    expect(ledger["away_max_ns"] <= profile["rusage"]["wall_ns"], f"{ledger} in {profile['rusage']}")


def storm():
    """Eight threads whose pages lie side by side: none is lost."""
    _, phase = measured("storm", 211)
    got = phase["refault"]["kinds"]["dontneed"]
    expect(got["released_pages"] == got["returned_pages"] == 8 * AREA * 211, f"{got}")


def forks():
    """Processes that are gone leave no room taken: all together touch more than there is room for at once."""
    profile, _ = measured("forks", 540)
    expect(profile["total"]["faults"]["minor"] > 540 * 128 > 65536, f"{profile['total']['faults']}")
    expect_exact(profile)


def full():
    """Room is bounded; what does not fit is counted."""
    profile, _ = measured("full", 70000)
    lost = profile["tool"]["lost"]["refault_full"]
    expect(not profile["tool"]["exact"], "said to be exact")
    expect(70000 - 65536 <= lost <= 70000 - 65536 + 64, f"{lost} lost")


def trim_loop():
    """Each published trim: with the policy off every page that is released is touched again; on, none is released."""
    off, _ = run(["trim_loop", "--touch"], policy="-trim")
    on, _ = run(["trim_loop", "--touch"], policy="all")
    got = off["phases"]["measured"]["refault"]
    expect(got["released_pages"] == got["returned_pages"] == 1024 * 48, f"off: {got}")
    expect(on["phases"]["measured"]["refault"]["released_pages"] <= 2 * 48, f"on: {on['phases']['measured']}")


def main():
    results = Results()
    for row in KNOWN:
        results.case(row[0], known, *row)
    for case in (away, storm, forks, full, trim_loop):
        results.case(case.__name__, case)
    results.exit()


main()
