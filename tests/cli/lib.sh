# SPDX-License-Identifier: BSD-2-Clause
# What the CLI's test scripts share: where things are, and how a result is said.
# Sourced with "set -u" and a scratch directory as the current one.
# shellcheck shell=sh disable=SC2034

set -u
TESTS=$(readlink -f "$(dirname "$0")/..")
O=$(readlink -f "${O:-.output}")
AT=$(readlink -f "${ALLOCTRACE:-$O/alloctrace}")
PROGRAMS=$O/tests/cli
SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT
trap 'exit 143' HUP INT TERM # else not every sh does what is to be done at EXIT
cd "$SCRATCH" || exit 1
chmod 755 "$SCRATCH"
failed=0
: >lib.stamp # older than everything that a test makes
unset LD_PRELOAD ATMALLOC_POLICY ATMALLOC_TUNE ATMALLOC_COUNTERS NO_COLOR SUDO_UID SUDO_GID

ok() {
	echo "ok $1"
}

not_ok() {
	name=$1
	shift
	echo "not ok $name: $*"
	failed=1
}

skip() {
	echo "skip $1: $2"
}

# check NAME COMMAND...: ok when the command succeeds
check() {
	name=$1
	shift
	if "$@"; then ok "$name"; else not_ok "$name" "failed: $*"; fi
}

# is NAME EXPECTED ACTUAL
is() {
	if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "expected '$2', got '$3'"; fi
}

# has NAME FILE TEXT: the file has the text somewhere
has() {
	if grep -qF -- "$3" "$2"; then
		ok "$1"
	else
		not_ok "$1" "'$3' is not in the output"
		sed 's/^/# /' "$2"
	fi
}

# json FILE EXPRESSION: prints the value of a Python expression on the document d
json() {
	python3 -c 'import json, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
print(eval(sys.argv[2]))' "$1" "$2"
}

can_trace() {
	"$AT" check >/dev/null 2>&1
}

finish() {
	exit $failed
}
