#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 180
"""The lock ledger, and what the tracer must assume when a lock is in its way; major faults; overcommit."""
import json
import os
import re
import subprocess
import tempfile

from measure import ALLOCTRACE, OUT, Results, Sysctl, expect, run, value

CALLS = f"{OUT}/tests/trace/place_calls"


def measured(pattern, n, *words):
    profile, stdout = run([*words, "--", CALLS, pattern, str(n)], allocator="system")
    return profile, profile["phases"]["measured"], stdout


def check_sums(phase):
    """A wait is part of a call, so of its time; what classes waited is what the locks were waited for."""
    for name, stat in phase["classes"].items():
        expect(stat["lock_wait_ns"] <= stat["kernel_ns"], f"{name}: {stat}")
        expect(stat["lock_wait_max_ns"] <= stat["lock_wait_ns"], f"{name}: {stat}")
        expect(stat["lock_waits"] <= stat["calls"], f"{name}: {stat}")
    waited = sum(stat["lock_wait_ns"] for stat in phase["classes"].values())
    locks = sum(lock["wait_ns"] for lock in phase["locks"].values())
    # A wait in a page fault inside a call is in both classes.
    expect(locks <= waited, f"locks {phase['locks']}, classes {waited} ns")


def wait():
    """A call that changes mappings while another thread populates memory waits for mmap_lock, as long as it says."""
    _, phase, stdout = measured("wait", 1)
    slowest_ns = value(stdout, "slowest_ns")
    stat = phase["classes"]["mprotect.other"]
    check_sums(phase)
    expect(phase["locks"]["mmap_write"]["waits"] >= 1, f"{phase['locks']}")
    expect(slowest_ns / 4 <= stat["lock_wait_max_ns"] <= 1.01 * slowest_ns, f"{stat}, slowest call {slowest_ns} ns")
    expect(phase["locks"]["mmap_write"]["max_ns"] == stat["lock_wait_max_ns"], f"{phase['locks']}, {stat}")


def storm():
    _, phase, _ = measured("lock-storm", 2003)
    check_sums(phase)


def alone():
    """Nobody but the program itself takes its mmap_lock for writing."""
    _, phase, _ = measured("unmap", 503)
    check_sums(phase)
    expect(phase["locks"]["mmap_write"]["waits"] == 0, f"{phase['locks']}")


def off():
    profile, _ = run(["--ledgers=commit,vmas,refault,stacks", "trim_loop"])
    total = profile["total"]
    expect("locks" not in total and "refault" in total, f"{total.keys()}")
    expect(not any("lock_wait_ns" in stat for stat in total["classes"].values()), "waits without the ledger")


def assumed():
    """With a reader under mmap_lock and a writer in the queue, mappings cannot be looked at: that is counted."""
    profile, phase, _ = measured("assumed", 11)
    lost = profile["tool"]["lost"]
    commit_cnt = phase["classes"]["mprotect.commit"]["calls"]
    expect(lost["class_assumed"] >= 1 and not profile["tool"]["exact"], f"{lost}")
    # All are from RW to RW, which is not .commit, but for the stacks of two threads; what was not seen was taken for it.
    expect(commit_cnt - 2 <= lost["class_assumed"] <= commit_cnt, f"{lost}, {commit_cnt} calls of mprotect.commit")
    others = {key: cnt for key, cnt in lost.items() if cnt and key != "class_assumed"}
    expect(not others, f"{others}")


def cold():
    """Pages of a file that are not in memory: as many major faults as the program's own rusage has."""
    with tempfile.TemporaryDirectory(dir=os.path.abspath(OUT)) as folder:
        report = os.path.join(folder, "report")
        words = [os.path.abspath(ALLOCTRACE), "run", "--json", "--output", report, "--allocator=system", "--",
                 os.path.abspath(CALLS), "cold", "17"]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
        if done.returncode == 77:
            Results.skip("cold", done.stdout.splitlines()[0])
            return
        expect(done.returncode == 0, f"status {done.returncode}: {done.stderr}")
        with open(report, encoding="utf-8") as text:
            phase = json.load(text)["phases"]["measured"]
    expect(value(done.stdout, "major_faults") == 17, done.stdout)
    expect(phase["faults"]["major"] == 17 and phase["classes"]["fault.major"]["calls"] == 17, f"{phase['faults']}")
    expect(phase["classes"]["fault.major"]["kernel_ns"] > 0, "no time")


def hugetlb():
    """Huge pages by name are in no commit account."""
    with open("/proc/meminfo", encoding="ascii") as text:
        meminfo = text.read()
    if "HugePages_Total" not in meminfo:
        Results.skip("hugetlb", "this kernel has no huge pages by name")
        return
    free_cnt = int(re.search(r"HugePages_Free: *(\d+)", meminfo)[1])
    total_cnt = int(re.search(r"HugePages_Total: *(\d+)", meminfo)[1])
    with Sysctl("nr_hugepages", str(total_cnt + max(0, 3 - free_cnt))):
        words = [ALLOCTRACE, "run", "--json", "--allocator=system", "--", CALLS, "hugetlb", "3"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode == 77:
        Results.skip("hugetlb", "the kernel has no memory for huge pages")
        return
    phase = json.loads(done.stderr)["phases"]["measured"]
    expect(phase["classes"]["munmap"]["bytes"] == 3 << 21, f"{phase['classes']['munmap']}")
    expect(phase["commit"]["charged_pages"] == phase["commit"]["uncharged_pages"] == 0, f"{phase['commit']}")


def strict_overcommit():
    """vm.overcommit_memory=2: another batch, and MAP_NORESERVE means nothing. The limit itself is put out of reach."""
    with open("/proc/sys/vm/overcommit_memory", encoding="ascii") as text:
        if text.read().strip() == "2":
            Results.skip("strict_overcommit", "is in force already: the other tests are this one")
            return
    with Sysctl("overcommit_ratio", "1000"), Sysctl("overcommit_memory", "2"):
        profile, _ = run(["--", f"{OUT}/tests/trace/commit_calls", "noreserve", "-1", "64"], allocator="system")
    commit, host = profile["phases"]["measured"]["commit"], profile["host"]
    expect(host["overcommit_memory"] == 2, f"{host}")
    expect(commit["charged_pages"] == 64 * 256, f"{commit}")
    fixed = max(32, 2 * host["cpus"])
    expect(commit["batches"]["kernel"]["pages"] == max(fixed, host["ram_pages"] // host["cpus"] // 256), f"{commit}")


def main():
    results = Results()
    for case in (wait, storm, alone, off, assumed, cold, hugetlb, strict_overcommit):
        results.case(case.__name__, case)
    results.exit()


main()
