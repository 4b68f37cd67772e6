#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 300
"""Callchains of programs whose caller at every level is known, and sums that equal the classes' own counts.

Whatever the chain, the sums of the paths are the class's calls, errors left
out: no tolerance. A chain must hold the known functions next to each other, from
the outermost to the innermost, and must be complete.
"""
import collections
import json
import os
import shutil
import subprocess
import tempfile

from measure import ALLOCTRACE, OUT, Results, expect

CALLS = 13  # of each scenario
SIGNALS = 503
CLASS = "madvise.nohugepage"
SITES = 20011
# mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) from as many places.
SITES_SOURCE = f"""
int main(void)
{{
	register long flags __asm__("r10") = 0x22, fd __asm__("r8") = -1, offset __asm__("r9") = 0;
	__asm__ volatile(".rept {SITES}; mov $9, %%eax; xor %%edi, %%edi; syscall; .endr"
			 : : "S"(4096L), "d"(0L), "r"(flags), "r"(fd), "r"(offset) : "rax", "rdi", "rcx", "r11", "memory");
	return 0;
}}
"""


def trace(*command, options=(), timeout=100, env=None):
    """(report, paths of each class as lists of (functions from the outermost, path))."""
    with tempfile.NamedTemporaryFile(prefix="alloctrace-test-") as report:
        words = [ALLOCTRACE, "run", "--allocator=system", "--callchain", "--json", "--output", report.name, *options]
        done = subprocess.run([*words, "--", *command], capture_output=True, text=True, timeout=timeout, check=False,
                              env=env)
        expect(done.returncode == 0, f"{' '.join(command)}: status {done.returncode}: {done.stderr}")
        profile = json.loads(report.read())
    chains = profile["callchains"]
    paths = collections.defaultdict(list)
    for path in chains["paths"]:
        frames = [chains["frames"][number] for number in path["frames"]]
        names = [frame.get("function", f"[{os.path.basename(frame.get('module', '?'))}]") for frame in frames]
        paths[path["class"]].append((names[::-1], path))
    check_sums(profile, paths)
    return profile, paths


def check_sums(profile, paths):
    """The paths of a class make up all of it, in calls, time and bytes."""
    for name, total in profile["total"]["classes"].items():
        for key in ("calls", "kernel_ns", "bytes"):
            if key not in total:
                continue
            found = sum(path[key] for _, path in paths[name])
            wanted = total[key]
            expect(found == wanted, f"{name}: {key} of the paths {found}, of the class {wanted}")


def contains(names, wanted):
    """The wanted functions in this order, next to each other; "..." stands for any number of others."""
    if not wanted:
        return True
    for start in range(len(names)):
        at, is_gap, is_good = start, False, True
        for name in wanted:
            if name == "...":
                is_gap = True
                continue
            while is_gap and at < len(names) and names[at] != name:
                at += 1
            if at >= len(names) or names[at] != name:
                is_good = False
                break
            at, is_gap = at + 1, False
        if is_good:
            return True
    return False


def expect_chain(command, wanted, *, calls=CALLS, origin="program", **more):
    _, paths = trace(*command, **more)
    expect_paths(paths[CLASS], wanted, calls, origin)
    return paths[CLASS]


def expect_paths(found, wanted, calls, origin):
    expect(sum(path["calls"] for _, path in found) == calls,
           f"{sum(path['calls'] for _, path in found)} calls, not {calls}")
    for names, path in found:
        expect(contains(names, wanted), f"chain {names} lacks {wanted}")
        expect(path["end"] == "outermost", f"chain {names} ends with {path['end']}")
        expect("guess_from" not in path, f"chain {names} has a guess")
        expect(path["origin"] == origin, f"chain {names} is by {path['origin']}")


C_CASES = {
    "plain": ([], ["main", "plain", "middle", "inner", "advise"]),
    "big_frame": ([], ["main", "big_frame", "middle", "inner", "advise"]),
    "variable_frame": ([], ["main", "variable_frame", "middle", "inner", "advise"]),
    "aligned_frame": ([], ["main", "aligned_frame", "middle", "inner", "advise"]),
    "sorting": ([], ["main", "sorting", "...", "compare", "inner", "advise"]),
    "signalled": ([], ["main", "signalled", "...", "handle", "inner", "advise"]),
    "signalled_elsewhere": ([], ["main", "signalled_elsewhere", "signalled", "...", "handle", "inner", "advise"]),
    "threaded": ([], ["thread_main", "middle", "inner", "advise"]),
}


def check_c(program, scenario):
    arguments, wanted = C_CASES[scenario]
    expect_chain([f"{OUT}/tests/trace/{program}", scenario, *arguments], wanted)


def check_depth(program, depth):
    wanted = ["main", *["recurse"] * depth, "inner", "advise"]
    found = expect_chain([f"{OUT}/tests/trace/{program}", "recurse", str(depth)], wanted)
    for names, _ in found:
        expect(names.count("recurse") == depth, f"{names.count('recurse')} frames of recurse, not {depth}")


def check_too_deep(program):
    """127 frames are kept; that there were more is said."""
    _, paths = trace(f"{OUT}/tests/trace/{program}", "recurse", "200")
    for names, path in paths[CLASS]:
        expect(path["end"] == "deep" and len(names) == 127, f"{len(names)} frames, end {path['end']}")


def check_interrupted(program):
    """A handler at any instruction of the C library or ours: each chain leads back to main."""
    _, paths = trace(f"{OUT}/tests/trace/{program}", "interrupted")
    calls = sum(path["calls"] for _, path in paths[CLASS])
    expect(calls >= SIGNALS, f"{calls} calls, not {SIGNALS}")
    for names, path in paths[CLASS]:
        expect(contains(names, ["main", "interrupted", "...", "handle_timer", "advise"]) and
               path["end"] == "outermost", f"chain {names} ends with {path['end']}")
    expect(len(paths[CLASS]) > 20, f"only {len(paths[CLASS])} places were interrupted")


def check_origin(program):
    """malloc's own calls are told apart from the program's."""
    _, paths = trace(f"{OUT}/tests/trace/{program}", "allocating")
    by_allocator = [p for n, p in paths["mmap.anon"] if contains(n, ["allocating", "...", "sysmalloc"])
                    or contains(n, ["main", "allocating"])]
    expect(sum(p["calls"] for p in by_allocator) == CALLS, f"mmap.anon: {paths['mmap.anon']}")
    expect(all(p["origin"] == "allocator" for p in by_allocator), f"mmap.anon: {by_allocator}")
    _, paths = trace(f"{OUT}/tests/trace/{program}", "mapping")
    by_program = [p for n, p in paths["mmap.anon"] if contains(n, ["main", "mapping"])]
    expect(sum(p["calls"] for p in by_program) == CALLS and all(p["origin"] == "program" for p in by_program),
           f"mmap.anon: {by_program}")


CXX_CASES = {
    "unwinding": ["main", "chain::unwinding", "chain::thrower", "...", "chain::Guard::~Guard", "chain::inner"],
    "catching": ["main", "chain::catching", "chain::inner"],
    "sorting": ["main", "chain::Sorter<int>::sort", "...", "chain::inner"],
}


def check_cxx(scenario):
    # A name may have parameters or a mark of the compiler behind it.
    _, paths = trace(f"{OUT}/tests/trace/chain_cxx", scenario)
    expect(sum(path["calls"] for _, path in paths[CLASS]) == CALLS, "calls")
    for names, path in paths[CLASS]:
        plain = [name.split("(")[0].split(" [")[0].removesuffix(".cold") for name in names]
        expect(contains(plain, CXX_CASES[scenario]), f"chain {names} lacks {CXX_CASES[scenario]}")
        expect(path["end"] == "outermost", f"chain {names} ends with {path['end']}")


LIBRARY = r"""
void chain_call_back(void);
__attribute__((noinline, noclone)) static void library_level(void)
{
	chain_call_back();
	__asm__ volatile("" ::: "memory");
}
__attribute__((constructor)) static void library_constructor(void)
{
	library_level();
	__asm__ volatile("" ::: "memory");
}
"""


def compile_c(text, path, *options):
    subprocess.run([shutil.which("cc") or "gcc", "-O2", "-g", "-x", "c", "-", "-o", path, *options], input=text, text=True,
                   check=True)


def check_many_sites(folder):
    """More places that call than fit into a small table: each has its own row."""
    program = f"{folder}/sites"
    compile_c(SITES_SOURCE, program)
    profile, paths = trace(program)
    found = [path for names, path in paths["mmap.reserve"] if names[-1:] == ["main"]]
    expect(profile["tool"]["exact"] and not any(profile["callchains"]["losses"].values()), f"{profile['tool']}")
    expect({path["calls"] for path in found} == {1}, "places have more calls than one")
    got = len({tuple(path["frames"]) for path in found})
    expect(got == len(found) == SITES, f"{got} places in {len(found)} rows, expected {SITES}")


def trace_in_time(*command, **more):
    """On a busy machine the program may end before anyone could look at a library: cut then, but never a wrong name."""
    for _ in range(10):
        _, paths = trace(*command, **more)
        if all(path["end"] != "no_mapping" for _, path in paths[CLASS]):
            break
    return paths[CLASS]


def check_loaded(folder):
    """A constructor runs at once after the library was mapped: nobody has seen the library before."""
    library = f"{folder}/libchain.so"
    compile_c(LIBRARY, library, "-shared", "-fPIC")
    source = f"{folder}/loader"
    # Exports chain_call_back, which the test programs as they are built do not.
    subprocess.run([shutil.which("cc") or "gcc", "-O2", "-g", "-D_GNU_SOURCE", "-include", "stdbool.h", "-rdynamic",
                    "tests/trace/chain_calls.c", "-o", source, "-pthread", "-ldl"], check=True)
    wanted = ["main", "loaded", "...", "library_constructor", "library_level", "chain_call_back", "inner", "advise"]
    expect_paths(trace_in_time(source, "loaded", library), wanted, CALLS, "loader")


def check_loading():
    """What the loader does before the program: its chains begin where the loader does, and none of them is a guess."""
    _, paths = trace(f"{OUT}/tests/trace/chain_calls", "plain")
    loading = [(names, path) for name in paths for names, path in paths[name]
               if path["origin"] == "loader" and not name.startswith("fault")]
    expect(sum(path["calls"] for _, path in loading) >= 5, f"{loading}")
    for names, path in loading:
        expect(names[0] == "_start" and path["end"] == "outermost" and "guess_from" not in path, f"{names}: {path}")


LAZY_LIBRARY = """
#include <sys/mman.h>
static char page[4096] __attribute__((aligned(4096)));
__attribute__((noinline, noclone)) static void resolver_level(void)
{
	for (int i = 0; i < 13; i++)
		madvise(page, sizeof(page), MADV_NOHUGEPAGE);
	__asm__ volatile("" ::: "memory");
}
static void bound(void) {}
static void (*choose_bound(void))(void)
{
	resolver_level();
	__asm__ volatile("" ::: "memory");
	return bound;
}
void lazy_function(void) __attribute__((ifunc("choose_bound")));
"""

LAZY_MAIN = """
void lazy_function(void);
__attribute__((noinline, noclone)) static void lazy_level(int cnt)
{
	lazy_function();
	__asm__ volatile("" ::"r"(cnt) : "memory");
}
int main(int argc, char **argv)
{
	lazy_level(argc);
	__asm__ volatile("" ::"r"(argv) : "memory");
	return 0;
}
"""


def check_lazy(folder):
    """The loader binds a function at its first call, below a frame that only rbx leads out of."""
    compile_c(LAZY_LIBRARY, f"{folder}/liblazy.so", "-shared", "-fPIC", "-D_GNU_SOURCE", "-Wl,-z,lazy")
    compile_c(LAZY_MAIN, f"{folder}/lazy", f"-L{folder}", "-Wl,--no-as-needed", "-llazy", f"-Wl,-rpath,{folder}", "-Wl,-z,lazy",
              "-fplt")
    found = trace_in_time(f"{folder}/lazy", env={**os.environ, "LD_BIND_NOW": ""})
    expect_paths(found, ["main", "lazy_level", "...", "_dl_fixup", "...", "resolver_level", "madvise"], CALLS, "loader")


def main():
    results = Results()
    for program in ("chain_calls", "chain_calls_fp"):
        for scenario in C_CASES:
            results.case(f"{program} {scenario}", check_c, program, scenario)
        for depth in (60, 100):
            results.case(f"{program} {depth} deep", check_depth, program, depth)
        results.case(f"{program} too deep", check_too_deep, program)
        results.case(f"{program} interrupted", check_interrupted, program)
        results.case(f"{program} origin", check_origin, program)
    if os.path.exists(f"{OUT}/tests/trace/chain_cxx"):
        for scenario in CXX_CASES:
            results.case(f"chain_cxx {scenario}", check_cxx, scenario)
    else:
        results.skip("chain_cxx", "it was not built")
    with tempfile.TemporaryDirectory(prefix="alloctrace-test-") as folder:
        results.case("constructor of a library", check_loaded, folder)
        results.case("lazy binding", check_lazy, folder)
        results.case(f"{SITES} places", check_many_sites, folder)
        results.case("loading", check_loading)
    results.exit()


if __name__ == "__main__":
    main()
