#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 180
"""Callchains of processes that ran before anyone looked: their callers are known, their sums are the classes' own.

redis-server under load, a Python program, a Go program, a program of many forks; and a library that is loaded, and
one that is unloaded and replaced, while attached.
"""
import collections
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

from attaching import CALLS as ATTACH_CALLS
from attaching import Attach
from measure import ALLOCTRACE, OUT, Results, expect

CALLS = 13
CLASS = "mmap.anon"


def paths(profile, name):
    chains = profile["callchains"]
    for path in chains["paths"]:
        if path["class"] == name:
            frames = [chains["frames"][number] for number in path["frames"]][::-1]
            yield [frame.get("function", "?") for frame in frames], path


def follows(names, wanted):
    left = iter(names)
    return all(any(name == want for name in left) for want in wanted)


def check_sums(profile):
    sums = collections.Counter()
    for path in profile["callchains"]["paths"]:
        sums[path["class"]] += path["calls"]
    wanted = {name: total["calls"] for name, total in profile["total"]["classes"].items() if total["calls"]}
    expect(dict(sums) == wanted, f"sums of the paths {dict(sums)}, of the classes {wanted}")


class Talker:
    """A program that does a step for each line, and answers with a line."""

    def __init__(self, *words):
        self.words = words

    def __enter__(self):
        self.process = subprocess.Popen(self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.step()
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def step(self, text=""):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        expect(self.process.stdout.readline(), f"{self.words[0]} has ended")


PYTHON = """
import mmap, sys
keep = []
def step():
    for i in range(13):
        keep.append(mmap.mmap(-1, 7 * 4096))
for line in sys.stdin:
    step()
    print("done", flush=True)
"""


def check_python():
    with Talker("python3", "-c", PYTHON) as talker:
        with Attach("-p", str(talker.process.pid), "--callchain") as attached:
            talker.step()
            profile = attached.report()
    check_python_chains(profile)


def check_python_chains(profile):
    check_sums(profile)
    found = [(names, path) for names, path in paths(profile, CLASS) if path["bytes"] == path["calls"] * 7 * 4096]
    expect(sum(path["calls"] for _, path in found) == CALLS, f"{found}")
    for names, path in found:
        expect(path["end"] == "outermost" and path["origin"] == "program" and
               follows(names, ["Py_BytesMain", "Py_RunMain", "PyEval_EvalCode", "mmap"]), f"{names}: {path}")


LOADER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
	void *library = NULL;
	char line[16];
	int step = 0;

	while (fgets(line, sizeof(line), stdin)) {
		int end = step + (atoi(line) ? atoi(line) : 1);

		for (; step < end; step++) {
			if (library)
				dlclose(library);
			library = step ? dlopen(argv[(step - 1) % (argc - 1) + 1], RTLD_NOW) : NULL;
			if (library)
				((void (*)(void))dlsym(library, "call"))();
			if (library && atoi(line)) {
				dlclose(library);
				library = NULL;
			}
		}
		puts("done");
		fflush(stdout);
	}
	return 0;
}
"""

LIBRARY = """
#include <sys/mman.h>
__attribute__((noinline, noclone)) static void NAME_level(void)
{
	for (int i = 0; i < CNT; i++)
		mmap(0, PAGES * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	__asm__ volatile("" ::: "memory");
}
void call(void)
{
	NAME_level();
	__asm__ volatile("" ::: "memory");
}
"""


def compile_c(text, *words):
    subprocess.run([shutil.which("cc") or "gcc", "-O2", "-g", "-x", "c", "-", *words], input=text, text=True, check=True)


def check_libraries(folder, hurry=1):
    """Two libraries take turns at the same address: each call is named after the library that made it.

    Each maps so many pages at a time that its calls are known by them. hurry: so many turns in a row, that the file
    has gone, and the other one lies there, before anyone can look at it.
    """
    calls, pages, rounds = {"first": 7, "second": 11}, {"first": 5, "second": 6}, 20
    for name, cnt in calls.items():
        text = LIBRARY.replace("NAME", name).replace("CNT", str(cnt)).replace("PAGES", str(pages[name]))
        compile_c(text, "-shared", "-fPIC", "-o", f"{folder}/{name}.so")
    compile_c(LOADER, "-o", f"{folder}/loader", "-ldl")
    with Talker(f"{folder}/loader", *(f"{folder}/{name}.so" for name in calls)) as talker:
        with Attach("-p", str(talker.process.pid), "--callchain") as attached:
            for _ in range(rounds * len(calls) // hurry):
                talker.step(str(hurry) if hurry > 1 else "")
            profile = attached.report()
    check_sums(profile)
    counts, lost = collections.Counter(), collections.Counter()
    for chain, path in paths(profile, CLASS):
        size = path["bytes"] / path["calls"] / 4096
        level = next((name for name in calls if f"{name}_level" in chain), None)
        if level:
            counts[level] += path["calls"]
            expect(size == pages[level], f"{chain}: {size} pages a call, {level} maps {pages[level]}")
            expect(path["end"] == "outermost" and follows(chain, ["main", "call", f"{level}_level"]), f"{chain}: {path}")
        elif min(pages.values()) <= size <= max(pages.values()) and path["end"] == "no_mapping":
            lost[path["end"]] += path["calls"]
    # A library may be gone before anyone could look at it. Then the chain is cut; it has no wrong name.
    seen = f"calls {dict(counts)}, cut {dict(lost)}"
    expect(hurry > 1 or all(counts[name] for name in calls), seen)
    expect(sum(counts.values()) + sum(lost.values()) == rounds * sum(calls.values()), seen)


def check_redis(folder):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = str(listener.getsockname()[1])
    listener.close()
    server = subprocess.Popen(["redis-server", "--port", port, "--save", "", "--dir", folder], stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            if subprocess.run(["redis-cli", "-p", port, "ping"], capture_output=True, check=False).stdout == b"PONG\n":
                break
            time.sleep(0.1)
        with Attach("-p", str(server.pid), "--callchain") as attached:
            subprocess.run(["redis-benchmark", "-p", port, "-q", "-t", "set", "-n", "3000", "-d", "20000", "-r", "1000"],
                           capture_output=True, check=True, timeout=60)
            profile = attached.report()
    finally:
        server.terminate()
        server.wait()
    check_sums(profile)
    calls, to_main = 0, 0
    for path in profile["callchains"]["paths"]:
        if path["class"].startswith("fault"):
            continue
        names = [profile["callchains"]["frames"][number].get("function", "?") for number in path["frames"]]
        calls += path["calls"]
        to_main += path["calls"] if follows(names[::-1], ["__libc_start_main"]) or "start_thread" in names else 0
        expect(path["end"] == "outermost", f"{names} ends with {path['end']}")
    expect(calls > 0 and to_main == calls, f"{to_main} of {calls} calls lead back to the start of the program or a thread")


NAMED = ["main", "plain", "middle", "inner", "advise"]
PLAIN = [os.path.abspath(f"{OUT}/tests/trace/chain_calls"), "plain"]
UNSHARE = ["unshare", "-pf", "--mount-proc"]


def check_named(report_path, is_inner):
    """Its chains are complete, and so is the number of its process: that which alloctrace sees."""
    with open(report_path, encoding="utf-8") as text:
        profile = json.load(text)
    check_sums(profile)
    found = list(paths(profile, "madvise.nohugepage"))
    expect(sum(path["calls"] for _, path in found) == CALLS, f"{found}")
    for names, path in found:
        expect(path["end"] == "outermost" and follows(names, NAMED), f"{names}: {path}")
        expect(path["pid"] > 0 and (not is_inner or path["pid"] < 100), f"pid {path['pid']}")


def check_namespace_run(folder):
    """alloctrace in a pid namespace, and then only its target: each time the numbers are others than the kernel's."""
    words = [os.path.abspath(ALLOCTRACE), "run", "--callchain", "--allocator=system", "-j", "-o", f"{folder}/report"]
    for wrapper, inner, is_inner in ((UNSHARE, [], True), ([], UNSHARE, False), (UNSHARE, UNSHARE, True)):
        done = subprocess.run([*wrapper, *words, "--", *inner, *PLAIN], capture_output=True, text=True, timeout=60, check=False)
        expect(done.returncode == 0, f"{done.returncode}: {done.stderr}")
        check_named(f"{folder}/report", is_inner)


def check_foreign_proc():
    """Where /proc has other numbers than the kernel gives us: refused, as they are other processes there."""
    done = subprocess.run(["unshare", "-pf", os.path.abspath(ALLOCTRACE), "run", "--callchain", "--allocator=system", "--",
                           "true"], capture_output=True, text=True, timeout=60, check=False)
    expect(done.returncode == 125 and "/proc is that of another pid namespace" in done.stderr,
           f"{done.returncode}: {done.stderr}")


NAMESPACE = """
{calls} 2 <"$1" >"$2" & pid=$!
exec 3>"$1"
exec 4<"$2"
ok() {{ read -r line <&4; }}
ok
"$0" attach -v -j -o "$3" --callchain -p $pid 2>"$4" & tracer=$!
until grep -q "alloctrace: attached" "$4"; do kill -0 $tracer || exit 1; sleep 0.05; done
echo "c 71" >&3; ok; echo "f 73" >&3; ok; echo e >&3; ok; echo "c 79" >&3; ok
kill -INT $tracer; wait $tracer || exit 1
echo q >&3
"""


def check_namespace_attach(folder):
    """A process, its child and what it executes, all by the numbers of the namespace."""
    files = [f"{folder}/{name}" for name in ("in", "out", "report", "errors")]
    for name in files[:2]:
        os.mkfifo(name)
    done = subprocess.run([*UNSHARE, "bash", "-c", NAMESPACE.format(calls=ATTACH_CALLS), os.path.abspath(ALLOCTRACE), *files],
                          capture_output=True, text=True, timeout=60, check=False)
    expect(done.returncode == 0, f"{done.returncode}: {done.stdout} {done.stderr}")
    with open(files[2], encoding="utf-8") as text:
        profile = json.load(text)
    check_sums(profile)
    found = list(paths(profile, "madvise.other"))
    expect(sum(path["calls"] for _, path in found) == 2 * 71 + 73 + 2 * 79, f"{found}")
    for names, path in found:
        expect(path["end"] == "outermost" and (follows(names, ["main", "call", "syscall"]) or
                                               follows(names, ["work", "syscall"])), f"{names}: {path}")
        expect(0 < path["pid"] < 100, f"pid {path['pid']}")


def check_namespace_target():
    """A container, seen from outside."""
    with Talker(*UNSHARE, "--kill-child", "python3", "-c", PYTHON) as talker:
        with open(f"/proc/{talker.process.pid}/task/{talker.process.pid}/children", encoding="ascii") as children:
            pid = int(children.read())
        with Attach("-p", str(pid), "--callchain") as attached:
            talker.step()
            profile = attached.report()
    check_python_chains(profile)


def main():
    results = Results()
    with tempfile.TemporaryDirectory(prefix="alloctrace-test-") as folder:
        os.chmod(folder, 0o755)
        results.case("pid namespace, run", check_namespace_run, folder)
        results.case("pid namespace, attach", check_namespace_attach, folder)
        results.case("pid namespace of the target", check_namespace_target)
        results.case("/proc of another pid namespace", check_foreign_proc)
        results.case("python", check_python)
        results.case("libraries", check_libraries, folder)
        results.case("libraries, in a hurry", check_libraries, folder, 8)
        if shutil.which("redis-server") and shutil.which("redis-benchmark"):
            results.case("redis", check_redis, folder)
        else:
            results.skip("redis", "redis-server is not installed")
    results.exit()


if __name__ == "__main__":
    main()
