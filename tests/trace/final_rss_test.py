#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Final RSS is what the kernel finds resident, page by page, just before the end."""
import json
import os
import subprocess
import sys
import tempfile

OUT = os.environ.get("O", ".output")
ALLOCTRACE = os.environ.get("ALLOCTRACE", os.path.join(OUT, "alloctrace"))
PROGRAM = os.path.join(OUT, "tests/trace/final_rss")
SLACK_PAGES = 1
failed = False


def result(name, problem):
    global failed
    print(f"not ok {name}: {problem}" if problem else f"ok {name}", flush=True)
    failed |= bool(problem)


def run(*words):
    """(rusage of the report, bytes that the program found, exit status)"""
    with tempfile.NamedTemporaryFile(prefix="alloctrace-test-") as report:
        done = subprocess.run([ALLOCTRACE, "run", "-j", "-o", report.name, "--allocator", "system", "--", PROGRAM, *words],
                              capture_output=True, text=True, timeout=60, check=False)
        found = done.stdout.split()
        return json.load(report)["rusage"], int(found[1]) * 1024 if len(found) > 1 else 0, done


def check(name, *words):
    rusage, found, done = run(*words)
    final = rusage.get("final_rss_bytes")
    result(name, (final is None or abs(final - found) > SLACK_PAGES * 4096) and
           f"{final} in the report, {found} in the program: {done.stderr}")
    result(f"{name}: the peak is no less", rusage["max_rss_bytes"] < (final or 0) and rusage)


def main():
    if subprocess.run([ALLOCTRACE, "check"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        print("skip final RSS: this machine or these privileges do not allow tracing")
        return
    check("small", "11", "1")
    check("large", "10007", "1")
    # Each thread leaves a part of the counts on the CPU where it ran.
    check("threads", "499", "37")
    check("largest process", "5003", "1", "child")
    rusage, found, done = run("1009", "1", "kill")
    result("signal: not known", (done.returncode != -9 or not found or "final_rss_bytes" in rusage) and (rusage, done))


main()
sys.exit(failed)
