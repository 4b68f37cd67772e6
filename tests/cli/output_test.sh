#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Where a report goes, that it is whole and valid, and that nothing else is touched.
# timeout: 300
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
SYSTEM=--allocator=system

"$AT" run "$SYSTEM" -- echo hello >out 2>err
is stdout-is-the-commands hello "$(cat out)"
has report-on-stderr err "ended       exit 0"
"$AT" run "$SYSTEM" -o - -- sh -c 'echo to-stderr >&2' >out 2>err
is stderr-is-the-commands to-stderr "$(cat err)"
has report-on-stdout out "ended       exit 0"
"$AT" run "$SYSTEM" -o report -- sh -c 'echo out; echo err >&2' >out 2>err
is report-in-a-file "out err" "$(cat out) $(cat err)"
has report-in-a-file: report "ended       exit 0"
echo input | "$AT" run "$SYSTEM" -o report -- cat >out 2>err
is stdin-is-the-commands input "$(cat out)"
"$AT" run -q "$SYSTEM" -- echo one 2>err | cat >out
is piped one "$(cat out)"

# A reader that leaves early: quiet, and the status is the command's.
{
	"$AT" run "$SYSTEM" -o - -- sh -c 'sleep 1; exit 6' 2>err
	echo $? >status
} | true
is closed-pipe "6 0" "$(cat status) $(wc -c <err)"
"$AT" run "$SYSTEM" -- sh -c 'exit 6' >out 2>&-
is closed-stderr "6" $?
"$AT" run "$SYSTEM" -o - -- sh -c 'exit 6' >&- 2>err
is closed-stdout "6" $?

# Colour: only when asked, or on a terminal.
"$AT" run "$SYSTEM" -o report -- true
is no-color-in-a-file 0 "$(grep -c "$(printf '\033')" report)"
"$AT" run "$SYSTEM" --color always -o report -- true
check color-always grep -q "$(printf '\033')" report
if command -v script >/dev/null; then
	script -qec "'$AT' run $SYSTEM -- true" /dev/null >out 2>&1 </dev/null
	check color-on-a-terminal grep -q "$(printf '\033')" out
	NO_COLOR=1 script -qec "'$AT' run $SYSTEM -- true" /dev/null >out 2>&1 </dev/null
	is no-color-when-refused 0 "$(grep -c "$(printf '\033')" out)"
else
	skip color-on-a-terminal "script(1) is not installed"
fi

# JSON survives every argument, and gives it back.
cat >hostile.py <<'END'
import json, subprocess, sys
args = ['a"b', "it's", 'back\\slash', '{}[]', '', ' ', 'x\ny\tz', ''.join(map(chr, range(1, 32))), '\x7f', '\u2028',
        'gr\u00fc\u00df', '\U0001f600', '%s%n', '\ufffd']
raw = [b'\xff\xfe', b'ok\x80', b'\xed\xa0\x80', b'\xc0\xaf']
for variant in ([a.encode() for a in args], [a.encode() for a in args] + raw):
    subprocess.run([sys.argv[1].encode(), b'run', b'--allocator', b'system', b'-j', b'-o', b'report.json', b'--', b'true']
                   + variant, check=True)
    with open('report.json', encoding='utf-8') as f:
        target = json.load(f)['target']
    if variant[-1] == raw[-1]:
        assert [a.encode('latin-1') for a in target['command_latin1']][1:] == variant, target
    else:
        assert 'command_latin1' not in target
        assert [a.encode() for a in target['command']][1:] == variant, target
END
check json-arguments python3 hostile.py "$AT"
"$AT" run "$SYSTEM" -o report -- true "$(printf '\033[31mred\001')" 2>err
is table-escapes "0 1" "$(grep -c "$(printf '\033')" report) $(grep -c '\\x1b\[31mred\\x01' report)"

# The shape that scripts rely on.
"$AT" run -j -o report.json trim_loop >out 2>err
is json-schema alloctrace.profile/1 "$(json report.json 'd["schema"]')"
is json-phases "['measured', 'startup', 'teardown']" "$(json report.json 'sorted(d["phases"])')"
is json-policy "['stack', 'realloc', 'commit', 'trim']" "$(json report.json 'd["target"]["policy"]')"
is json-requests True "$(json report.json 'd["phases"]["measured"]["requests"]["malloc"] >= 1024')"
is json-rusage True "$(json report.json 'd["rusage"]["wall_ns"] > 0 and d["rusage"]["max_rss_bytes"] > 0')"
is json-no-huge-number True "$(json report.json 'max(int(x) for x in __import__("re").findall(r": (\d+)", open("report.json").read())) < 10**15')"
"$AT" run -j -o report.json "$SYSTEM" -- true
is json-all "['all']" "$(json report.json 'sorted(d["phases"])')"

# One report for a tree of processes; each does not write its own.
if can_trace; then
	"$AT" run -j -o report.json "$SYSTEM" -- sh -c 'i=0; while [ $i -lt 20 ]; do "$0" & i=$((i + 1)); done; wait' \
		"$PROGRAMS/static_calls"
	is tree 2020 "$(json report.json 'd["total"]["classes"]["mmap.reserve"]["calls"]')"
	"$AT" run -j -o report.json --no-follow "$SYSTEM" -- sh -c '"$0"; exit 0' "$PROGRAMS/static_calls"
	is no-follow 0 "$(json report.json 'd["total"]["classes"]["mmap.reserve"]["calls"]')"
else
	skip tree "no kernel tracing here"
fi
finish
