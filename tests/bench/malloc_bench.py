#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the allocator benchmarks under several mallocs, interleaved, and prints ratios to glibc.

usage: malloc_bench.py [-r ROUNDS] [--short] [-a NAME,...] [--add NAME=LIBRARY]
                       [--mimalloc-bench DIR] [--list] [PROGRAM...]

Programs are scenarios and tests/bench/malloc_NAME.c, built in $O (default .output), or with
--mimalloc-bench those of that project, built in DIR/out. Every round runs every program once
under every malloc, one after the other in random order. A figure is the median over the rounds of the ratio
glibc / malloc taken within the round, so larger is better everywhere; +- is half the
distance between the quartiles. -a chooses mallocs: glibc, ours (all policies), ours-none, and
jemalloc, mimalloc, tcmalloc where they are installed. --short is a check that all of it works:
one round, little work, no figure worth reading.
"""
import argparse
import math
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OUT = os.path.abspath(os.environ.get("O", f"{ROOT}/.output"))
TIMEOUT_S = 600

LIBRARIES = {"jemalloc": "libjemalloc.so.2", "mimalloc": "libmimalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}
LIBRARY_DIRS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")


class Program:
    """What to run, and how to read how much work it did (None: always the same)."""

    def __init__(self, name, command, folder=None, stdin=None, work=None):
        self.name, self.command, self.folder, self.stdin = name, command, folder, stdin
        self.work = re.compile(work) if work else None


class Run:
    """One run: seconds per unit of work by the clock and by the CPU, and peak RSS."""

    def __init__(self, wall_s, cpu_s, rss_bytes, work):
        self.wall, self.cpu, self.rss = wall_s / work, cpu_s / work, rss_bytes


FIGURES = (("wall", "speed by the clock"), ("cpu", "speed by CPU time (user and system)"),
           ("rss", "peak RSS, glibc's to its own"))


# name, program, its arguments, the one that sets the amount of work, that amount.
OWN = (
    # The rows of the seeds' programs.
    ("trim", "scenarios/trim_loop", "", "--iterations", 300000),
    ("trim-touched", "scenarios/trim_loop", "--touch", "--iterations", 20000),
    ("trim-mixed", "scenarios/trim_mixed", "", "--blocks", 15000),
    ("pingpong-1023", "scenarios/realloc_pingpong", "", "--iterations", 1000),
    ("pingpong-1025", "scenarios/realloc_pingpong", "--pages 1025 --shrunk-pages 1024", "--iterations", 1000),
    ("pingpong-400", "scenarios/realloc_pingpong", "--shrunk-pages 400", "--iterations", 1000),
    ("pairs", "scenarios/commit_storm", "--processes 1", "--iterations", 50000),
    ("pairs-8", "scenarios/commit_storm", "--processes 8", "--iterations", 10000),
    ("search-1", "scenarios/record_search", "--threads 1", "--records", 60000),
    ("search-2", "scenarios/record_search", "--threads 2", "--records", 30000),
    # Patterns of programs.
    ("server", "scenarios/server_mix", "", "--operations", 600000),
    ("batches", "scenarios/cross_thread_free", "", "--rounds", 1500),
    ("handoff", "tests/bench/malloc_handoff", "", "--messages", 3000000),
    ("mixed", "tests/bench/malloc_mixed", "", "--operations", 2500000),
    ("vectors", "tests/bench/malloc_vectors", "", "--appends", 8000000),
    ("vectors-large", "scenarios/vector_growth", "--to 64M", "--step", 262144),
    ("bignums", "tests/bench/malloc_bignums", "", "--steps", 30000000),
    ("covers", "tests/bench/malloc_covers", "", "--passes", 200000),
    ("cache", "tests/bench/malloc_cache", "", "--inserts", 4000000),
    ("buffers", "tests/bench/malloc_buffers", "", "--steps", 1000),
    ("sharing", "tests/bench/malloc_sharing", "", "--rounds", 300000),
)


def own_programs(is_short):
    for name, path, arguments, amount_option, amount in OWN:
        # More of --step is less work.
        short = amount * 20 if amount_option == "--step" else amount // 100
        yield Program(name, [f"{OUT}/{path}", *arguments.split(), amount_option, str(short if is_short else amount)])


def mimalloc_bench_programs(folder, is_short):
    """The commands of that project's bench.sh for this number of CPUs."""
    cpus = os.cpu_count()
    seconds = 1 if is_short else 5
    bench = os.path.abspath(folder)
    table = (
        ("cfrac", "./cfrac 17545186520507317056371138836327483792789528", None),
        ("espresso", f"./espresso {bench}/bench/espresso/largest.espresso", None),
        ("barnes", "./barnes", None),
        ("larson", f"./larson {seconds} 8 1000 5000 100 4141 {cpus}", r"Throughput = +(\d+)"),
        ("larson-sized", f"./larson-sized {seconds} 8 1000 5000 100 4141 {cpus}", r"Throughput = +(\d+)"),
        ("xmalloc-test", f"./xmalloc-test -w {cpus} -t {seconds} -s 64", r"free/sec: ([\d.]+)"),
        ("alloc-test1", "./alloc-test 1", None),
        ("alloc-testN", f"./alloc-test {min(cpus, 16)}", None),
        ("sh6bench", f"./sh6bench {2 * cpus}", None),
        ("sh8bench", f"./sh8bench {2 * cpus}", None),
        ("cache-scratch1", f"./cache-scratch 1 1000 1 2000000 {cpus}", None),
        ("cache-scratchN", f"./cache-scratch {cpus} 1000 1 2000000 {cpus}", None),
        ("cache-thrash1", f"./cache-thrash 1 1000 1 2000000 {cpus}", None),
        ("cache-thrashN", f"./cache-thrash {cpus} 1000 1 2000000 {cpus}", None),
        ("glibc-simple", "./glibc-simple", None),
        ("glibc-thread", f"./glibc-thread {cpus}", r"(\d+) iterations"),
        ("malloc-large", "./malloc-large", None),
        ("mstress", f"./mstress {cpus} 50 25", None),
        ("mleak10", "./mleak 5", None),
        ("mleak100", "./mleak 50", None),
        ("rptest", f"./rptest {cpus} 0 1 2 500 1000 100 8 16000", None),
    )
    for name, command, work in table:
        words = command.split()
        if not os.access(f"{bench}/out/{words[0]}", os.X_OK):
            print(f"malloc_bench: {name} is not built in {bench}/out: left out", file=sys.stderr)
            continue
        stdin = f"{bench}/bench/barnes/input" if name == "barnes" else None
        yield Program(name, words, f"{bench}/out", stdin, work)


def find_library(name):
    for folder in LIBRARY_DIRS:
        if os.path.exists(f"{folder}/{name}"):
            return f"{folder}/{name}"
    return None


def allocators(names, added):
    """name -> what its environment adds."""
    ours = f"{OUT}/libatmalloc.so"
    known = {"glibc": {}, "ours": {"LD_PRELOAD": ours, "ATMALLOC_POLICY": "all"},
             "ours-none": {"LD_PRELOAD": ours, "ATMALLOC_POLICY": "none"}}
    for name, library in LIBRARIES.items():
        path = find_library(library)
        if path:
            known[name] = {"LD_PRELOAD": path}
        elif not names or name in names:
            print(f"malloc_bench: {library} is not installed: {name} is left out", file=sys.stderr)
    for item in added:
        name, _, path = item.partition("=")
        if not os.path.exists(path):
            sys.exit(f"malloc_bench: --add {name}: no such library: {path}")
        known[name] = {"LD_PRELOAD": os.path.abspath(path)}
    wanted = ["glibc"] + [name for name in names if name != "glibc"] if names else list(known)
    for name in wanted:
        if name not in known and name not in LIBRARIES:
            sys.exit(f"malloc_bench: no malloc {name!r}; there are: {', '.join(known)}")
    return {name: known[name] for name in wanted if name in known}


def run_once(program, env):
    """A Run; exits when the program fails: a ratio to nothing is no result."""
    clean = {name: value for name, value in os.environ.items()
             if name not in ("LD_PRELOAD", "ATMALLOC_POLICY", "ATMALLOC_TUNE")}
    command = [f"{OUT}/tests/bench/run_once", *(f"{name}={value}" for name, value in env.items()), *program.command]
    with tempfile.TemporaryFile() as output, open(program.stdin or os.devnull, "rb") as stdin:
        process = subprocess.Popen(command, cwd=program.folder, stdin=stdin, stdout=output, stderr=output, env=clean,
                                   start_new_session=True)
        try:
            process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            sys.exit(f"malloc_bench: {' '.join(command)}: still running after {TIMEOUT_S} s")
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    taken = re.search(r"^run_once: (\d+) (\d+) (\d+) (\d+)$", text, re.MULTILINE)
    found = program.work.search(text) if program.work else None
    if not taken or taken.group(1) != "0" or (program.work and not found):
        print(text[-2000:], file=sys.stderr)
        sys.exit(f"malloc_bench: {' '.join(command)}: failed, or did not say how much it did")
    wall_s, cpu_s = (int(taken.group(i)) / 1e9 for i in (2, 3))
    # A program that runs for a fixed time tells its rate.
    work = float(found.group(1)) * wall_s if found else 1
    return Run(wall_s, cpu_s, int(taken.group(4)), work)


def measure(programs, mallocs, round_cnt):
    """runs[program][malloc]: a list, one Run a round. A program's runs of one round follow each other."""
    runs = {program.name: {name: [] for name in mallocs} for program in programs}
    try:
        for number in range(round_cnt):
            for program in random.sample(programs, len(programs)):
                if sys.stderr.isatty():
                    print(f"\r\033[Kround {number + 1} of {round_cnt}: {program.name}", end="", file=sys.stderr)
                for name in random.sample(list(mallocs), len(mallocs)):
                    runs[program.name][name].append(run_once(program, mallocs[name]))
    except KeyboardInterrupt:
        print("interrupted: what follows is of fewer rounds", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return {name: by_malloc for name, by_malloc in runs.items() if all(by_malloc.values())}


def ratio(base, runs, figure):
    """(median, half the distance between the quartiles) of glibc / malloc, round by round."""
    pairs = [getattr(b, figure) / max(getattr(r, figure), 1e-9) for b, r in zip(base, runs)]
    if len(pairs) < 2:
        return pairs[0], 0.0
    quartiles = statistics.quantiles(pairs, n=4, method="inclusive")
    return quartiles[1], (quartiles[2] - quartiles[0]) / 2


def print_table(runs, mallocs, figure, title):
    others = [name for name in mallocs if name != "glibc"]
    width = max(15, *(len(name) + 1 for name in runs))
    print(f"\n{title}")
    unit = "MB" if figure == "rss" else "s"
    print(f"{'':{width}}{'glibc ' + unit:>10}" + "".join(f"{name:>14}" for name in others))
    medians = {name: [] for name in others}
    for program, by_malloc in runs.items():
        absolute = statistics.median(
            r.rss / 1e6 if figure == "rss" else getattr(r, figure) for r in by_malloc["glibc"])
        line = f"{program:{width}}{absolute:10.3g}"
        for name in others:
            median, spread = ratio(by_malloc["glibc"], by_malloc[name], figure)
            medians[name].append(median)
            line += f"{median:8.2f} +-{spread:.2f}"
        print(line)
    print(f"{'geometric mean':{width}}{'':10}" +
          "".join(f"{math.exp(statistics.fmean(map(math.log, medians[name]))):8.2f}      " for name in others).rstrip())


def first_line(path):
    try:
        with open(path, encoding="ascii") as file:
            return file.readline().strip()
    except OSError:
        return "unknown"


def machine():
    thp = re.search(r"\[(.*)\]", first_line("/sys/kernel/mm/transparent_hugepage/enabled"))
    return (f"Linux {os.uname().release}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, "
            f"THP {thp.group(1) if thp else 'unknown'}, overcommit {first_line('/proc/sys/vm/overcommit_memory')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("-a", "--allocators", default="")
    parser.add_argument("--add", action="append", default=[], metavar="NAME=LIBRARY")
    parser.add_argument("--mimalloc-bench", metavar="DIR")
    parser.add_argument("--list", action="store_true", help="names of the programs")
    parser.add_argument("programs", nargs="*")
    args = parser.parse_args()

    programs = list(mimalloc_bench_programs(args.mimalloc_bench, args.short) if args.mimalloc_bench
                    else own_programs(args.short))
    if args.list:
        print("\n".join(program.name for program in programs))
        return 0
    unknown = set(args.programs) - {program.name for program in programs}
    if unknown:
        sys.exit(f"malloc_bench: no program {', '.join(unknown)}; there are: {', '.join(p.name for p in programs)}")
    programs = [program for program in programs if not args.programs or program.name in args.programs]
    mallocs = allocators([name for name in args.allocators.split(",") if name], args.add)
    round_cnt = 1 if args.short else args.rounds
    if not programs or round_cnt < 1:
        sys.exit("malloc_bench: nothing to run")

    print(f"{round_cnt} rounds; {machine()}")
    runs = measure(programs, mallocs, round_cnt)
    if not runs:
        sys.exit("malloc_bench: no program ran under every malloc")
    for figure, title in FIGURES:
        print_table(runs, mallocs, figure, title)
    return 0


if __name__ == "__main__":
    sys.exit(main())
