#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 120
"""Which allocator a process has, by how it was built: C libraries and allocators, dynamic and static, with their version.

Versions are those that the packages say. tests/trace/attach_targets_test.py has preloaded ones,
tests/trace/attach_programs_test.py the runtimes.
"""
import os
import re
import shutil
import subprocess
import tempfile

from attaching import Attach, Child, Target, run_if_traced
from measure import ALLOCTRACE, OUT, Results, expect

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	char line[16], *volatile block = malloc(100000);

	do {
		puts("ok");
		fflush(stdout);
	} while (fgets(line, sizeof(line), stdin));
	free(block);
	return 0;
}
"""

# name, compiler and options, what the report begins with, package whose version follows
PROGRAMS = (
    ("glibc", "cc", [], "glibc ", "libc6"),
    ("glibc static", "cc", ["-static"], "glibc", None),
    ("musl", "musl-gcc", [], "musl ", "musl"),
    ("musl static", "musl-gcc", ["-static"], "musl", None),
    ("jemalloc", "cc", ["-ljemalloc"], "jemalloc ", "libjemalloc-dev"),
    ("jemalloc in it", "cc", ["-l:libjemalloc.a", "-lm", "-lstdc++"], "jemalloc ", "libjemalloc-dev"),
    ("jemalloc in it, static", "cc", ["-static", "-l:libjemalloc.a", "-lm", "-lstdc++"], "jemalloc ", "libjemalloc-dev"),
    ("tcmalloc", "cc", ["-Wl,--no-as-needed", "-ltcmalloc_minimal"], "tcmalloc ", "libgoogle-perftools-dev"),
    ("tcmalloc in it", "cc", ["-Wl,--whole-archive", "-l:libtcmalloc_minimal.a", "-Wl,--no-whole-archive", "-lstdc++", "-lm"],
     "tcmalloc ", "libgoogle-perftools-dev"),
    ("mimalloc", "cc", ["-Wl,--no-as-needed", "-lmimalloc"], "mimalloc ", "libmimalloc-dev"),
)


def installed(package):
    """The version that its authors gave it: without the distribution's own parts."""
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False)
    found = re.match(r"(?:\d+:)?([\d.]+)", done.stdout)
    return found.group(1) if done.returncode == 0 and found else None


def allocator_of(pid):
    with Attach("-p", pid) as attach:
        return attach.report()["processes"][0].get("allocator", "")


def built(folder, name, compiler, options):
    program = f"{folder}/{name.replace(' ', '_').replace(',', '')}"
    done = subprocess.run([compiler, "-O1", "-x", "c", "-", "-x", "none", "-o", program, *options], input=PROGRAM, text=True,
                          capture_output=True, check=False)
    return program if done.returncode == 0 else None


def check(program, prefix, package):
    with Child([program]) as child:
        child.wait_ok()
        got = allocator_of(child.pid)
    wanted = prefix + (installed(package) or "" if package else "")
    expect(got.startswith(wanted), f"{got!r}, expected {wanted!r}")


def stripped(folder):
    """Without symbols it may not be known; it is never another one."""
    for name, wanted in (("glibc_static", "glibc"), ("musl_static", "musl"), ("jemalloc_in_it", "jemalloc")):
        program = f"{folder}/{name}"
        if not os.path.exists(program):
            continue
        subprocess.run(["strip", program], check=True)
        with Child([program]) as child:
            child.wait_ok()
            got = allocator_of(child.pid)
        # Of a dynamic program the C library is still known.
        kinds = {"", wanted, "glibc"} if name == "jemalloc_in_it" else {"", wanted}
        expect(got.split(" ")[0] in kinds, f"{name}: {got!r}")


def bundled():
    """Its policies are those in force at the end, changed while attached to or not."""
    env = {**os.environ, "LD_PRELOAD": os.path.abspath(f"{OUT}/libatmalloc.so"), "ATMALLOC_POLICY": "all"}
    with Target(env=env) as target:
        with Attach("-p", target.pid) as attach:
            subprocess.run([ALLOCTRACE, "policy", "-p", str(target.pid), "trim,stack"], check=True, capture_output=True)
            got = attach.report()["processes"][0].get("allocator", "")
        expect(got.startswith("bundled, policies stack,trim"), f"{got!r}")
        subprocess.run([ALLOCTRACE, "policy", "-p", str(target.pid), "none"], check=True, capture_output=True)
        got = allocator_of(target.pid)
        expect(got.startswith("bundled, ") and "none" in got, f"{got!r}")


def main():
    results = Results()
    with tempfile.TemporaryDirectory(prefix="alloctrace-test-") as folder:
        for name, compiler, options, prefix, package in PROGRAMS:
            program = built(folder, name, compiler, options) if shutil.which(compiler) else None
            if program:
                results.case(name, check, program, prefix, package)
            else:
                results.skip(name, f"no program of this kind can be built here ({package or compiler})")
        results.case("stripped", stripped, folder)
    results.case("bundled", bundled)
    results.exit()


run_if_traced(main)
