#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 240
# The allocator's benchmark works: every program runs, and each table has a ratio
# for each malloc. Says nothing about the ratios.
set -u

O=${O:-.output}
driver=tests/bench/malloc_bench.py
programs=$("$driver" --list) || exit 1
text=$("$driver" --short -a ours,ours-none,jemalloc 2>&1)
status=$?
failed=0

check() { # NAME COMMAND...: ok when the command succeeds
	local name=$1
	shift
	if "$@"; then
		echo "ok $name"
	else
		echo "not ok $name"
		failed=1
	fi
}

# Of the three tables, the lines that begin with this word and end in ratios.
has_ratios() {
	local mallocs lines

	mallocs=$(grep -m 1 'glibc s' <<<"$text" | wc -w)
	# A figure of glibc's, and a ratio with its spread for each of the others (the head has two words of glibc's).
	lines=$(grep -cE "^$1 +[0-9.e+-]+( +[0-9]+\.[0-9]{2} \+-[0-9.]+){$((mallocs - 2))}$" <<<"$text")
	[ "$lines" = 3 ]
}

check "exit status" [ "$status" = 0 ]
check "20 programs or more" [ "$(wc -w <<<"$programs")" -ge 20 ]
check "all three configurations" grep -qE '^ +glibc s +ours +ours-none' <<<"$text"
for program in $programs; do
	check "ratios of $program" has_ratios "$program"
done
check "mean of each table" [ "$(grep -c '^geometric mean  *[0-9]' <<<"$text")" = 3 ]
check "an unknown program is an error" test "$("$driver" --short -a ours no-such >/dev/null 2>&1; echo $?)" = 1
check "a failing program is an error" test "$(O=/nonexistent "$driver" --short bignums >/dev/null 2>&1; echo $?)" = 1
[ $failed = 0 ] || echo "$text"
exit $failed
