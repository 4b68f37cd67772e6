# SPDX-License-Identifier: BSD-2-Clause
"""bpftrace scripts for tracer_bench.py: a short one, and those that measure what alloctrace does without its ledgers.

What is alike, and by which map. Every class of docs/output.md that can be told from arguments and result has its
number; of a class:

  @ns       calls and their time (stats)      @max      the longest
  @hist     histogram of times (log2: coarser than ours, and cheaper)
  @bytes    of the calls that succeeded       @errors   failed calls
  @errno    the last error

and beside them @calls (start time, class and bytes of the call that a thread is in: one tuple, as a map costs more
than what it holds), @brk (the break at its entry, for its class), @traced (the target processes, for there may be
several: a fork adds one, as `run` and `attach` do) and @phase (that a marker switched to). attach also has a row for
each thread, by class: @row_ns, @row_bytes, @row_errors. Page faults, minor and major, are timed between two events
and go into the same maps.

What is left out of them, to their good: whether mprotect starts on an inaccessible page, madvise.other by advice,
32-bit calls, calls that never return or whose entry was not seen, resident pages at the end.
"""

SYSCALLS = ("mmap", "munmap", "mprotect", "madvise", "mremap", "brk", "pkey_mprotect", "process_madvise")

SHORT = "".join(
    f"tracepoint:syscalls:sys_enter_{name} /pid == TARGET/ {{ @start[tid] = nsecs; }} "
    f"tracepoint:syscalls:sys_exit_{name} /@start[tid]/ {{ $ns = nsecs - @start[tid]; @cnt_{name} = count(); "
    f"@sum_{name} = sum($ns); @hist_{name} = hist($ns); delete(@start[tid]); }} " for name in SYSCALLS) + \
    "software:page-faults:1 /pid == TARGET/ { @faults = count(); }"

PAGES = "(({}) + 4095) / 4096 * 4096"


def first_of(*pairs, default):
    """Nested conditionals: the value of the first condition that holds."""
    text = str(default)
    for condition, value in reversed(pairs):
        text = f"({condition} ? {value} : {text})"
    return text


# Class and bytes, as entry knows them. MAP_ANONYMOUS 0x20, MAP_STACK 0x20000, MAP_FIXED 0x10, MAP_FIXED_NOREPLACE
# 0x100000, MAP_NORESERVE 0x4000; MADV_DONTNEED 4, FREE 8, HUGEPAGE 14, NOHUGEPAGE 15, POPULATE_* 22 and 23.
ENTRIES = {
    "mmap": (first_of(("!(args->flags & 0x20)", 2), ("args->flags & 0x20000", 4), ("args->flags & 0x100010", 5),
                      ("!(args->prot & 7)", 3), ("args->flags & 0x4000", 3), default=1), PAGES.format("args->len")),
    "munmap": ("6", PAGES.format("args->len")),
    "mprotect": (first_of(("!(args->prot & 7)", 8), ("args->prot & 2", 7), default=9), PAGES.format("args->len")),
    "madvise": (first_of(("args->behavior == 4", 10), ("args->behavior == 8", 11), ("args->behavior == 14", 12),
                         ("args->behavior == 15", 13), ("args->behavior == 22", 14), ("args->behavior == 23", 14),
                         ("args->behavior >> 16 == 0x4154", 15), default=16), PAGES.format("args->len_in")),
    "mremap": (first_of(("args->new_len > args->old_len", 17), ("args->new_len < args->old_len", 18), default=19),
               first_of(("args->new_len > args->old_len", "args->new_len - args->old_len"),
                        ("args->new_len < args->old_len", "args->old_len - args->new_len"), default="args->new_len")),
    "brk": ("22", "0"),
    "process_madvise": ("23", "0"),
    "pkey_mprotect": ("24", PAGES.format("args->len")),
}
# What only the result tells, before the sums are made.
RESULTS = {
    "brk": "$old = @brk[tid]; delete(@brk[tid]); $new = (uint64)args->ret; if ($new > $old) { $class = 20; "
           "$bytes = $new - $old; } else { if ($new < $old) { $class = 21; $bytes = $old - $new; } } ",
    "process_madvise": "$bytes = args->ret; ",
}


def sums(has_rows, can_fail):
    """The maps of one event, from $phase, $class, $bytes, $ns and args->ret."""
    key = "$phase, $class"
    text = f"@ns[{key}] = stats($ns); @max[{key}] = max($ns); @hist[{key}] = hist($ns); "
    succeeded, failed = f"@bytes[{key}] = sum($bytes); ", f"@errors[{key}] = count(); @errno[{key}] = -args->ret; "
    if has_rows:
        text += "@row_ns[tid, $class] = stats($ns); "
        succeeded += "@row_bytes[tid, $class] = sum($bytes); "
        failed += "@row_errors[tid, $class] = count(); "
    if not can_fail:
        return text + succeeded
    return text + f"if (args->ret < 0 && args->ret >= -4095) {{ {failed}}} else {{ {succeeded}}} "


def full(has_rows):
    """What `run --no-ledgers` measures; with rows, `attach --no-ledgers`. TARGET is to be replaced by a PID."""
    text = "BEGIN { @traced[TARGET] = 1; @phase[TARGET] = (uint64)0; } " \
           "tracepoint:sched:sched_process_fork /@traced[pid]/ { @traced[args->child_pid] = 1; " \
           "@phase[args->child_pid] = @phase[pid]; } " \
           "tracepoint:sched:sched_process_exit /@traced[pid]/ { delete(@calls[tid]); delete(@faults[tid]); " \
           "delete(@brk[tid]); if (pid == tid) { delete(@traced[pid]); delete(@phase[pid]); } } "
    for name, (number, length) in ENTRIES.items():
        extra = "@brk[tid] = curtask->mm->brk; " if name == "brk" else ""
        if name == "madvise":
            extra = "if (args->behavior >> 16 == 0x4154) { @phase[pid] = args->behavior & 3; } "
        text += f"tracepoint:syscalls:sys_enter_{name} /@traced[pid]/ {{ {extra}" \
                f"@calls[tid] = (nsecs, (uint64){number}, (uint64){length}, (uint64)@phase[pid]); }} " \
                f"tracepoint:syscalls:sys_exit_{name} /@calls[tid].0/ {{ $call = @calls[tid]; $ns = nsecs - $call.0; " \
                f"$class = $call.1; $bytes = $call.2; $phase = $call.3; {RESULTS.get(name, '')}" \
                f"{sums(has_rows, name != 'brk')}delete(@calls[tid]); }} "
    text += "software:page-faults:1 /@traced[pid]/ { @faults[tid] = (nsecs, (uint64)@phase[pid]); } "
    for event, number in (("minor-faults", 25), ("major-faults", 26)):
        text += f"software:{event}:1 /@faults[tid].0/ {{ $fault = @faults[tid]; $ns = nsecs - $fault.0; " \
                f"$class = (uint64){number}; $bytes = (uint64)4096; $phase = $fault.1; {sums(has_rows, False)}" \
                "delete(@faults[tid]); } "
    return text
