#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What each policy costs and saves: the table of docs/policies.md.

usage: tests/bench/policy_cost.py [RUNS]

Each scenario runs under the bundled allocator with its policy off and on, in
turn, RUNS times each (default 3). Calls, faults and system time are the medians of
the measured phase and of the whole process; idle RSS is what a process still has
after a burst of blocks has been freed, less what it had before.
ALLOCTRACE is the command (default .output/alloctrace).
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

ALLOCTRACE = os.environ.get("ALLOCTRACE", ".output/alloctrace")
ROWS = (
    ("stack", "thread_create --mlock"),
    ("realloc", "realloc_pingpong"),
    ("commit", "commit_storm"),
    ("commit", "idle_burst --size 2M --blocks 50 --idle-ms 0"),
    ("trim", "trim_loop --touch"),
    ("trim", "trim_mixed"),
    ("trim", "idle_burst --size 68K --blocks 60 --idle-ms 0"),
)


def measure(scenario, policy):
    """One run: memory syscalls, faults, system time, peak RSS, idle RSS (None: the scenario has none)."""
    with tempfile.NamedTemporaryFile(prefix="policy-cost-") as report:
        ran = subprocess.run([ALLOCTRACE, "run", "--json", "--output", report.name, f"--policy={policy}",
                              *scenario.split()], stdout=subprocess.PIPE, text=True, check=True)
        profile = json.load(report)
    phase = profile["phases"]["measured"]
    words = dict(word.split("=", 1) for word in ran.stdout.split() if "=" in word)
    idle = int(words["rss_idle_bytes"]) - int(words["rss_before_bytes"]) if "rss_idle_bytes" in words else None
    calls = sum(c["calls"] for name, c in phase["classes"].items()
                if not name.startswith("fault.") and name != "madvise.phase")
    faults = sum(c["calls"] for name, c in phase["classes"].items() if name.startswith("fault."))
    return calls, faults, profile["rusage"]["sys_ns"], profile["rusage"]["max_rss_bytes"], idle


def median(runs, column):
    values = [run[column] for run in runs if run[column] is not None]
    return statistics.median(values) if values else None


def text(runs):
    idle = median(runs, 4)
    return [f"{median(runs, 0):,.0f}", f"{median(runs, 1):,.0f}", f"{median(runs, 2) / 1e6:,.0f} ms",
            f"{median(runs, 3) / 2**20:,.0f} MiB", "" if idle is None else f"{max(idle, 0) / 2**20:,.1f} MiB"]


def main():
    if len(sys.argv) > 2 or (len(sys.argv) == 2 and not sys.argv[1].isdigit()):
        sys.exit(__doc__.strip())
    run_cnt = int(sys.argv[1]) if len(sys.argv) == 2 else 3
    print("| scenario | policy | memory syscalls | faults | system time | peak RSS | idle RSS |")
    print("|---|---|---|---|---|---|---|")
    for policy, scenario in ROWS:
        runs = {False: [], True: []}
        for _ in range(run_cnt):
            for is_on in (False, True):
                runs[is_on].append(measure(scenario, "all" if is_on else f"-{policy}"))
        for is_on in (False, True):
            print("| " + " | ".join([f"`{scenario}`", f"`{policy}` {'on' if is_on else 'off'}", *text(runs[is_on])]) + " |",
                  flush=True)


main()
