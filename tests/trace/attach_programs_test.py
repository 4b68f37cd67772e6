#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 240
"""Real programs, attached to while they work: exact reports, and the program goes on unharmed.

Where a program can be told how often to make a call, the count is compared with
that; else with the sum over its threads, and with strace where both watch the same window.
"""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import programs
import servers
from attaching import Attach, counted, report_of, run_if_traced
from measure import Results, expect, expect_exact

MMAPS = 1009


def expect_whole(report):
    """Exact, as far as a program's own threads let us see, and threads and total agree."""
    expect_exact(report, has_racing_threads=True)
    for name, stat in report["total"]["classes"].items():
        got = sum(counted(thread, name) for process in report["processes"] for thread in process["threads"])
        expect(got == stat["calls"], f"{name}: total {stat['calls']}, threads {got}")


def allocators(report):
    return [process.get("allocator", "") for process in report["processes"]]


def python3():
    with programs.python() as program:
        report = report_of(program, MMAPS)
        program.tell("1")
    expect_whole(report)
    total = report["total"]
    sized = counted(total, "mmap.anon", "bytes") // (1 << 22)
    expect(sized == MMAPS, f"{sized} mappings of 4 MiB, expected {MMAPS}")
    expect(allocators(report)[0].startswith("glibc 2."), f"{allocators(report)}")


def go():
    with programs.go() as program:
        report = report_of(program, MMAPS)
        program.tell("1")
    expect_whole(report)
    expect(counted(report["total"], "madvise.other") == MMAPS, f"{counted(report['total'], 'madvise.other')}")
    version = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout.split()[2]
    expect(allocators(report)[0].startswith(f"Go {version[2:]}"), f"{allocators(report)}, {version}")


def java():
    with programs.java() as program:
        report = report_of(program, MMAPS)
        program.tell("1")
    expect_whole(report)
    got = counted(report["total"], "mmap.file")
    expect(MMAPS <= got < MMAPS + 200, f"{got} mmap.file, expected {MMAPS} and what the runtime maps")
    expect(re.match(r"Java \d+\.[\d.]+, glibc 2", allocators(report)[0]), f"{allocators(report)}")


def redis():
    """Under redis-benchmark; strace watches the same process, and counts as many calls of each syscall."""
    with servers.redis() as (pid, port), tempfile.NamedTemporaryFile("r") as trace:
        with Attach("-p", pid) as attach:
            with subprocess.Popen(["strace", "-f", "-c", "-e", "trace=mmap,munmap,mprotect,madvise,brk,mremap", "-o",
                                   trace.name, "-p", str(pid)], stderr=subprocess.PIPE, text=True) as strace:
                strace.stderr.readline()
                time.sleep(0.5)
                servers.redis_work(port)
                wait_idle(pid)
                strace.send_signal(signal.SIGINT)
                strace.communicate()
            report = attach.report()
        done = subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True, text=True, check=True)
        expect(done.stdout == "PONG\n", f"redis says {done.stdout!r}")
        straced = {words[-1]: int(words[3]) for words in map(str.split, trace)
                   if len(words) >= 5 and re.fullmatch(r"\d+", words[3])}
    expect_whole(report)
    straced.pop("total", None)
    expect(sum(straced.values()) > 10, f"strace saw {straced}")
    for name, calls in straced.items():
        traced = report["total"]["syscalls"][name]["calls"]
        # strace begins later and ends earlier than we do, while redis is idle: its timer makes no memory call.
        expect(traced == calls, f"{name}: {traced} traced, strace counted {calls}")
    expect("jemalloc" in allocators(report)[0], f"{allocators(report)}")


def calls_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return stat.read().rsplit(") ", 1)[1].split()[11:13]


def wait_idle(pid):
    """Until it used no CPU time for a while."""
    last, deadline = None, time.monotonic() + 20
    while time.monotonic() < deadline:
        now = calls_of(pid)
        if now == last:
            return
        last = now
        time.sleep(0.4)


def postgres():
    """A backend at work: a big sort allocates and frees."""
    with servers.postgres() as (backend, client):
        with Attach("-p", backend) as attach:
            for _ in range(5):
                client.sort()
            report = attach.report()
    expect_whole(report)
    expect(report["processes"][0]["pid"] == backend, f"{report['target']}")
    calls = sum(s["calls"] for s in report["total"]["syscalls"].values())
    expect(calls > 10, f"{calls} memory calls")
    expect(allocators(report)[0].startswith("glibc"), f"{allocators(report)}")


def nginx():
    """Master and worker, under requests; the worker's restart is followed."""
    with servers.nginx() as (master, worker, port):
        with Attach("-p", f"{master},{worker}") as attach:
            for _ in range(50):
                expect(servers.nginx_get(port).endswith(b"\r\n\r\nhello"), "nginx does not answer")
            os.kill(master, signal.SIGHUP)
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and os.path.exists(f"/proc/{worker}"):
                time.sleep(0.05)
            report = attach.report()
    expect_whole(report)
    pids = {process["pid"] for process in report["processes"]}
    expect({master, worker} < pids, f"{pids}: not the master, the worker and a new worker")


def main():
    results = Results()
    for case, program in ((python3, "/usr/bin/python3"), (redis, "redis-server"), (go, "go"), (java, "java"),
                          (nginx, "nginx"), (postgres, f"{servers.postgres_binaries()}/postgres")):
        if shutil.which(program):
            results.case(case.__name__, case)
        else:
            results.skip(case.__name__, f"{os.path.basename(program)} is not installed")
    results.exit()


run_if_traced(main)
