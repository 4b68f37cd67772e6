#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Without privileges `run` works from the allocator's own counts, and says what is missing and how to get it.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

"$AT" run --tier 0 --policy -trim -j -o report.json trim_loop >out 2>err
is runs 0 $?
is tier 0 "$(json report.json 'd["tool"]["tier"]')"
is absent-not-zero "[False, False, False]" \
	"$(json report.json '[k in d["total"] for k in ("classes", "syscalls", "faults")]')"
is own-counts True "$(json report.json 'abs(d["phases"]["measured"]["self_counts"]["madvise.dontneed"] - 1024) <= 2')"
"$AT" run --tier 0 --policy +trim -j -o report.json trim_loop >out 2>err
is own-counts-trim True "$(json report.json 'd["phases"]["measured"]["self_counts"]["madvise.dontneed"] <= 2')"
"$AT" run --tier 0 -o report trim_loop >out 2>err
has says-missing report "missing "
has says-not-traced report "tier 0: not traced"
"$AT" run --tier 0 --allocator system -o report -- true 2>err
has system-totals report "process totals only"
"$AT" run --tier 0 -j -o report.json commit_storm --processes 3 --iterations 11 >out 2>err
is processes 4 "$(json report.json 'd["tool"]["self_count_processes"]')"
is processes-requests True "$(json report.json 'd["total"]["requests"]["malloc"] >= 33')"
# Every program of a script is counted, dead ones too.
"$AT" run --tier 0 -j -o report.json -- sh -c 'for i in 1 2 3 4 5; do env true; done; kill -9 $$' 2>err
is killed-and-counted True "$(json report.json 'd["tool"]["self_count_processes"] >= 6')"

if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	# Where the tree lies in a private directory another user cannot reach it: copy what is needed.
	mkdir -p tree/scenarios
	cp "$AT" tree/alloctrace
	cp "$O/libatmalloc.so" tree/
	cp "$O"/scenarios/trim_loop "$O"/scenarios/scenarios.tsv tree/scenarios/
	chmod -R a+rX tree
	user() {
		setpriv --reuid 12345 --regid 12345 --clear-groups "$SCRATCH/tree/alloctrace" "$@" 2>err
	}
	user check >out
	is unprivileged-check 1 $?
	has unprivileged-check-says out "tier 0"
	user run -o - trim_loop >out
	is unprivileged-runs "0 0" "$? $(wc -c <err)"
	has unprivileged-advice out "no kernel-side counts"
	has unprivileged-counts out "trim.avoided"
	user run --tier 1 trim_loop >out
	is unprivileged-tier-1 "125 1" "$? $(wc -l <err)"
	user run --user root -- true >out
	is unprivileged-user "2 1" "$? $(wc -l <err)"
	user policy -p $$ >out
	is unprivileged-policy 1 $?
	has unprivileged-policy-says err "not permitted"
	# Root, but without what tracing takes.
	setpriv --bounding-set -bpf,-perfmon,-sys_admin --inh-caps -bpf,-perfmon,-sys_admin \
		"$AT" run -o report trim_loop >out 2>err
	is root-without-capabilities 0 $?
	has root-without-capabilities-says report "no kernel-side counts"
else
	skip unprivileged-check "needs root and setpriv"
fi
finish
