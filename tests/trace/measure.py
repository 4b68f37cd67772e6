# SPDX-License-Identifier: BSD-2-Clause
"""What the tests of this directory share: measured runs, and results as lines."""
import contextlib
import glob
import json
import os
import subprocess
import sys
import tempfile

ALLOCTRACE = os.environ.get("ALLOCTRACE", ".output/alloctrace")
OUT = os.environ.get("O", ".output")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.sysconf("SC_PAGESIZE")
POLICIES = ("stack", "realloc", "commit", "trim")
SCENARIOS = ("thread_create", "realloc_pingpong", "commit_storm", "trim_loop", "trim_mixed", "record_search")


class Failed(Exception):
    """A case's expectation did not hold; the text says which."""


def policy_sets():
    """All 16, as --policy takes them."""
    for bits in range(1 << len(POLICIES)):
        yield ",".join(p for i, p in enumerate(POLICIES) if bits >> i & 1) or "none"


def expect(is_true, why):
    if not is_true:
        raise Failed(why)


def run(command, *, policy=None, tune=None, allocator=None, wrapper=(), timeout=100):
    """Runs `command` under alloctrace and returns (its JSON report, its stdout)."""
    with tempfile.NamedTemporaryFile(prefix="alloctrace-test-") as report:
        words = [*wrapper, ALLOCTRACE, "run", "--json", "--output", report.name]
        words += [f"--policy={policy}"] if policy else []
        words += [f"--tune={tune}"] if tune else []
        words += [f"--allocator={allocator}"] if allocator else []
        done = subprocess.run([*words, *command], capture_output=True, text=True, timeout=timeout, check=False)
        expect(done.returncode == 0, f"{' '.join(words)} {' '.join(command)}: status {done.returncode}: {done.stderr}")
        text = report.read()
        return json.loads(text), done.stdout


def expect_exact(profile, *, has_racing_threads=False):
    """Nothing is missing, and the report says so.

    Where threads that are not ours change the address space at once, an mprotect may find mmap_lock taken and be
    classed from its arguments: that may be missing, nothing else, and the report says so exactly then.
    """
    tool = profile["tool"]
    lost = {reason: cnt for reason, cnt in tool["lost"].items() if cnt and reason != "never_returned"}
    expect(set(lost) <= ({"class_assumed"} if has_racing_threads else set()), f"not exact: {lost}")
    expect(tool["exact"] == (not lost), f"exact is {tool['exact']}, lost {lost}")


def value(stdout, name):
    """The number behind NAME= in a scenario's output."""
    for word in stdout.split():
        if word.startswith(name + "="):
            return int(word.removeprefix(name + "="))
    raise Failed(f"the scenario did not print {name}=: {stdout!r}")


def calls(phase, *classes):
    """Calls of the classes named; a name that ends in a dot stands for all that begin so."""
    return figure(phase, "calls", *classes)


def figure(phase, key, *classes):
    return sum(c[key] for name, c in phase["classes"].items()
               if any(name == wanted or wanted.endswith(".") and name.startswith(wanted) for wanted in classes))


def left_programs():
    """Ids of our programs that no process holds."""
    bpftool = subprocess.run([f"{ROOT}/.ci/find-bpftool"], capture_output=True, text=True, check=False).stdout.strip()
    done = subprocess.run([bpftool or "bpftool", "-j", "prog", "show"], capture_output=True, text=True, check=False)
    programs = json.loads(done.stdout) if done.returncode == 0 and done.stdout else []
    held = set()
    for path in glob.glob("/proc/[0-9]*/fdinfo/*"):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as info:
            held |= {int(line.split()[1]) for line in info if line.startswith("prog_id:")}
    return {program["id"] for program in programs if program.get("name", "").startswith("at_")} - held


class Sysctl:
    """A kernel setting for a while; put back whatever happens."""

    def __init__(self, name, text):
        self.path, self.text = f"/proc/sys/vm/{name}", text

    def __enter__(self):
        with open(self.path, encoding="ascii") as file:
            self.old = file.read()
        with open(self.path, "w", encoding="ascii") as file:
            file.write(self.text)

    def __exit__(self, *_):
        with open(self.path, "w", encoding="ascii") as file:
            file.write(self.old)


class Results:
    """Runs cases and prints a line for each; `exit` ends the test."""

    def __init__(self):
        self.failed_cnt = 0

    def case(self, name, function, *args):
        try:
            function(*args)
            print(f"ok {name}", flush=True)
        except Failed as failure:
            self.failed_cnt += 1
            print(f"not ok {name}: {failure}", flush=True)
        except (OSError, subprocess.SubprocessError, KeyError, ValueError) as error:
            self.failed_cnt += 1
            print(f"not ok {name}: {type(error).__name__}: {error}", flush=True)

    @staticmethod
    def skip(name, reason):
        print(f"skip {name}: {reason}", flush=True)

    def exit(self):
        sys.exit(1 if self.failed_cnt else 0)
