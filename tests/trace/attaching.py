# SPDX-License-Identifier: BSD-2-Clause
"""What the tests of attach share: targets that do as they are told, and alloctrace beside them."""
import json
import os
import signal
import subprocess
import tempfile
import threading

from measure import ALLOCTRACE, OUT, Results, expect, expect_exact

CALLS = os.path.abspath(f"{OUT}/tests/trace/attach_calls")
KNOWN = os.path.abspath(f"{OUT}/tests/trace/known_calls")
CLASS = "madvise.other"
TIMEOUT_S = 60


class Child:
    """A process that talks in lines; ended with the block."""

    def __init__(self, words, **options):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def wait_ok(self):
        line = self.process.stdout.readline()
        expect(line == b"ok\n", f"{self.process.args}: said {line!r}")

    def tell(self, command, has_answer=True):
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()
        if has_answer:
            self.wait_ok()


class Target(Child):
    """attach_calls with its commands."""

    def __init__(self, threads=1, name=None, wrapper=(), program=CALLS, **options):
        super().__init__([*wrapper, program, str(threads), *([name] if name else [])], **options)
        self.wait_ok()


class Attach:
    """alloctrace attach, from the moment when it is attached; ended with Ctrl-C by `report`."""

    def __init__(self, *words, wrapper=(), is_json=True):
        self.output = tempfile.NamedTemporaryFile(prefix="alloctrace-test-")
        self.words = [*wrapper, ALLOCTRACE, "attach", "-v", "-o", self.output.name, *(["-j"] if is_json else []),
                      *[word if isinstance(word, bytes) else str(word) for word in words]]
        self.process = subprocess.Popen(self.words, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, errors="replace")
        self.pid = self.process.pid
        self.errors = ""
        self.timer = threading.Timer(TIMEOUT_S, self.process.kill)
        self.timer.start()
        for line in self.process.stderr:
            self.errors += line
            if line.startswith("alloctrace: attached"):
                break
        else:
            self.end()
            expect(False, f"{' '.join(map(str, self.words))}: not attached: {self.errors}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.end()

    def end(self):
        self.errors += self.process.stderr.read()
        self.process.wait()
        self.timer.cancel()
        self.process.stderr.close()

    def text(self):
        """Its output, when it has ended by itself."""
        self.errors += self.process.stderr.read()
        status = self.process.wait()
        expect(status == 0, f"{' '.join(map(str, self.words))}: status {status}: {self.errors}")
        with open(self.output.name, encoding="utf-8") as output:
            return output.read()

    def text_now(self):
        self.process.send_signal(signal.SIGINT)
        return self.text()

    def report(self, is_ending=True):
        return json.loads(self.text_now() if is_ending else self.text())


def report_of(program, cnt, *words):
    """Of a program that makes so many calls while it is attached to, as it is told."""
    with Attach("-p", program.pid, *words) as attach:
        program.tell(str(cnt))
        return attach.report()


def counted(part, name=CLASS, key="calls"):
    """Of a process, a thread, or the total."""
    return part["classes"].get(name, {}).get(key, 0)


def expect_total(report, calls):
    """The total, and the sum over processes and over threads: all the same."""
    expect_exact(report)
    by_process = sum(counted(process) for process in report["processes"])
    by_thread = sum(counted(thread) for process in report["processes"] for thread in process["threads"])
    got = (counted(report["total"]), by_process, by_thread)
    expect(got == (calls,) * 3, f"total, by process, by thread: {got}, expected {calls}")


def run_if_traced(main):
    """The cases of a test, where there can be any."""
    if subprocess.run([ALLOCTRACE, "check"], capture_output=True, check=False).returncode:
        Results.skip("attach", "the kernel does not let us trace here ('alloctrace check' says why)")
    else:
        expect(os.path.exists(CALLS), f"{CALLS} was not built")
        main()


def cgroup_root():
    """Where control groups of version 2 are mounted and are ours to change; else None."""
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        for line in mounts:
            left, right = line.split(" - ")
            if right.split()[0] == "cgroup2" and os.access(os.path.join(left.split()[4], "cgroup.procs"), os.W_OK):
                return left.split()[4]
    return None
