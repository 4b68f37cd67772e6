#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 300
"""Callchains through other languages, through binaries without symbols or names of their own, and files for other tools.

Go with and without a symbol table, Rust, Python's C code, generated code, odd names.
"""
import collections
import gzip
import json
import os
import re
import shutil
import subprocess
import tempfile

from chains import CALLS, CLASS, build, follows, paths, report
from measure import ALLOCTRACE, OUT, Results, expect

GO = """
package main

import "syscall"

var page []byte
var sink []byte

//go:noinline
func goInner() {
	for i := 0; i < 13; i++ {
		syscall.Madvise(page, 15)
	}
}

//go:noinline
func goMiddle(depth int) {
	if depth > 0 {
		goMiddle(depth - 1)
	} else {
		goInner()
	}
	sink = nil
}

//go:noinline
func goAllocate() {
	for i := 0; i < 13; i++ {
		sink = make([]byte, 64<<20)
	}
}

func main() {
	page, _ = syscall.Mmap(-1, 0, 4096, 3, 0x22)
	goMiddle(7)
	done := make(chan bool)
	go func() { goMiddle(3); done <- true }()
	<-done
	goAllocate()
}
"""


def build_go(folder, name, text, *flags, cgo="0"):
    source, program = f"{folder}/{name}.go", f"{folder}/{name}"
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    env = {**os.environ, "HOME": folder, "GOCACHE": f"{folder}/cache", "GO111MODULE": "off", "CGO_ENABLED": cgo}
    subprocess.run(["go", "build", *flags, "-o", program, source], env=env, check=True, capture_output=True)
    return program


def own_paths(profile):
    """Those that the Go program asked for: from 1.21 on the runtime makes such calls, too."""
    return [found for found in paths(profile, CLASS) if "runtime.sysNoHugePageOS" not in found[0]]


def check_go(folder, name, *flags):
    profile = report([build_go(folder, name, GO, *flags)])
    depths = collections.Counter()
    for names, _, path in own_paths(profile):
        depths[names.count("main.goMiddle")] += path["calls"]
        expect(names[0] == "runtime.goexit" and path["end"] == "outermost", f"{names} ends with {path['end']}")
        outer = "main.main" if names.count("main.goMiddle") == 8 else "main.main.func1"
        expect(follows(names, [outer, "main.goMiddle", "main.goInner", "syscall.Madvise"]), f"{names}")
    expect(depths == {8: CALLS, 4: CALLS}, f"calls by depth of the recursion: {depths}")
    # Go maps memory on a stack of its own: the chain leads back to the function that asked for it.
    asked = [path for kind in ("mmap.anon", "mmap.reserve", "mmap.fixed") for names, _, path in paths(profile, kind)
             if follows(names, ["runtime.goexit", "main.main", "main.goAllocate", "runtime.mallocgc"])]
    expect(asked and all(path["origin"] == "allocator" for path in asked), f"of main.goAllocate: {asked}")
    for path in profile["callchains"]["paths"]:
        names = [profile["callchains"]["frames"][number].get("function", "?") for number in path["frames"]]
        if "runtime.systemstack" in names:
            after = names[names.index("runtime.systemstack") + 1:]
            expect(not after or after[0] == "runtime.systemstack_switch", f"systemstack is called by {after[:1]}")


GO_SIGNALS = """
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
)

//go:noinline
func signalled(code, bytes uintptr) {
	runtime.LockOSThread()
	pid, tid := uintptr(syscall.Getpid()), uintptr(syscall.Gettid())
	for i := 0; i < 13; i++ {
		syscall.Syscall(syscall.SYS_MADVISE, code, bytes, 4)
		syscall.Syscall(syscall.SYS_TGKILL, pid, tid, uintptr(syscall.SIGURG))
	}
}

func main() {
	maps, _ := os.Open("/proc/self/maps")
	exe, _ := os.Readlink("/proc/self/exe")
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var start, end uintptr
		fmt.Sscanf(lines.Text(), "%x-%x", &start, &end)
		if strings.Contains(lines.Text(), " r-xp ") && strings.HasSuffix(lines.Text(), exe) {
			signalled(start, end-start)
		}
	}
}
"""


def check_go_signals(folder):
    """
    Its pages dropped, the code of the handler is faulted in: the chain goes on at what the signal interrupted. Another
    thread may bring the pages in before, so it is tried until there are such faults.
    """
    program = build_go(folder, "signals", GO_SIGNALS)
    own = []
    for _ in range(20):
        found = [(names, path) for names, _, path in paths(report([program]), "fault.minor") if "runtime.sigtramp" in names]
        for names, path in found:
            at = names.index("runtime.sigtramp")
            expect(names[at - 1].startswith("runtime.sigreturn"), f"{names[at - 1]} is what the handler returns to")
            expect(path["end"] == "outermost" and names[0] == "runtime.goexit", f"{names} ends with {path['end']}")
        own += [names for names, _ in found if "main.signalled" in names]
        if own:
            break
    expect(own, "no fault in the handler of a signal that main.signalled got")


CGO = """
package main

/*
#include <sys/mman.h>
static char page[4096] __attribute__((aligned(4096)));
__attribute__((noinline)) static void c_level(void)
{
	for (int i = 0; i < 13; i++)
		madvise(page, sizeof(page), MADV_NOHUGEPAGE);
	__asm__ volatile("" ::: "memory");
}
*/
import "C"

//go:noinline
func goLevel() { C.c_level() }

func main() { goLevel() }
"""


def check_cgo(folder):
    """C called by Go runs on another stack; the chain leads back to the goroutine."""
    found = own_paths(report([build_go(folder, "cgo", CGO, cgo="1")]))
    expect(sum(path["calls"] for _, _, path in found) == CALLS, f"{found}")
    for names, _, path in found:
        expect(path["end"] == "outermost" and
               follows(names, ["runtime.goexit", "main.main", "main.goLevel", "runtime.cgocall", "runtime.asmcgocall",
                               "c_level", "madvise"]), f"{names} ends with {path['end']}")


RUST = """
use std::os::raw::{c_int, c_void};
extern "C" {
    fn mmap(a: *mut c_void, b: usize, c: c_int, d: c_int, e: c_int, f: i64) -> *mut c_void;
    fn madvise(a: *mut c_void, b: usize, c: c_int) -> c_int;
}
mod inner_module {
    #[inline(never)]
    pub fn rust_inner(page: *mut super::c_void, cnt: &mut i32) {
        for _ in 0..13 {
            *cnt += unsafe { super::madvise(page, 4096, 15) };
        }
    }
}
struct Shape;
trait Area { fn rust_method(&self, page: *mut c_void, cnt: &mut i32); }
impl Area for Shape {
    #[inline(never)]
    fn rust_method(&self, page: *mut c_void, cnt: &mut i32) { inner_module::rust_inner(page, cnt); *cnt += 1; }
}
fn main() {
    let page = unsafe { mmap(std::ptr::null_mut(), 4096, 3, 0x22, -1, 0) };
    let mut cnt = 0;
    Shape.rust_method(page, &mut cnt);
    println!("{}", cnt);
}
"""


def check_rust(folder):
    with open(f"{folder}/chain.rs", "w", encoding="utf-8") as file:
        file.write(RUST)
    subprocess.run(["rustc", "-O", "-o", f"{folder}/chain_rust", f"{folder}/chain.rs"], check=True, capture_output=True)
    found = paths(report([f"{folder}/chain_rust"]), CLASS)
    expect(sum(path["calls"] for _, _, path in found) == CALLS, f"{found}")
    for names, _, path in found:
        expect(path["end"] == "outermost" and
               follows(names, ["main", "<chain::Shape as chain::Area>::rust_method", "chain::inner_module::rust_inner"]),
               f"{names} ends with {path['end']}")


def check_python():
    """The interpreter, its loop, and a module in C."""
    profile = report(["python3", "-c", "import mmap\nfor i in range(13): mmap.mmap(-1, 7 * 4096)"])
    found = paths(profile, "mmap.anon")
    direct = [(names, path) for names, _, path in found
              if path["bytes"] == path["calls"] * 7 * 4096 and follows(names, ["PyEval_EvalCode", "mmap"])]
    expect(sum(path["calls"] for _, path in direct) == CALLS, f"{[names for names, _, _ in found]}")
    for names, path in direct:
        expect(path["end"] == "outermost" and path["origin"] == "program" and
               follows(names, ["Py_BytesMain", "Py_RunMain", "PyEval_EvalCode", "mmap"]), f"{names}: {path}")


def check_generated(folder):
    """What is guessed says so, and what has no name gets none."""
    source = f"{folder}/Chain.java"
    with open(source, "w", encoding="utf-8") as file:
        file.write("public class Chain { static long sum; public static void main(String[] a) {"
                   " for (int i = 0; i < 300000; i++) sum += java.nio.ByteBuffer.allocateDirect(64).capacity(); } }")
    subprocess.run(["javac", "-d", folder, source], check=True, capture_output=True)
    profile = report(["java", "-Xmx64m", "-cp", folder, "Chain"])
    frames, guessed = profile["callchains"]["frames"], 0
    for path in profile["callchains"]["paths"]:
        chain = [frames[number] for number in path["frames"]]
        first = next((i for i, frame in enumerate(chain) if "module" not in frame), None)
        if first is not None:
            expect("function" not in chain[first], f"generated code has a name: {chain[first]}")
            # The caller of generated code is known by a guess only.
            if first + 1 < len(chain):
                guessed += 1
                expect(path.get("guess_from", len(chain)) <= first + 1, f"no guess in {path}")
    expect(guessed > 0, "no chain went through generated code")


MUSL = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
static char page[4096] __attribute__((aligned(4096)));
__attribute__((noinline, noclone)) static void advise(void)
{
	madvise(page, sizeof(page), MADV_NOHUGEPAGE);
	__asm__ volatile("" ::: "memory");
}
static int compare(const void *a, const void *b)
{
	advise();
	return *(const int *)a - *(const int *)b;
}
__attribute__((noinline, noclone)) static void allocating(void)
{
	for (int i = 0; i < 13; i++)
		if (!malloc(7 << 20))
			abort();
	__asm__ volatile("" ::: "memory");
}
static void *thread_main(void *arg)
{
	for (int i = 0; i < 11; i++)
		advise();
	return arg;
}
int main(void)
{
	int pair[2] = {2, 1};
	pthread_t thread;

	allocating();
	qsort(pair, 2, sizeof(pair[0]), compare);
	if (pthread_create(&thread, NULL, thread_main, NULL))
		return 1;
	return pthread_join(thread, NULL);
}
"""


def check_musl(folder, *flags):
    """A C library without unwind tables: its code says how deep the stack is, and what comes of it is marked as a guess."""
    program = f"{folder}/chain_musl"
    subprocess.run(["musl-gcc", "-O2", "-g", "-pthread", "-x", "c", "-", "-o", program, *flags], input=MUSL, text=True, check=True)
    profile = report([program])
    asked = [(names, path) for kind in ("mmap.anon", "brk.grow") for names, _, path in paths(profile, kind)
             if follows(names, ["main", "allocating"])]
    expect(sum(path["calls"] for _, path in asked) >= CALLS, f"{asked}")
    for names, path in asked:
        expect(path["origin"] in ("allocator", "unknown"), f"{names} is by {path['origin']}")
    found = [(names, path) for names, _, path in paths(profile, CLASS)]
    sorting = [(names, path) for names, path in found if "compare" in names]
    threads = [(names, path) for names, path in found if "thread_main" in names]
    expect(sum(path["calls"] for _, path in sorting) + sum(path["calls"] for _, path in threads) ==
           sum(path["calls"] for _, path in found), f"{found}")
    expect(sum(path["calls"] for _, path in threads) == 11 and sorting, f"{found}")
    for names, path in asked + sorting:
        expect(names[0] == "_start" and path["end"] == "outermost" and path["guess_from"] >= 1, f"{names}: {path}")
    for names, path in sorting:
        expect(follows(names, ["_start", "main", "compare", "advise", "madvise"]), f"{names}")
    for names, path in threads:
        expect(path["end"] == "outermost" and "main" not in names and
               follows(names, ["thread_main", "advise", "madvise"]), f"{names}: {path}")


ODD_NAME = "odd; \"name\" \\ \x1b[31m\x01 {x} \u00e4.so"


def check_odd_names(folder):
    """Spaces, quotes, semicolons, control bytes, broken UTF-8 in the name of a file: all outputs stay what they are."""
    odd = os.fsencode(f"{folder}/{ODD_NAME}") + b"\xff"
    shutil.copy(build(folder, "oddly"), odd)
    subprocess.run([b"strip", odd], check=True)
    folded, pprof = f"{folder}/folded", f"{folder}/pprof"
    with tempfile.NamedTemporaryFile(prefix="alloctrace-test-") as out:
        subprocess.run([ALLOCTRACE, "run", "--allocator=system", "--callchain", "--json", "--output", out.name,
                        "--folded", folded, "--pprof", pprof, "--", odd, "plain"], check=True)
        frames = json.loads(out.read())["callchains"]["frames"]
    modules = {frame["module_latin1"].encode("latin-1") for frame in frames if "module_latin1" in frame}
    expect(odd in modules, f"the name is not among {modules}")
    check_folded(folded, CLASS)
    text = subprocess.run(["go", "tool", "pprof", "-raw", pprof], capture_output=True, check=True).stdout.decode()
    expect("odd; " in text and "\\x1b[31m" in text and "\x1b" not in text, f"pprof: {text[-2000:]}")
    table = subprocess.run([ALLOCTRACE, "run", "--allocator=system", "--callchain", "--color=always", "--output", "-", "--",
                            odd, "plain"], capture_output=True, check=True).stdout
    expect(b"\x1b[31m" not in table and b"\\x1b[31m" in table, "the table has the control characters of a name")


def check_folded(path, name):
    """Lines of "frame;...;class number"; returns the sums by class."""
    sums = collections.Counter()
    with open(path, "rb") as file:
        for line in file.read().decode("utf-8").split("\n")[:-1]:
            match = re.fullmatch(r"(.+) (\d+)", line)
            expect(match and not re.search("[\x00-\x1f]", line), f"line {line!r}")
            sums[match.group(1).split(";")[-1]] += int(match.group(2))
    expect(name in sums, f"classes: {sums}")
    return sums


def check_files(folder):
    """The three outputs and the report are of one run: their sums are equal."""
    folded, pprof = f"{folder}/out.folded", f"{folder}/out.pprof"
    profile = report([f"{OUT}/tests/trace/chain_calls", "recurse", "60"], "--folded", folded, "--pprof", pprof)
    classes = profile["total"]["classes"]
    sums = check_folded(folded, CLASS)
    expect(sums == {name: total["kernel_ns"] for name, total in classes.items() if total["calls"]}, f"folded: {sums}")
    with gzip.open(pprof) as file:
        file.read()
    raw = subprocess.run(["go", "tool", "pprof", "-raw", pprof], capture_output=True, text=True, check=True).stdout
    expect("calls/count kernel_time/nanoseconds[dflt] pages/count" in raw, f"types: {raw[:300]}")
    samples = re.findall(r"^ *(\d+) +(\d+) +(\d+): ([\d ]+)\n +class:\[([a-z._]+)\].*phase:\[startup\] policy:\[none\]\n"
                         r" +pid:\[(\d+)\] thread:\[(\d+)\]", raw, re.MULTILINE)
    calls, times = collections.Counter(), collections.Counter()
    for call_cnt, time_ns, _, locations, name, pid, thread in samples:
        calls[name] += int(call_cnt)
        times[name] += int(time_ns)
        expect(pid == thread == str(profile["target"]["pids"][0]), f"pid {pid}, thread {thread}")
        if name == CLASS:
            expect(len(locations.split()) >= 63, f"only {locations}")
    expect(calls == {name: total["calls"] for name, total in classes.items() if total["calls"]}, f"pprof: {calls}")
    expect(times == sums, f"pprof: {times}, folded: {sums}")
    top = subprocess.run(["go", "tool", "pprof", "-top", "-sample_index=calls", f"-tagfocus=class={CLASS}", pprof],
                         capture_output=True, text=True, check=True).stdout
    expect(re.search(rf"^ +{CALLS} +100% +100% +{CALLS} +100%  .*madvise", top, re.MULTILINE) or
           re.search(rf"^ +{CALLS} .*madvise", top, re.MULTILINE), f"top: {top}")


def main():
    results = Results()
    with tempfile.TemporaryDirectory(prefix="alloctrace-test-") as folder:
        os.chmod(folder, 0o755)

        def case(name, function, *args, needs=()):
            missing = [tool for tool in needs if not shutil.which(tool)]
            if missing:
                results.skip(name, f"{missing[0]} is not installed")
            else:
                own = f"{folder}/{name.replace(' ', '_')}"
                os.mkdir(own)
                results.case(name, function, own, *args)

        case("go", check_go, "chain", needs=["go"])
        case("go stripped", check_go, "chain", "-ldflags=-s -w", needs=["go"])
        case("go position-independent", check_go, "chain", "-buildmode=pie", needs=["go"])
        case("go signals", check_go_signals, needs=["go"])
        case("cgo", check_cgo, needs=["go", "gcc"])
        case("rust", check_rust, needs=["rustc"])
        case("python", lambda _: check_python())
        case("generated code", check_generated, needs=["javac", "java"])
        case("musl", check_musl, needs=["musl-gcc"])
        case("musl static", check_musl, "-static", needs=["musl-gcc"])
        case("odd names", check_odd_names, needs=["go", "strip"])
        case("folded and pprof", check_files, needs=["go"])
    results.exit()


if __name__ == "__main__":
    main()
