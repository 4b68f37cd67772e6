#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 240
# The seeds, and a fixed number of runs of the fuzz target from a fixed random seed.
set -u

O=${O:-.output}
target=$O/tests/fuzz/malloc_ops_fuzz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -e "$target.skip" ]; then
	echo "skip fuzz: $(cat "$target.skip")"
	exit 0
fi

run() { # NAME ARGUMENT...
	local name=$1
	shift
	if "$target" -artifact_prefix="$work/" -rss_limit_mb=4096 -timeout=120 "$@" >"$work/log" 2>&1; then
		echo "ok $name"
	else
		echo "not ok $name: exit status $?"
		tail -n 30 "$work/log"
		# The input, to be run again: target FILE.
		for input in "$work"/crash-* "$work"/timeout-*; do [ -e "$input" ] && base64 "$input"; done
		failed=1
	fi
}

failed=0
mkdir "$work/corpus"
run "the seeds" -runs=0 tests/fuzz/seeds
run "1000 runs" -seed=1 -len_control=0 -max_len=400 -runs=1000 "$work/corpus" tests/fuzz/seeds
if [ "$(grep -oE 'cov: [0-9]+' "$work/log" | tail -n 1 | cut -d' ' -f2)" -ge 500 ]; then
	echo "ok 500 edges are covered"
else
	echo "not ok 500 edges are covered: $(tail -n 1 "$work/log")"
	failed=1
fi
exit $failed
