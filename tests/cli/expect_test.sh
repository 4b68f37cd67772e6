#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The gate: exit statuses, messages, and the recipe for make that docs/ci-gate.md has.
# timeout: 300
# shellcheck source=tests/cli/lib.sh
DOC=$(readlink -f docs/ci-gate.md)
. "$(dirname "$0")/lib.sh"

# gate NAME STATUS TEXT ARGUMENT...: what is said on stderr has TEXT ("" = it is empty)
gate() {
	name=$1 expected=$2 text=$3
	shift 3
	"$AT" "$@" >out 2>err </dev/null
	got=$?
	if [ -z "$text" ]; then is_said=$([ -s err ] || echo yes); else is_said=$(grep -F -- "$text" err); fi
	if [ "$got" = "$expected" ] && [ -n "$is_said" ]; then
		ok "$name"
	else
		not_ok "$name" "status $got, expected $expected and '$text': $(cat err)"
	fi
}

# Under the bundled allocator, untraced: its own counts. 1,021 is a prime.
set -- run --tier 0 -o report
gate counted-met 0 "" "$@" --policy -trim --expect 'madvise.dontneed==1021' trim_loop --iterations 1021
gate counted-unmet 1 "not met: 'madvise.dontneed<=1020': madvise.dontneed is 1,021" "$@" --policy -trim \
	--expect 'madvise.dontneed<=1020' trim_loop --iterations 1021
gate not-measured 125 "cannot tell whether 'kernel_ns<=1s': kernel_ns was not measured" "$@" --expect 'kernel_ns<=1s' trim_loop
gate usage 2 "at character 1: unknown figure 'madvise.dontned'; known: madvise.dontneed" "$@" \
	--expect 'madvise.dontned<=2' -- touch ran
check usage-runs-nothing [ ! -e ran ]
gate status-first 6 "not met: 'max_rss<=1'" "$@" --expect 'max_rss<=1' -- sh -c 'exit 6'
gate quiet 1 "not met" "$@" -q --expect 'max_rss<=1' -- true
gate all-are-judged 1 "not met: 'user_ns<0'" "$@" --expect 'max_rss<=1' --expect 'user_ns<0' -- true
is all-are-listed 2 "$(grep -c 'not met' err)"
"$AT" "$@" --expect 'max_rss<=1' -- sh -c 'kill -KILL $$' >out 2>err
is signal-first 137 $?
"$AT" "$@" --save saved.gz --policy -trim trim_loop --iterations 1021 >out 2>err
gate report-met 0 "" report -o report --expect '1021>=madvise.dontneed' saved.gz
gate report-unmet 1 "not met" report -o report --expect '1021>madvise.dontneed' saved.gz

set -- compare --tier 0 --runs 2 -o report --policy none --policy trim --save compare.gz
gate compare-met 0 "" "$@" --expect 'madvise.dontneed(none)==1021' --expect 'calls(trim)<=5%*calls(none)' \
	'trim_loop --iterations 1021'
gate compare-unmet 1 "not met: 'calls(none)<calls(trim)' in trim_loop --iterations 1021: calls(none) is 1," "$@" \
	--expect 'calls(none)<calls(trim)' 'trim_loop --iterations 1021'
gate compare-of-each 1 "in trim_mixed" "$@" --expect 'madvise.dontneed(none)==1021' 'trim_loop --iterations 1021' trim_mixed
gate compare-usage 2 "known: none, trim" "$@" --expect 'calls(all)<1' trim_loop
gate compare-not-measured 125 "kernel_ns(none) was not measured" "$@" --expect 'kernel_ns(none)<1' trim_loop
gate compare-report-unmet 1 "not met" report -o report --expect 'calls(none)<calls(trim)' compare.gz

# The recipe for make, as the document has it: good, and after the fix is lost.
awk '/^## make/ { is_in = 1; next } /^## / { is_in = 0 } is_in && /^    / { print substr($0, 5) }' "$DOC" >Makefile
cat >>Makefile <<'END'
my_test:
	printf '#!/bin/sh\nexec %s --iterations 1021\n' "$(TRIM_LOOP)" >$@
	chmod +x $@
END
if can_trace; then
	make -s check-memory ALLOCTRACE="$AT" TRIM_LOOP="$O/scenarios/trim_loop" >out 2>err
	is make-good 0 $?
	check make-saved "$AT" report -o report memory.gz
	ATMALLOC_POLICY=-trim make -s check-memory ALLOCTRACE="$AT" TRIM_LOOP="$O/scenarios/trim_loop" >out 2>err
	is make-bad 2 $?
	has make-says err "not met: 'madvise.dontneed<=2': madvise.dontneed is 1,021"
else
	skip make-good "tracing is not possible here"
fi
if python3 -c 'import yaml' 2>/dev/null; then
	awk '/^## GitHub/ { is_in = 1; next } is_in && /^    / { print substr($0, 5) }' "$DOC" >workflow.yml
	python3 -c 'import yaml
steps = yaml.safe_load(open("workflow.yml"))["jobs"]["memory"]["steps"]
assert any("check-memory" in step.get("run", "") for step in steps)'
	is workflow-form 0 $?
else
	skip workflow-form "python3-yaml is not installed"
fi
finish
