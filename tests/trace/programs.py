# SPDX-License-Identifier: BSD-2-Clause
"""Programs in Python, Go and Java that make as many calls as each line of their input says, and answer "ok"."""
import contextlib
import os
import subprocess
import tempfile

from attaching import Child

# Mappings of 4 MiB.
PYTHON = """
import mmap, sys
for line in sys.stdin:
    for _ in range(int(line)):
        mmap.mmap(-1, 1 << 22, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    print("ok", flush=True)
"""

# madvise with an advice that nobody knows.
GO = """package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

//go:noinline
func advise(n int) {
	for i := 0; i < n; i++ {
		syscall.Syscall(syscall.SYS_MADVISE, 0, 4096, 119)
	}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		n, _ := strconv.Atoi(lines.Text())
		advise(n)
		fmt.Println("ok")
	}
}
"""

# Mappings of a file.
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


@contextlib.contextmanager
def python():
    with Child(["/usr/bin/python3", "-c", PYTHON]) as program:
        program.tell("1")
        yield program


@contextlib.contextmanager
def go():
    with tempfile.TemporaryDirectory() as place:
        with open(f"{place}/main.go", "w", encoding="ascii") as source:
            source.write(GO)
        env = {**os.environ, "GOCACHE": f"{place}/cache", "GO111MODULE": "off", "HOME": place, "GOFLAGS": ""}
        subprocess.run(["go", "build", "-o", f"{place}/main", f"{place}/main.go"], check=True, env=env, timeout=120)
        with Child([f"{place}/main"]) as program:
            program.tell("1")
            yield program


@contextlib.contextmanager
def java():
    with tempfile.TemporaryDirectory() as place:
        with open(f"{place}/Main.java", "w", encoding="ascii") as source:
            source.write(JAVA)
        with Child(["java", "-Xmx64m", f"{place}/Main.java", f"{place}/file"], cwd=place,
                   stderr=subprocess.DEVNULL) as program:
            program.tell("1")
            yield program
