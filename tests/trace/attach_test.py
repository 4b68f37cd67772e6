#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 240
"""attach counts what a running process does from then on, exactly: threads, children, programs, and ends."""
import json
import os
import re
import signal
import subprocess
import tempfile
import time

from attaching import CLASS, KNOWN, Attach, Child, Target, counted, expect_total, run_if_traced
from measure import ALLOCTRACE, Results, expect, expect_exact


def known_table():
    """class: (calls, errors), from known.h."""
    table = {}
    with open(os.path.join(os.path.dirname(__file__), "known.h"), encoding="ascii") as header:
        for name, good, bad in re.findall(r"X\((\w+), ([\d +]+), (\d+), \w+\)", header.read()):
            calls = sum(int(part) for part in good.split("+"))
            table[name.lower().replace("_", ".", 1)] = (calls + int(bad), int(bad))
    for name in ("process.madvise", "pkey.mprotect"):
        table[name.replace(".", "_")] = table.pop(name)
    return table


def classes(*words):
    """A prime number of calls of each class on a signal."""
    with Child([KNOWN, "held"]) as target:
        target.wait_ok()
        with Attach("-p", target.pid, *words) as attach:
            os.kill(target.pid, signal.SIGUSR1)
            target.wait_ok()
            report = attach.report()
    expect_exact(report)
    phase = report["phases"]["measured"]["classes"]
    table = known_table()
    expect(len(table) == 24, f"known.h has {len(table)} classes")
    got = {name: (phase[name]["calls"], phase[name]["errors"]) for name in table}
    expect(got == table, f"got {got}, expected {table}")


def threads(*words):
    """Threads from before and after, and those of a child."""
    with Target(3) as target:
        target.tell("c 11")  # before: not counted
        with Attach("-p", target.pid, *words) as attach:
            target.tell("c 101")
            target.tell("n")
            target.tell("n")
            target.tell("c 211")
            report = attach.report()
    expect_total(report, 3 * 101 + 5 * 211)
    process, = report["processes"]
    expect(process["pid"] == target.pid, f"pid {process['pid']}")
    got = sorted(counted(thread) for thread in process["threads"])
    expect(got == [211, 211, 312, 312, 312], f"by thread: {got}")
    errors = counted(report["total"], key="errors")
    expect(errors == 3 * 101 + 5 * 211, f"{errors} errors")


def fork(is_following):
    with Target(2) as target:
        with Attach("-p", target.pid, *([] if is_following else ["--no-follow"])) as attach:
            target.tell("f 307")
            target.tell("c 13")
            target.tell("f 401")
            report = attach.report()
    expect_total(report, 26 + (307 + 401 if is_following else 0))
    got = sorted(counted(process) for process in report["processes"])
    expect(got == ([26, 307, 401] if is_following else [26]), f"by process: {got}")


def exec_again(command):
    """Each program has a row of its own (field case B62)."""
    with Target(3) as target:
        with Attach("-p", target.pid) as attach:
            target.tell("c 17")
            target.tell(command)
            target.tell("c 23")
            target.tell(command)
            target.tell("c 29")
            report = attach.report()
    expect_total(report, 3 * (17 + 23 + 29))
    got = {process["execs"]: counted(process) for process in report["processes"]}
    expect(got == {0: 51, 1: 69, 2: 87}, f"by program: {got}")
    expect({process["pid"] for process in report["processes"]} == {target.pid}, "another pid")


def leader_gone():
    """The first thread has ended, before or after attaching (field case B73)."""
    for is_before in (True, False):
        with Target(2) as target:
            if is_before:
                target.tell("l", has_answer=False)
                target.tell("c 5")
            with Attach("-p", target.pid) as attach:
                if not is_before:
                    target.tell("l", has_answer=False)
                target.tell("c 503")
                report = attach.report()
        expect_total(report, 2 * 503)


def one_thread():
    """-t: that thread alone, with --no-follow; else with what it starts."""
    with Target(2) as target:
        tids = [int(tid) for tid in os.listdir(f"/proc/{target.pid}/task")]
        other, = set(tids) - {target.pid}
        with Attach("-t", other, "--no-follow") as attach, Attach("-t", target.pid) as first:
            target.tell("c 31")
            target.tell("n")
            target.tell("f 53")
            target.tell("c 37")
            expect_total(attach.report(), 31 + 37)
            expect_total(first.report(), 31 + 53 + 2 * 37)


def ends_with_target():
    with Target(3) as target:
        with Attach("-p", target.pid) as attach:
            target.tell("c 41")
            target.tell("q", has_answer=False)
            report = attach.report(is_ending=False)
    expect_total(report, 3 * 41)
    expect(report["processes"][0]["ended"], "not marked as ended")


def killed_target():
    """SIGKILL in the middle of its work: a complete report, in which threads and total agree."""
    with Target(5) as target:
        with Attach("-p", target.pid) as attach:
            target.tell("b")
            time.sleep(0.3)
            os.kill(target.pid, signal.SIGKILL)
            report = attach.report(is_ending=False)
    expect(counted(report["total"]) > 0, "nothing was counted")
    expect_total(report, counted(report["total"]))


def two_agree():
    """Two alloctraces on one process, and strace knows the number, too."""
    with Target(3) as target:
        with Attach("-p", target.pid) as one, Attach("-p", target.pid) as two:
            target.tell("c 601")
            target.tell("n")
            target.tell("c 7")
            reports = [one.report(), two.report()]
    for report in reports:
        expect_total(report, 3 * 601 + 4 * 7)


def intervals():
    """The deltas add up to the total, by class and by process."""
    with Target(3) as target:
        with Attach("-p", target.pid, "-i", "100ms") as attach:
            for number in (101, 103, 107, 109):
                target.tell(f"c {number}")
                target.tell("p 50")
                time.sleep(0.13)
            target.tell("q", has_answer=False)
            lines = attach.text().splitlines()
    parts = [json.loads(line) for line in lines if line.startswith('{"schema":"alloctrace.interval/1"')]
    report = json.loads("\n".join(lines[len(parts):]))
    expect_total(report, 3 * 420)
    expect(len(parts) >= 4, f"{len(parts)} intervals")
    for name in (CLASS, "fault.minor"):
        got = sum(counted(part["total"], name) for part in parts)
        expect(got <= counted(report["total"], name), f"{name}: {got} in intervals")
    got = sum(counted(part["total"]) for part in parts)
    by_process = sum(counted(process) for part in parts for process in part["processes"])
    last = counted(report["total"]) - got
    expect(last == 0, f"{last} calls are in no interval")
    expect(by_process == got, f"by process {by_process}, total {got}")
    ends = [part["to_ns"] for part in parts]
    starts = [part["from_ns"] for part in parts]
    expect(starts == [0] + ends[:-1], "intervals do not follow one another")


def saved():
    """What was saved is the report again, to the byte; in JSON, too."""
    with Target(3) as target, tempfile.TemporaryDirectory() as place:
        path = f"{place}/saved.gz"
        with Attach("-p", target.pid, "--save", path) as attach:
            target.tell("c 139")
            target.tell("e")
            report = attach.report()
            with open(attach.output.name, encoding="utf-8") as output:
                text = output.read()
        again = subprocess.run([ALLOCTRACE, "report", "-j", path], capture_output=True, text=True, check=True).stdout
        expect_total(report, 3 * 139)
        expect(again == text, "report -j differs")
        table = subprocess.run([ALLOCTRACE, "report", path], capture_output=True, text=True, check=True).stdout
        expect("attached to 2 processes" in table and f"{target.pid} " in table, table)


def at_once():
    """Intervals are seen when they are due, in a pipe (field case B22)."""
    with Target() as target:
        words = [ALLOCTRACE, "attach", "-p", str(target.pid), "-i", "50ms"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as attach:
            expect(attach.stdout.readline() == b"\n", "no interval")
            expect(b"s " in attach.stdout.readline(), "no interval")
            attach.send_signal(signal.SIGINT)
            attach.stdout.read()


def rows_full():
    """Threads beyond the rows are in the total, and named as told apart no further."""
    with Target(7) as target:
        with Attach("-p", target.pid, "--rows", 4) as attach:
            target.tell("c 127")
            report = attach.report()
    expect_exact(report)
    expect(counted(report["total"]) == 7 * 127, f"total {counted(report['total'])}")
    expect(report["other"]["threads"] == 3, f"other: {report['other']}")
    got = counted(report["other"]) + sum(counted(process) for process in report["processes"])
    expect(got == 7 * 127 and counted(report["other"]) == 3 * 127, f"other: {report['other']}")


def many_short_threads():
    """More threads than rows, one after the other: rows are used again."""
    with Target(1) as target:
        with Attach("-p", target.pid, "--rows", 40) as attach:
            for _ in range(3):
                for _ in range(30):
                    target.tell("f 3")
                time.sleep(2.2)
            report = attach.report()
    expect_total(report, 270)
    expect("other" not in report, f"{report.get('other')}")


def main():
    results = Results()
    results.case("classes", classes)
    results.case("classes, task storage", classes, "--slots", "storage")
    results.case("threads", threads)
    results.case("threads, task storage", threads, "--slots", "storage")
    results.case("fork, followed", fork, True)
    results.case("fork, not followed", fork, False)
    results.case("exec", exec_again, "e")
    results.case("exec by a thread", exec_again, "w")
    for case in (leader_gone, one_thread, ends_with_target, killed_target, two_agree, intervals, at_once, rows_full,
                 many_short_threads, saved):
        results.case(case.__name__, case)
    results.exit()


run_if_traced(main)
