#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 1700
"""The tracer on other kernels, booted under qemu: the trace tests there, and the same figures as on this one.

On each kernel and in each tier that it has, the tests of tests/trace that need no interpreter are run, and programs
whose calls are known are traced: calls, errors, bytes, faults and ledgers of their measured phase must be the same
in every tier and on every kernel, this one included, but for DIFFERENCES.

AT_VM_ARGS adds boot parameters; with preempt=full there is no tier 2. AT_VM_JOBS runs only jobs whose name matches it.
"""
import json
import os
import re
import shlex
import subprocess
import sys

import vm

# Package, and the name that results go by.
KERNELS = (("linux-image-cloud-amd64", "6.1"), ("linux-image-6.12-cloud-amd64", "6.12"))
ARGS = os.environ.get("AT_VM_ARGS", "")
JOBS = re.compile(os.environ.get("AT_VM_JOBS", ""))
with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as setting:
    HUGE = re.search(r"\[(\w+)\]", setting.read()).group(1)
TIERS = (1,) if "preempt=full" in ARGS else (1, 2)

# The tests, and which of their cases: programs load slowly under emulation. Both slot layouts occur in each tier.
COMMIT_CASES = ("test_known_charges", "test_fork", "test_storm", "test_live_target", "test_vmas")
# In each tier those that pass through what the tier, and the kernel, have of their own; the others ask what all have in common.
TIER2_CASES = ("test_classes", "test_failing_calls", "test_migration", "test_int80", "test_32bit_program", "test_following",
               "test_exec_from_thread", "test_killed", "test_kernel_mode_faults", "test_faults_equal_rusage", "test_in_flight")
TIER1_CASES = (*TIER2_CASES, "test_leader_exits_first", "test_populate_has_no_faults", "test_exit_without_entry", "test_hidden_faults")
TESTS = {
    1: [("tracer_test", f"{case}_array") for case in TIER1_CASES] + [("commit_test", f"{case}_storage") for case in COMMIT_CASES]
    + [("ends_test", "test_killed_array"), ("ends_test", "test_replaced_array"), ("losses_test", "*")],
    2: [("tracer_test", f"{case}_storage") for case in TIER2_CASES] + [("commit_test", f"{case}_array") for case in COMMIT_CASES]
    + [("ends_test", "test_killed_storage")],
}
FILES = ("alloctrace", "libatmalloc.so", "scenarios/scenarios.tsv", "tests/trace/tracer_test",
         "tests/trace/losses_test", "tests/trace/ends_test", "tests/trace/stress_calls",
         "tests/trace/known_calls", "tests/trace/static_once", "tests/trace/m32_calls", "tests/trace/commit_test",
         "tests/trace/attach_calls", "tests/trace/commit_calls", "tests/trace/place_calls", "tests/trace/chain_calls")

# Those on the tracepoints of all syscalls.
SYSCALL_PROGRAMS = {"at_enter_btf", "at_exit_btf"}
PID_MAX = 4194304

# Tuned so that nothing depends on the memory and the CPUs of the machine.
TUNE = "commit_batch=100000,commit_hold=100000"
COMPARED = {
    "classes": ("--allocator=system", "--", "{at}/tests/trace/known_calls", "classes"),
    "thread_create none": ("--policy=none", "thread_create", "--outer", "3", "--inner", "19"),
    "commit_storm none": ("--policy=none", "--tune=" + TUNE, "commit_storm", "--processes", "3", "--iterations", "101"),
    "commit_storm all": ("--policy=all", "--tune=" + TUNE, "commit_storm", "--processes", "3", "--iterations", "101"),
    "trim_loop none": ("--policy=none", "trim_loop", "--iterations", "101", "--touch"),
    "trim_mixed all": ("--policy=all", "trim_mixed", "--blocks", "301"),
    **{pattern: ("--allocator=system", "--", "{at}/tests/trace/place_calls", pattern, n)
       for pattern, n in (("scattered", "11"), ("unmap-elsewhere", "23"), ("stacks", "31"), ("wait", "1"),
                              *([("huge-stacks", "5")] if HUGE != "never" else []))},
    "callchain": ("--allocator=system", "--callchain", "--", "{at}/tests/trace/chain_calls", "plain"),
}
CHAIN = ("madvise.nohugepage", ["main", "plain", "middle", "inner", "advise"])

# What is known beforehand: of place_calls see refault_test.py and stacks_test.py.
KNOWN = {
    "scattered": {"refault.dontneed.released_pages": 11 * 18, "refault.dontneed.returned_pages": 11 * 18},
    "unmap-elsewhere": {"refault.unmap.released_pages": 23 * 37, "refault.unmap.returned_pages": 23 * 37},
    "stacks": {"stacks.threads": 31, "stacks.foreign_threads": 0, "stacks.calls": 4 * 31, "stacks.charged_pages": 61 * 31,
               "stacks.uncharged_pages": 61 * 31, "stacks.touched_pages": 7 * 31},
    # A huge page in each of two parts, three pages in another.
    "huge-stacks": {"stacks.calls": 3 * 5, "stacks.charged_pages": 1280 * 5, "stacks.huge_pages": 2 * 512 * 5,
                    "stacks.touched_pages": (2 * 512 + 3) * 5},
    "attach": {"commit.peak_is_above_start": True},
    "renamed": {"madvise.other.calls": 3 * 31, "processes": 31},
    "wait": {"locks.mmap_write": True, "mprotect.other.lock_waits": True},
    "callchain": {" > ".join(CHAIN[1]): 13},
}
# Of them, those with one thread that touches nothing but what it maps: nothing is assumed, faults are known.
ALONE = ("classes",)
# One process without more threads at a time than one: what the ledgers find is known.
LEDGERS = ("scattered", "unmap-elsewhere", "stacks")
# Of them, with slots in task storage, too.
IN_STORAGE = ("classes", "thread_create none")

# What kernels really do differently: (program, figure): {kernel: value, or a tuple of them}. Kernel "here" is the one that runs this.
DIFFERENCES = {
    # 6.1 does not give the charge back when untouched pages become inaccessible.
    ("classes", "commit.charged_pages"): {"6.1": 483},
    ("classes", "commit.uncharged_pages"): {"6.1": 483},
    ("classes", "commit.updates"): {"6.1": 562},
    ("stacks", "commit.updates"): {"6.1": 62},
    # From 6.7 on what is mapped with MAP_STACK never gets huge pages, and so does not merge with its neighbour.
    ("stacks", "vmas.growth.mmap.stack"): {"6.1": 0},
    ("stacks", "vmas.growth.munmap"): {"6.1": -31},
    # Before, which of them have merged when the threads' stacks are unmapped depends on which thread ends first.
    ("thread_create none", "vmas"): {"6.1": (71, 72)},
}

# What is not compared where a part of it is assumed, and of threads: the kernel gives a charge back only where the
# mapping has not merged with one that was touched.
UNSURE = ("commit.uncharged_pages", "commit.updates", "commit.past_fixed")


# Attaches to a program that then makes its calls, as a shell does it; every wait has an end. What the program had at the
# start is what the kernel says in smaps; without the iterator over mappings, what it says of all private writable ones.
ATTACH = """t=$(mktemp -d); trap 'rm -rf $t' EXIT; {at}/tests/trace/known_calls held >$t/said & p=$!
for i in $(seq 300); do [ -s $t/said ] && break; sleep 0.1; done
{at}/alloctrace attach -v --json --output {report} --slots={slots} -p $p 2>$t/errors & a=$!
for i in $(seq 900); do grep -q attached $t/errors && break; sleep 0.1; done
if {at}/alloctrace check | grep -q "walking over mappings *yes"; then
    pages=$(awk "/^Size:/ {{ kib = \\$2 }} /^VmFlags:.* ac/ {{ sum += kib }} END {{ print sum / 4 }}" /proc/$p/smaps)
else
    pages=$(awk "/^VmData|^VmStk/ {{ sum += \\$2 }} END {{ print sum / 4 }}" /proc/$p/status)
fi
kill -USR1 $p
for i in $(seq 300); do [ $(wc -l <$t/said) = 2 ] && break; sleep 0.1; done
kill -TERM $a; wait $a; status=$?; kill $p; cat $t/errors >&2
echo "$pages pages at the start, $(grep commit_start_pages {report})" >&2
[ $status = 143 ] && grep -q "commit_start_pages.: $pages,*$" {report}"""

# Attaches by a name that short processes give themselves.
RENAMED = """t=$(mktemp -d); trap 'rm -rf $t' EXIT; mkfifo $t/one $t/two
{at}/tests/trace/attach_calls 1 wanted <$t/one >$t/said & p=$!; exec 3>$t/one
{at}/tests/trace/attach_calls 1 other <$t/two >$t/told & q=$!; exec 4>$t/two
for i in $(seq 300); do [ -s $t/said ] && [ -s $t/told ] && break; sleep 0.1; done
{at}/alloctrace attach -v --json --output {report} --slots={slots} --name wanted 2>$t/errors & a=$!
for i in $(seq 900); do grep -q attached $t/errors && break; sleep 0.1; done
echo 'x 31 wanted' >&4
for i in $(seq 300); do [ $(wc -l <$t/told) = 2 ] && break; sleep 0.1; done
kill -TERM $a; wait $a; status=$?; kill $p $q; cat $t/errors >&2; [ $status = 143 ]"""


def commands(at, report, tier, slots="auto"):
    """Command lines that trace the programs, by name."""
    for name, words in COMPARED.items():
        if slots == "storage" and name not in IN_STORAGE:
            continue
        words = [word.format(at=at) for word in words]
        yield name, [f"{at}/alloctrace", "run", "--json", "--output", report, f"--tier={tier}",
                     f"--slots={slots}", *words]
    if tier == 1:  # the one that attach uses
        yield "attach", ["sh", "-c", ATTACH.format(at=at, report=report, slots=slots)]
        yield "renamed", ["sh", "-c", RENAMED.format(at=at, report=report, slots=slots)]


def ledger_figures(phase):
    """What the ledgers know of a program that they know all of."""
    found = {f"refault.{kind}.{key}": values[key] for kind, values in phase["refault"]["kinds"].items()
             for key in ("released_pages", "returned_pages")}
    found |= {f"stacks.{key}": phase["stacks"][key]
              for key in ("threads", "foreign_threads", "calls", "charged_pages", "uncharged_pages", "touched_pages")}
    found |= {f"vmas.growth.{name}": cnt for name, cnt in phase["vmas"].get("growth", {}).items()}
    found["locks.mmap_write"] = phase["locks"]["mmap_write"]["waits"]
    return found


def chain_figures(report):
    """Calls by who made them: by the functions that are known, or by all that the report names."""
    found, (wanted_class, wanted) = {}, CHAIN
    chains = report["callchains"]
    for path in chains["paths"]:
        if path["class"] != wanted_class:
            continue
        names = [chains["frames"][number].get("function", "?") for number in path["frames"]][::-1]
        is_known = any(names[at:at + len(wanted)] == wanted for at in range(len(names)))
        name = " > ".join(wanted if is_known else names)
        found[name] = found.get(name, 0) + path["calls"]
    return found


def figures(report, program):
    """The figures of a report that must not depend on the kernel: {name: number}.

    Where another thread held the lock, an mprotect may be classed by its arguments: that is named, and right here; and
    what it gave back may be assumed: that is named, and not compared. How many VMAs a program has to begin with, and
    how many faults a page of code takes, is the kernel's own affair.
    """
    found = {"lost": sum(cnt for reason, cnt in report["tool"]["lost"].items() if reason != "class_assumed")}
    if program == "callchain":  # its only phase has the loader in it
        return found | chain_figures(report)
    if program == "renamed":
        calls = [process["classes"].get("madvise.other", {}).get("calls") for process in report["processes"]]
        return found | {"madvise.other.calls": sum(filter(None, calls)), "processes": calls.count(3)}
    phase = report["phases"]["measured"]
    if program == "wait":  # how often depends on who runs when
        return found | {"locks.mmap_write": phase["locks"]["mmap_write"]["waits"] > 0,
                        "mprotect.other.lock_waits": phase["classes"]["mprotect.other"]["lock_waits"] > 0}
    for name, values in phase["classes"].items():
        for key in ("calls", "errors", "bytes"):
            if program in ALONE or not name.startswith("fault."):
                found[f"{name}.{key}"] = values.get(key, 0)
    if program == "attach":
        start, commit = report["tool"]["commit_start_pages"], phase["commit"]
        return found | {"commit.peak_is_above_start": start <= commit["peak_pages"] <= start + commit["charged_pages"]}
    if program == "huge-stacks":
        return found | {f"stacks.{key}": phase["stacks"][key] for key in ("calls", "charged_pages", "huge_pages", "touched_pages")}
    commit, vmas = phase["commit"], phase["vmas"]
    found["commit.charged_pages"] = commit["charged_pages"]
    found["vmas"] = vmas["end"] - vmas["start"]
    if program in ALONE:
        found["commit.assumed_calls"] = commit["assumed_calls"]
    if not commit["assumed_calls"] and not program.startswith("thread_create"):
        found["commit.uncharged_pages"] = commit["uncharged_pages"]
        found["commit.updates"] = commit["updates"]
        found["commit.past_fixed"] = commit["batches"]["fixed"]["past"]
    if program in LEDGERS:
        found |= ledger_figures(phase)
    return found


def files():
    """What the machines need of what was built; 32-bit programs are not built everywhere."""
    names = [f"scenarios/{word}" for words in COMPARED.values() for word in words] + list(FILES)
    return sorted({name for name in names if os.path.isfile(f"{vm.OUT}/{name}")})


def say(is_ok, name, why=""):
    print(f"ok {name}" if is_ok else f"not ok {name}: {why}", flush=True)
    return is_ok


class Comparison:
    """Collects the figures of each program and says where they differ from the first ones."""

    def __init__(self):
        self.first = {}

    def check(self, program, kernel, where, found):
        name = f"{program}, {where}"
        unknown = {figure: (found.get(figure, 0), value) for figure, value in KNOWN.get(program, {}).items()
                   if found.get(figure, 0) != value}
        if unknown:
            return say(False, name, f"found and known: {unknown}")
        if program not in self.first:
            self.first[program] = (where, found)
            return say(not found["lost"], name, f"{found['lost']} lost")
        first_where, expected = self.first[program]
        wrong = []
        assumed = [name for name in UNSURE if name not in found or name not in expected]
        for figure in sorted((set(found) | set(expected)) - set(assumed)):
            wanted = DIFFERENCES.get((program, figure), {}).get(kernel, expected.get(figure, 0))
            if found.get(figure, 0) not in (wanted if isinstance(wanted, tuple) else (wanted,)):
                wrong.append(f"{figure} is {found.get(figure, 0)}, {wanted} in {first_where}")
        return say(not wrong, name, "; ".join(wrong))


def trace_here(comparison):
    """The same programs on this kernel; its figures are what the others are compared with."""
    at = os.path.abspath(vm.OUT)
    if subprocess.run([f"{at}/alloctrace", "check"], capture_output=True, check=False).returncode:
        print("skip this kernel: it cannot be traced by this user")
        return
    report = f"{vm.OUT}/vm/report.json"
    for name, words in commands(at, report, 1):
        done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=100,
                              check=False)
        if done.returncode:
            say(False, f"{name}, here", done.stderr)
            continue
        with open(report, encoding="utf-8") as text:
            comparison.check(name, "here", "here, tier 1", figures(json.load(text), name))


def jobs_of():
    jobs = []
    for tier in TIERS:
        for slots in ("array", "storage"):
            for name, words in commands("/at", "/tmp/report", tier, slots):
                command = shlex.join(words)
                jobs.append(vm.Job(f"{name}, tier {tier}, {slots}", f"{command} >/dev/null && cat /tmp/report"))
        jobs.append(vm.Job(f"programs, tier {tier}",
                           f"/at/alloctrace run --tier={tier} --allocator=system -o /dev/null -- bpftool -j prog"))
        for test, cases in TESTS[tier]:
            jobs.append(vm.Job(f"{test} {cases}, tier {tier}", f"TEST_TIER={tier} /at/tests/trace/{test} '{cases}'"))
    # Last: numbers of processes beyond what an array can be for.
    for name, words in commands("/at", "/tmp/report", 1):
        if name == "classes":
            command = shlex.join(words)
            jobs.append(vm.Job(f"{name}, tier 1, pid_max {PID_MAX}",
                               f"echo {PID_MAX} >/proc/sys/kernel/pid_max && echo {PID_MAX - 9999} "
                               f">/proc/sys/kernel/ns_last_pid && {command} >/dev/null && cat /tmp/report"))
    return [job for job in jobs if JOBS.search(job.name)]


def report_programs(kernel, job):
    """In tier 2 nothing hangs on the tracepoints that every syscall of every process passes; in tier 1 it does."""
    name, start = f"{kernel}, {job.name}", job.output.find("[{")
    if "not found" in job.output:
        print(f"skip {name}: bpftool is not installed")
        return
    if start < 0:
        say(False, name, f"status {job.status}: {job.output.strip()}")
        return
    names = {program.get("name", "") for program in json.JSONDecoder().raw_decode(job.output[start:])[0]}
    found = names & SYSCALL_PROGRAMS
    say(found == (set() if job.name.endswith("2") else SYSCALL_PROGRAMS) and names - found, name, f"{sorted(names)}")


def report_test(kernel, job):
    """Each case of a test program as a case of ours."""
    planned = re.search(r"^1\.\.(\d+)$", job.output, re.M)
    reason, seen_cnt = "", 0
    for line in job.output.splitlines():
        found = re.match(r"(ok|not ok) \d+ (- |# SKIP )(\S+)", line)
        if not found:
            reason = line
            continue
        seen_cnt += 1
        status, kind, case = found.groups()
        name = f"{kernel}, {job.name}, {case}"
        if "SKIP" in kind:
            print(f"skip {name}: {reason}", flush=True)
        else:
            say(status == "ok", name, "its output follows")
    failed = not planned or seen_cnt != int(planned.group(1)) or job.status is None
    if failed or job.status:
        print(job.output)
    if failed:
        say(False, f"{kernel}, {job.name}", f"did not come to its end (status {job.status})")


def report_run(kernel, job, comparison):
    program = job.name.rsplit(", tier", 1)[0]
    where = f"{kernel},{job.name[len(program) + 1:]}"
    start = job.output.find("{\n")
    if job.status != 0 or start < 0:
        return say(False, f"{program}, {where}", f"status {job.status}: {job.output.strip()}")
    return comparison.check(program, kernel, where, figures(json.loads(job.output[start:]), program))


def main():
    try:
        vm.need_tools()
    except vm.Missing as missing:
        print(f"skip other kernels: {missing}")
        return 0
    os.makedirs(f"{vm.OUT}/vm", exist_ok=True)
    machines, names = [], []
    image = f"{vm.OUT}/vm/initramfs.{os.getpid()}"
    vm.pack(image, files(), ("strace", "bpftool"))
    for package, kernel in KERNELS:
        try:
            machines.append(((vm.kernel(package), image, jobs_of()),
                             {"args": f"transparent_hugepage={HUGE} {ARGS}", "log": f"{vm.OUT}/vm/{kernel}"}))
            names.append(kernel)
        except vm.Missing as missing:
            print(f"skip kernel {kernel}: {missing}", flush=True)
    consoles = vm.boot_all(machines)
    os.unlink(image)
    comparison = Comparison()
    trace_here(comparison)
    for kernel, ((_, _, jobs), _), console in zip(names, machines, consoles):
        for job in jobs:
            if "_test" in job.name:
                report_test(kernel, job)
            elif job.name.startswith("programs"):
                report_programs(kernel, job)
            else:
                report_run(kernel, job, comparison)
        if any(job.status is None for job in jobs):
            print(f"console of {kernel}:\n{console[-4000:]}")
    return 0


sys.exit(main())
