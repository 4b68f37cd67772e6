#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 300
# compare: wrong usage, what stops it, the report, and its end by a signal. At tier 0, so that it needs no privileges.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

# wrong NAME KNOWN ARGUMENT...: KNOWN is part of the one line
wrong() {
	label=$1 known=$2
	shift 2
	"$AT" compare "$@" >out 2>err </dev/null
	is "$label" "2 1 0" "$? $(wc -l <err) $(wc -c <out)"
	has "$label: names the known" err "$known"
}

wrong nothing list
wrong scenario trim_loop no_such_scenario
wrong option --matrix --frobnicate trim_loop
wrong policy stack --policy trm --policy all trim_loop
wrong allocator jemalloc --allocator nomalloc --policy all trim_loop
wrong base "none, stack, realloc, commit, trim, all" --base nothing trim_loop
wrong one-only "nothing to compare" --policy all trim_loop
wrong twice "own" --policy all --policy all trim_loop
wrong matrix-and "own" --matrix --policy all trim_loop
wrong config-no-name "policy, allocator, tune, env" --config policy=all trim_loop
wrong config-word "policy, allocator, tune, env" --config a:polcy=all --policy none trim_loop
wrong config-env NAME=VALUE --config a:env=X --policy none trim_loop
wrong config-tunable trim_threshold --config a:tune=trm=1 --policy none trim_loop
wrong config-foreign bundled --config a:allocator=system,policy=all --policy none trim_loop
wrong runs "number" --runs 0 trim_loop
wrong runs-text "number" --runs many trim_loop
wrong time "ms, s, m" --time 5 trim_loop
wrong seed number --seed x trim_loop
wrong tier "0, 1, 2" --tier 7 trim_loop
wrong both "not both" trim_loop -- true
wrong all-and-scenario "no other ones" --all trim_loop
wrong all-and-command "no other ones" --all -- true
wrong precision "percent" --time 5s --precision 0 trim_loop
wrong precision-alone "--time" --precision 1 trim_loop

short="trim_loop --iterations 31"
"$AT" compare --tier 0 --runs 4 --seed 42 -j -o report.json "$short" >out 2>err </dev/null
is report "0 0 0" "$? $(wc -c <out) $(wc -c <err)"
is schema alloctrace.comparison/1 "$(json report.json 'd["schema"]')"
is base none "$(json report.json 'd["method"]["base"]')"
is seed "42 4" "$(json report.json 'd["method"]["seed"] + " " + str(d["method"]["blocks"])')"
is configurations "none stack realloc commit trim all" "$(json report.json '" ".join(c["name"] for c in d["configurations"])')"
# No privileges were used: what only a tracer knows is absent.
is no-kernel-time False "$(json report.json '"kernel_ns" in d["programs"][0]["configurations"]["none"]')"
is runs-kept "[31, 31, 31, 31]" \
	"$(json report.json 'd["programs"][0]["configurations"]["none"]["calls.madvise.dontneed"]["runs"]')"
is ratio 0.0 "$(json report.json 'd["programs"][0]["configurations"]["trim"]["calls.madvise.dontneed"]["ratio"]["median"]')"
is ranking "trim all" "$(json report.json '" ".join(d["programs"][0]["ranking"][:2])')"

"$AT" compare --tier 0 --runs 4 --seed 42 --policy none --policy all --base all -j "$short" >report.json 2>err </dev/null
is base-changes-sign "31 False" "$(json report.json '"%d %s" % (lambda f: (f["difference"]["median"], "ratio" in f))(
	d["programs"][0]["configurations"]["none"]["calls.madvise.dontneed"])')"
is base-named all "$(json report.json 'd["method"]["base"]')"

"$AT" compare --tier 0 --runs 1 --policy none --policy all "$short" >out 2>err </dev/null
is table "0 0" "$? $(wc -c <err)"
for text in "too few runs" "(base)" "against none" "ranking by memory syscalls: all (0) < none (31)" "seed " "saves\|~"; do
	check "table: $text" grep -q -e "$text" out
done

# Every run has the same input, none; what it prints is dropped unless asked for.
# shellcheck disable=SC2016
"$AT" compare --tier 0 --runs 1 --policy none --policy all -o report -- sh -c 'cat; echo seen; echo "$V" >>env' >out 2>err <err
is output-dropped "0 0" "$? $(wc -c <out)"
"$AT" compare --tier 0 --runs 2 --config a: --config b:env=V=7 --show-output -o report -- \
	sh -c 'echo seen; echo "v$V" >>env2' >out 2>err </dev/null
is output-shown 6 "$(grep -c seen out)"
is env-of-its-own "3 3" "$(grep -c -x v env2) $(grep -c -x v7 env2)"

"$AT" compare --tier 0 --runs 5 --config good: --config bad:env=STATUS=3 -- sh -c 'exit ${STATUS:-0}' >out 2>err </dev/null
is failing-run "1 0 1" "$? $(wc -c <out) $(wc -l <err)"
has failing-run-named err "configuration bad"
has failing-run-status err "exit status 3"
"$AT" compare --tier 0 --policy none --policy all -- sh -c 'kill -9 $$' >out 2>err </dev/null
is killed-run "1 0" "$? $(wc -c <out)"
"$AT" compare --tier 0 --policy none --policy all -- ./no-such-program >out 2>err </dev/null
is not-found 127 $?

"$AT" compare --tier 0 --runs 1000 --time 1s --policy none --policy all -j -- true >report.json 2>err </dev/null
is time-is-a-bound "0 True" "$? $(json report.json '0 < d["method"]["blocks"] < 1000')"

# With --time: at least --runs blocks, then until times are precise. To within 100 % they are soon, on a busy machine after some more.
"$AT" compare --tier 0 --runs 3 --time 60s --precision 100 --policy none --policy all -j -- true >report.json 2>err </dev/null
is time-precise "0 True True 100.0" "$? $(json report.json '"%s %s %s" % (3 <= d["method"]["blocks"] < 20, d["method"]["precise"], d["method"]["precision_percent"])')"
# A command of which every other run sleeps: the median's interval never becomes narrow.
"$AT" compare --tier 0 --runs 2 --time 3s --precision 1 --policy none --policy all -j -- \
	sh -c 'if [ -e odd ]; then rm odd; sleep 0.03; else : >odd; fi' >report.json 2>err </dev/null
is time-imprecise "0 True False" "$? $(json report.json '"%s %s" % (d["method"]["blocks"] > 2, d["method"]["precise"])')"
check time-imprecise-said grep -q 'not all times are within 1 %' report.json

# --all is what the list says: here a short one of a small installation.
mkdir -p small/scenarios
cp "$AT" small/alloctrace
ln -s "$(dirname "$AT")/libatmalloc.so" small/libatmalloc.so
for name in trim_loop trim_mixed; do ln -s "$O/scenarios/$name" "small/scenarios/$name"; done
printf 'trim_loop\ttrim\t--iterations 29\tone\ntrim_mixed\ttrim\t--blocks 31\ttwo\n' >small/scenarios/scenarios.tsv
small/alloctrace compare --tier 0 --all --runs 2 --policy none --policy all -j >report.json 2>err </dev/null
is all "0 trim_loop trim_mixed" "$? $(json report.json '" ".join(p["name"] for p in d["programs"])')"
is all-default-arguments "[29, 29]" \
	"$(json report.json 'd["programs"][0]["configurations"]["none"]["calls.madvise.dontneed"]["runs"]')"
is all-geometric True "$(json report.json '"wall_ns" in d["geometric_means"]["all"]')"

# A signal: the blocks that were finished are reported. The command writes a line a run, so that we know when.
python3 - "$AT" <<'PY' >result
import json, os, signal, subprocess, sys, time
for name, number, group in (("interrupt", signal.SIGINT, True), ("interrupt-alone", signal.SIGINT, False),
                            ("terminate", signal.SIGTERM, False)):
    open("runs", "w").close()
    command = [sys.argv[1], "compare", "--tier", "0", "--runs", "1000", "--policy", "none", "--policy", "all", "-j", "--",
               "sh", "-c", "echo >>runs; exec sleep 0.1"]
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                         start_new_session=True)
    while os.path.getsize("runs") < 9:
        time.sleep(0.02)
    (os.killpg if group else os.kill)(p.pid, number)
    out, err = p.communicate(timeout=60)
    try:
        method = json.loads(out)["method"]
        good = p.returncode == 128 + number and method["interrupted"] and 3 <= method["blocks"] < 1000
    except ValueError:
        good = False
    print(f"ok {name}" if good else f"not ok {name}: exit {p.returncode}, {err!r}, {out[-200:]!r}")
PY
cat result
grep -q '^not ok' result && failed=1
finish
