#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 240
"""Policies change from outside while threads allocate: nothing crashes, nothing is lost.

`alloctrace policy -p` sets a random set again and again until every policy has
been switched 1,000 times. flip_stress checks the contents of all its blocks.
"""
import os
import random
import signal
import subprocess

from measure import ALLOCTRACE, OUT, POLICIES, Results, expect

FLIPS = 1000


def to_text(policies):
    return ",".join(p for p in POLICIES if p in policies) or "none"


def policy(pid, *words):
    done = subprocess.run([ALLOCTRACE, "policy", "-p", str(pid), *words], capture_output=True, text=True, timeout=20,
                          check=False)
    expect(done.returncode == 0, f"policy -p {pid} {' '.join(words)}: status {done.returncode}: {done.stderr}")
    return done.stdout


def flip_all(pid, stress):
    chosen = random.Random(20171119)
    flips = dict.fromkeys(POLICIES, 0)
    now = set(POLICIES)
    while min(flips.values()) < FLIPS:
        # Three of four change at a time, so that all sets occur and the number of commands stays small.
        changed = chosen.sample(POLICIES, 3)
        now ^= set(changed)
        policy(pid, to_text(now))
        for name in changed:
            flips[name] += 1
        expect(stress.poll() is None, f"flip_stress ended, status {stress.poll()}, after {flips}")
    first_line = policy(pid).splitlines()[0]
    expect(first_line.endswith(f": {to_text(now)}"), f"shown: {first_line!r}, set: {to_text(now)}")


def stress_under_flips():
    # Nice, so that on few CPUs the commands that change the policies get their turn.
    env = {**os.environ, "LD_PRELOAD": os.path.abspath(f"{OUT}/libatmalloc.so")}
    with subprocess.Popen([f"{OUT}/tests/alloc/flip_stress"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.nice(10)) as stress:
        try:
            expect(stress.stdout.readline() == "ready\n", "flip_stress did not start")
            flip_all(stress.pid, stress)
            out, err = stress.communicate(timeout=60)
        except BaseException:
            stress.kill()
            raise
        expect(stress.returncode == 0, f"flip_stress: status {describe(stress.returncode)}: {err}")
        words = out.split()
        expect(words and words[0] == "ok" and int(words[1]) > 2000, f"flip_stress did too little: {out!r}")


def describe(status):
    return signal.Signals(-status).name if status < 0 else str(status)


def main():
    results = Results()
    results.case("each policy flipped 1,000 times under stress", stress_under_flips)
    results.exit()


main()
