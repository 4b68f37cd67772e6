# SPDX-License-Identifier: BSD-2-Clause
"""Other kernels: fetches one, packs what was built for it, boots it under qemu, hands back what its jobs printed.

Needs no privileges and installs nothing: the kernel's package is unpacked below O/vm, where it stays. Software
emulation, so times mean nothing there.
"""
import glob
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time

OUT = os.environ.get("O", ".output")
HERE = os.path.dirname(os.path.abspath(__file__))
QEMU = "qemu-system-x86_64"
MEMORY = "4G"  # what the patterns of tests/trace need; the host gives only what is touched


class Missing(Exception):
    """Something that is not to be had here; the text names it."""


class Job:
    """A command line of the machine's shell, and then what came of it."""

    def __init__(self, name, command, timeout_s=120):
        self.name, self.command, self.timeout_s = name, command, timeout_s
        self.status, self.output, self.ended_s = None, "", 0  # seconds since the boot


def need_tools():
    for tool, package in ((QEMU, "qemu-system-x86"), ("busybox", "busybox-static"), ("cpio", "cpio")):
        if not shutil.which(tool):
            raise Missing(f"package {package} is not installed")
    if b"statically linked" not in subprocess.run(["ldd", shutil.which("busybox")], capture_output=True,
                                                  check=False).stderr + b"statically linked":
        raise Missing("package busybox-static is not installed")


def _unpack(package, folder):
    """Downloads the package that a metapackage stands for and leaves its kernel as folder/vmlinuz."""
    depends = subprocess.run(["apt-cache", "depends", package], capture_output=True, text=True, check=False).stdout
    found = re.search(r"Depends: (linux-image-\S+)", depends)
    real = found.group(1) if found else package
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        got = subprocess.run(["apt-get", "-qq", "download", real], cwd=scratch, capture_output=True, text=True,
                             timeout=600, check=False)
        debs = glob.glob(f"{scratch}/*.deb")
        if got.returncode or not debs:
            raise Missing(f"package {package} is not to be had: {got.stderr.strip().splitlines()[-1:]}")
        subprocess.run(["dpkg-deb", "-x", debs[0], f"{scratch}/files"], check=True)
        os.rename(glob.glob(f"{scratch}/files/boot/vmlinuz-*")[0], f"{folder}/vmlinuz")


def kernel(package):
    """Path of the kernel image in a package, downloaded once."""
    folder = f"{OUT}/vm/{package}"
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(f"{folder}/vmlinuz"):
        if not shutil.which("apt-get"):
            raise Missing(f"no apt here that could get package {package}")
        _unpack(package, folder)
    return f"{folder}/vmlinuz"


def _libraries(program):
    """Paths of the shared libraries of a 64-bit program, its interpreter among them."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    # Cancelling threads opens one more.
    return re.findall(r"(/\S+) \(0x", listed) + glob.glob("/lib/x86_64-linux-gnu/libgcc_s.so.1")


def _libraries_32bit():
    """The same for 32-bit programs, which may not run here, so that ldd cannot be asked."""
    for folder in ("/lib32", "/lib/i386-linux-gnu", "/usr/lib32"):
        if os.path.exists(f"{folder}/libc.so.6"):
            return ["/lib/ld-linux.so.2", f"{folder}/libc.so.6"]
    return []


def _copy(source, root, target):
    path = f"{root}{target}"
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copy(source, path)


def pack(path, files, tools=()):
    """Writes an initramfs: busybox, files (below OUT, found below /at there), tools of the host, their libraries."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as root:
        for folder in ("bin", "proc", "sys", "dev", "tmp", "etc", "root"):
            os.mkdir(f"{root}/{folder}")
        _copy(shutil.which("busybox"), root, "/bin/busybox")
        _copy(f"{HERE}/init", root, "/init")
        with open(f"{root}/etc/passwd", "w", encoding="ascii") as passwd:
            passwd.write("root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
        programs = [(f"{OUT}/{name}", f"/at/{name}") for name in files]
        programs += [(shutil.which(tool), f"/bin/{tool}") for tool in tools if shutil.which(tool)]
        for source, target in programs:
            _copy(source, root, target)
            is_32bit = os.path.basename(source).startswith("m32_")
            for library in _libraries_32bit() if is_32bit else _libraries(source):
                _copy(library, root, library)
        names = "\n".join(os.path.relpath(os.path.join(at, name), root)
                          for at, folders, inside in os.walk(root) for name in folders + inside)
        with open(path, "wb") as image:
            subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], cwd=root, input=names.encode(),
                           stdout=image, check=True)


def _script(jobs):
    """What the machine runs: each job between two lines that say so."""
    lines = []
    for job in jobs:
        lines += [f"echo '@begin {job.name}'", f"( {job.command} ) 2>&1 </dev/null", f"echo '@end {job.name}' $? $(cut -d. -f1 /proc/uptime)"]
    return "\n".join(lines) + "\n"


def _read(path, jobs):
    """Puts what the machine printed into its jobs."""
    by_name = {job.name: job for job in jobs}
    with open(path, encoding="utf-8", errors="replace") as log:
        text = log.read().replace("\r", "")
    for name, output, status, ended_s in re.findall(r"^@begin (.+)\n((?s:.*?))^@end \1 (\d+) (\d+)$", text, re.M):
        by_name[name].output, by_name[name].status, by_name[name].ended_s = output, int(status), int(ended_s)
    # What was at work when the machine ended.
    for name in re.findall(r"^@begin (.+)$", text, re.M)[-1:]:
        if by_name[name].status is None:
            by_name[name].output = text.split(f"@begin {name}\n", 1)[1]


def boot(image, initramfs, jobs, *, cpus=2, memory=MEMORY, timeout_s=1500, args="", log):
    """Boots a kernel, runs the jobs in order, fills in their status (None: not finished) and output.

    What the machine printed stays in log.results, what the kernel said in log.console. Returns the latter.
    """
    with tempfile.TemporaryDirectory(prefix="alloctrace-vm-") as scratch:
        with open(f"{scratch}/jobs", "w", encoding="utf-8") as script:
            script.write(_script(jobs))
        subprocess.run(f"echo jobs | cpio --quiet -o -H newc -R 0:0 > jobs.cpio", shell=True, cwd=scratch, check=True)
        with open(f"{scratch}/initramfs", "wb") as both:
            for part in (initramfs, f"{scratch}/jobs.cpio"):
                with open(part, "rb") as source:
                    shutil.copyfileobj(source, both)
        # One thread for all CPUs: with one each, qemu 7.2 now and then trips over code that the kernel patches.
        # No instructions that fill and copy as one, and no filling of what is filled again: emulated, they go byte by byte.
        command = [QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35",
                   "-accel", "tcg,thread=single", "-cpu", "max,erms=off", "-smp", str(cpus), "-m", memory, "-kernel", image,
                   "-initrd", f"{scratch}/initramfs", "-serial", f"file:{log}.console",
                   "-serial", f"file:{log}.results", "-append",
                   f"console=ttyS0 panic=-1 quiet mitigations=off clearcpuid=rep_good init_on_alloc=0 {args}"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as machine:
            try:
                _, errors = machine.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                machine.terminate()
                errors = f"still running after {timeout_s} s\n"
        if machine.returncode:
            raise OSError(f"{QEMU}: {errors.strip()}")
        _read(f"{log}.results", jobs)
        with open(f"{log}.console", encoding="utf-8", errors="replace") as said:
            return errors + said.read()


def boot_all(machines):
    """Boots several at once: a list of (arguments, keyword arguments) of boot. Returns their consoles, in order."""
    consoles = [None] * len(machines)

    def one(i):
        args, options = machines[i]
        start = time.monotonic()
        consoles[i] = boot(*args, **options)
        print(f"# {args[0]}: {time.monotonic() - start:.0f} s", flush=True)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(machines))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return consoles
