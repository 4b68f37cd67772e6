#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The policies of a running process: shown, changed, refused.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

# start COMMAND...: runs it under the allocator and waits until it is up; its pid is in $pid
start() {
	rm -f ready
	LD_PRELOAD=$library "$@" &
	pid=$!
	while [ ! -e ready ]; do sleep 0.05; done
}
library=$O/libatmalloc.so
busy='import os, time
open("ready", "w")
while not os.path.exists("stop"):
    time.sleep(0.05)'

start python3 -c "$busy"
"$AT" policy -p $pid >out 2>err
is show "0 0" "$? $(wc -c <err)"
has show-policies out "$pid: stack,realloc,commit,trim"
has show-tunables out "trim_threshold="
"$AT" policy -p $pid -trim >out 2>err
is change-silently "0 0 0" "$? $(wc -c <out) $(wc -c <err)"
"$AT" policy -p $pid -j >report.json
is change "['stack', 'realloc', 'commit']" "$(json report.json 'd[0]["policy"]')"
"$AT" policy --pid=$pid none
"$AT" policy -p $pid -j >report.json
is none "[]" "$(json report.json 'd[0]["policy"]')"
"$AT" policy -p $pid -stack,-commit -j >report.json
is changes-are-to-the-default "['realloc', 'trim']" "$(json report.json 'd[0]["policy"]')"
"$AT" policy -p $pid all
"$AT" policy -p $pid trm 2>err
is unknown-changes-nothing "2 1" "$? $(wc -l <err)"
"$AT" policy -p $pid,$$ trim 2>err
is one-of-two "1 1" "$? $(wc -l <err)"
has without-the-library err "process $$: the bundled allocator is not loaded there"
"$AT" policy -p $pid -j >report.json
is one-of-two-changed "['trim']" "$(json report.json 'd[0]["policy"]')"
: >stop
wait $pid
is process-unharmed 0 $?
rm stop

# The file is gone or replaced: the mapping counts.
cp "$O/libatmalloc.so" mine.so
library=$SCRATCH/mine.so
start python3 -c "$busy"
rm mine.so
if [ "$(id -u)" = 0 ]; then
	"$AT" policy -p $pid commit 2>err && "$AT" policy -p $pid -j >report.json
	is deleted-library "['commit']" "$(json report.json 'd[0]["policy"]')"
else
	skip deleted-library "needs root"
fi
# Another version of the control block: refused, not written.
python3 - $pid "$O/libatmalloc.so" <<'END'
import subprocess, sys
pid, library = sys.argv[1:]
symbols = subprocess.run(['readelf', '--dyn-syms', '-W', library], capture_output=True, text=True, check=True).stdout
value = next(int(l.split()[1], 16) for l in symbols.splitlines() if 'atmalloc_control' in l)
base = next(int(l.split('-')[0], 16) for l in open(f'/proc/{pid}/maps') if 'mine.so' in l)
with open(f'/proc/{pid}/mem', 'r+b', 0) as memory:
    memory.seek(base + value + 8)
    memory.write((99).to_bytes(4, 'little'))
END
if [ "$(id -u)" = 0 ]; then
	"$AT" policy -p $pid all 2>err
	is other-abi "1 1" "$? $(wc -l <err)"
	has other-abi-says err "ABI 99"
else
	skip other-abi "needs root"
fi
: >stop
wait $pid
"$AT" policy -p $pid 2>err
is no-such-process "1 1" "$? $(wc -l <err)"
has no-such-process-says err "no such process"
"$AT" policy -p 2 2>err
is kernel-thread 1 $?

# Many changes while the process works.
library=$O/libatmalloc.so
rm stop ready
start python3 -c 'import os
open("ready", "w")
rounds = 0
while not os.path.exists("stop"):
    blocks = [bytes([i % 251]) * (i * 37 % 70000) for i in range(400)]
    for i, block in enumerate(blocks):
        assert block.count(i % 251) == len(block)
    rounds += 1
assert rounds > 3'
for set in none trim commit realloc stack all -trim -commit -realloc -stack none all none all none all; do
	"$AT" policy -p $pid $set || not_ok flip "$set"
done
: >stop
wait $pid
is flips-under-load 0 $?
finish
