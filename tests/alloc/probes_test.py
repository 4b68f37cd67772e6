#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 120
"""The USDT probes are in the library's notes, and fire as often as the library counts what they stand for."""
import os
import re
import shutil
import subprocess
import sys
import time

OUT = os.path.abspath(os.environ["O"])
LIBRARY = f"{OUT}/libatmalloc.so"
PROGRAM = f"{OUT}/tests/alloc/probe_calls"

# Probe: the counter that counts the same.
PROBES = {name.replace(".", "__"): name for name in (
    "stack.mapped", "stack.reused", "realloc.kept", "realloc.unmapped", "realloc.cached", "realloc.in_place",
    "realloc.moved", "commit.held", "commit.reused", "commit.released", "trim.taken", "trim.avoided", "heap.grown",
    "cache.hit", "cache.miss")}
PROBES["decommit"] = "call.madvise.dontneed"


def notes():
    """Name, address in the file and arguments of each probe in the library's notes."""
    text = subprocess.run(["readelf", "-n", LIBRARY], check=True, capture_output=True, text=True).stdout
    return [(name, int(at, 16), args) for name, at, args in
            re.findall(r"Provider: atmalloc\n\s*Name: (\w+)\n\s*Location: (0x[0-9a-f]+),.*\n\s*Arguments: (.*)", text)]


def case_listed():
    found = notes()
    assert {name for name, _, _ in found} == set(PROBES), f"in the notes: {sorted({name for name, _, _ in found})}"
    for name, _, args in found:
        assert len(args.split()) == 2, f"{name}: arguments {args}"


def instructions(pid):
    """The first byte of the instruction at each probe in the running process."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        base = min(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(LIBRARY))
    with open(f"/proc/{pid}/mem", "rb") as memory:
        return {os.pread(memory.fileno(), 1, base + at) for _, at, _ in notes()}


def start_program():
    program = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "LD_PRELOAD": LIBRARY})
    while True:
        with open(f"/proc/{program.pid}/wchan", encoding="utf-8") as wchan, \
                open(f"/proc/{program.pid}/syscall", encoding="utf-8") as syscall:
            if syscall.read().startswith("0 0x0 ") or "pipe" in wchan.read():
                return program
        time.sleep(0.01)


def traced():
    """Runs the program under bpftrace; the probes' counts, the program's own counts."""
    script = "".join(f'usdt:{LIBRARY}:atmalloc:{name} {{ @["{name}"] = count(); }} ' for name in PROBES)
    program = start_program()
    try:
        assert instructions(program.pid) == {b"\x90"}, "not just a nop while nobody listens"
        with subprocess.Popen(["bpftrace", "-q", "-p", str(program.pid), "-e", script], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as tracer:
            until = time.monotonic() + 60
            while instructions(program.pid) != {b"\xcc"}:
                assert tracer.poll() is None, f"bpftrace: {tracer.stderr.read()[:500]}"
                if time.monotonic() > until:
                    tracer.kill()
                    raise AssertionError("bpftrace has not placed its breakpoints after 60 s")
                time.sleep(0.05)
            printed, _ = program.communicate("x", timeout=60)
            counted, _ = tracer.communicate(timeout=60)
    finally:
        program.kill()
    assert program.returncode == 0, f"{PROGRAM}: exit status {program.returncode}"
    seen = {name: int(cnt) for name, cnt in re.findall(r"@\[(\w+)\]: (\d+)", counted)}
    own = {name: int(cnt) for name, cnt in re.findall(r"^([a-z_.]+) (\d+)$", printed, re.M)}
    return seen, own


def case_traced():
    seen, own = traced()
    assert set(own) >= set(PROBES.values()), f"the program printed: {own}"
    for probe, counter in PROBES.items():
        assert own[counter] > 0, f"{counter}: nothing happened, so nothing is shown"
        assert seen.get(probe, 0) == own[counter], f"{probe}: seen {seen.get(probe, 0)} times, counted {own[counter]}"


def main():
    is_good = True
    for case, needs in ((case_listed, "readelf"), (case_traced, "bpftrace")):
        name = case.__name__.removeprefix("case_")
        if not shutil.which(needs):
            print(f"skip {name}: {needs} is not installed")
            continue
        if case is case_traced and os.geteuid() != 0:
            print(f"skip {name}: not root")
            continue
        try:
            case()
            print(f"ok {name}")
        except AssertionError as error:
            is_good = False
            print(f"not ok {name}: {error}")
    return 0 if is_good else 1


sys.exit(main())
