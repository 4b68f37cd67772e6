#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 120
"""What the bundled allocator counted while it was attached to: requests by number, and what they cost.

attach_calls says how many requests it makes; with policy trim off each free of its blocks is one madvise.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

from attaching import Attach, Child, Target, expect_exact, run_if_traced
from measure import ALLOCTRACE, OUT, Results, expect

LIBRARY = os.path.abspath(f"{OUT}/libatmalloc.so")
BEFORE, CNT, OTHER = 503, 1009, 211
RELEASE = "madvise.dontneed"


def environment(policy):
    return {**os.environ, "LD_PRELOAD": LIBRARY, "ATMALLOC_POLICY": policy}


def requests_of(cnt):
    """Of the command `a`."""
    return {"malloc": cnt + 1, "free": cnt + 1, "realloc": cnt + 2}


def sums(part):
    return {key: part["requests"][key] for key in ("malloc", "free", "realloc")}


def expect_requests(part, cnt):
    expect(sums(part) == requests_of(cnt), f"{sums(part)}, expected {requests_of(cnt)}")
    by_size = part["requests"]["by_size"].values()
    for key, value in sums(part).items():
        expect(sum(band[key] for band in by_size) == value, f"{key}: bands {by_size}")


def expect_costs(process):
    """Per thousand requests: what was traced of the process, by its own count of them."""
    classes = process["classes"].items()
    cnt = sum(sums(process).values())
    calls = sum(c["calls"] for name, c in classes if not name.startswith("fault."))
    call_ns = sum(c["kernel_ns"] for name, c in classes if not name.startswith("fault."))
    fault_ns = sum(c["kernel_ns"] for name, c in classes if name.startswith("fault."))
    got = process["requests"]
    expect(abs(got["syscalls_per_1000"] - calls * 1000 / cnt) < 1e-6 and
           abs(got["syscall_ns_per_1000"] - call_ns * 1000 / cnt) <= 1 and
           abs(got["fault_ns_per_1000"] - fault_ns * 1000 / cnt) <= 1,
           f"{got}, from {calls} calls, {call_ns} ns, {fault_ns} ns of {cnt}")


def of(report, pid, execs=0):
    found = [process for process in report["processes"] if process["pid"] == pid and process["execs"] == execs]
    expect(len(found) == 1, f"{len(found)} processes {pid}")
    return found[0]


def expect_missing(process, why):
    expect(process.get("requests_missing") == why and "requests" not in process,
           f"{process['name']}: {process.get('requests_missing')!r}, requests {process.get('requests')}, expected {why!r}")


def expect_one(target, released):
    """Attached to between two times of work: only what is done then counts."""
    target.tell(f"a {BEFORE}")
    with Attach("-p", target.pid) as attach:
        target.tell(f"a {CNT}")
        report = attach.report()
    expect_exact(report)
    process = of(report, target.pid)
    expect(report["tool"]["self_count_processes"] == 1, f"{report['tool']}")
    for part in (process, report["total"]):
        expect_requests(part, CNT)
        got = (part["self_counts"][RELEASE], part["classes"].get(RELEASE, {}).get("calls", 0))
        expect(got == (released, released), f"{RELEASE}, own count and traced: {got}, expected {released}")
    expect_costs(process)
    for key in ("syscalls_per_1000", "syscall_ns_per_1000", "fault_ns_per_1000"):
        expect(process["requests"][key] == report["total"]["requests"][key], f"{key}: {process['requests']}")


def saved():
    """All of it is there again in a saved report."""
    with tempfile.NamedTemporaryFile(prefix="alloctrace-test-") as file, Target(env=environment("none")) as target:
        with Attach("-p", target.pid, "--save", file.name) as attach:
            target.tell(f"a {CNT}")
            target.tell("f 3")
            report = attach.report()
        done = subprocess.run([ALLOCTRACE, "report", "-j", file.name], check=True, capture_output=True, timeout=60)
    expect_requests(of(report, target.pid), CNT)
    expect(json.loads(done.stdout) == report, "a saved report is another one")


def by_policy(policy, released):
    with Target(env=environment(policy)) as target:
        expect_one(target, released)


def linked():
    with tempfile.TemporaryDirectory(prefix="alloctrace-test-") as place:
        program = f"{place}/linked"
        subprocess.run(["cc", "-O1", "-D_GNU_SOURCE", "tests/trace/attach_calls.c", "-o", program, LIBRARY, "-pthread",
                        f"-Wl,-rpath,{os.path.dirname(LIBRARY)}"], check=True, timeout=60)
        with Target(program=program, env={**os.environ, "ATMALLOC_POLICY": "none"}) as target:
            expect_one(target, CNT)


def switched():
    """Policies change while it is attached to: the first part of the work is released, the second is not."""
    with Target(env=environment("none")) as target, Attach("-p", target.pid) as attach:
        target.tell(f"a {OTHER}")
        subprocess.run([ALLOCTRACE, "policy", "-p", str(target.pid), "trim"], check=True, capture_output=True)
        target.tell(f"a {CNT}")
        process = of(attach.report(), target.pid)
    expect(sums(process) == {key: value + requests_of(OTHER)[key] for key, value in requests_of(CNT).items()}, f"{sums(process)}")
    expect(process["self_counts"][RELEASE] == OTHER, f"{process['self_counts']}")
    expect(process["decisions"]["trim.taken"] == OTHER, f"{process['decisions']}")


def children():
    """One that stays is counted from its birth, one that ends is named, and so is a program that another one replaced."""
    with Target(env=environment("none")) as target, Attach("-p", target.pid) as attach:
        target.tell(f"a {CNT}")
        target.tell(f"g {OTHER}")
        target.tell("f 3")
        report = attach.report()
        expect_exact(report)
        expect_requests(of(report, target.pid), CNT)
        others = [process for process in report["processes"] if process["pid"] != target.pid]
        stays, = [process for process in others if not process["ended"]]
        ended, = [process for process in others if process["ended"]]
        expect_requests(stays, OTHER)
        expect_missing(ended, "ended")
        expect(report["tool"]["self_count_processes"] == 2, f"{report['tool']}")
        expect("syscalls_per_1000" not in report["total"]["requests"], "calls of all, requests of some")
        with Attach("-p", target.pid, is_json=False) as again:
            target.tell("f 3")
            target.tell("e")
            text = again.text_now()
        # Its name is that of the link it was started by.
        line = next(line for line in text.split("requests ")[1].splitlines() if "not those of" in line)
        expect(f"exe ({target.pid})" in line and "attach_calls (" in line and
               line.endswith(": ended, or started another program"), line)
    with Target(env=environment("none")) as target, Attach("-p", target.pid) as attach:
        target.tell("e")
        target.tell(f"a {CNT}")
        report = attach.report()
        expect_missing(of(report, target.pid), "ended")
        # The start of a program makes requests of its own.
        after = sums(of(report, target.pid, execs=1))
        expect(all(CNT < after[key] < CNT + 50 for key in after), f"{after}")


def not_its_own():
    """A child of vfork has its mother's memory, and so her counts: they count once."""
    with Target(env=environment("none")) as target, Attach("-p", target.pid) as attach:
        target.tell("v")
        time.sleep(0.2)
        target.tell(f"a {CNT}")
        report = attach.report()
    child, = [process for process in report["processes"] if process["pid"] != target.pid]
    expect_missing(child, "shared")
    # The thread that makes the child is a request or two.
    got = sums(of(report, target.pid))
    expect(all(value <= got[key] <= value + 5 for key, value in requests_of(CNT).items()), f"{got}")
    expect(sums(report["total"]) == got, f"{sums(report['total'])}")


def other_allocators():
    """Costs are those of a process with its own requests, never with another's."""
    with Target(env=environment("none")) as one, Target() as other, Attach("-p", one.pid, "-p", other.pid) as attach:
        one.tell(f"a {CNT}")
        other.tell(f"a {OTHER}")
        other.tell(f"m {OTHER}")
        report = attach.report()
    expect_requests(of(report, one.pid), CNT)
    expect_costs(of(report, one.pid))
    expect_requests(report["total"], CNT)
    expect("syscalls_per_1000" not in report["total"]["requests"], f"{report['total']['requests']}")
    process = of(report, other.pid)
    expect("requests" not in process and "requests_missing" not in process, f"{process['allocator']}")
    with Target() as other, Attach("-p", other.pid) as attach:
        other.tell(f"a {OTHER}")
        report = attach.report()
    expect("requests" not in report["total"] and "self_count_processes" not in report["tool"], "requests of glibc")


def some_threads():
    with Target(3, env=environment("none")) as target:
        tid = max(int(name) for name in os.listdir(f"/proc/{target.pid}/task"))
        with Attach("-t", tid) as attach:
            target.tell(f"a {CNT}")
            report = attach.report()
    expect_missing(of(report, target.pid), "threads")
    expect("requests" not in report["total"], f"{report['total'].get('requests')}")


def renamed():
    """What it counted before it was found is not known."""
    own = f"at{os.getpid()}r"
    with Target(name=own, env=environment("none")) as one, Target(env=environment("none")) as late:
        with Attach("--name", own) as attach:
            one.tell(f"a {CNT}")
            late.tell(f"a {OTHER}")
            late.tell(f"s {own}")
            time.sleep(0.5)
            late.tell(f"a {OTHER}")
            report = attach.report()
    expect_requests(of(report, one.pid), CNT)
    expect_missing(of(report, late.pid), "late")


HEAPS = """
import sys, threading
stay = threading.Event()
for _ in range(520):
    threading.Thread(target=stay.wait, daemon=True).start()
print("ok", flush=True)
for line in sys.stdin:
    print("ok", flush=True)
"""


def many_heaps():
    """Of more threads at once than it has counters for, some count nowhere."""
    with Child([sys.executable, "-c", HEAPS], env=environment("none")) as target:
        target.wait_ok()
        with Attach("-p", target.pid) as attach:
            target.tell("more")
            report = attach.report()
    expect_missing(of(report, target.pid), "heaps")
    expect("requests" not in report["total"], f"{report['total'].get('requests')}")


def other_version():
    """It counts in a way that is not ours to read."""
    with open(LIBRARY, "rb") as file:
        library = file.read()
    own = struct.pack("<QI", 0x314d54415f4d5441, 2)
    expect(library.count(own) == 1, f"{library.count(own)} control blocks in {LIBRARY}")
    with tempfile.TemporaryDirectory(prefix="alloctrace-test-") as place:
        other = f"{place}/libother.so"
        with open(other, "wb") as file:
            file.write(library.replace(own, struct.pack("<QI", 0x314d54415f4d5441, 1)))
        with Target(env={**environment("none"), "LD_PRELOAD": other}) as target, Attach("-p", target.pid) as attach:
            target.tell(f"a {CNT}")
            report = attach.report()
            with Attach("-p", target.pid, is_json=False) as again:
                text = again.text_now()
    expect_missing(of(report, target.pid), "unread")
    expect("requests" not in report["total"], f"{report['total'].get('requests')}")
    expect(f"({target.pid}): cannot be read" in text, text)


def main():
    results = Results()
    results.case("policies off", by_policy, "none", CNT)
    results.case("policies on", by_policy, "all", 0)
    for case in (linked, switched, children, not_its_own, other_allocators, some_threads, renamed, saved, many_heaps,
                 other_version):
        results.case(case.__name__, case)
    results.exit()


run_if_traced(main)
