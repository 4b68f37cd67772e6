#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Saving what was measured, and showing it again: byte by byte the same, without
# privileges; and files that are none of ours.
# timeout: 300
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

same() {
	if cmp -s "$2" "$3"; then
		ok "$1"
	else
		not_ok "$1" "not the same"
		diff "$2" "$3" | head -20 | sed 's/^/# /'
	fi
}

# fails NAME STATUS TEXT ARGUMENT...: the command fails so, and says so in one line
fails() {
	name=$1 expected=$2 text=$3
	shift 3
	"$AT" "$@" >out 2>err </dev/null
	got=$?
	if [ "$got $(wc -l <err)" = "$expected 1" ] && grep -qF -- "$text" err; then
		ok "$name"
	else
		not_ok "$name" "status $got, expected $expected and '$text': $(cat err)"
	fi
}

# As a user without any right to trace, where there is one to become.
unprivileged() {
	if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
		setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all -- "$@"
	else
		"$@"
	fi
}

"$AT" run --save run.gz -o run.txt trim_loop >/dev/null
"$AT" run --save json.gz -j -o run.json --tune trim_threshold=64K trim_loop --iterations 7 >/dev/null
is saved-is-gzip 1f8b "$(od -An -tx1 -N2 run.gz | tr -d ' ')"
unprivileged "$AT" report run.gz >again.txt 2>err
same table run.txt again.txt
unprivileged "$AT" report -j json.gz >again.json 2>err
same json run.json again.json
"$AT" report -o file.txt run.gz
same to-a-file run.txt file.txt
python3 -c 'import gzip, json, sys
saved = json.loads(gzip.open("json.gz").read())
raw = saved.pop("raw")
assert saved == json.load(open("run.json")), "the same document"
assert raw["argv"][-2:] == ["--iterations", "7"], raw["argv"]' 2>err
is self-describing 0 $?
gzip -dc run.gz >plain.json && "$AT" report plain.json >again.txt
same unpacked run.txt again.txt
mkdir other && (cd other && gzip -dc ../run.gz | gzip -1 >packed.gz && "$AT" report packed.gz >../again.txt)
same packed-by-another run.txt again.txt

"$AT" compare --runs 2 --seed 7 --policy none --policy trim --save compare.gz -o compare.txt \
	--config 'odd:allocator=system,env=ODD=a"b' trim_loop
unprivileged "$AT" report compare.gz >again.txt 2>err
same comparison compare.txt again.txt
"$AT" compare --runs 2 --seed 7 --policy none --policy trim --save compare.gz -j -o compare.json trim_loop 'trim_mixed'
unprivileged "$AT" report -j compare.gz >again.json 2>err
same comparison-json compare.json again.json

# Arguments that are hard to write come back as they were.
printf '\377\376 raw' >raw.txt
"$AT" run --allocator system --save odd.gz -o odd.txt -- true 'a,b' '"q"' 'two
lines' "$(cat raw.txt)" "$(printf '\033[31m')"
"$AT" report odd.gz >again.txt
same odd-arguments odd.txt again.txt

# Where it cannot be written is said before the command runs; nothing is left.
mkdir dir
fails save-to-a-directory 125 "cannot save to 'dir': Is a directory" run --save dir -- touch ran
fails save-to-a-directory/ 125 "cannot save to 'new/': " run --save new/ -- touch ran
fails save-nowhere 125 "cannot save to 'no/where': No such file" run --save no/where -- touch ran
fails save-to-a-device 125 "not a regular file" run --save /dev/null -- touch ran
fails compare-save-to-a-directory 125 "cannot save to 'dir': Is a directory" compare --save dir -- touch ran
check nothing-ran [ ! -e ran ]
if [ "$(id -u)" = 0 ] && mkdir full && mount -t tmpfs -o size=4k none full 2>err; then
	echo x >full/old.gz
	cp full/old.gz old.gz
	"$AT" run --allocator system --save full/old.gz -o out.txt -- sh -c 'head -c 3000 /dev/zero >full/fill; true' >out 2>err
	got=$?
	is no-space-status 125 "$got"
	has no-space err "cannot save to 'full/old.gz': No space left on device"
	has no-space-report out.txt "ended       exit 0"
	same no-space-keeps-the-old old.gz full/old.gz
	is no-space-leaves-nothing "fill old.gz" "$(ls -A full | tr '\n' ' ' | sed 's/ $//')"
	umount full
else
	skip no-space "cannot mount a tmpfs"
fi
chmod 600 run.gz
"$AT" run --allocator system --save run.gz -o out.txt -- true
is keeps-the-mode 600 "$(stat -c %a run.gz)"
(umask 027 && "$AT" run --allocator system --save masked.gz -o out.txt -- true)
is umask 640 "$(stat -c %a masked.gz)"
ln -s masked.gz link.gz
"$AT" run --allocator system --save link.gz -o out.txt -- true
check replaces-a-link [ ! -L link.gz ]
is nothing-left 0 "$(find . -name '.alloctrace-*' | wc -l)"
is status-passed-on 6 "$("$AT" run --allocator system --save status.gz -o out.txt -- sh -c 'exit 6'; echo $?)"
check saved-despite-status "$AT" report status.gz -o out.txt

# Files that are none of ours.
fails no-file 2 "no file" report
fails missing-file 125 "cannot read 'missing.gz': No such file" report missing.gz
fails directory 125 "cannot read 'dir': Is a directory" report dir
: >empty
fails empty 125 "'empty' is empty" report empty
fails foreign 125 "neither gzip nor JSON" report /etc/passwd
head -c 700 status.gz >short.gz
fails truncated 125 "is cut off" report short.gz
fails plain-report 125 "is a report (-j)" report run.json
echo '{"schema":"alloctrace.profile/2","tool":{"version":"9"}}' | gzip >newer.gz
fails newer 125 "of a newer alloctrace 9" report newer.gz
finish
