#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 120
"""Names with quotes, semicolons, control bytes and broken UTF-8 survive in every output (field cases B58, B59).

The names of modules in callchains: tests/trace/chain_lang_test.py.
"""
import contextlib
import csv
import io
import json
import os
import re
import subprocess
import tempfile
import unicodedata

from attaching import KNOWN, Attach, Target, cgroup_root, counted, expect_total, run_if_traced
from measure import ALLOCTRACE, Results, expect

ODD = b"a;\"' \\\x1b[1m\x01\xff{"  # 14 bytes: a process may have it
BYTES = bytes(range(1, 0x20))      # in names of 15


def expect_clean(text, what):
    """Bytes for a terminal or a file: valid, and no control characters but ends of lines and tabs."""
    chars = text.decode("utf-8")
    odd = {char for char in chars if unicodedata.category(char) == "Cc" and char not in "\n\t"}
    expect(not odd, f"{what}: {odd} in {chars[:2000]!r}")
    return chars


def name_of(part):
    """The bytes of a name in JSON."""
    return part["name_latin1"].encode("latin-1") if "name_latin1" in part else part["name"].encode()


def report_of(path, form):
    return subprocess.run([ALLOCTRACE, "report", "--color", "always" if form == "table" else "never", "--format", form, path],
                          capture_output=True, check=True).stdout


def of_processes():
    """JSON gives the bytes back; tables, CSV and Markdown escape them; --name finds them."""
    for name in (ODD, BYTES[:9], BYTES[9:24], BYTES[24:], "größe".encode(), b"\xc3" * 15):
        with Target(1, name) as target, tempfile.TemporaryDirectory() as place:
            with Attach("-p", target.pid, "-i", "100ms", "--save", f"{place}/saved", "--folded", f"{place}/folded") as attach, \
                    Attach("-p", target.pid, is_json=False) as table:
                target.tell("c 7")
                target.tell("q", has_answer=False)
                lines = attach.text().splitlines()
                text = table.text()
            parts = [json.loads(line) for line in lines if line.startswith('{"schema":"alloctrace.interval/1"')]
            report = json.loads("\n".join(lines[len(parts):]))
            for part in parts + [report]:
                expect({name_of(process) for process in part["processes"]} == {name}, f"{name}: {part['processes']}")
                expect({name_of(thread) for process in part["processes"] for thread in process["threads"]} <= {name}, "thread")
            expect_clean(text.encode(), f"table of {name}")
            for form in ("json", "csv", "markdown"):
                expect_clean(report_of(f"{place}/saved", form), f"{form} of {name}")
            again = json.loads(report_of(f"{place}/saved", "json"))
            expect(again["processes"] == report["processes"], f"saved: {again['processes']}")
            colored = re.sub(rb"\x1b\[[0-9;]*m", b"", report_of(f"{place}/saved", "table").replace(rb"\x1b", b""))
            expect_clean(colored, f"coloured table of {name}")
            with open(f"{place}/folded", "rb") as folded:
                expect_clean(folded.read(), f"folded of {name}")


def by_name():
    with Target(1, ODD) as target, Target(1, ODD[:-1]) as other:
        with Attach("--name", ODD) as attach:
            target.tell("c 11")
            other.tell("c 100")
            report = attach.report()
    expect_total(report, 11)
    expect(counted(report["processes"][0]) == 11 and name_of(report["processes"][0]) == ODD, f"{report['processes']}")


def odd_program(folder):
    program = os.fsencode(folder) + b"/" + ODD * 3
    os.symlink(os.fsencode(KNOWN), program)
    return program


def expect_written(text, form, program):
    """CSV has the bytes as they are, in quotes; the others have none that do harm."""
    if form != "csv":
        expect_clean(text, form)
        return
    rows = list(csv.reader(io.StringIO(text.decode("latin-1"), newline="")))
    expect(len(rows) > 3 and all(row[0].encode("latin-1") == program + b" fail 3" for row in rows[1:]), f"{rows[:3]}")
    expect(len({len(row) for row in rows}) == 1, "lines of different lengths")


def of_commands():
    """run and compare: the command in each format, warnings and progress, too."""
    with tempfile.TemporaryDirectory() as folder:
        program = odd_program(folder)
        for form in ("table", "json", "csv", "markdown"):
            done = subprocess.run([ALLOCTRACE, "run", "--allocator=system", "--format", form, "-o", "-", "--", program, "fail",
                                   "3"], capture_output=True, check=True)
            expect_written(done.stdout, form, program)
            expect_clean(done.stderr, f"run, {form}, stderr")
            if form == "json":
                target = json.loads(done.stdout)["target"]
                words = [word.encode("latin-1") for word in target["command_latin1"]]
                expect(words == [program, b"fail", b"3"], f"{target}")
        for form in ("table", "json", "csv", "markdown"):
            done = subprocess.run([ALLOCTRACE, "compare", "--allocator=system", "--allocator=bundled", "--runs=2", "--format",
                                   form, "-o", "-", "--", program, "fail", "3"], capture_output=True, check=True)
            expect_written(done.stdout, form, program)
            expect_clean(done.stderr, f"compare, {form}, stderr")
            if form == "json":
                warnings = json.loads(done.stdout)["warnings"]
                expect(any("runs" in text for text in warnings) and all(warnings), f"{warnings}")
        html = f"{folder}/page.html"
        subprocess.run([ALLOCTRACE, "compare", "--allocator=system", "--allocator=bundled", "--runs=2", "--html", html, "-o",
                        f"{folder}/table", "--", program, "fail", "3"], capture_output=True, check=True)
        with open(html, "rb") as page:
            expect_clean(page.read(), "page")


def messages():
    """What cannot be had is named without harm to the terminal."""
    for words in (["run", "--", b"/no/" + ODD], ["report", b"/no/" + ODD], ["attach", "--cgroup", b"/no/" + ODD],
                  ["attach", "--name", ODD], ["attach", "-p", ODD], ["run", "-o", b"/no/" + ODD, "--", "true"],
                  ["run", b"no-scenario" + ODD], ["attach", "-p", "1", "-d", ODD]):
        done = subprocess.run([ALLOCTRACE, *words], capture_output=True, check=False, timeout=60)
        expect(done.returncode != 0 and done.stderr, f"{words}: {done.returncode}")
        expect_clean(done.stderr, f"{words}")


def of_cgroups(root):
    place = os.path.join(os.fsencode(root), ODD + str(os.getpid()).encode())
    os.mkdir(place)
    try:
        with Attach("--cgroup", place) as attach:
            subprocess.run([b"/bin/sh", b"-c", b'echo $$ >"$0/cgroup.procs"; exec "$1" fail 13', place, os.fsencode(KNOWN)],
                           check=True)
            report = attach.report()
        expect_total(report, 13)
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(place)


def main():
    results = Results()
    for case in (of_processes, by_name, of_commands, messages):
        results.case(case.__name__, case)
    if cgroup_root():
        results.case("of_cgroups", of_cgroups, cgroup_root())
    else:
        results.skip("of_cgroups", "no control groups of version 2 are mounted, or not for us to change")
    results.exit()


run_if_traced(main)
