# SPDX-License-Identifier: BSD-2-Clause
"""Real servers for the tests of attach: started for a block, asked to work, ended with the block."""
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from attaching import Child
from measure import Failed, expect

# The sort of a hundred thousand rows: it allocates and frees.
SORT = (b"set work_mem='64MB'; select count(*) from (select g, repeat('x', 200) from generate_series(1,100000) g"
        b" order by 2, 1 desc) s;\n")


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


@contextlib.contextmanager
def redis():
    """(process number, port)"""
    port = free_port()
    with tempfile.TemporaryDirectory() as place, running(
            ["redis-server", "--port", str(port), "--save", "", "--dir", place]) as server:
        wait_for(port)
        yield server.pid, port


def redis_work(port, requests=20000):
    subprocess.run(["redis-benchmark", "-p", str(port), "-n", str(requests), "-c", "20", "-q", "-d", "20000", "-r", "5000",
                    "-t", "set,lpush"], check=True, timeout=100, stdout=subprocess.DEVNULL)


def postgres_binaries():
    """Where PostgreSQL keeps its programs; None where it is not installed."""
    places = (f"/usr/lib/postgresql/{number}/bin" for number in range(30, 8, -1))
    return next((place for place in places if os.path.exists(f"{place}/postgres")), None)


class Client(Child):
    """psql; each question has an answer of one line."""

    def ask(self, question):
        self.process.stdin.write(question)
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def sort(self):
        answer = self.ask(SORT)
        expect(answer == b"100000\n", f"psql says {answer!r}")


@contextlib.contextmanager
def postgres():
    """(process number of a backend, its client)"""
    port, binaries = free_port(), postgres_binaries()
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
            with Client(["psql", "-X", "-q", "-A", "-t", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres"],
                        cwd="/") as client:
                yield int(client.ask(b"select pg_backend_pid();\n")), client


def first_child(pid):
    """Of a server that may listen before it has one."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
            pids = children.read().split()
        if pids:
            return int(pids[0])
        time.sleep(0.05)
    raise Failed(f"process {pid} starts no child")


@contextlib.contextmanager
def nginx(body=b"hello"):
    """(process number of the master, of the worker, port)"""
    port = free_port()
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        with open(f"{place}/body", "wb") as file:
            file.write(body)
        with open(f"{place}/nginx.conf", "w", encoding="ascii") as config:
            config.write(f"daemon off; worker_processes 1; pid {place}/pid; error_log {place}/error;\n"
                         "events {}\n"
                         f"http {{ access_log off; gzip on; gzip_min_length 1; gzip_types *; gzip_http_version 1.0;"
                         f" client_body_temp_path {place}/b; proxy_temp_path {place}/p;"
                         f" fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;"
                         f" server {{ listen 127.0.0.1:{port}; root {place}; }} }}\n")
        with running(["nginx", "-p", place, "-c", f"{place}/nginx.conf"]) as server:
            wait_for(port)
            yield server.pid, first_child(server.pid), port


def nginx_get(port, headers=b""):
    """The whole answer of a request for the body."""
    parts = []
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        client.sendall(b"GET /body HTTP/1.0\r\n" + headers + b"\r\n")
        while part := client.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)
