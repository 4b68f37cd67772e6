#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 300
"""Three independent counts agree: for the four policies' own scenarios under all 16 sets, for the others under two.

The tracer's count of each class, in the measured phase, is what the allocator
counted itself plus what the scenario called on its own (OWN_CALLS). And strace,
which watches the very same run, sees as many calls of each syscall as the
tracer reports in total. No tolerance: all three watch one run.
"""
import re
import shutil
import tempfile

from measure import POLICIES, SCENARIOS, Results, expect, policy_sets, run

# Small, so that strace's cost stays bearable, and odd, so that numbers tell where they come from.
ARGS = {
    "thread_create": ("--outer", "3", "--inner", "19"),
    "realloc_pingpong": ("--iterations", "53"),
    "commit_storm": ("--processes", "3", "--iterations", "101"),
    "trim_loop": ("--iterations", "151"),
    "trim_mixed": ("--blocks", "301"),
    "record_search": ("--threads", "2", "--records", "71", "--chunks", "7"),
    "arena_thrash": ("--passes", "7", "--full", "5"),
    "top_burst": ("--iterations", "19"),
    "many_small": ("--rounds", "3", "--blocks", "101", "--size", "8K", "--last-first"),
    "vector_growth": ("--to", "4M"),
    "cross_thread_free": ("--rounds", "7", "--blocks", "11", "--size", "64K"),
    "server_mix": ("--connections", "3", "--handovers", "5", "--operations", "701"),
    "fork_children": ("--children", "3", "--holes", "41", "--child-blocks", "5", "--trim"),
    "aligned_zigzag": ("--iterations", "37", "--align", "64K"),
    "buffer_stack": ("--cycles", "3", "--blocks", "71"),
    "idle_burst": ("--blocks", "1009", "--idle-ms", "0"),
}

# What each scenario and the C library on its behalf call in the measured phase, beyond the allocator. The marker that
# ends the phase goes through the allocator, which counts it (madvise.phase). The C library allocates nothing for a
# thread whose stack the allocator provides, and its start and end make no memory call.
OWN_CALLS = {scenario: {} for scenario in ARGS}

ALL = ",".join(POLICIES)
SYSCALLS = ("mmap", "mprotect", "munmap", "brk", "mremap", "madvise", "pkey_mprotect", "process_madvise")


def check_self_counts(scenario, profile):
    phase = profile["phases"]["measured"]
    classes = {name: c["calls"] for name, c in phase["classes"].items() if not name.startswith("fault.")}
    counts = phase["self_counts"]
    for name in sorted(set(classes) | set(counts)):
        traced, own = classes.get(name, 0), OWN_CALLS[scenario].get(name, 0)
        counted = counts.get(name, 0) + own
        expect(traced == counted, f"{name}: the tracer has {traced}, the allocator and the scenario {counted}")
    expect(sum(classes.values()) > 0, "nothing was traced: not even the phase marker")


def strace_totals(path, pid):
    """Calls by syscall of the target and what descends from it, from its exec on."""
    calls, parents, has_begun = [], {}, False
    resumed = re.compile(r"<\.\.\. (?:clone|clone3|vfork|fork) resumed>.*= (\d+)$")
    with open(path, encoding="utf-8", errors="replace") as log:
        for line in log:
            caller, rest = line.split(None, 1)
            name = rest.split("(", 1)[0]
            has_begun |= int(caller) == pid and name == "execve"
            made = re.match(r"(?:clone|clone3|vfork|fork)\(.*= (\d+)$", rest) or resumed.match(rest)
            if made:
                parents[int(made.group(1))] = int(caller)
            elif has_begun and name in SYSCALLS:
                calls.append((int(caller), name))
    totals = dict.fromkeys(SYSCALLS, 0)
    for caller, name in calls:
        # A new thread's lines may stand before the line that says whose it is.
        while caller != pid and caller in parents:
            caller = parents[caller]
        totals[name] += caller == pid
    return totals


def check_strace(profile, path):
    totals = strace_totals(path, profile["target"]["pids"][0])
    for name in SYSCALLS:
        traced = profile["total"]["syscalls"].get(name, {"calls": 0})["calls"]
        expect(traced == totals[name], f"{name}: the tracer has {traced}, strace {totals[name]}")
    expect(totals["mmap"] > 10, f"strace saw {totals['mmap']} mmap calls only")


def check_set(scenario, policy):
    with tempfile.NamedTemporaryFile(prefix="alloctrace-test-") as log:
        wrapper = ("strace", "-f", "--seccomp-bpf", "-o", log.name, "-e",
                   "trace=execve,clone,?clone3,?vfork,?fork," + ",".join(SYSCALLS))
        profile, _ = run([scenario, *ARGS[scenario]], policy=policy, wrapper=wrapper)
        check_self_counts(scenario, profile)
        check_strace(profile, log.name)


def check_bare(scenario, policy):
    """Without strace, which slows everything and so hides races."""
    profile, _ = run([scenario, *ARGS[scenario]], policy=policy)
    check_self_counts(scenario, profile)


def main():
    results = Results()
    for scenario in ARGS:
        for policy in policy_sets() if scenario in SCENARIOS else ("none", ALL):
            if shutil.which("strace"):
                results.case(f"{scenario} {policy}", check_set, scenario, policy)
            else:
                results.skip(f"{scenario} {policy}", "package strace is not installed")
        for policy in ("all", "none"):
            results.case(f"{scenario} {policy}, bare", check_bare, scenario, policy)
    results.exit()


main()
