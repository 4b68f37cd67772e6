#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# What the command sees and what is said about it; signals to us; that nothing stays behind.
# timeout: 300
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
SYSTEM=--allocator=system

# The command inherits exactly what it would have had.
"$PROGRAMS/self_state" >bare
"$AT" run "$SYSTEM" -q -o /dev/null -- "$PROGRAMS/self_state" >traced
check inherits-the-same cmp bare traced
# shellcheck disable=SC3045 # dash has these
(ulimit -n 128 && ulimit -f 100 && ulimit -c 0 && "$PROGRAMS/self_state") >bare
# shellcheck disable=SC3045 # dash has these
(ulimit -n 128 && ulimit -f 100 && ulimit -c 0 && "$AT" run "$SYSTEM" -q -o /dev/null -- "$PROGRAMS/self_state") >traced
check inherits-limits cmp bare traced
# Also when the tool has raised its own for an earlier run.
# shellcheck disable=SC2016,SC3045
(ulimit -n 128 && "$AT" compare --runs 2 --policy none --policy all -o /dev/null -- sh -c 'ulimit -Hn >>limits; ulimit -Hl >>locked' 2>err </dev/null)
is inherits-limits-again "128 1" "$(sort -u limits | tr '\n' ' ')$(sort -u locked | wc -l)"
cat >ignoring.py <<'END'
import os, signal, sys
for s in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
    signal.signal(s, signal.SIG_IGN if sys.argv[1] == 'ignore' else signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
os.execv(sys.argv[2], sys.argv[2:])
END
for how in ignore default; do
	python3 ignoring.py $how "$PROGRAMS/self_state" >bare
	python3 ignoring.py $how "$AT" run "$SYSTEM" -q -o /dev/null -- "$PROGRAMS/self_state" >traced
	check "inherits-signals-$how" cmp bare traced
done
"$PROGRAMS/self_state" >bare 7</dev/null 0<&-
"$AT" run "$SYSTEM" -q -o /dev/null -- "$PROGRAMS/self_state" >traced 7</dev/null 0<&-
check inherits-fds cmp bare traced

# The environment grows by what the allocator needs, in front of what was there.
# (an ASan build of ours refuses to be loaded after it)
env LD_PRELOAD=libm.so.6 ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0" "$AT" run -q -o /dev/null --policy trim --tune grow=copy -- env >out
has preload-in-front out "libatmalloc.so:libm.so.6"
has policy-in-environment out "ATMALLOC_POLICY=trim"
has tune-in-environment out "ATMALLOC_TUNE=grow=copy"
"$AT" run -q -o /dev/null "$SYSTEM" -- env >out
is system-leaves-environment 0 "$(grep -c 'LD_PRELOAD\|ATMALLOC' out)"
ATMALLOC_POLICY=-trim "$AT" run -j -o report -- true
is policy-from-environment "['stack', 'realloc', 'commit']" "$(json report 'd["target"]["policy"]')"
for name in jemalloc mimalloc tcmalloc; do
	if "$AT" run -q -o report --allocator $name -- cat /proc/self/maps >out 2>err; then
		has "allocator-$name" out "lib$name"
	else
		is "allocator-$name: names the package" 1 "$(grep -c "package lib$name" err)"
	fi
done

# Programs whose malloc cannot be replaced are traced all the same, and it is said.
note() {
	program=$1 text=$2
	shift 2
	"$AT" run -j -o report.json -- "$@" 2>err
	is "$program: runs" 0 $?
	is "$program: quiet" 0 "$(wc -c <err)"
	is "$program: note" True "$(json report.json "'$text' in d['target']['note']")"
	is "$program: no policies" False "$(json report.json "'policy' in d['target']")"
	"$AT" run -o report -- "$@" 2>err
	has "$program: table" report "$text"
}
note static "is static" "$PROGRAMS/static_calls"
can_trace && is static-counts 101 "$(json report.json 'd["total"]["classes"]["mmap.reserve"]["calls"]')"
note own-malloc "defines its own malloc" "$PROGRAMS/own_malloc"
printf '#!%s\n' "$PROGRAMS/static_calls" >script
chmod 755 script
note script "is static" ./script
if [ -x "$PROGRAMS/m32_calls" ] && ! "$PROGRAMS/m32_calls" 2>/dev/null; then
	skip 32-bit "this kernel runs no 32-bit programs"
elif [ -x "$PROGRAMS/m32_calls" ]; then
	note 32-bit "is a 32-bit program" "$PROGRAMS/m32_calls"
	if can_trace; then
		is 32-bit-counts True "$(json report.json 'd["compat"]["mmap"] >= 101 and d["compat"]["munmap"] >= 101')"
		is 32-bit-in-no-class 0 "$(json report.json 'sum(c["calls"] for n, c in d["total"]["classes"].items() if "mmap" in n)')"
		has 32-bit-line report "compat (32-bit) syscalls not decoded"
	fi
else
	skip 32-bit "$(cat "$PROGRAMS/m32_calls.skip")"
fi
"$AT" run -o report -- env -u LD_PRELOAD -u ATMALLOC_COUNTERS true
is dynamic-has-no-note 0 "$(grep -c '^note' report)"

# SIGTERM and SIGHUP to us go to the command, and the report is written.
for signal in TERM:143 HUP:129; do
	status=${signal#*:} signal=${signal%:*}
	"$AT" run "$SYSTEM" -o report -- sh -c 'echo $$ >pid; exec sleep 60' &
	tool=$!
	while [ ! -s pid ]; do sleep 0.05; done
	kill -$signal $tool
	wait $tool
	is "forwards-$signal" $status $?
	has "forwards-$signal: report" report "($signal)"
	rm pid
done
# Ctrl-C reaches both; the command decides, we report after it.
cat >interrupt.py <<'END'
import os, signal, subprocess, sys, time
p = subprocess.Popen([sys.argv[1], 'run', '--allocator', 'system', '-o', 'report', '--', 'sh', '-c',
                      'trap "sleep 0.3; exit 9" INT; echo >ready; while :; do sleep 0.05; done'], start_new_session=True,
                     preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
while not os.path.exists('ready'):
    time.sleep(0.05)
os.killpg(p.pid, signal.SIGINT)
sys.exit(p.wait())
END
python3 interrupt.py "$AT"
is ctrl-c 9 $?
has ctrl-c-report report "exit 9"

# Killed while the command is held: the command never runs, and nothing stays. Killed later: it runs on.
cat >killed.py <<'END'
import os, subprocess, sys, time
for i in range(6):
    p = subprocess.Popen([sys.argv[1], 'run', '--allocator', 'system', '--', 'touch', f'ran{i}'], stderr=subprocess.DEVNULL)
    child = ''
    while not child and p.poll() is None:
        child = open(f'/proc/{p.pid}/task/{p.pid}/children').read().strip()
    held = os.path.exists(f'/proc/{child}') and os.readlink(f'/proc/{child}/exe') == os.readlink(f'/proc/{p.pid}/exe')
    p.kill()
    p.wait()
    for _ in range(100):
        if not os.path.exists(f'/proc/{child}') or open(f'/proc/{child}/stat').read().split()[2] == 'Z':
            break
        time.sleep(0.05)
    else:
        sys.exit(f'{child} is still there')
    if held and os.path.exists(f'ran{i}'):
        sys.exit('the held command ran')
END
check killed-while-held python3 killed.py "$AT"

if [ "$(id -u)" = 0 ] && getent passwd nobody >/dev/null; then
	group=$(id -g nobody)
	chmod 777 "$SCRATCH"
	"$AT" run "$SYSTEM" -q -o /dev/null --user nobody -- sh -c 'echo $(id -u) $(id -g) $USER $LOGNAME' >out
	is user-option "$(id -u nobody) $group nobody nobody" "$(cat out)"
	env USER=root LOGNAME=root HOME=/root SUDO_UID="$(id -u nobody)" SUDO_GID="$group" SUDO_USER=nobody \
		"$AT" run "$SYSTEM" -q -o /dev/null -- sh -c 'echo $(id -u) $(id -g) $(id -G) $USER $HOME' >out
	is sudo-user "$(id -u nobody) $group $(id -G nobody) nobody $(getent passwd nobody | cut -d: -f6)" "$(cat out)"
	env SUDO_UID="$(id -u nobody)" SUDO_GID="$group" "$AT" run "$SYSTEM" -q -o /dev/null --user root -- id -u >out
	is user-root-under-sudo 0 "$(cat out)"
	if can_trace; then
		cp "$PROGRAMS/static_calls" . # the tree may lie where only root can go
		"$AT" run -j -o report.json --user nobody "$SYSTEM" -- ./static_calls
		is other-user-counts 101 "$(json report.json 'd["total"]["classes"]["mmap.reserve"]["calls"]')"
	fi
else
	skip user-option "needs root"
fi
# Privileges of set-user-ID programs are as without us.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	cp "$(command -v id)" setuid_id
	chmod 4755 setuid_id
	setpriv --reuid nobody --regid "$group" --init-groups ./setuid_id >bare
	"$AT" run -j -o report.json --user nobody -- ./setuid_id >traced 2>err
	is set-user-id 0 $?
	check set-user-id-same cmp bare traced
	has set-user-id-works traced euid=0
	is set-user-id-note True "$(json report.json '"set-user-ID" in d["target"]["note"]')"
else
	skip set-user-id "needs root and setpriv"
fi
if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
	"$AT" run -q -o /dev/null -- sudo -n true
	is sudo-inside 0 $?
	"$AT" run "$SYSTEM" -q -o /dev/null -- sudo -n id -u >out
	is sudo-inside-is-root 0 "$(cat out)"
else
	skip sudo-inside "sudo is not usable here"
fi

# A small file size limit of the caller is no harm.
(ulimit -f 1 && "$AT" run -q -o - trim_loop >/dev/null)
is file-size-limit 0 $?
# shellcheck disable=SC3045
(ulimit -n 20 && "$AT" run "$SYSTEM" -q -o /dev/null --tier 0 -- true)
is few-descriptors 0 $?

# Nothing is left: no program in the kernel that no process holds, no file, no process.
if "$TESTS/../.ci/find-bpftool" >/dev/null && can_trace; then
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		left=$(PYTHONPATH=$TESTS/trace python3 -c 'import measure; print(len(measure.left_programs()))')
		[ "$left" = 0 ] && break
		sleep 0.3
	done
	is no-programs-left 0 "$left"
else
	skip no-programs-left "bpftool or kernel tracing is missing"
fi
is no-files-left 0 "$(find /dev/shm -maxdepth 1 \( -name "*alloctrace*" -o -name "*atm*" \) -newer lib.stamp 2>/dev/null | wc -l)"
finish
