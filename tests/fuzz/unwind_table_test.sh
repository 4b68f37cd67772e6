#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 240
# A fixed number of runs of the fuzz target of the ELF parsers, from a fixed random seed. The seeds are made here: a small
# program, with and without sections and symbols, and a .gopclntab of each format.
set -u

O=${O:-.output}
target=$O/tests/fuzz/unwind_table_fuzz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -e "$target.skip" ]; then
	echo "skip fuzz: $(cat "$target.skip")"
	exit 0
fi

mkdir "$work/seeds" "$work/corpus"
echo 'int f(int); int main(int c, char **v) { (void)v; return f(c); } __attribute__((noinline)) int f(int x) { return x * 3; }' |
	${CC:-gcc} -O2 -xc - -o "$work/seeds/program"
strip -o "$work/seeds/stripped" "$work/seeds/program"
objcopy --only-keep-debug "$work/seeds/program" "$work/seeds/debug"
objcopy --add-gnu-debuglink="$work/seeds/debug" "$work/seeds/stripped" "$work/seeds/linked"
xz -k "$work/seeds/debug" && objcopy --add-section=.gnu_debugdata="$work/seeds/debug.xz" "$work/seeds/stripped" "$work/seeds/mini"
python3 - "$work/seeds" <<'END'
import struct
import sys

TEXT = 0x1000


def table(magic):
    """Two functions, with their names and stack depths, as Go's linker lays them out."""
    names, depths = b"\0main.main\0runtime.systemstack\0", b"\0\x02\x10\x10\x20\x0f\x10\0"
    word = 4 if magic in (0xfffffff0, 0xfffffff1) else 8
    pack = "<I" if word == 4 else "<Q"
    start = [0, 0x40, 0x80] if word == 4 else [TEXT, TEXT + 0x40, TEXT + 0x80]
    fields = {0xfffffffb: 1, 0xfffffffa: 7, 0xfffffff0: 8, 0xfffffff1: 8}[magic]
    head = 8 + 8 * fields
    names_at, pcs_at = head, head + len(names)
    funcs_at = 8 + 8 if magic == 0xfffffffb else pcs_at + len(depths)
    entries = 5 * word
    origin = 0 if magic == 0xfffffffb else funcs_at
    records_at = (funcs_at + entries if magic != 0xfffffffb else 8 + 8 + entries)
    extra = 0 if magic != 0xfffffffb else 0
    records = b"".join(struct.pack(pack, at) + struct.pack("<iiii", name, 0, 0, 1 if magic != 0xfffffffb else 1)
                       for at, name in ((start[0], 1), (start[1], 11)))
    size = len(records) // 2
    tab = b"".join(struct.pack(pack, value) for value in
                   (start[0], records_at - origin + extra, start[1], records_at - origin + size, start[2]))
    words = {1: [2], 7: [2, 0, names_at, 0, 0, pcs_at, funcs_at], 8: [2, 0, TEXT, names_at, 0, 0, pcs_at, funcs_at]}[fields]
    header = struct.pack("<IBBBB", magic, 0, 0, 1, 8) + b"".join(struct.pack("<Q", value) for value in words)
    return header + tab + records if magic == 0xfffffffb else header + names + depths + tab + records


def elf(magic):
    contents = [(b".text", b"\xc3" * 0x80, TEXT), (b".gopclntab", table(magic), 0x2000)]
    names = b"\0.text\0.gopclntab\0.shstrtab\0"
    contents.append((b".shstrtab", names, 0))
    data, sections = b"", [b"\0" * 64]
    for name, content, address in contents:
        sections.append(struct.pack("<IIQQQQIIQQ", names.index(name), 3 if not address else 1, 6 if address == TEXT else 2,
                                    address, 64 + 56 + len(data), len(content), 0, 0, 1, 0))
        data += content
    header = b"\x7fELF\2\1\1" + b"\0" * 9 + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, TEXT, 64, 64 + 56 + len(data), 0, 64, 56,
                                                        1, 64, len(sections), len(sections) - 1)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 0x3000, 0x3000, 0x1000)
    return header + load + data + b"".join(sections)


for magic in (0xfffffffb, 0xfffffffa, 0xfffffff0, 0xfffffff1):
    with open(f"{sys.argv[1]}/go_{magic:x}", "wb") as file:
        file.write(elf(magic))
END

if "$target" -seed=1 -max_len=20000 -len_control=0 -runs=20000 -artifact_prefix="$work/" -rss_limit_mb=2048 -timeout=60 \
	"$work/corpus" "$work/seeds" >"$work/log" 2>&1; then
	echo "ok 20000 runs"
else
	echo "not ok 20000 runs: exit status $?"
	tail -n 30 "$work/log"
	for input in "$work"/crash-* "$work"/timeout-* "$work"/oom-*; do [ -e "$input" ] && base64 "$input"; done
	exit 1
fi
# The parsers' deep ends are reached: else the runs say little.
covered=$(grep -oE 'cov: [0-9]+' "$work/log" | tail -n 1 | cut -d' ' -f2)
if [ "$covered" -ge 300 ]; then echo "ok 300 edges are covered"; else echo "not ok 300 edges are covered: $covered"; fi
