#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 300
"""What no policy can change is unchanged, and runs that differ by the machine alone are said to be noisy."""
import json
import os
import subprocess
import sys
import tempfile

OUT = os.environ.get("O", ".output")
ALLOCTRACE = os.environ.get("ALLOCTRACE", os.path.join(OUT, "alloctrace"))
DIRECT = os.path.join(OUT, "tests/trace/direct_mmap")
failed = False


def result(name, problem):
    global failed
    print(f"not ok {name}: {problem!r}" if problem else f"ok {name}", flush=True)
    failed |= bool(problem)


def compare(*words):
    """(the JSON report, the table) of the same runs."""
    with tempfile.TemporaryDirectory(prefix="alloctrace-test-") as scratch:
        saved = os.path.join(scratch, "saved")
        run = subprocess.run([ALLOCTRACE, "compare", "--seed", "5", "-j", "--save", saved, *words], capture_output=True,
                             text=True, timeout=200, check=False, stdin=subprocess.DEVNULL)
        if run.returncode:
            raise SystemExit(f"not ok compare: exit {run.returncode}: {run.stderr}")
        table = subprocess.run([ALLOCTRACE, "report", saved], capture_output=True, text=True, timeout=60, check=True)
        return json.loads(run.stdout), table.stdout


def test_direct():
    """Mappings of the program itself are not those of malloc: no policy changes them."""
    report, _ = compare("--runs", "4", "--tune", "trim_threshold=64K", "--policy", "none", "--policy", "all", "--", DIRECT, "307")
    configs = report["programs"][0]["configurations"]
    mapped = [configs[name]["calls.mmap.anon"]["runs"] for name in ("none", "all")]
    result("direct: the same mappings", (mapped[0] != mapped[1] or len(set(mapped[0])) != 1 or mapped[0][0] < 307) and mapped)
    # The C library itself unmaps once more or less; the program's own are all there.
    unmapped = [configs[name]["calls.munmap"]["runs"] for name in ("none", "all")]
    result("direct: unmapped", any(not 307 <= cnt <= 312 for runs in unmapped for cnt in runs) and unmapped)
    for key in ("calls.mmap.anon", "calls.munmap"):
        result(f"direct: {key} is ~", not configs["all"][key]["same"] and configs["all"][key])


def test_noise():
    """Runs that differ only in what the machine does: every other one waits."""
    with tempfile.TemporaryDirectory(prefix="alloctrace-test-") as scratch:
        flag = os.path.join(scratch, "odd")
        report, table = compare("--tier", "0", "--runs", "6", "--config", "a:", "--config", "b:", "--", "sh", "-c",
                                f"if [ -e {flag} ]; then rm {flag}; sleep 0.2; else : >{flag}; fi")
    figures = report["programs"][0]["configurations"]["a"]["wall_ns"]
    result("noise: said", not any("noisy: wall time spreads by up to" in text for text in report["warnings"]) and report["warnings"])
    result("noise: spread given", figures["spread"] < 0.1 and figures)
    result("noise: in the table", "noisy" not in table and table)


def main():
    test_noise()
    if subprocess.run([ALLOCTRACE, "check"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        print("skip compare, traced: this machine or these privileges do not allow tracing")
        return
    test_direct()


main()
sys.exit(failed)
