#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 300
"""What attach can be pointed at: names, control groups, namespaces, many at once, and what it must refuse.

ATTACH_CYCLES=1000 attaches and detaches that often in the case `cycles`; each takes a second or so.
"""
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time

from attaching import CALLS, Attach, Target, cgroup_root, counted, expect_total, run_if_traced
from measure import ALLOCTRACE, OUT, Results, expect, expect_exact, left_programs

CYCLES = int(os.environ.get("ATTACH_CYCLES", "15"))
PROCESSES = 500
THREADS = 5000


def refused(status, says, *words, **options):
    done = subprocess.run([ALLOCTRACE, "attach", *[str(word) for word in words]], capture_output=True, text=True,
                          timeout=60, check=False, **options)
    expect(done.returncode == status, f"{words}: status {done.returncode}, expected {status}: {done.stderr}")
    expect(says in done.stderr, f"{words}: {says!r} is not in {done.stderr!r}")
    expect(not done.stdout, f"{words}: a report: {done.stdout}")


def zombie():
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return child


def kernel_thread():
    for pid in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{int(pid)}/stat", encoding="latin-1") as stat:
                if int(stat.read().rsplit(") ", 1)[1].split()[6]) & 0x200000:
                    return int(pid)
    return None


def errors():
    """Each with its own sentence and its documented status."""
    refused(2, "to what?")
    refused(2, "is not a process number", "-p", "12x")
    refused(2, "is not a time", "-p", "1", "-d", "0")
    refused(2, "is not a time", "-p", "1", "-i", "5h")
    refused(2, "say what it is", "1234")
    refused(2, "commit, vmas, refault, locks, stacks", "-p", "1", "--ledgers", "commit,other")
    refused(1, "no such process", "-p", 2 ** 22 + 7)
    refused(1, "no such process", "-t", 2 ** 22 + 7)
    refused(1, "no process has that name", "--name", "no-such-name")
    refused(2, "not a control group", "--cgroup", "/tmp")
    refused(2, "No such file", "--cgroup", "/no/such/place")
    child = zombie()
    refused(1, "zombie", "-p", child)
    os.waitpid(child, 0)
    with Target(2) as target:
        thread, = {int(tid) for tid in os.listdir(f"/proc/{target.pid}/task")} - {target.pid}
        refused(1, f"a thread of process {target.pid}", "-p", thread)
        nobody = dict(user=65534, group=65534, extra_groups=[])
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o755)
            copy = os.path.join(place, "alloctrace")
            subprocess.run(["cp", ALLOCTRACE, copy], check=True)
            done = subprocess.run([copy, "attach", "-p", str(target.pid)], capture_output=True, text=True, timeout=60,
                                  check=False, **nobody)
        expect(done.returncode == 125 and "run with sudo" in done.stderr, f"{done.returncode}: {done.stderr}")
        target.tell("c 1")
    if kernel_thread():
        refused(1, "thread of the kernel", "-p", kernel_thread())


def some_are_gone():
    """One of several is gone: it is named, the others are traced."""
    with Target() as target:
        with Attach("-p", f"{2 ** 22 + 7},{target.pid}") as attach:
            target.tell("c 43")
            report = attach.report()
    expect("no such process" in attach.errors, attach.errors)
    expect_total(report, 43)


def words():
    """-p $(pidof x), -p again, blanks and commas."""
    with Target() as one, Target() as two, Target() as three, Target() as four:
        with Attach("-p", one.pid, two.pid, "-p", f"{three.pid} {four.pid},{one.pid}") as attach:
            for number, target in enumerate((one, two, three, four)):
                target.tell(f"c {7 + number}")
            report = attach.report()
    expect_total(report, 7 + 8 + 9 + 10)
    got = {process["pid"]: counted(process) for process in report["processes"]}
    expect(got == {one.pid: 7, two.pid: 8, three.pid: 9, four.pid: 10}, f"by process: {got}")


def name():
    """Processes of a name, one that came later too; another name is not counted."""
    own = f"at{os.getpid()}"
    with Target(2, own) as one, Target(1, "other") as other:
        with Attach("--name", own) as attach, Target(1, own) as late:
            time.sleep(1)
            one.tell("c 47")
            other.tell("c 1000")
            late.tell("c 3")
            report = attach.report()
    expect_total(report, 2 * 47 + 3)
    expect({process["name"] for process in report["processes"]} == {own}, f"{report['processes']}")


def cgroup(root):
    """A control group and what is below it, and a process that moves in."""
    place = os.path.join(root, f"alloctrace-{os.getpid()}")
    below = os.path.join(place, "below")
    os.makedirs(below)
    try:
        with Target() as one, Target() as two, Target() as other:
            for target, group in ((one, place), (two, below)):
                with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as procs:
                    procs.write(str(target.pid))
            with Attach("--cgroup", place) as attach:
                one.tell("c 53")
                one.tell("f 59")
                two.tell("c 61")
                other.tell("c 1000")
                with open(os.path.join(place, "cgroup.procs"), "w", encoding="ascii") as procs:
                    procs.write(str(other.pid))
                time.sleep(1)
                other.tell("c 67")
                report = attach.report()
        expect_total(report, 53 + 59 + 61 + 67)
    finally:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                os.rmdir(below)
            with contextlib.suppress(OSError):
                os.rmdir(place)
                break
            time.sleep(0.05)


NAMESPACE = """
{calls} 2 <"$1" >"$2" & pid=$!
exec 3>"$1"
exec 4<"$2"
ok() {{ read -r line <&4; }}
ok
"$0" attach -v -j -o "$3" -p $pid 2>"$4" & tracer=$!
until grep -q "alloctrace: attached" "$4"; do kill -0 $tracer || exit 1; sleep 0.05; done
echo "c 71" >&3; ok; echo n >&3; ok; echo "f 73" >&3; ok
kill -INT $tracer; wait $tracer || exit 1
echo $pid >"$5"
echo q >&3
"$0" run --allocator system -j -o "$6" -- {known} fail 79
"""


def pid_namespace():
    """Numbers of the caller's namespace go in and come out (field cases B10, B11); `run` works there, too."""
    with tempfile.TemporaryDirectory() as place:
        files = [os.path.join(place, name) for name in ("in", "out", "report", "errors", "pid", "run")]
        os.mkfifo(files[0])
        os.mkfifo(files[1])
        script = NAMESPACE.format(calls=CALLS, known=os.path.abspath(f"{OUT}/tests/trace/known_calls"))
        done = subprocess.run(["unshare", "-pf", "--mount-proc", "bash", "-c", script, os.path.abspath(ALLOCTRACE),
                               *files], capture_output=True, text=True, timeout=60, check=False)
        expect(done.returncode == 0, f"{done.returncode}: {done.stdout} {done.stderr}")
        with open(files[2], encoding="utf-8") as text:
            report = json.load(text)
        with open(files[4], encoding="ascii") as text:
            pid = int(text.read())
        with open(files[5], encoding="utf-8") as text:
            run = json.load(text)
    expect_total(report, 2 * 71 + 73)
    expect(pid < 100 and pid in [process["pid"] for process in report["processes"]], f"pid {pid}, {report['target']}")
    expect(run["tool"]["tier"] >= 1, "run: tier 0")
    expect_exact(run)
    expect(counted(run["total"]) == 79, f"run: {counted(run['total'])}")


def in_flight():
    """A call that was running when attached, and one that is when detached."""
    with Target() as target:
        target.tell("u")
        with Attach("-p", target.pid) as attach:
            target.tell("r")
            target.tell("c 83")
            target.tell("u")
            report = attach.report()
        target.tell("r")
    expect_total(report, 83)
    expect(report.get("in_flight_at_attach") == {"madvise": 1}, f"at attach: {report.get('in_flight_at_attach')}")
    expect(report.get("in_flight") == {"madvise": 1}, f"at detach: {report.get('in_flight')}")


def allocators():
    """Told from what is mapped; the bundled one with its policies."""
    found = {}
    libraries = {"glibc 2.": None, "bundled, policies stack,realloc,commit": f"{OUT}/libatmalloc.so"}
    for key, library in (("jemalloc 5", "libjemalloc.so.2"), ("mimalloc 2", "libmimalloc.so.2.0"),
                         ("tcmalloc 2", "libtcmalloc_minimal.so.4")):
        place = f"/usr/lib/x86_64-linux-gnu/{library}"
        if os.path.exists(place):
            libraries[key] = place
    for key, library in libraries.items():
        env = {**os.environ, "ATMALLOC_POLICY": "-trim", **({"LD_PRELOAD": os.path.abspath(library)} if library else {})}
        with Target(env=env) as target:
            with Attach("-p", target.pid) as attach:
                found[key] = attach.report()["processes"][0].get("allocator", "")
    for key, allocator in found.items():
        expect(allocator.startswith(key), f"{key}: {allocator!r}")


def many_processes():
    with contextlib.ExitStack() as stack:
        targets = [stack.enter_context(Target()) for _ in range(PROCESSES)]
        with Attach("-p", ",".join(str(target.pid) for target in targets)) as attach:
            for target in targets:
                target.tell("c 3")
            report = attach.report()
    expect_total(report, 3 * PROCESSES)
    expect(sorted(process["pid"] for process in report["processes"]) == sorted(t.pid for t in targets), "pids")


def many_threads():
    with Target(THREADS) as target:
        with Attach("-p", target.pid) as attach:
            target.tell("c 1")
            report = attach.report()
    expect_total(report, THREADS)
    expect("other" not in report, f"{report.get('other')}")


def cycles():
    """Attached and detached again and again while it works, it takes no harm, and nothing is left."""
    files = set(os.listdir("/sys/fs/bpf")) if os.path.isdir("/sys/fs/bpf") else set()
    with Target(3) as target:
        fds = len(os.listdir(f"/proc/{target.pid}/fd"))
        target.tell("b")
        for number in range(CYCLES):
            done = subprocess.run([ALLOCTRACE, "attach", "-p", str(target.pid), "-d", "20ms", "-j"],
                                  capture_output=True, text=True, timeout=60, check=False)
            expect(done.returncode == 0, f"cycle {number}: {done.stderr}")
            report = json.loads(done.stdout)
            expect_exact(report)
            expect_total(report, counted(report["total"]))
        with open(f"/proc/{target.pid}/status", encoding="ascii") as status:
            text = status.read()
        expect("TracerPid:\t0" in text and "Threads:\t3" in text, text)
        expect(len(os.listdir(f"/proc/{target.pid}/fd")) == fds, "other descriptors than before")
        target.tell("p 3")
    expect(not files or set(os.listdir("/sys/fs/bpf")) == files, "a file is left in /sys/fs/bpf")
    left = left_programs()
    deadline = time.monotonic() + 30
    while left and time.monotonic() < deadline:
        time.sleep(0.2)
        left &= left_programs()
    expect(not left, f"programs without a process: {left}")


def sigterm():
    """The report is written, and the status says by what it ended."""
    with Target() as target:
        with Attach("-p", target.pid) as attach:
            target.tell("c 89")
            attach.process.send_signal(signal.SIGTERM)
            attach.errors += attach.process.stderr.read()
            expect(attach.process.wait() == 128 + signal.SIGTERM, f"status {attach.process.returncode}")
            with open(attach.output.name, encoding="utf-8") as output:
                expect_total(json.load(output), 89)


def main():
    results = Results()
    for case in (errors, some_are_gone, words, name, pid_namespace, in_flight, allocators, many_processes,
                 many_threads, cycles, sigterm):
        results.case(case.__name__, case)
    root = cgroup_root()
    if root:
        results.case("cgroup", cgroup, root)
    else:
        results.skip("cgroup", "no control groups of version 2 are mounted, or not for us to change")
    results.exit()


run_if_traced(main)
