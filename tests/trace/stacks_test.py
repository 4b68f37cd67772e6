#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 180
"""The stack ledger, against threads whose stacks are known."""
from measure import OUT, Results, expect, expect_exact, run, value

CALLS = f"{OUT}/tests/trace/place_calls"
with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as setting:
    HAS_HUGE = "[never]" not in setting.read()
STACK, TOUCHED = 61, 7  # pages of a stack of place_calls, and of them those that its thread touches


def measured(pattern, n, cache=None):
    wrapper = ["env", f"GLIBC_TUNABLES=glibc.pthread.stack_cache_size={cache}"] if cache is not None else []
    wrapper += ["prlimit", "--stack=8388608"] if pattern in ("sleepers", "one-by-one") else []
    profile, _ = run(["--", CALLS, pattern, str(n)], allocator="system", wrapper=wrapper)
    expect_exact(profile, has_racing_threads=True)
    return profile["phases"]["measured"]


def check(stacks, **wanted):
    for key, value in wanted.items():
        expect(stacks[key] == value, f"{key} {stacks[key]}, expected {value}: {stacks}")


def own_stacks():
    """Mapped, guarded, run on, advised away, unmapped: four calls a thread. The guard's page is charged and, never
    touched, given back on kernels that do that; either way all is given back in the end."""
    n = 101
    stacks = measured("stacks", n)["stacks"]
    check(stacks, threads=n, foreign_threads=0, calls=4 * n, charged_pages=STACK * n, uncharged_pages=STACK * n,
          touched_pages=TOUCHED * n)


def many():
    """Stacks of 97 sizes at once; calls on their addresses when they are gone are not theirs."""
    many_cnt = 97
    phase = measured("many-stacks", 1)
    check(phase["stacks"], threads=0, calls=4 * many_cnt, touched_pages=3 * many_cnt,
          charged_pages=sum(3 + i * 5 for i in range(many_cnt)))
    expect(phase["classes"]["madvise.dontneed"]["errors"] == many_cnt, "calls after the end")


def foreign():
    """Threads on memory that was not mapped as a stack are counted apart."""
    check(measured("foreign-stacks", 7)["stacks"], threads=7, foreign_threads=7, calls=0, touched_pages=0)


def huge():
    """A huge page is one fault, and 512 pages; how many the kernel took is in smaps."""
    n, places = 11, 3
    profile, said = run(["--", CALLS, "huge-stacks", str(n)], allocator="system")
    pages = value(said, "huge_pages")
    expect(pages > 0 or not HAS_HUGE, "no huge page to be had")
    check(profile["phases"]["measured"]["stacks"], huge_pages=pages, calls=3 * n,
          touched_pages=n * places + pages + (2 * n - pages // 512) * places)


def full():
    """Room is bounded; what does not fit is counted. What the loader unmapped before may take some of the room."""
    room, more = 32768, 211
    profile, _ = run(["--", CALLS, "full-stacks", str(room + more)], allocator="system")
    lost = profile["tool"]["lost"]
    expect(not profile["tool"]["exact"], "said to be exact")
    expect({name for name, cnt in lost.items() if cnt} == {"stack_full"}, f"{lost}")
    expect(more <= lost["stack_full"] <= more + 64, f"{lost}")
    check(profile["phases"]["measured"]["stacks"], calls=room + more, charged_pages=room + more)


def sleepers():
    """A hundred threads of 8 MiB that only sleep: all of it is charged, next to nothing touched."""
    stacks = measured("sleepers", 100)["stacks"]
    check(stacks, threads=100, foreign_threads=0, charged_pages=100 * 2048)
    expect(100 <= stacks["touched_pages"] <= 400, f"{stacks}")


def one_by_one():
    """glibc keeps one stack for a thousand threads, and advises it away after each."""
    stacks = measured("one-by-one", 1000)["stacks"]
    check(stacks, threads=1000, foreign_threads=0, calls=1002, charged_pages=2048)


def without_cache():
    """... without its cache: mmap, mprotect, madvise and munmap for each."""
    phase = measured("one-by-one", 1000, cache=0)
    check(phase["stacks"], threads=1000, foreign_threads=0, calls=4000, charged_pages=2048000,
          uncharged_pages=2048000)
    expect(phase["classes"]["mmap.stack"]["calls"] == 1000, f"{phase['classes']['mmap.stack']}")


def apart():
    """Time of stacks is not that of the other mappings that threads make meanwhile."""
    phase = measured("lock-storm", 503)
    check(phase["stacks"], threads=8, foreign_threads=0, charged_pages=8 * 2048)
    expect(phase["classes"]["mmap.anon"]["calls"] == 8 * 503, f"{phase['classes']['mmap.anon']}")
    expect(phase["classes"]["mmap.stack"]["calls"] <= 8 < phase["stacks"]["calls"] <= 32, f"{phase['stacks']}")


def thread_create():
    """The published fix: 277 pages charged a stack without it, 21 with it; as many threads, as many pages touched."""
    args = ["thread_create", "--outer", "7", "--inner", "31", "--stack-size", "86016", "--guard", "1M"]
    off, _ = run(args, policy="-stack")
    on, _ = run(args, policy="all")
    for profile, pages in ((off, 277), (on, 21)):
        phase = profile["phases"]["measured"]
        check(phase["stacks"], threads=217, foreign_threads=0)
        expect(abs(phase["stacks"]["charged_pages"] - pages * 217) <= phase["commit"]["assumed_pages"],
               f"{phase['stacks']}, assumed {phase['commit']['assumed_pages']}")


def main():
    results = Results()
    for case in (own_stacks, many, foreign, huge, full, sleepers, one_by_one, without_cache, apart, thread_create):
        results.case(case.__name__, case)
    results.exit()


main()
