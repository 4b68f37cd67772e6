#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 600
"""compare finds the policy that matters by counts, and nothing where there is nothing to find."""
import json
import os
import subprocess
import sys

OUT = os.environ.get("O", ".output")
ALLOCTRACE = os.environ.get("ALLOCTRACE", os.path.join(OUT, "alloctrace"))
ITERATIONS = 127
failed = False


def result(name, problem):
    global failed
    print(f"not ok {name}: {problem}" if problem else f"ok {name}", flush=True)
    failed |= bool(problem)


def compare(*args):
    run = subprocess.run([ALLOCTRACE, "compare", "--seed", "7", "-j", *args], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if run.returncode:
        raise SystemExit(f"not ok compare: exit {run.returncode}: {run.stderr.decode()}")
    return json.loads(run.stdout)


def syscall_figures(figures):
    """Counts of syscalls; faults may vary by a page."""
    return [key for key in figures if key.startswith("calls") and not key.startswith("calls.fault")]


def check_default(program):
    configs = program["configurations"]
    for name, figures in configs.items():
        expected = 0 if name in ("trim", "all") else ITERATIONS
        runs = figures["calls.madvise.dontneed"]["runs"]
        result(f"dontneed {name}", set(runs) != {expected} and f"{runs}, not {expected} each")
    result("ranked first", set(program["ranking"][:2]) != {"trim", "all"} and program["ranking"])
    for name in ("trim", "all"):
        dontneed = configs[name]["calls.madvise.dontneed"]
        result(f"significant {name}", (dontneed["same"] or dontneed["ratio"]["median"] != 0) and dontneed)
        kernel = configs[name]["kernel_ns"]
        result(f"kernel time {name}", (kernel["same"] or kernel["ratio"]["high"] >= 1) and kernel)
    # These cannot touch the scenario: not "hardly any" change in counts, none.
    for name in ("stack", "realloc", "commit"):
        changed = [key for key in syscall_figures(configs[name])
                   if not configs[name][key]["same"] or configs[name][key]["difference"]["median"] != 0
                   or configs[name][key]["runs"] != configs["none"][key]["runs"]]
        result(f"untouched by {name}", changed)


def check_same(program):
    """A/A: by chance one figure in twenty may differ, but no count can."""
    figures = program["configurations"]["b"]
    result("identical counts", [key for key in syscall_figures(figures) if not figures[key]["same"]])
    differing = [key for key in figures if not figures[key]["same"]]
    result("identical configurations", len(differing) > len(figures) / 4 and differing)


def check_matrix(program):
    effects = program["effects"]["calls"]
    result("main effect of trim", effects["trim"]["median"] != -ITERATIONS and effects["trim"])
    result("all other effects", {name: e for name, e in effects.items()
                                 if name != "trim" and (e["low"], e["high"]) != (0, 0)})


# Each published fix, its program made small, the figure that it is about, and the values off and on. Policies that
# cannot touch the program change no count of a syscall in it.
SEEDS = (
    ("realloc", "realloc_pingpong --iterations 53 --pages 1024", "calls.mremap.move", 53, 0, ()),
    ("commit", "commit_storm --processes 2 --iterations 101", "calls", 404, 0, ("stack", "realloc", "trim")),
    ("trim", "trim_loop --iterations 127", "calls", 127, 0, ("stack", "realloc", "commit")),
    ("stack", "thread_create --outer 3 --inner 19", "commit_charged_pages", 57 * 277, 57 * 21, ("realloc", "commit", "trim")),
)


def check_seed(policy, scenario, figure, off, on, untouched):
    program = compare("--runs", "4", scenario)["programs"][0]
    configs = program["configurations"]
    if figure not in configs[policy]:
        print(f"skip seed {policy}: no commit ledger here")
        return
    values = {name: set(figures[figure]["runs"]) for name, figures in configs.items()}
    expected = {name: {on if name in (policy, "all") else off} for name in configs}
    result(f"seed {policy}: values", values != expected and values)
    fixed = configs[policy][figure]
    result(f"seed {policy}: significant", (fixed["same"] or fixed["difference"]["high"] >= 0) and fixed)
    ranked = sorted(configs, key=lambda name: configs[name][figure]["median"])
    result(f"seed {policy}: first", set(ranked[:2]) != {policy, "all"} and ranked)
    # By all memory syscalls: first of those alone. Where the fix saves no calls, nothing is before it.
    alone = [name for name in program["ranking"] if name not in ("none", "all")]
    ahead = configs[alone[0]]["calls"]["median"] < configs[policy]["calls"]["median"]
    result(f"seed {policy}: first by calls", (ahead or alone[0] != policy and figure.startswith("calls")) and program["ranking"])
    changed = {name: [key for key in syscall_figures(configs[name]) if configs[name][key]["runs"] != configs["none"][key]["runs"]]
               for name in untouched}
    result(f"seed {policy}: untouched", any(changed.values()) and changed)


def main():
    if subprocess.run([ALLOCTRACE, "check"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        print("skip compare: this machine or these privileges do not allow tracing")
        return
    scenario = f"trim_loop --touch --iterations {ITERATIONS}"
    check_default(compare("--runs", "4", scenario)["programs"][0])
    check_same(compare("--runs", "6", "--config", "a:policy=all", "--config", "b:policy=all", scenario)["programs"][0])
    check_matrix(compare("--runs", "1", "--matrix", scenario)["programs"][0])
    for seed in SEEDS:
        check_seed(*seed)
    means = compare("--runs", "1", "--policy", "none", "--policy", "trim", scenario, "trim_mixed --blocks 61")
    mean = means["geometric_means"]["trim"]["max_rss_bytes"]
    ratios = [p["configurations"]["trim"]["max_rss_bytes"]["ratio"]["median"] for p in means["programs"]]
    result("geometric mean", abs(mean - (ratios[0] * ratios[1]) ** 0.5) > 1e-9 and (mean, ratios))


main()
sys.exit(failed)
