#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The loader of saved files and the parser of expectations: a fixed number of
# runs of libFuzzer from a fixed seed, under AddressSanitizer and UBSan.
# timeout: 240
set -u
O=${O:-.output}
target=$O/tests/fuzz/saved_fuzz
if [ -e "$target.skip" ]; then
	echo "skip saved_fuzz: $(cat "$target.skip")"
	exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/corpus"
if "$target" -seed=20261130 -runs=3000 -max_len=20000 -rss_limit_mb=2048 -timeout=60 -artifact_prefix="$work/" \
	"$work/corpus" >"$work/log" 2>&1; then
	echo "ok saved_fuzz"
else
	echo "not ok saved_fuzz: the loader fails on an input: $(base64 -w0 "$work"/*-* 2>/dev/null | head -c 8000)"
	tail -40 "$work/log" | sed 's/^/# /'
fi
# It got into the fields, not only to the first bracket.
edges=$(sed -n 's/.*DONE *cov: *\([0-9]*\).*/\1/p' "$work/log")
if [ "${edges:-0}" -ge 900 ]; then
	echo "ok saved_fuzz-coverage"
else
	echo "not ok saved_fuzz-coverage: ${edges:-0} edges, 900 are wanted"
fi
