#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 300
"""Callchains of real programs, attached to while they work, and of very many processes and threads.

The known callers are in them; every name is one that nm has for that address of that file; the sums of the paths are
those of the classes; chains that do not reach the start of the program say why.
"""
import bisect
import collections
import contextlib
import functools
import glob
import os
import re
import shutil
import subprocess

import programs
import servers
from attaching import Attach, Target, counted, expect_total, report_of, run_if_traced
from measure import Results, expect, expect_exact

CALLS = 1009
PROCESSES = 500
THREADS = 5000


def paths(report):
    """(class, functions from the outermost, path)"""
    chains = report["callchains"]
    for path in chains["paths"]:
        frames = [chains["frames"][number] for number in path["frames"]][::-1]
        yield path["class"], [frame.get("function", "?") for frame in frames], path


def follows(names, wanted):
    """The wanted functions are there in this order, others may lie between."""
    left = iter(names)
    return all(any(name == want for name in left) for want in wanted)


def debug_file(module):
    """The debug file of a module by its build id, where one is installed."""
    notes = subprocess.run(["readelf", "-n", module], capture_output=True, text=True, check=False).stdout
    found = re.search(r"Build ID: ([0-9a-f]{2})([0-9a-f]+)", notes)
    files = glob.glob(f"/usr/lib/debug/.build-id/{found.group(1)}/{found.group(2)}.debug") if found else []
    return files[0] if files else None


@functools.lru_cache(maxsize=None)
def functions(module):
    """(addresses, (end, name)): what nm knows of a file's code."""
    found = []
    for words in (["-D", module], [module], [debug_file(module)]):
        if not words[-1]:
            continue
        text = subprocess.run(["nm", "-S", "--defined-only", *words], capture_output=True, text=True, check=False).stdout
        for line in text.splitlines():
            parts = line.split()
            if len(parts) == 4 and parts[2] in "tTwWiu":
                start = int(parts[0], 16)
                found.append((start, start + int(parts[1], 16), parts[3].split("@")[0]))
    found.sort()
    return [start for start, _, _ in found], found


def names_at(module, address):
    starts, found = functions(module)
    at = bisect.bisect_right(starts, address)
    return {name for start, end, name in found[max(0, at - 64):at] if start <= address <= end}


def expect_names(report):
    """Each name is one of those that nm has there. Go's and C++'s are written otherwise there: left out."""
    checked = 0
    for frame in report["callchains"]["frames"]:
        name, module = frame.get("function"), frame.get("module", "")
        if not name or not re.fullmatch(r"[A-Za-z_][\w.]*", name) or not os.path.isfile(module):
            continue
        # A caller's frame has the address behind its call, which may be behind its end.
        names = names_at(module, frame["address"]) | names_at(module, frame["address"] - 1)
        expect(name in names or not functions(module)[0], f"{frame}: nm says {names}")
        checked += 1
    expect(checked > 10, f"{checked} names to check")


def expect_sums(report):
    sums = collections.Counter()
    for name, _, path in paths(report):
        sums[name] += path["calls"]
    wanted = {name: total["calls"] for name, total in report["total"]["classes"].items() if total["calls"]}
    expect(dict(sums) == wanted, f"sums of the paths {dict(sums)}, of the classes {wanted}")


def expect_good(report):
    expect_exact(report, has_racing_threads=True)
    expect_sums(report)
    expect_names(report)


def calls_through(report, wanted, start=None):
    """Calls, not page faults, whose chain is whole, begins at `start`, and has the wanted callers."""
    return sum(path["calls"] for name, names, path in paths(report)
               if not name.startswith("fault") and path["end"] == "outermost" and follows(names, wanted) and
               names[0] in (start or {"_start", "clone", "clone3", "__clone3", "__clone"}))


def all_calls(report):
    return sum(stat["calls"] for stat in report["total"]["syscalls"].values())


def redis():
    """From the event loop through a command to jemalloc and into the kernel."""
    with servers.redis() as (pid, port):
        with Attach("-p", pid, "--callchain") as attach:
            servers.redis_work(port, 5000)
            report = attach.report()
    expect_good(report)
    wanted = ["main", "aeMain", "readQueryFromClient", "processInputBuffer"]
    made = sum(path["calls"] for name, names, path in paths(report)
               if name.startswith("mmap") and path["origin"] == "allocator" and follows(names, [*wanted, "mmap"]) and
               any(name.startswith(("zmalloc", "zrealloc", "zcalloc")) for name in names))
    expect(made > 0, f"no mapping for a command: {[names for _, names, _ in paths(report)]}")
    got = calls_through(report, [])
    expect(got == all_calls(report), f"{got} of {all_calls(report)} calls lead back to the start")


def postgres():
    """A sort: its backend's memory contexts grow by malloc, which asks the kernel."""
    with servers.postgres() as (backend, client):
        with Attach("-p", backend, "--callchain") as attach:
            for _ in range(3):
                client.sort()
            report = attach.report()
    expect_good(report)
    start = ["_start", "main", "PostmasterMain", "PostgresMain"]
    got = calls_through(report, start)
    expect(got == all_calls(report) > 0, f"{got} of {all_calls(report)} calls come from PostgresMain")
    for wanted in (["PortalRun", "standard_ExecutorRun", "tuplesort_puttupleslot", "palloc0", "malloc", "brk"],
                   ["PortalRun", "standard_ExecutorRun", "palloc0", "malloc", "mmap"],
                   ["PortalDrop", "standard_ExecutorEnd", "free", "munmap"]):
        expect(calls_through(report, start + wanted) > 0, f"nothing through {wanted}")
    by_malloc = {path["origin"] for _, names, path in paths(report) if "malloc" in names or "free" in names}
    expect(by_malloc == {"allocator"}, f"calls by malloc and free are those of {by_malloc}")


def nginx():
    """A worker compresses answers: its pools grow by malloc."""
    with servers.nginx(b"alloctrace " * 50000) as (master, worker, port):
        with Attach("-p", f"{master},{worker}", "--callchain") as attach:
            for _ in range(20):
                answer = servers.nginx_get(port, b"Accept-Encoding: gzip\r\n")
                expect(b"Content-Encoding: gzip" in answer, f"nginx answers {answer[:200]}")
            report = attach.report()
    expect_good(report)
    wanted = ["_start", "main", "ngx_master_process_cycle", "ngx_spawn_process", "ngx_process_events_and_timers",
              "ngx_http_core_run_phases", "ngx_http_output_filter", "ngx_alloc", "malloc"]
    expect(calls_through(report, wanted) > 0, f"nothing through {wanted}")
    got = calls_through(report, wanted[:4])
    expect(got == all_calls(report), f"{got} of {all_calls(report)} calls come from the worker")


def python3():
    """The program's own mappings: through the interpreter, and not the allocator's."""
    with programs.python() as program:
        report = report_of(program, CALLS, "--callchain")
    expect_good(report)
    own = [path for name, names, path in paths(report)
           if name == "mmap.anon" and path["bytes"] == path["calls"] << 22 and path["origin"] == "program" and
           follows(names, ["_start", "Py_BytesMain", "Py_RunMain", "PyEval_EvalCode", "mmap"])]
    expect(sum(path["calls"] for path in own) == CALLS, f"{own}")


def go():
    with programs.go() as program:
        report = report_of(program, CALLS, "--callchain")
    expect_exact(report, has_racing_threads=True)
    expect_sums(report)
    wanted = ["main.main", "main.advise", "syscall.Syscall"]
    got = sum(path["calls"] for name, names, path in paths(report)
              if name == "madvise.other" and path["end"] == "outermost" and path["origin"] == "program" and
              names[0] == "runtime.goexit" and follows(names, wanted))
    expect(got == CALLS, f"{got} of {CALLS} calls through {wanted}: {list(paths(report))}")


def java():
    """Native code has names; the caller in generated code is a guess and says so, and has no name."""
    with programs.java() as program:
        report = report_of(program, CALLS, "--callchain")
    expect_exact(report, has_racing_threads=True)
    expect_sums(report)
    frames = report["callchains"]["frames"]
    native = 0
    for name, names, path in paths(report):
        chain = [frames[number] for number in path["frames"]]
        first = next((i for i, frame in enumerate(chain) if "module" not in frame), len(chain))
        expect(all("function" not in frame for frame in chain if "module" not in frame), f"{names}")
        expect(first + 1 >= len(chain) or path.get("guess_from", len(chain)) <= first + 1, f"no guess in {path}")
        if name == "mmap.file" and any(name.startswith("Java_sun_nio_ch_") for name in names):
            native += path["calls"]
            # Of a chain that is cut nobody knows what its outer part would have told.
            whole = path["end"] == "outermost"
            expect(path["origin"] == ("program" if whole else "unknown") and (whole or path["end"] == "no_table"), f"{path}")
    expect(native == CALLS, f"{native} of {CALLS} mappings through Java_sun_nio_ch_FileChannelImpl_map0")


def many_processes():
    """Each with its own chains, all ledgers on."""
    with contextlib.ExitStack() as stack:
        targets = [stack.enter_context(Target()) for _ in range(PROCESSES)]
        with Attach("-p", ",".join(str(target.pid) for target in targets), "--callchain") as attach:
            for target in targets:
                target.tell("c 3")
            report = attach.report()
    expect_total(report, 3 * PROCESSES)
    expect_sums(report)
    got = collections.Counter()
    for name, names, path in paths(report):
        if name == "madvise.other":
            expect(path["end"] == "outermost" and follows(names, ["main", "call", "syscall"]), f"{names}: {path}")
            got[path["pid"]] += path["calls"]
    expect(got == {target.pid: 3 for target in targets}, f"by process: {len(got)} processes, {sum(got.values())} calls")


def many_threads():
    """One process, all ledgers on: all of its threads' calls have the same chain."""
    with Target(THREADS) as target:
        with Attach("-p", target.pid, "--callchain") as attach:
            target.tell("c 1")
            report = attach.report()
    expect_total(report, THREADS)
    expect_sums(report)
    whole = sum(path["calls"] for name, names, path in paths(report)
                if name == "madvise.other" and path["end"] == "outermost" and names[-1] == "syscall" and
                ("main" in names) + ("start_thread" in names) == 1)
    expect(whole == THREADS == counted(report["total"]), f"{whole} of {THREADS} calls with a whole chain")


def main():
    results = Results()
    for case, program in ((redis, "redis-benchmark"), (postgres, f"{servers.postgres_binaries()}/postgres"),
                          (nginx, "nginx"), (python3, "/usr/bin/python3"), (go, "go"), (java, "java"),
                          (many_processes, "nm"), (many_threads, "nm")):
        if shutil.which(program) and shutil.which("nm"):
            results.case(case.__name__, case)
        else:
            results.skip(case.__name__, f"{os.path.basename(program)} or nm is not installed")
    results.exit()


run_if_traced(main)
