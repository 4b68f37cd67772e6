#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 180
"""Where the names of callchains come from, and that they are those of the very file that runs.

Stripped programs, separate debug files by build id and by debuglink, with a wrong build id or CRC, compressed symbols;
files that are gone or replaced, in another mount namespace, below another root, on overlayfs.
"""
import os
import shutil
import subprocess
import tempfile

from chains import CALLS, CLASS, WANTED, build, check_names, follows, paths, report
from measure import Results, expect


def check_symbols(folder):
    program = build(folder, "full")
    check_names(program, True, has_lines=True)
    stripped = f"{folder}/stripped"
    subprocess.run(["strip", "-o", stripped, program], check=True)
    check_names(stripped, False)
    # By debuglink, beside the program.
    subprocess.run(["objcopy", "--only-keep-debug", program, f"{folder}/linked.debug"], check=True)
    subprocess.run(["objcopy", "--remove-section=.note.gnu.build-id", f"--add-gnu-debuglink={folder}/linked.debug",
                    stripped, f"{folder}/linked"], check=True)
    check_names(f"{folder}/linked", True, has_lines=True)
    os.mkdir(f"{folder}/.debug")
    os.rename(f"{folder}/linked.debug", f"{folder}/.debug/linked.debug")
    check_names(f"{folder}/linked", True, has_lines=True)
    # Another file of that name: its CRC differs, so that it says nothing.
    with open(f"{folder}/.debug/linked.debug", "ab") as file:
        file.write(b"x")
    check_names(f"{folder}/linked", False)


def check_mini_symbols(folder):
    if not shutil.which("xz"):
        return
    program = build(folder, "whole")
    mini = f"{folder}/mini"
    subprocess.run(["objcopy", "--only-keep-debug", "--strip-debug", program, f"{mini}.debug"], check=True)
    subprocess.run(["xz", f"{mini}.debug"], check=True)
    subprocess.run(["objcopy", "--strip-all", f"--add-section=.gnu_debugdata={mini}.debug.xz", program, mini], check=True)
    check_names(mini, True)


def check_replaced(folder):
    """The file is gone, or another one has its name: names are those of what runs."""
    program = build(folder, "gone")
    other = build(folder, "other", "-Dplain=wrong_plain", "-Dmiddle=wrong_middle")
    for name, command in (("deleted", f"rm {program}"), ("replaced", f"mv {other} {program}")):
        shell = f"cp {folder}/keep {program}; exec 9<{program}; {command}; exec /proc/self/fd/9 plain"
        if not os.path.exists(f"{folder}/keep"):
            shutil.copy(program, f"{folder}/keep")
        # On a busy machine the program may end before anyone could look at its file: cut then, but never a wrong name.
        for attempt in range(10):
            found = list(paths(report(["/bin/sh", "-c", shell]), CLASS))
            expect(sum(path["calls"] for _, _, path in found) == CALLS, f"{name}: {found}")
            expect(not any("wrong" in function for names, _, _ in found for function in names), f"{name}: {found}")
            if all(follows(names, WANTED) for names, _, _ in found):
                break
            expect(attempt < 9, f"{name}: {found}")
        for _, frames, _ in found:
            expect(any(frame.get("is_deleted") for frame in frames), f"{name}: {frames}")


def check_namespace(folder):
    """A private copy of the binary, at a path that outside is another file."""
    program = build(folder, "inside")
    outside = build(folder, "outside", "-Dplain=wrong_plain")
    script = f"mount --bind {program} {outside} && exec {outside} plain"
    found = paths(report(["unshare", "-m", "/bin/sh", "-c", script]), CLASS)
    expect(sum(path["calls"] for _, _, path in found) == CALLS, f"{found}")
    for names, _, _ in found:
        expect(follows(names, WANTED), f"{names}")


def debug_file_of(program, debug):
    os.makedirs(os.path.dirname(debug), exist_ok=True)
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)


def build_id_path(program):
    """Where distributions have the debug file of a program."""
    notes = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout
    number = notes.split("Build ID: ")[1].split()[0]
    return f"/usr/lib/debug/.build-id/{number[:2]}/{number[2:]}.debug"


def named_calls(command):
    """(calls whose chain has all the names, calls)."""
    found = paths(report(command), CLASS)
    expect(all(path["end"] == "outermost" for _, _, path in found), f"{found}")
    return (sum(path["calls"] for names, _, path in found if follows(names, WANTED)),
            sum(path["calls"] for _, _, path in found))


def check_chroot(folder):
    """Below a root of its own a process has debug files of its own; and each must be that of the build."""
    jail = f"{folder}/jail"
    os.mkdir(jail)
    program, other = build(folder, "inside", "-static"), build(folder, "other", "-static", "-Dplain=wrong_plain")
    subprocess.run(["strip", "-o", f"{jail}/inside", program], check=True)
    command = ["chroot", jail, "/inside", "plain"]
    expect(named_calls(command) == (0, CALLS), "named without a debug file")
    debug = f"{jail}{build_id_path(program)}"
    debug_file_of(other, debug)
    expect(named_calls(command) == (0, CALLS), "named by the debug file of another build")
    debug_file_of(program, debug)
    expect(named_calls(command) == (CALLS, CALLS), "not named by build id")
    # By debuglink: the names of directories are those that the process sees.
    os.rename(debug, f"{jail}/inside.debug")
    subprocess.run(["objcopy", "--remove-section=.note.gnu.build-id", f"--add-gnu-debuglink={jail}/inside.debug",
                    f"{jail}/inside"], check=True)
    expect(named_calls(command) == (CALLS, CALLS), "not named by debuglink, beside the program")
    os.rename(f"{jail}/inside.debug", f"{jail}/usr/lib/debug/inside.debug")
    expect(named_calls(command) == (CALLS, CALLS), "not named by debuglink, below /usr/lib/debug")


def check_ours(folder):
    """A container without debug files: those that we have, when they are of the same build."""
    jail = f"{folder}/jail"
    os.mkdir(jail)
    program = build(folder, "inside", "-static")
    subprocess.run(["strip", "-o", f"{jail}/inside", program], check=True)
    debug = build_id_path(program)
    # In a mount namespace of the test's own: the machine's debug files stay as they are.
    hidden = f"{folder}/hidden"
    debug_file_of(program, hidden + debug.removeprefix("/usr/lib/debug"))
    os.makedirs("/usr/lib/debug", exist_ok=True)
    check_names("/inside", True, wrapper=["unshare", "-m", "sh", "-c", f'mount --bind {hidden} /usr/lib/debug && exec "$@"',
                                          "sh"], target=["chroot", jail])


def check_overlay(folder):
    """There a file has another inode in /proc/PID/maps than the kernel's mapping has: chains are as complete as elsewhere."""
    program = build(folder, "inside")
    for name in ("lower", "upper", "work", "merged"):
        os.mkdir(f"{folder}/{name}")
    os.rename(program, f"{folder}/lower/inside")
    mount = f"mount -t overlay none -o lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work {folder}/merged"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, check=False).returncode:
        Results.skip("overlayfs", "it cannot be mounted here")
        return
    runs = 7
    # Below, and copied up: after that it is another file of the same name.
    for change in ("", f"touch {folder}/merged/inside; chmod 700 {folder}/merged/inside;"):
        script = f"{mount} && {{ {change} for i in $(seq {runs}); do {folder}/merged/inside plain; done; }}"
        found = paths(report(["unshare", "-m", "/bin/sh", "-c", script]), CLASS)
        expect(sum(path["calls"] for _, _, path in found) == runs * CALLS, f"{found}")
        for names, _, path in found:
            expect(path["end"] == "outermost" and follows(names, WANTED), f"{names} ends with {path['end']}")


def main():
    results = Results()
    with tempfile.TemporaryDirectory(prefix="alloctrace-test-") as folder:
        os.chmod(folder, 0o755)

        def case(name, function, needs=()):
            missing = [tool for tool in needs if not shutil.which(tool)]
            if missing:
                results.skip(name, f"{missing[0]} is not installed")
            else:
                own = f"{folder}/{name.replace(' ', '_')}"
                os.mkdir(own)
                results.case(name, function, own)

        case("names", check_symbols, needs=["strip", "objcopy"])
        case("names of debugdata", check_mini_symbols, needs=["xz", "objcopy"])
        case("replaced and deleted", check_replaced)
        case("other mount namespace", check_namespace, needs=["unshare"])
        case("below another root", check_chroot, needs=["chroot", "strip", "objcopy", "readelf"])
        case("debug files of ours", check_ours, needs=["chroot", "unshare", "strip", "objcopy", "readelf"])
        case("overlayfs", check_overlay, needs=["unshare"])
    results.exit()


if __name__ == "__main__":
    main()
