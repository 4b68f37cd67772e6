# SPDX-License-Identifier: BSD-2-Clause
"""What the tests of callchains share: a report, its chains, and programs whose chains are known."""
import json
import os
import shutil
import subprocess
import tempfile

from measure import ALLOCTRACE, expect

CALLS = 13
CLASS = "madvise.nohugepage"


def report(command, *options, cwd=None, timeout=100, wrapper=()):
    with tempfile.NamedTemporaryFile(prefix="alloctrace-test-") as out:
        words = [*wrapper, os.path.abspath(ALLOCTRACE), "run", "--allocator=system", "--callchain", "--json", "--output",
                 out.name, *options, "--", *command]
        done = subprocess.run(words, capture_output=True, timeout=timeout, check=False, cwd=cwd)
        expect(done.returncode == 0, f"{' '.join(command)}: status {done.returncode}: {done.stderr!r}")
        return json.loads(out.read())


def paths(profile, name):
    """(functions from the outermost, frames from the outermost, path) of a class."""
    chains = profile["callchains"]
    result = []
    for path in chains["paths"]:
        if path["class"] == name:
            frames = [chains["frames"][number] for number in path["frames"]][::-1]
            result.append(([frame.get("function", "?") for frame in frames], frames, path))
    return result


def follows(names, wanted):
    """The wanted functions are there in this order, others may lie between."""
    left = iter(names)
    return all(any(name == want for name in left) for want in wanted)


def build(folder, name, *options):
    program = f"{folder}/{name}"
    subprocess.run([shutil.which("cc") or "gcc", "-O2", "-g", "-D_GNU_SOURCE", "-Wl,--build-id", "tests/trace/chain_calls.c",
                    "-o", program, "-pthread", "-ldl", "-I.", *options], check=True, capture_output=True)
    return program


WANTED = ["main", "plain", "middle", "inner", "advise"]


def check_names(program, is_named, *, has_lines=None, wrapper=(), target=()):
    found = paths(report([*target, program, "plain"], wrapper=wrapper), CLASS)
    expect(sum(path["calls"] for _, _, path in found) == CALLS, f"{found}")
    for names, frames, path in found:
        expect(path["end"] == "outermost", f"{names} ends with {path['end']}")
        expect(follows(names, WANTED) == is_named, f"named: {names}")
        own = [frame for frame in frames if frame.get("module", "").startswith(os.path.dirname(program))]
        expect(len(own) >= 5, f"{len(own)} frames of {program}: {frames}")
        expect(is_named or not any(frame.get("function") in WANTED[1:] for frame in own), f"{own}")
        if has_lines is not None:
            expect(all(("line" in frame) == has_lines for frame in own if frame.get("function") in WANTED), f"{own}")
