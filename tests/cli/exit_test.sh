#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# How a command ends is how alloctrace ends, and the report says it.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

# ends NAME STATUS TEXT COMMAND...
ends() {
	label=$1 status=$2 text=$3
	shift 3
	"$AT" run --allocator system -o report -- "$@" >out 2>err
	is "$label" "$status" "$?"
	has "$label: report" report "ended       $text"
}

ends exit-0 0 "exit 0" true
ends exit-7 7 "exit 7" sh -c 'exit 7'
ends exit-77 77 "exit 77" sh -c 'exit 77'
ends exit-255 255 "exit 255" sh -c 'exit 255'
ends kill 137 "signal 9 (KILL)" sh -c 'kill -9 $$'
ends segv 139 "signal 11 (SEGV)" sh -c 'kill -SEGV $$'
ends abort 134 "signal 6 (ABRT)" sh -c 'kill -ABRT $$'

# Raised again, not turned into a number.
signal=$(python3 -c 'import subprocess, sys
print(subprocess.run(sys.argv[1:], stderr=subprocess.DEVNULL).returncode)' \
	"$AT" run --allocator system -- sh -c 'kill -ABRT $$')
is signal-raised-again -6 "$signal"
"$AT" run -j -o report --allocator system -- sh -c 'kill -9 $$' 2>err
is signal-json "None 9 KILL" "$(json report 'd["target"]["exit"]["status"]') $(json report 'd["target"]["exit"]["signal"]') $(json report 'd["target"]["exit"]["signal_name"]')"

# fails NAME STATUS COMMAND...: one line, no report
fails() {
	label=$1 status=$2
	shift 2
	"$AT" run --allocator system -- "$@" >out 2>err
	is "$label" "$status" "$?"
	is "$label: one line" "1 0" "$(wc -l <err) $(wc -c <out)"
}

echo 'echo no interpreter line' >plain.sh
printf '\177ELFbroken' >broken
echo data >data
chmod 755 plain.sh broken
mkdir dir
fails not-in-path 127 no-such-command-here
fails no-such-file 127 ./no-such-file
fails no-such-dir 127 ./no-such-dir/file
fails empty-name 127 ''
fails not-executable 126 ./data
fails directory 126 ./dir
fails broken-elf 126 ./broken
fails no-shell 126 ./plain.sh

# A file that cannot be run does not hide one further on in PATH.
mkdir first second
printf '#!/bin/sh\nexit 5\n' >first/prog
cp first/prog second/prog
chmod 755 second/prog
PATH=$SCRATCH/first:$SCRATCH/second:$PATH "$AT" run --allocator system -- prog >out 2>err
is path-goes-on 5 $?
PATH=$SCRATCH/first "$AT" run --allocator system -- prog >out 2>err
is path-ends 126 $?

"$AT" run -o "$SCRATCH/no/dir" --allocator system -- touch ran 2>err
is unwritable-output 125 $?
is unwritable-output-before-start 1 "$([ ! -e ran ] && wc -l <err)"
"$AT" run -o /dev/full --allocator system -- touch ran 2>err
is full-disk 125 $?
check full-disk-after-run test -e ran

# SIGCHLD ignored by the caller must not lose the status.
python3 -c 'import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])' "$AT" run -q --allocator system -- sh -c 'exit 3' 2>err
is sigchld-ignored 3 $?
finish
