#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How many updates of the commit counter go past each batch, on a machine with many CPUs; a measurement, not a test.

usage: many_cpus.py CPUS [GIB]

Boots Debian's 6.12 kernel under qemu with CPUS CPUs and GIB (4) of memory and traces the scenarios of the policies
`commit` and `stack`, with the policies off and on. The batches depend on the number of CPUs and on the memory.
"""
import json
import re
import sys

import vm

SCENARIOS = (("thread_create", "--outer", "16", "--inner", "16"), ("commit_storm", "--processes", "8", "--iterations", "100"))


def main():
    if len(sys.argv) not in (2, 3) or not all(re.fullmatch("[1-9][0-9]*", word) for word in sys.argv[1:]):
        sys.exit(__doc__.split("\n\n")[1])
    cpus, gib = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) == 3 else 4
    vm.need_tools()
    files = ("alloctrace", "libatmalloc.so", "scenarios/scenarios.tsv", *(f"scenarios/{words[0]}" for words in SCENARIOS))
    initramfs = f"{vm.OUT}/vm/many_cpus.initramfs"
    jobs = []
    image = vm.kernel("linux-image-6.12-cloud-amd64")
    vm.pack(initramfs, files)
    for words in SCENARIOS:
        for policy in ("none", "all"):
            jobs.append(vm.Job(f"{words[0]} {policy}", f"/at/alloctrace run --json --output /tmp/r --policy={policy} "
                                                       f"{' '.join(words)} >/dev/null; cat /tmp/r"))
    vm.boot(image, initramfs, jobs, cpus=cpus, memory=f"{gib}G", timeout_s=3000, log=f"{vm.OUT}/vm/many_cpus")
    print("| scenario, policies | CPUs | charged pages | updates | past kernel's batch | past the fixed batch | past the scaled batch |")
    print("|---|---|---|---|---|---|---|")
    for job in jobs:
        if job.status != 0:
            sys.exit(f"many_cpus: {job.name}: status {job.status}: {job.output[-2000:]}")
        report = json.loads(job.output)
        commit = report["phases"]["measured"]["commit"]
        past = [f"{commit['batches'][name]['past']:,} of {commit['batches'][name]['pages']:,} pages"
                for name in ("kernel", "fixed", "scaled")]
        print(f"| {job.name} | {report['host']['cpus']} | {commit['charged_pages']:,} | {commit['updates']:,} | "
              f"{past[0]} | {past[1]} | {past[2]} |")


main()
