#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 300
"""Two identical configurations are found the same: at the level of 5 %, 95 of 100 times in each figure.

SAME_COMPARISONS=N sets the number of comparisons (4; 100 is the full test, and
docs/output.md has its result). Chance may exceed one in twenty in so few, so that many are as
unlikely as one in a million; all figures together have to reach 93 of 100 in
the full test.
"""
import json
import math
import os
import subprocess
import sys

OUT = os.environ.get("O", ".output")
ALLOCTRACE = os.environ.get("ALLOCTRACE", os.path.join(OUT, "alloctrace"))
COMPARISONS = int(os.environ.get("SAME_COMPARISONS", "4"))
FULL = 100
ALPHA = 0.05
UNLIKELY = 1e-5


def most_by_chance(cnt):
    """The least number of differences among `cnt` that is as unlikely as UNLIKELY, less one."""
    tail = 0.0
    for differing in range(cnt, -1, -1):
        tail += math.comb(cnt, differing) * ALPHA**differing * (1 - ALPHA)**(cnt - differing)
        if tail > UNLIKELY:
            return differing
    return cnt


def compare(number):
    words = [ALLOCTRACE, "compare", "-j", "--runs", "10", "--seed", str(number), "--config", "a:policy=all", "--config",
             "b:policy=all", "--", f"{OUT}/scenarios/trim_loop", "--touch", "--iterations", "61"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=250, check=False, stdin=subprocess.DEVNULL)
    if run.returncode:
        raise SystemExit(f"not ok compare: exit {run.returncode}: {run.stderr}")
    return json.loads(run.stdout)["programs"][0]["configurations"]["b"]


def main():
    differing, seen = {}, {}
    for number in range(COMPARISONS):
        figures = compare(number)
        for key, figure in figures.items():
            seen[key] = seen.get(key, 0) + 1
            differing[key] = differing.get(key, 0) + (not figure["same"])
        print(f"# {number}: differ:", " ".join(key for key in figures if not figures[key]["same"]) or "none", flush=True)
    # Figures that are the same number in every run cannot differ: they prove nothing.
    varying = {key: cnt for key, cnt in differing.items() if cnt or key.endswith(("_ns", "_bytes")) or "fault" in key}
    too_many = {key: cnt for key, cnt in varying.items() if cnt > most_by_chance(seen[key])}
    print(f"# {COMPARISONS} comparisons; found the same:",
          ", ".join(f"{key} {seen[key] - cnt}" for key, cnt in sorted(varying.items())))
    ok = not too_many and len(varying) >= 4
    print("ok" if ok else "not ok", f"each figure of {COMPARISONS} comparisons", "" if ok else f": {too_many or varying}")
    if COMPARISONS >= FULL:
        share = 1 - sum(varying.values()) / sum(seen[key] for key in varying)
        is_enough = share >= 0.93
        print("ok" if is_enough else "not ok", "all figures together" + ("" if is_enough else f": {share:.3f}"))
        print(f"# {share:.3f} of all figures that vary")
        ok = ok and is_enough
    sys.exit(not ok)


main()
