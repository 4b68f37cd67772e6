#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 200
"""Processes that are not there yet: short ones of a name and in a control group, all counted from their exec on.

And the other way round: who has the number of a process that has ended is not meant (field case B61).
"""
import collections
import contextlib
import json
import os
import subprocess
import tempfile
import time

from attaching import CALLS, KNOWN, Attach, Target, cgroup_root, counted, expect_exact, expect_total, run_if_traced
from measure import ALLOCTRACE, Results, expect

PROCESSES = 1009
EACH = 3


@contextlib.contextmanager
def cgroup():
    """A control group of our own; gone with the block."""
    place = os.path.join(cgroup_root(), f"alloctrace-open-{os.getpid()}")
    os.mkdir(place)
    try:
        yield place
    finally:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                for below in [name for name in os.listdir(place) if os.path.isdir(os.path.join(place, name))]:
                    os.rmdir(os.path.join(place, below))
                os.rmdir(place)
                break
            time.sleep(0.05)


def expect_short(report, name, cnt=PROCESSES, each=EACH):
    """So many processes of that name, each with its calls, and the pages of its own program."""
    expect_exact(report)
    of_name = [process for process in report["processes"] if process["name"] == name]
    got = collections.Counter(counted(process) for process in of_name)
    expect(got[each] == cnt, f"processes by calls: {dict(got)}, expected {cnt} of {each}")
    for process in of_name:
        commit = process["commit"]
        expect(counted(process) != each or commit["charged_pages"] == commit["uncharged_pages"] > 0, f"{commit}")


def by_name(*words):
    """By exec, from a parent of another name."""
    own = f"at{os.getpid()}s"
    with tempfile.TemporaryDirectory() as place:
        os.symlink(KNOWN, f"{place}/{own}")
        os.symlink(KNOWN, f"{place}/other")
        with Target(1, own) as one, Attach("--name", own, *words) as attach:
            for number in range(PROCESSES):
                subprocess.run([f"{place}/{own}", "fail", str(EACH)], check=True)
                if number % 100 == 0:
                    subprocess.run([f"{place}/other", "fail", "100"], check=True)
            one.tell("c 7")
            report = attach.report()
    expect_short(report, own)
    expect_total(report, EACH * PROCESSES + 7)


def in_cgroup(*words):
    """By exec, of a process that has just come into the group."""
    with cgroup() as place, Attach("--cgroup", place, *words) as attach:
        script = f'echo $$ >{place}/cgroup.procs; exec "{KNOWN}" fail {EACH}'
        for _ in range(PROCESSES):
            subprocess.run(["/bin/sh", "-c", script], check=True)
        report = attach.report()
    expect_short(report, "known_calls")
    expect_total(report, EACH * PROCESSES)


def renamed(*words):
    """A name that a process gives itself counts from then on, however short it lives."""
    own = f"at{os.getpid()}r"
    with Target(1, own) as one, Target() as mother, Attach("--name", own, *words) as attach:
        mother.tell(f"x {PROCESSES} {own}")
        one.tell("c 7")
        report = attach.report()
    expect_total(report, EACH * PROCESSES + 7)
    of_name = [counted(process) for process in report["processes"] if process["name"] == own]
    expect(sorted(of_name) == [EACH] * PROCESSES + [7], f"{collections.Counter(of_name)}")


def moved(command, *words):
    """Into the control group and one below it, by another process or by itself."""
    with cgroup() as place:
        os.mkdir(f"{place}/below")
        with Target() as mother, Attach("--cgroup", place, *words) as attach:
            mother.tell(f"{command} {PROCESSES} {place}")
            mother.tell(f"{command} 11 {place}/below")
            report = attach.report()
    expect_total(report, EACH * (PROCESSES + 11))
    of_process = collections.Counter(counted(process) for process in report["processes"])
    expect(of_process == {EACH: PROCESSES + 11}, f"{of_process}")


def forked_in_cgroup():
    """Children of a process that has just come into the group, and of one in a group that was made after it."""
    with cgroup() as place:
        with Attach("--cgroup", place, "--no-follow") as attach:
            for below in ("", "/new"):
                os.makedirs(place + below, exist_ok=True)
                with Target() as target:
                    with open(f"{place}{below}/cgroup.procs", "w", encoding="ascii") as procs:
                        procs.write(str(target.pid))
                    for _ in range(10):
                        target.tell(f"f {EACH}")
            report = attach.report()
    expect_exact(report)
    got = collections.Counter(counted(process) for process in report["processes"] if counted(process))
    expect(got == {EACH: 20}, f"processes by calls: {dict(got)}")


def empty_group():
    """Nobody is there, nobody comes: a complete report of nothing."""
    with cgroup() as place, Attach("--cgroup", place, "-d", "200ms") as attach:
        report = attach.report(is_ending=False)
    expect_exact(report)
    calls = sum(stat["calls"] for stat in report["total"]["classes"].values())
    expect(report["processes"] == [] and calls == 0, f"{calls} calls, {report['processes']}")


def exec_again():
    """A name that comes by exec: from then on, and its row is the first of the process."""
    own = f"at{os.getpid()}x"
    with tempfile.TemporaryDirectory() as place:
        os.symlink(CALLS, f"{place}/{own}")
        with Target(1, own) as one, Attach("--name", own, "--callchain") as attach:
            with Target(wrapper=["/bin/sh", "-c", f'exec "{place}/{own}" 1', "sh"]) as late:
                late.tell("c 5")
                late.tell("n")
                late.tell("c 11")
                late.tell("f 2")
                report = attach.report()
            one.tell("c 1")
    expect_total(report, 5 + 22 + 2)
    process, = [process for process in report["processes"] if process["pid"] == late.pid]
    expect(process["execs"] == 0 and process["name"] == own, f"{process}")
    frames = report["callchains"]["frames"]
    for path in report["callchains"]["paths"]:
        if path["class"] == "madvise.other":
            names = [frames[number].get("function", "?") for number in path["frames"]]
            expect(path["end"] == "outermost" and names[0] == "syscall", f"{names}: {path}")


REUSE = """
import json, os, signal, subprocess, sys
sys.path.insert(0, {tests!r})
from attaching import CALLS, Attach, Target, counted

def start_as(number):
    # The next process has this number, where it is free.
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(str(number - 1))
    return Target()

with Target() as first, Target() as other:
    with Attach("-p", f"{{first.pid}},{{other.pid}}") as attach:
        first.tell("c 7")
        first.process.kill()
        first.process.wait()
        with start_as(first.pid) as second:
            second.tell("c 1000")
            other.tell("c 5")
            report = attach.report()
    refused = subprocess.run([{alloctrace!r}, "attach", "-p", "999"], capture_output=True, text=True)
json.dump({{"first": first.pid, "second": second.pid, "other": other.pid, "report": report, "refused": refused.returncode}},
          sys.stdout)
"""


def reused_number():
    """A number that was given, and is given again by force: the process that has it now is nobody's."""
    script = REUSE.format(tests=os.path.dirname(os.path.abspath(__file__)), alloctrace=os.path.abspath(ALLOCTRACE))
    done = subprocess.run(["unshare", "-pf", "--mount-proc", "python3", "-c", script], capture_output=True, text=True,
                          timeout=100, check=False)
    expect(done.returncode == 0, f"{done.returncode}: {done.stderr}")
    got = json.loads(done.stdout)
    expect(got["first"] == got["second"], f"numbers {got['first']} and {got['second']}: not used again")
    expect_total(got["report"], 7 + 5)
    counts = {process["pid"]: counted(process) for process in got["report"]["processes"]}
    expect(counts == {got["first"]: 7, got["other"]: 5}, f"{counts}")
    expect(got["refused"] == 1, f"a number that nobody has: status {got['refused']}")


def main():
    results = Results()
    results.case("by name", by_name)
    results.case("by name, task storage", by_name, "--slots", "storage", "--callchain")
    results.case("exec again", exec_again)
    results.case("renamed", renamed)
    results.case("renamed, task storage", renamed, "--slots", "storage", "--callchain")
    if cgroup_root():
        results.case("in a control group", in_cgroup)
        results.case("moved by another", moved, "y")
        results.case("moved by itself", moved, "z", "--callchain")
        results.case("forked in a control group", forked_in_cgroup)
        results.case("empty control group", empty_group)
    else:
        results.skip("in a control group", "no control groups of version 2 are mounted, or not for us to change")
    results.case("reused number", reused_number)
    results.exit()


run_if_traced(main)
