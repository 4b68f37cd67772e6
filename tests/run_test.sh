#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# tests/run leaves no temporary files behind, and no processes, when a test hangs
# or when it is itself ended; and tests make their files where it wants them.
set -u

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

result() { # NAME WHAT_IS_WRONG
	if [ -z "$2" ]; then echo "ok $1"; else echo "not ok $1: $2"; failed=1; fi
}

# A tree with one test, which makes files in three ways, says so, and hangs.
mkdir -p "$work/tests" "$work/tmp"
cp tests/run "$work/tests/run"
cat >"$work/tests/hang_test.sh" <<-SH
	#!/bin/sh
	# timeout: 3
	mktemp -d
	mktemp
	python3 -c 'import tempfile; print(tempfile.mkdtemp())'
	echo \$\$ >"$work/pid"
	sleep 1000
SH
chmod +x "$work/tests/hang_test.sh"

left() { # what is there that should not be
	ls -A "$work/tmp"
	# State and group follow the name; a dead one may wait for its new parent.
	sed 's/.*) //' /proc/[0-9]*/stat 2>/dev/null | awk -v group="$(cat "$work/pid")" '$3 == group && $1 != "Z" { print "a process" }'
	rm -f "$work/pid"
}

out=$(TMPDIR=$work/tmp "$work/tests/run")
status=$?
wrong=$(left)
[ $status = 1 ] && [[ $out = *"still running after 3 s"* ]] || wrong="$wrong status $status, $out"
[ "$(grep -c "$work/tmp/alloctrace-test-" <<<"$out")" = 3 ] || wrong="$wrong not its own folder: $out"
result "a test that hangs" "$wrong"

# It does not end by itself before it is ended.
sed -i 's/timeout: 3$/timeout: 100/' "$work/tests/hang_test.sh"
for signal in INT TERM HUP; do
	# A shell's background job ignores SIGINT, and so would what it starts.
	TMPDIR=$work/tmp python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
os.execv(sys.argv[1], sys.argv[1:])' "$work/tests/run" >"$work/out" 2>&1 &
	for _ in $(seq 300); do [ -s "$work/pid" ] && break; sleep 0.1; done
	kill -$signal $!
	wait $!
	status=$?
	wrong=$(left)
	[ $status = $((128 + $(kill -l $signal))) ] || wrong="$wrong status $status, $(cat "$work/out")"
	result "ended by SIG$signal" "$wrong"
done

# The machines of tests/vm have a /tmp of their own.
result "no test names a place" "$(grep -rnE '/tmp/' tests --include='*.c' --include='*.h' --include='*.sh' --include='*.py' \
	--include='*.cc' --exclude-dir=vm | grep -v '^tests/run_test.sh:' | tr '\n' ' ')"
exit $failed
