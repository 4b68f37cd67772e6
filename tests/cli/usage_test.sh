#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Wrong usage is one line that names what is known, and exit status 2. Help and lists go to stdout.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

# wrong NAME KNOWN ARGUMENT...: KNOWN is part of the line
wrong() {
	label=$1 known=$2
	shift 2
	"$AT" "$@" >out 2>err </dev/null
	is "$label" "2 1 0" "$? $(wc -l <err) $(wc -c <out)"
	has "$label: names the known" err "$known"
}

wrong verb "known: run, compare, attach, report, policy, list, check, help" frobnicate
wrong help-verb "known: run, compare, attach, report, policy, list, check, help" help frobnicate
wrong option --allocator run --frobnicate trim_loop
wrong letter --allocator run -Z trim_loop
wrong option-value "needs a value" run --policy
wrong option-no-value "takes no value" run --json=1 trim_loop
wrong scenario trim_loop run no_such_scenario
wrong policy stack run --policy trm trim_loop
wrong policy-empty stack run --policy '' trim_loop
wrong policy-mixed stack run --policy trim,-stack trim_loop
wrong tunable trim_threshold run --tune trm=1 trim_loop
wrong tunable-value stack_cache run --tune stack_cache=lots trim_loop
wrong allocator jemalloc run --allocator nomalloc trim_loop
wrong allocator-file "No such file" run --allocator ./none.so trim_loop
wrong allocator-no-elf "not an ELF" run --allocator /etc/passwd trim_loop
wrong policy-other-allocator bundled run --allocator system --policy trim trim_loop
wrong tune-other-allocator bundled run --allocator jemalloc --tune grow=copy trim_loop
wrong tier "0, 1, 2" run --tier 9 trim_loop
wrong slots storage run --slots sideways trim_loop
wrong color always run --color blue trim_loop
wrong user "no such user" run --user no-such-user -- true
wrong no-command list run
wrong nothing-after-dashes list run --
wrong policy-no-pid --pid policy
wrong policy-pid "not a process number" policy -p x
wrong policy-set stack policy -p 1 trm
wrong list-argument list list x
wrong env-policy stack run --tier 0 --policy nonsense trim_loop
ATMALLOC_POLICY=trm "$AT" run trim_loop >out 2>err
is policy-from-environment "2 1" "$? $(wc -l <err)"

ATMALLOC_POLICY='' ATMALLOC_TUNE='' "$AT" run --tier 0 -o report trim_loop >out 2>err
is empty-environment 0 $?
"$AT" >out 2>err
is no-verb 2 $?
for verb in run compare attach report policy list check help; do
	"$AT" help $verb >out 2>err
	is "help-$verb" "0 0" "$? $(wc -c <err)"
	has "help-$verb: text" out "Usage: alloctrace $verb"
	"$AT" $verb --help >out2 2>err
	check "help-$verb: same" cmp -s out out2
done
"$AT" --version >out 2>err
is version "0 0" "$? $(wc -c <err)"
has version-abi out "library ABI"
"$AT" list >out 2>err
is list "0 0" "$? $(wc -c <err)"
for name in trim_loop thread_create stack realloc commit_batch jemalloc libtcmalloc; do
	has "list: $name" out "$name"
done
"$AT" list >/dev/full 2>err
is list-full-disk 125 $?
finish
