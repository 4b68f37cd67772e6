#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 240
"""The scenarios taken from bug reports: counts of the measured phase, small runs.

Expected values follow from each pattern (see the headers in scenarios/); what
is allowed above them is for pages seen for the first time. Where nothing is
said about an allocator, it is the bundled one.
"""
from measure import PAGE, Results, calls, expect, expect_exact, figure, run, value

FIRST_TOUCHED = 64
BIG_BATCH = "commit_batch=1000000"


def measured(command, *, env=None, **options):
    """The phase and the stdout of a run; env holds NAME=VALUE words for the program."""
    wrapper = ("env", *env) if env else ()
    profile, stdout = run(command.split(), wrapper=wrapper, **options)
    expect_exact(profile, has_racing_threads=True)
    return profile["phases"]["measured"], stdout


def check(what, got, low, high=None):
    high = low if high is None else high
    expect(low <= got <= high, f"{what}: {got}, expected {low}" + (f" to {high}" if high != low else ""))


def check_faults(what, phase, pages, slack=FIRST_TOUCHED):
    check(f"{what}: fault.minor", calls(phase, "fault.minor"), pages, pages + slack)


def memory_calls(phase):
    """Every call but the phase marker."""
    return sum(c["calls"] for name, c in phase["classes"].items()
               if not name.startswith("fault.") and name != "madvise.phase")


def trims(command, *, off, on, off_pages=None, on_pages=None, tune=None):
    """Calls of madvise.dontneed and faults with trim off and on, and none of either when `tune` retains all."""
    for policy, cnt, pages in (("-trim", off, off_pages), ("all", on, on_pages)):
        phase, _ = measured(command, policy=policy)
        check(f"{policy}: madvise.dontneed", calls(phase, "madvise.dontneed"), cnt)
        check(f"{policy}: mmap, munmap", calls(phase, "mmap.", "munmap"), 0)
        if pages is not None:
            check_faults(policy, phase, pages)
    if tune:
        phase, _ = measured(command, policy="all", tune=tune)
        check(f"{tune}: calls", calls(phase, "madvise.dontneed", "mmap.", "munmap"), 0)
        return phase
    return None


def arena_thrash():
    trims("arena_thrash --passes 31", off=31, on=0, off_pages=31 * 64, on_pages=0)


def arena_thrash_mappings():
    command = "arena_thrash --passes 7 --full 3 --arena 1M"
    off, _ = measured(command, policy="-commit")
    on, _ = measured(command, policy="all", tune=BIG_BATCH)
    check("off: mmap.anon", calls(off, "mmap.anon"), 7)
    check("off: munmap", calls(off, "munmap"), 7)
    check_faults("off", off, 7 * 256)
    check("on: calls", memory_calls(on), 0)
    check_faults("on", on, 0)


def arena_thrash_system():
    phase, _ = measured("arena_thrash --passes 31", allocator="system", env=["MALLOC_MMAP_THRESHOLD_=131072"])
    check("mmap.anon", calls(phase, "mmap.anon"), 31)
    check("munmap", calls(phase, "munmap"), 31)
    # Up to one page more a pass: the chunk has a header, and the block's last byte is on a page of its own.
    check_faults("uncached", phase, 31 * 64, 31 + FIRST_TOUCHED)
    phase, _ = measured("arena_thrash --passes 31", allocator="system")
    check("one slot is enough: calls", memory_calls(phase), 0, 2)
    check_faults("cached", phase, 0, 128)


def top_burst():
    # Two blocks are as much as the threshold. A third one passes it in the warm-up; then that comes back, and stays.
    trims("top_burst --iterations 37", off=2 * 37, on=0, off_pages=50 * 37, on_pages=0)
    phase = trims("top_burst --iterations 37 --blocks 3", off=3 * 37, on=0, off_pages=75 * 37, on_pages=75,
                  tune="trim_threshold=4M")
    check_faults("trim_threshold=4M", phase, 0)


def top_burst_system():
    phase, _ = measured("top_burst --iterations 101", allocator="system")
    check("brk.grow", calls(phase, "brk.grow"), 101)
    check("brk.shrink", calls(phase, "brk.shrink"), 2 * 101)
    check_faults("trimmed", phase, 101 * 16, 101 * 2 + FIRST_TOUCHED)
    phase, _ = measured("top_burst --iterations 101", allocator="system", env=["MALLOC_TRIM_THRESHOLD_=4194304"])
    check("trim_threshold of 4 MiB: calls", memory_calls(phase), 0)
    check_faults("trim_threshold of 4 MiB", phase, 0)


def many_small():
    # 100 slabs of 15 written pages. Freed first to last, all of it is one free top in the end; released once, it comes back.
    for policy, releases in (("-trim", 4), ("all", 2)):
        phase, _ = measured("many_small --blocks 1200", policy=policy)
        check_faults(policy, phase, releases * 1500, 4 * 16 + FIRST_TOUCHED)
    phase, _ = measured("many_small --blocks 1200", policy="all", tune="trim_threshold=64M")
    check_faults("trim_threshold=64M", phase, 1500, 4 * 16 + FIRST_TOUCHED)


def many_small_last_first():
    phase = trims("many_small --blocks 320 --size 8K --last-first", off=4 * 320, on=320 // 17,
                  off_pages=4 * 640, on_pages=640 + 2 * 17 * (320 // 17), tune="trim_threshold=64M")
    check_faults("trim_threshold=64M", phase, 640)


def many_small_system():
    trimming, _ = measured("many_small --blocks 1000", allocator="system")
    retaining, _ = measured("many_small --blocks 1000", allocator="system", env=["MALLOC_TRIM_THRESHOLD_=1073741824"])
    check("brk.shrink", calls(trimming, "brk.shrink"), 4)
    check("retaining: brk.shrink", calls(retaining, "brk.shrink"), 0)
    ratio = calls(trimming, "fault.minor") / calls(retaining, "fault.minor")
    expect(3.3 <= ratio <= 4, f"{ratio:.2f} times the faults of an allocator that retains, expected 3.3 to 4")


def vector_growth():
    for options in ({"policy": "none"}, {"policy": "all"}, {"allocator": "system"}):
        phase, _ = measured("vector_growth --to 8M", **options)
        check(f"{options}: mremap", calls(phase, "mremap."), 14)
        check(f"{options}: mremap that failed", figure(phase, "errors", "mremap."), 0)
        check(f"{options}: other calls", memory_calls(phase), 14)
        check_faults(str(options), phase, 14 * 256)


def vector_growth_copy():
    phase, _ = measured("vector_growth --to 4M", policy="none", tune="grow=copy")
    failed = figure(phase, "errors", "mremap.grow")
    check("mremap.grow", calls(phase, "mremap.grow"), 6)
    check("mremap.grow that failed", failed, 1, 6)
    check("mmap.anon", calls(phase, "mmap.anon"), failed)
    check("munmap", calls(phase, "munmap"), failed)
    check("pages in place", figure(phase, "bytes", "mremap.grow") // PAGE % 256, 0)


def vector_growth_copy_held():
    """What commit holds does not stand in the way: it is grown into, and cut to serve smaller requests."""
    command = "vector_growth --to 32M"
    off, _ = run(command.split(), policy="-commit", tune="grow=copy")
    on, _ = run(command.split(), policy="all", tune="grow=copy," + BIG_BATCH)
    off_cnt, on_cnt = (calls(profile["phases"]["measured"], "mmap.anon") for profile in (off, on))
    # Where the kernel happens to place the vectors decides some of the 62 steps in either run.
    expect(on_cnt <= off_cnt + 8, f"mmap.anon: {on_cnt} on, {off_cnt} off")
    check("on: munmap", calls(on["phases"]["measured"], "munmap"), 0)
    # Two vectors of 32 MiB, and one that is being copied.
    check("on: peak RSS, MiB", on["rusage"]["max_rss_bytes"] >> 20, 64, 2 * 96)


def vector_growth_fresh():
    for policy, munmaps in (("-commit", 4), ("all", 0)):
        phase, _ = measured("vector_growth --to 4M --double --fresh", policy=policy, tune=BIG_BATCH)
        check(f"{policy}: mmap.anon", calls(phase, "mmap.anon"), 4)
        check(f"{policy}: munmap", calls(phase, "munmap"), munmaps)
        check_faults(policy, phase, 2 * (2 + 4) * 256)


def cross_thread_free():
    phase = trims("cross_thread_free --size 64K --blocks 14 --rounds 9", off=9 * 14, on=14 // 3,
                  off_pages=9 * 14 * 16, on_pages=12 * 16, tune="trim_threshold=64M")
    check_faults("trim_threshold=64M", phase, 0)


def cross_thread_free_small():
    for policy, most in (("-trim", 100), ("all", 0)):
        phase, _ = measured("cross_thread_free", policy=policy)
        check(f"{policy}: madvise.dontneed", calls(phase, "madvise.dontneed"), 0, most)
        check(f"{policy}: other calls", memory_calls(phase) - calls(phase, "madvise.dontneed"), 0)


def cross_thread_free_mappings():
    off, _ = measured("cross_thread_free --size 1M --blocks 3 --rounds 3", policy="-commit")
    check("off: mmap.anon", calls(off, "mmap.anon"), 9)
    check("off: munmap", calls(off, "munmap"), 9)
    # What another thread frees comes back to the heap that asked for it.
    for tune, mappings in ((BIG_BATCH, 0), ("commit_batch=256", 9 - 3)):
        on, _ = measured("cross_thread_free --size 1M --blocks 3 --rounds 3", policy="all", tune=tune)
        check(f"on, {tune}: mmap.anon", calls(on, "mmap.anon"), mappings)
        check(f"on, {tune}: munmap", calls(on, "munmap"), mappings)


def server_mix():
    command = "server_mix --connections 2 --handovers 7 --operations 3000"
    off, _ = measured(command, policy="-stack", tune="stack_cache=0")
    on, _ = measured(command, policy="all", tune="stack_cache=0")
    check("off: mmap.stack", calls(off, "mmap.stack"), 14)
    check("off: mprotect.guard", calls(off, "mprotect.guard"), 14)
    check("on: mmap.stack", calls(on, "mmap.stack"), 14)
    check("on: mprotect.guard", calls(on, "mprotect.guard"), 0)
    check("on: mprotect.commit", calls(on, "mprotect.commit"), 14, 14 + 14)
    for policy in ("none", "all"):
        phase, _ = measured(command, policy=policy)
        check(f"{policy}: mmap.stack", calls(phase, "mmap.stack"), 0)
        # 42,000 replacements.
        check(f"{policy}: calls", memory_calls(phase), 0, 42)


def fork_children():
    command = "fork_children --holes 100 --children 3 --child-blocks 20"
    for policy in ("none", "all"):
        for flag, releases in (("", 0), (" --trim", 100)):
            phase, _ = measured(command + flag, policy=policy)
            check(f"{policy}{flag}: madvise.dontneed", calls(phase, "madvise.dontneed"), releases,
                  releases + releases // 50)
            check(f"{policy}{flag}: other calls", memory_calls(phase) - calls(phase, "madvise.dontneed"), 3)
            check(f"{policy}{flag}: mmap.file", calls(phase, "mmap.file"), 3)
            check_faults(policy + flag, phase, 3 * 320, 3 * 250)


def fork_children_system():
    command = "fork_children --holes 100 --children 3 --child-blocks 20"
    phase, _ = measured(command, allocator="system")
    check("calls", memory_calls(phase), 0)
    check_faults("untrimmed", phase, 3 * 320, 3 * 250)
    phase, _ = measured(command + " --trim", allocator="system")
    check("madvise.dontneed", calls(phase, "madvise.dontneed"), 100, 101)
    check_faults("trimmed", phase, 3 * 320, 3 * 250)


def aligned_zigzag():
    off, _ = measured("aligned_zigzag --iterations 101", policy="-commit")
    on, _ = measured("aligned_zigzag --iterations 101", policy="all", tune=BIG_BATCH)
    check("off: mmap.anon", calls(off, "mmap.anon"), 101)
    check("off: mmap.anon pages", figure(off, "bytes", "mmap.anon") // PAGE, 101 * 384)
    check("off: munmap", calls(off, "munmap"), 101)
    check("off: munmap pages", figure(off, "bytes", "munmap") // PAGE, 101 * 384)
    check("on: calls", memory_calls(on), 0)
    off, _ = measured("aligned_zigzag --iterations 101 --align 64K", policy="-commit")
    check("off, aligned to 64 KiB: mmap.anon", calls(off, "mmap.anon"), 101)
    check("off, aligned to 64 KiB: munmap", calls(off, "munmap"), 101, 3 * 101)


def aligned_zigzag_system():
    phase, _ = measured("aligned_zigzag --iterations 101", allocator="system", env=["MALLOC_MMAP_THRESHOLD_=33554432"])
    up_bytes, down_bytes = figure(phase, "bytes", "brk.grow"), figure(phase, "bytes", "brk.shrink")
    kept_cnt = calls(phase, "brk.grow") - calls(phase, "brk.shrink")
    check("brk.grow", calls(phase, "brk.grow"), 100, 102)
    check("brk.grow without a brk.shrink", kept_cnt, 1, 102)
    # The pad of 128 KiB may be on either side.
    check("net growth in pages", (up_bytes - down_bytes) // PAGE, kept_cnt * 384 - 32, kept_cnt * 384 + 64)


def buffer_stack():
    phase = trims("buffer_stack --cycles 13 --blocks 30", off=13 * 30, on=0, off_pages=13 * 30,
                  on_pages=30, tune="trim_threshold=64M")
    check_faults("trim_threshold=64M", phase, 0)


def idle_burst():
    """What is free goes back when it is freed, and nothing happens later."""
    command = "idle_burst --size 68K --blocks 60 --idle-ms 50"
    for policy in ("-trim", "all"):
        phase, stdout = measured(command, policy=policy)
        check(f"{policy}: madvise.dontneed", calls(phase, "madvise.dontneed"), 1)
        check(f"{policy}: madvise.dontneed pages", figure(phase, "bytes", "madvise.dontneed") // PAGE, 60 * 17)
        kept_bytes = value(stdout, "rss_idle_bytes") - value(stdout, "rss_before_bytes")
        # Below 0: the kernel may take back a page of a file meanwhile.
        check(f"{policy}: pages kept", kept_bytes // PAGE, -FIRST_TOUCHED, FIRST_TOUCHED)
    phase, stdout = measured(command, policy="all", tune="trim_threshold=64M")
    check("trim_threshold=64M: madvise.dontneed", calls(phase, "madvise.dontneed"), 0)
    kept_bytes = value(stdout, "rss_idle_bytes") - value(stdout, "rss_before_bytes")
    check("trim_threshold=64M: pages kept", kept_bytes // PAGE, 59 * 17, 60 * 17 + FIRST_TOUCHED)


def idle_burst_small():
    """Blocks in slabs, 1000 pages: what the heap keeps for the next request is no lid on what is free below."""
    for policy in ("none", "all"):
        phase, stdout = measured("idle_burst --blocks 4000 --idle-ms 0", policy=policy)
        check_faults(policy, phase, 1000, 2 * FIRST_TOUCHED)
        check(f"{policy}: madvise.dontneed", calls(phase, "madvise.dontneed"), 1, 63)
        kept_bytes = value(stdout, "rss_idle_bytes") - value(stdout, "rss_before_bytes")
        check(f"{policy}: pages kept", kept_bytes // PAGE, -FIRST_TOUCHED, 64 + 2 * FIRST_TOUCHED)


def idle_burst_mappings():
    command = "idle_burst --size 2M --blocks 3 --idle-ms 0"
    for policy, munmaps, low, high in (("-commit", 3, -64, 64), ("all", 0, 2 * 512 - 64, 3 * 512 + 64)):
        phase, stdout = measured(command, policy=policy, tune=BIG_BATCH)
        check(f"{policy}: munmap", calls(phase, "munmap"), munmaps)
        kept_bytes = value(stdout, "rss_idle_bytes") - value(stdout, "rss_before_bytes")
        check(f"{policy}: pages kept", kept_bytes // PAGE, low, high)


def defaults():
    """Every one runs with its defaults under the program's own malloc, too."""
    for scenario, requests in (("top_burst", 400), ("many_small", 10000), ("vector_growth", 0),
                               ("cross_thread_free", 100000), ("server_mix", 640000), ("fork_children", 160),
                               ("aligned_zigzag", 400), ("buffer_stack", 5000), ("idle_burst", 20000),
                               ("arena_thrash", 5000)):
        for allocator in ("system", "bundled"):
            profile, stdout = run([scenario], allocator=allocator)
            check(f"{scenario}, {allocator}: malloc requested", value(stdout, "malloc"), requests)
            expect(set(profile["phases"]) == {"startup", "measured", "teardown"}, f"phases: {set(profile['phases'])}")


def main():
    results = Results()
    for case in (arena_thrash, arena_thrash_mappings, arena_thrash_system, top_burst, top_burst_system, many_small,
                 many_small_last_first, many_small_system, vector_growth, vector_growth_copy, vector_growth_copy_held, vector_growth_fresh,
                 cross_thread_free, cross_thread_free_small, cross_thread_free_mappings, server_mix, fork_children,
                 fork_children_system, aligned_zigzag, aligned_zigzag_system, buffer_stack, idle_burst,
                 idle_burst_small, idle_burst_mappings, defaults):
        results.case(case.__name__, case)
    results.exit()


main()
