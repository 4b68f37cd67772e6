#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 240
"""compare on a terminal: progress while it runs, and what Ctrl-C leaves of it. At tier 0, so that it needs no privileges."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

ALLOCTRACE = os.path.realpath(os.environ.get("ALLOCTRACE", os.path.join(os.environ.get("O", ".output"), "alloctrace")))
LIMIT_S = 100
failed = False


def result(name, problem):
    global failed
    print(f"not ok {name}: {problem!r}" if problem else f"ok {name}", flush=True)
    failed |= bool(problem)


def set_columns(fd, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))


def on_terminal(words, env=None, until=None, keys=b"", columns=120):
    """Runs compare with a terminal of its own; types `keys` once `until` was seen. (what was written, status)"""
    pid, fd = pty.fork()
    if not pid:
        set_columns(0, columns)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # where it is ignored, Ctrl-C would be, too
        os.environ.update({"NO_COLOR": "1", **(env or {})})
        os.execv(ALLOCTRACE, [ALLOCTRACE, "compare", "--tier", "0", "--seed", "3", *words])
    seen, end = b"", time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if not select.select([fd], [], [], 0.1)[0]:
            continue
        try:
            got = os.read(fd, 65536)
        except OSError:  # the other end is closed
            break
        if not got:
            break
        seen += got
        if keys and re.search(until, seen):
            os.write(fd, keys)
            keys = b""
    os.close(fd)
    return seen.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_progress():
    words = ["--runs", "3", "--policy", "none", "--policy", "all", "trim_loop --iterations 5"]
    seen, status = on_terminal(words)
    result("status", status)
    states = re.findall(r"\r\x1b\[K(\d+) of 8 runs done, (warm-up|block (\d) of 3)(, about \d+ s left)?", seen)
    # A line a run, 2 configurations: warm-up, then three blocks; how long it takes is known after the first run.
    result("runs counted", [int(s[0]) for s in states] != list(range(8)) and seen)
    result("blocks counted", [s[2] for s in states] != ["", "", "1", "1", "2", "2", "3", "3"] and states)
    result("time left", [bool(s[3]) for s in states] != [False] + [True] * 7 and states)
    last = seen.rfind("\r\x1b[K")
    result("cleared before the report", seen[last + 4:last + 4 + 10] != "alloctrace" and seen[last:last + 40])
    with tempfile.TemporaryDirectory() as scratch:
        piped = subprocess.run([ALLOCTRACE, "compare", "--tier", "0", *words], cwd=scratch, capture_output=True,
                               text=True, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL)
    result("none without a terminal", piped.stderr or "runs done" in piped.stdout)


def test_interrupt():
    """Ctrl-C goes to the command, too. What was finished is reported."""
    seen, status = on_terminal(["--runs", "500", "--policy", "none", "--policy", "all", "--", "sleep", "0.05"],
                               until=rb"block 4 of", keys=b"\x03")
    finished = re.search(r"interrupted: (\d+) of 500 blocks were finished", seen)
    blocks = re.search(r"runs +(\d+) blocks", seen)
    result("interrupt: exit status", status != 130 and (status, seen[-300:]))
    result("interrupt: said", not finished and seen[-600:])
    if finished and blocks:
        result("interrupt: finished blocks", not 3 <= int(finished[1]) < 500 or finished[1] != blocks[1])
        result("interrupt: table", "wall time" not in seen.split("median")[-1] and seen[-600:])
    seen, status = on_terminal(["--runs", "500", "--policy", "none", "--policy", "all", "--", "sleep", "0.05"],
                               until=rb"1 of \d+ runs done, warm-up", keys=b"\x03")
    result("interrupt in the warm-up", (status != 130 or "nothing to compare" not in seen) and (status, seen[-300:]))


BAR = "\u2588"


def test_pictures():
    """trim_loop's calls: 31 without the policy, which fills the picture's width, and none with it."""
    words = ["--runs", "2", "--policy", "none", "--policy", "trim", "trim_loop --iterations 31"]

    def row(columns, locale, *options, name="none"):
        seen, _ = on_terminal([*options, *words], {"LC_ALL": locale}, columns=columns)
        return re.search(rf"memory syscalls\r\n(?:  none.*\r\n)?  {name} (.*)\r\n", seen)[1]

    result("as wide as there is room", [row(c, "C.UTF-8").count(BAR) for c in (99, 100, 110, 120, 200)] != [0, 10, 10, 16, 24])
    result("no bar of nothing", BAR in row(120, "C.UTF-8", name="trim"))
    result("ASCII where the locale is", row(120, "C").count("#") != 16 or BAR in row(120, "C"))
    result("--ascii", row(120, "C.UTF-8", "--ascii").count("#") != 16)
    result("--plot=never", BAR in row(120, "C.UTF-8", "--plot", "never"))
    for option, cnt in (((), 0), (("--plot", "always"), 24)):
        piped = subprocess.run([ALLOCTRACE, "compare", "--tier", "0", *option, *words], capture_output=True, text=True,
                               timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL, env={"LC_ALL": "C.UTF-8"})
        row_text = re.search(r"memory syscalls\n  none (.*)\n", piped.stdout)
        result(f"without a terminal {' '.join(option)}", not row_text or row_text[1].count(BAR) != cnt and row_text[1])


def main():
    test_progress()
    test_pictures()
    test_interrupt()


main()
sys.exit(failed)
