#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 120
"""The ledgers of each process and thread under attach: known numbers, /proc's own, and sums that are the totals'."""
import json
import os
import re
import signal
import subprocess
import tempfile
import time

from attaching import Attach, Target, expect_exact, run_if_traced
from measure import ALLOCTRACE, Results, expect


def accounted_pages(pid):
    """Pages in the commit account, by the kernel's own list of mappings."""
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as smaps:
        text = smaps.read()
    sizes = re.findall(r"^Size: +(\d+) kB(?:.*\n)*?VmFlags:(.*)$", text, re.MULTILINE)
    return sum(int(size) for size, flags in sizes if " ac" in flags) // 4


def vma_cnt(pid):
    """[vsyscall] is in the list and is none of the process."""
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
        return sum("[vsyscall]" not in line for line in maps)


def picked(part):
    """What the test knows of a process: (charged, uncharged, peak), (released, returned), threads created."""
    commit, refault = part["commit"], part["refault"]
    return ((commit["charged_pages"], commit["uncharged_pages"], commit["peak_pages"]),
            (refault["released_pages"], refault["returned_pages"]), part["stacks"]["threads"])


def expect_sums(report):
    """Over processes, and over threads, they are those of all together."""
    sums = {"commit": ("charged_pages", "uncharged_pages", "updates"), "refault": ("released_pages", "returned_pages"),
            "stacks": ("threads", "calls", "touched_pages")}
    threads = [thread for process in report["processes"] for thread in process["threads"]]
    for ledger, keys in sums.items():
        for key in keys:
            total = report["total"][ledger][key]
            for name, parts in (("processes", report["processes"]), ("threads", threads)):
                got = sum(part[ledger][key] for part in parts)
                expect(got == total, f"{ledger}.{key}: {got} by {name}, {total} in total")
    waits = sum(kind["waits"] for kind in report["total"]["locks"].values())
    got = sum(process["locks"]["waits"] for process in report["processes"])
    expect(got == waits, f"{got} waits by processes, {waits} in total")


def two_targets():
    """Different work, different numbers; what they held before is in the peak and in nothing else."""
    with Target() as one, Target() as two, tempfile.TemporaryDirectory() as place:
        starts = {target.pid: (accounted_pages(target.pid), vma_cnt(target.pid)) for target in (one, two)}
        with Attach("-p", f"{one.pid},{two.pid}", "--save", f"{place}/saved") as attach:
            one.tell("m 101")
            one.tell("k 7")
            two.tell("k 211")
            two.tell("m 13")
            ends = {target.pid: vma_cnt(target.pid) for target in (one, two)}
            report = attach.report()
            with open(attach.output.name, encoding="utf-8") as output:
                text = output.read()
        again = subprocess.run([ALLOCTRACE, "report", "-j", f"{place}/saved"], capture_output=True, text=True, check=True)
        table = subprocess.run([ALLOCTRACE, "report", f"{place}/saved"], capture_output=True, text=True, check=True)
    expect_exact(report)
    expect_sums(report)
    parts = {process["pid"]: process for process in report["processes"]}
    held = starts[one.pid][0]
    got = picked(parts[one.pid])
    expect(got == ((108, 101, held + 101), (202, 101), 0), f"the first, which held {held}: {got}")
    held = starts[two.pid][0]
    got = picked(parts[two.pid])
    expect(got == ((224, 13, held + 224), (26, 13), 0), f"the second, which held {held}: {got}")
    for pid, part in parts.items():
        vmas = part["vmas"]
        wanted = (starts[pid][1], ends[pid])
        expect((vmas["start"], vmas["end"]) == wanted, f"VMAs {vmas}, /proc says {wanted}")
        expect(max(wanted) <= vmas["peak"] <= max(wanted) + 1, f"VMAs {vmas}, /proc says {wanted}")
    expect(again.stdout == text, "what was saved is another report")
    line = re.search(rf"^{two.pid} +\S+ +224 +13 +{held + 224} ", table.stdout, re.MULTILINE)
    expect(line or held + 224 > 999, f"no such line: {table.stdout}")


def children():
    """A child is charged for what it has from its parent, and gives it back; an exec begins another row."""
    with Target() as target:
        with Attach("-p", target.pid) as attach:
            target.tell("k 17")
            held = accounted_pages(target.pid)
            target.tell("f 3")
            target.tell("e")
            after = accounted_pages(target.pid)
            target.tell("k 19")
            report = attach.report()
    expect_exact(report)
    expect_sums(report)
    child, = [process for process in report["processes"] if process["pid"] != target.pid]
    first, second = sorted((p for p in report["processes"] if p["pid"] == target.pid), key=lambda p: p["execs"])
    got = picked(child)[0]
    expect(got[0] == got[1] == got[2] == held, f"the child of a process that held {held}: {got}")
    got = picked(first)[0]
    expect(got == (17, held, held), f"before the exec, with {held}: {got}")
    commit = second["commit"]
    expect(commit["charged_pages"] - commit["uncharged_pages"] == after + 19, f"after the exec, {after} + 19: {commit}")


def vfork_first():
    """The first call in an address space is made by the child of a vfork: what is there is there once."""
    with Target() as target:
        held = accounted_pages(target.pid)
        with Attach("-p", target.pid) as attach:
            target.tell("t 7")
            target.tell("m 13")
            report = attach.report()
    expect_exact(report)
    expect_sums(report)
    got = report["tool"]["commit_start_pages"]
    expect(got == held, f"{got} pages at the start, the kernel says {held}")
    commit = report["total"]["commit"]
    got = commit["charged_pages"], commit["uncharged_pages"], commit["peak_pages"]
    expect(got == (20, 13, held + 20), f"{got}, expected 20, 13 and {held} + 20")


def threads():
    """Who does it has it: threads are created by the first one."""
    with Target() as target:
        with Attach("-p", target.pid) as attach:
            for _ in range(5):
                target.tell("n")
            target.tell("m 31")
            report = attach.report()
    expect_sums(report)
    process, = report["processes"]
    expect(process["stacks"]["threads"] == 5, f"{process['stacks']}")
    leader, = [thread for thread in process["threads"] if thread["tid"] == target.pid]
    expect(leader["stacks"]["threads"] == 5 and leader["refault"]["released_pages"] == 62, f"{leader}")


def intervals():
    """Ledgers of an interval are what it brought."""
    with Target() as target:
        with Attach("-p", target.pid, "-i", "100ms") as attach:
            for number in (37, 41, 43):
                target.tell(f"m {number}")
                time.sleep(0.25)
            target.tell("q", has_answer=False)
            lines = attach.text().splitlines()
    parts = [json.loads(line) for line in lines if line.startswith('{"schema":"alloctrace.interval/1"')]
    for ledger, key, wanted in (("commit", "charged_pages", 121), ("refault", "released_pages", 242)):
        by_process = sum(process[ledger][key] for part in parts for process in part["processes"])
        total = sum(part["total"][ledger][key] for part in parts)
        expect(by_process == total == wanted, f"{ledger}.{key}: {by_process} by process, {total} in all, expected {wanted}")


def under_load():
    """Five threads at work, killed: sums are those of the total."""
    with Target(5) as target:
        with Attach("-p", target.pid) as attach:
            target.tell("b")
            target.tell("f 3")
            target.tell("m 53")
            os.kill(target.pid, signal.SIGKILL)
            report = attach.report(is_ending=False)
    expect_sums(report)


def only_some():
    """A ledger that is not kept is nowhere; with none there is no table of them."""
    with Target() as target:
        with Attach("-p", target.pid, "--ledgers", "vmas") as attach, Attach("-p", target.pid, "--no-ledgers",
                                                                            is_json=False) as bare:
            target.tell("m 3")
            report = attach.report()
            bare.process.send_signal(signal.SIGINT)
            table = bare.text()
    keys = set(report["processes"][0]) & {"commit", "vmas", "refault", "locks", "stacks"}
    expect(keys == {"vmas"}, f"{keys}")
    expect("ledgers of" not in table, table)


def main():
    results = Results()
    for case in (two_targets, children, vfork_first, threads, intervals, under_load, only_some):
        results.case(case.__name__, case)
    results.exit()


run_if_traced(main)
