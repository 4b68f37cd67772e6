#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# alone: no other program may be denied memory meanwhile.
"""The allocator where the kernel counts what it commits (vm.overcommit_memory=2), up to the limit."""
import os
import subprocess

from measure import OUT, Results, Sysctl, expect

# The settings are the whole machine's: they last for less than the time that a test may take. Ten times the memory is
# the limit, so that others feel little of it: a process that has much may not have the last 128 MiB.
TIMEOUT_S = 40


def at_the_limit():
    env = {**os.environ, "LD_PRELOAD": f"{os.path.abspath(OUT)}/libatmalloc.so"}
    with Sysctl("overcommit_ratio", "1000"), Sysctl("overcommit_memory", "2"):
        done = subprocess.run([f"{OUT}/tests/alloc/commit_limit"], env=env, capture_output=True, text=True, timeout=TIMEOUT_S,
                              check=False)
    expect((done.returncode, done.stdout) == (0, "went on\n"), f"status {done.returncode}: {done.stdout}{done.stderr}")


def main():
    results = Results()
    try:
        with Sysctl("overcommit_ratio", "1000"):
            pass
    except OSError as error:
        results.skip("at_the_limit", f"vm.overcommit_ratio cannot be set: {error.strerror}")
        return
    results.case("at_the_limit", at_the_limit)
    results.exit()


main()
