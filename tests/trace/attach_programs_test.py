#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 240
"""Real programs, attached to while they work: exact reports, and the program goes on unharmed.

Where a program can be told how often to make a call, the count is compared with
that; else with the sum over its threads, and with strace where both watch the same window.
"""
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from attaching import Attach, Child, counted, expect_exact
from measure import Results, expect

MMAPS = 1009

PYTHON = """
import mmap, sys
for line in sys.stdin:
    for _ in range(int(line)):
        mmap.mmap(-1, 1 << 22, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    print("ok", flush=True)
"""

GO = """package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		n, _ := strconv.Atoi(lines.Text())
		for i := 0; i < n; i++ {
			syscall.Syscall(syscall.SYS_MADVISE, 0, 4096, 119)
		}
		fmt.Println("ok")
	}
}
"""

JAVA = """import java.io.*;
import java.nio.channels.FileChannel;

class Main {
	public static void main(String[] args) throws Exception {
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
		FileChannel file = new RandomAccessFile(args[0], "rw").getChannel();
		for (String line; (line = in.readLine()) != null;) {
			for (int i = 0; i < Integer.parseInt(line); i++)
				file.map(FileChannel.MapMode.READ_WRITE, 0, 4096);
			System.out.println("ok");
		}
	}
}
"""


def expect_whole(report):
    """Exact, and threads and total agree."""
    expect_exact(report)
    for name, stat in report["total"]["classes"].items():
        got = sum(counted(thread, name) for process in report["processes"] for thread in process["threads"])
        expect(got == stat["calls"], f"{name}: total {stat['calls']}, threads {got}")


def allocators(report):
    return [process.get("allocator", "") for process in report["processes"]]


def python3():
    with Child(["/usr/bin/python3", "-c", PYTHON]) as program:
        program.tell("1")
        with Attach("-p", program.pid) as attach:
            program.tell(str(MMAPS))
            report = attach.report()
        program.tell("1")
    expect_whole(report)
    total = report["total"]
    sized = counted(total, "mmap.anon", "bytes") // (1 << 22)
    expect(sized == MMAPS, f"{sized} mappings of 4 MiB, expected {MMAPS}")
    expect(allocators(report)[0].startswith("glibc 2."), f"{allocators(report)}")


def go():
    with tempfile.TemporaryDirectory() as place:
        with open(f"{place}/main.go", "w", encoding="ascii") as source:
            source.write(GO)
        env = {**os.environ, "GOCACHE": f"{place}/cache", "GO111MODULE": "off", "HOME": place, "GOFLAGS": ""}
        subprocess.run(["go", "build", "-o", f"{place}/main", f"{place}/main.go"], check=True, env=env, timeout=120)
        with Child([f"{place}/main"]) as program:
            program.tell("1")
            with Attach("-p", program.pid) as attach:
                program.tell(str(MMAPS))
                report = attach.report()
            program.tell("1")
    expect_whole(report)
    expect(counted(report["total"], "madvise.other") == MMAPS, f"{counted(report['total'], 'madvise.other')}")
    version = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout.split()[2]
    expect(allocators(report)[0].startswith(f"Go {version[2:]}"), f"{allocators(report)}, {version}")


def java():
    with tempfile.TemporaryDirectory() as place:
        with open(f"{place}/Main.java", "w", encoding="ascii") as source:
            source.write(JAVA)
        with Child(["java", "-Xmx64m", f"{place}/Main.java", f"{place}/file"], cwd=place,
                   stderr=subprocess.DEVNULL) as program:
            program.tell("1")
            with Attach("-p", program.pid) as attach:
                program.tell(str(MMAPS))
                report = attach.report()
            program.tell("1")
    expect_whole(report)
    got = counted(report["total"], "mmap.file")
    expect(MMAPS <= got < MMAPS + 200, f"{got} mmap.file, expected {MMAPS} and what the runtime maps")
    expect(re.match(r"Java \d+\.[\d.]+, glibc 2", allocators(report)[0]), f"{allocators(report)}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    expect(False, f"nobody listens on port {port}")


@contextlib.contextmanager
def running(words, **options):
    """A server, ended with the block."""
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          **options) as server:
        try:
            yield server
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()


def redis():
    """Under redis-benchmark; strace watches the same process, and counts as many calls of each syscall."""
    port = free_port()
    with tempfile.TemporaryDirectory() as place, running(
            ["redis-server", "--port", str(port), "--save", "", "--dir", place]) as server:
        wait_for(port)
        trace = f"{place}/strace"
        with Attach("-p", server.pid) as attach:
            with subprocess.Popen(["strace", "-f", "-c", "-e", "trace=mmap,munmap,mprotect,madvise,brk,mremap", "-o",
                                   trace, "-p", str(server.pid)], stderr=subprocess.PIPE, text=True) as strace:
                strace.stderr.readline()
                time.sleep(0.5)
                subprocess.run(["redis-benchmark", "-p", str(port), "-n", "20000", "-c", "20", "-q", "-d", "20000", "-r",
                                "5000", "-t", "set,lpush"], check=True, timeout=100, stdout=subprocess.DEVNULL)
                wait_idle(server.pid)
                strace.send_signal(signal.SIGINT)
                strace.communicate()
            report = attach.report()
        done = subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True, text=True, check=True)
        expect(done.stdout == "PONG\n", f"redis says {done.stdout!r}")
        with open(trace, encoding="ascii") as summary:
            straced = {words[-1]: int(words[3]) for words in map(str.split, summary)
                       if len(words) >= 5 and re.fullmatch(r"\d+", words[3])}
    expect_whole(report)
    straced.pop("total", None)
    expect(sum(straced.values()) > 10, f"strace saw {straced}")
    for name, calls in straced.items():
        traced = report["total"]["syscalls"][name]["calls"]
        # strace begins later and ends earlier than we do, while redis is idle: its timer makes no memory call.
        expect(traced == calls, f"{name}: {traced} traced, strace counted {calls}")
    expect("jemalloc" in allocators(report)[0], f"{allocators(report)}")


def calls_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return stat.read().rsplit(") ", 1)[1].split()[11:13]


def wait_idle(pid):
    """Until it used no CPU time for a while."""
    last, deadline = None, time.monotonic() + 20
    while time.monotonic() < deadline:
        now = calls_of(pid)
        if now == last:
            return
        last = now
        time.sleep(0.4)


def postgres(binaries):
    """A backend at work: a big sort allocates and frees."""
    port = free_port()
    user = dict(user="postgres", group="postgres", extra_groups=[]) if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        data = f"{place}/data"
        os.mkdir(data, 0o700)
        if user:
            shutil.chown(data, "postgres", "postgres")
        quiet = dict(check=True, timeout=100, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **user)
        subprocess.run([f"{binaries}/initdb", "-D", data, "-A", "trust", "-N", "-U", "postgres"], **quiet)
        with running([f"{binaries}/postgres", "-D", data, "-p", str(port), "-k", data, "-c", "fsync=off"], cwd="/", **user):
            wait_for(port)
            with Child(["psql", "-X", "-q", "-A", "-t", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres"],
                       cwd="/") as client:
                client.process.stdin.write(b"select pg_backend_pid();\n")
                client.process.stdin.flush()
                backend = int(client.process.stdout.readline())
                with Attach("-p", backend) as attach:
                    for _ in range(5):
                        client.process.stdin.write(b"set work_mem='64MB'; select count(*) from (select g, repeat('x', 200)"
                                                   b" from generate_series(1,100000) g order by 2, 1 desc) s;\n")
                        client.process.stdin.flush()
                        answer = client.process.stdout.readline()
                        expect(answer == b"100000\n", f"psql says {answer!r}")
                    report = attach.report()
    expect_whole(report)
    expect(report["processes"][0]["pid"] == backend, f"{report['target']}")
    calls = sum(s["calls"] for s in report["total"]["syscalls"].values())
    expect(calls > 10, f"{calls} memory calls")
    expect(allocators(report)[0].startswith("glibc"), f"{allocators(report)}")


def nginx():
    """Master and worker, under requests; found by name, and the worker's restart is followed."""
    port = free_port()
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        with open(f"{place}/nginx.conf", "w", encoding="ascii") as config:
            config.write(f"daemon off; worker_processes 1; pid {place}/pid; error_log {place}/error;\n"
                         "events {}\n"
                         f"http {{ access_log off; client_body_temp_path {place}/b; proxy_temp_path {place}/p;"
                         f" fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;"
                         f" server {{ listen 127.0.0.1:{port}; location / {{ return 200 'hello'; }} }} }}\n")
        with running(["nginx", "-p", place, "-c", f"{place}/nginx.conf"]) as server:
            wait_for(port)
            with open(f"/proc/{server.pid}/task/{server.pid}/children", encoding="ascii") as children:
                worker = int(children.read().split()[0])
            with Attach("-p", f"{server.pid},{worker}") as attach:
                for _ in range(50):
                    with socket.create_connection(("127.0.0.1", port), 5) as client:
                        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
                        expect(b"hello" in client.recv(4096), "nginx does not answer")
                os.kill(server.pid, signal.SIGHUP)
                deadline = time.monotonic() + 20
                while time.monotonic() < deadline and os.path.exists(f"/proc/{worker}"):
                    time.sleep(0.05)
                report = attach.report()
    expect_whole(report)
    pids = {process["pid"] for process in report["processes"]}
    expect({server.pid, worker} < pids, f"{pids}: not the master, the worker and a new worker")


def main():
    results = Results()
    binaries = sorted(place for place in (f"/usr/lib/postgresql/{n}/bin" for n in range(9, 30)) if os.path.isdir(place))
    for case, program, words in ((python3, "/usr/bin/python3", ()), (redis, "redis-server", ()), (go, "go", ()),
                                 (java, "java", ()), (nginx, "nginx", ()),
                                 (postgres, binaries[-1] + "/postgres" if binaries else "postgres", binaries[-1:])):
        if shutil.which(program):
            results.case(case.__name__, case, *words)
        else:
            results.skip(case.__name__, f"{program} is not installed")
    results.exit()


if subprocess.run([os.environ.get("ALLOCTRACE", ".output/alloctrace"), "check"], capture_output=True,
                  check=False).returncode:
    Results.skip("attach", "the kernel does not let us trace here ('alloctrace check' says why)")
else:
    main()
