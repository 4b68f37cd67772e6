#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 300
"""What no policy can change is unchanged, and runs that differ by the machine alone are said to be noisy."""
import json
import os
import re
import subprocess
import sys
import tempfile

OUT = os.environ.get("O", ".output")
ALLOCTRACE = os.environ.get("ALLOCTRACE", os.path.join(OUT, "alloctrace"))
DIRECT = os.path.join(OUT, "tests/trace/direct_mmap")
TRADE = os.path.join(OUT, "tests/trace/trade_calls")
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
    """Runs that differ only in what the machine does: every other one waits, in the order of this seed three of six of each."""
    with tempfile.TemporaryDirectory(prefix="alloctrace-test-") as scratch:
        flag = os.path.join(scratch, "odd")
        report, table = compare("--seed", "3", "--tier", "0", "--runs", "6", "--config", "a:", "--config", "b:", "--", "sh", "-c",
                                f"if [ -e {flag} ]; then rm {flag}; sleep 0.2; else : >{flag}; fi # {'x' * 400}")
    # Of a long command the name is cut, never what is said of it.
    of_program = [text for text in report["warnings"] if text.startswith("sh -c ")]
    result("noise: warnings are whole", not (of_program and all(re.search(r"\.\.\.: .*\)$", text) for text in of_program)) and of_program)
    figures = report["programs"][0]["configurations"]["a"]["wall_ns"]
    waited = sum(ns >= 200e6 for ns in figures["runs"])
    result("noise: half of the runs waited", waited != 3 and figures)
    result("noise: said", not any("noisy: wall time spreads by up to" in text for text in report["warnings"]) and report["warnings"])
    result("noise: spread given", figures["spread"] < 0.5 and figures)
    result("noise: in the table", "noisy" not in table and table)


def test_trade():
    """Fewer calls for more memory is a trade, named as one both ways, and better for neither (field case A10)."""
    configs = ("--config", "calls:allocator=system,env=TRADE_CALLS=1009",
               "--config", "memory:allocator=system,env=TRADE_MIB=48")
    for base, other, saved, cost in (("calls", "memory", "memory syscalls", "peak RSS"),
                                     ("memory", "calls", "peak RSS", "memory syscalls")):
        report, table = compare("--runs", "5", "--base", base, *configs, "--", TRADE)
        figures = report["programs"][0]["configurations"]
        for key, least in (("calls", 1009), ("max_rss_bytes", 44 << 20)):
            figure = figures[other][key]
            moved = abs(figure["difference"]["median"])
            result(f"trade against {base}: {key}", (figure["same"] or moved < least) and figure)
        verdict = [line for line in table.splitlines() if line.startswith(other + " ") and "trades: " in line]
        result(f"trade against {base}: both sides named", (len(verdict) != 1 or not re.search(
            f"trades: saves .*{saved}.*; costs .*{cost}", verdict[0])) and table)
        result(f"trade against {base}: nothing is better", "better" in table and table)


def test_bases():
    """Three configurations; the base is named, and another one changes the signs (field case A11)."""
    counts = {"few": 101, "more": 211, "most": 307}
    configs = [word for name, cnt in counts.items()
               for word in ("--config", f"{name}:allocator=system,env=TRADE_CALLS={cnt}")]
    for base, base_cnt in counts.items():
        report, table = compare("--runs", "4", "--base", base, *configs, "--", TRADE)
        got = {name: figures["calls.munmap"]["difference"]["median"]
               for name, figures in report["programs"][0]["configurations"].items() if name != base}
        want = {name: cnt - base_cnt for name, cnt in counts.items() if name != base}
        result(f"base {base}: differences", got != want and (got, want))
        named = [line for line in table.splitlines() if line.endswith("(base)")]
        result(f"base {base}: named", (report["method"]["base"] != base or len(named) != 1 or f" {base}: " not in named[0]
                                       or f"against {base}:" not in table) and table)


def main():
    test_noise()
    if subprocess.run([ALLOCTRACE, "check"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        print("skip compare, traced: this machine or these privileges do not allow tracing")
        return
    test_direct()
    test_trade()
    test_bases()


main()
sys.exit(failed)
