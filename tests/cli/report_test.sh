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

fails html-of-a-run 2 "run.gz is a run" report --html page.html run.gz
is html-of-a-run-leaves-nothing no "$([ -e page.html ] && echo yes || echo no)"

# Latencies of calls that there cannot be; and a file of before they were saved.
python3 -c 'import copy, gzip, json
saved = json.loads(gzip.open("compare.gz").read())
bad = {"far": [[4000, 1]], "below": [[-1, 1]], "fewer": [[1, -1]], "half": [[1]], "flat": [1], "real": [[1, 0.5]]}
for name, buckets in bad.items():
    odd = copy.deepcopy(saved)
    odd["raw"]["programs"][0]["histograms"][1]["munmap"] = buckets
    json.dump(odd, open(f"latency-{name}.json", "w"))
saved["raw"]["programs"][0]["histograms"].pop()
json.dump(saved, open("latency-one.json", "w"))
for program in saved["raw"]["programs"]:
    del program["histograms"]
json.dump(saved, open("no-latencies.json", "w"))'
for name in far below fewer half flat real; do
	fails "latency-$name" 125 "a bucket that there cannot be" report "latency-$name.json"
done
fails latency-one 125 "are not one a configuration" report latency-one.json
"$AT" report -j no-latencies.json >again.json 2>err
same no-latencies compare.json again.json

# Arguments that are hard to write come back as they were.
printf '\377\376 raw' >raw.txt
"$AT" run --allocator system --save odd.gz -o odd.txt -- true 'a,b' '"q"' 'two
lines' "$(cat raw.txt)" "$(printf '\033[31m')"
"$AT" report odd.gz >again.txt
same odd-arguments odd.txt again.txt

# CSV and Markdown; a CSV reader gets the bytes back, and the figures of the JSON document.
"$AT" report --format csv odd.gz >odd.csv
"$AT" report --format markdown odd.gz >odd.md
"$AT" report -j odd.gz >odd.json
"$AT" run --allocator system --format csv -o live.csv -- true
is csv-live "$(head -1 odd.csv)" "$(head -1 live.csv)"
cat >check_run.py <<'END'
import csv, json, re
document = json.load(open('odd.json', encoding='utf-8'))
command = b' '.join(word.encode('latin-1') for word in document['target']['command_latin1'])
rows = list(csv.DictReader(open('odd.csv', encoding='latin-1', newline='')))
assert len(rows) > 100, len(rows)
assert all(row['command'].encode('latin-1') == command for row in rows), rows[0]
assert all(None not in row and None not in row.values() for row in rows)
def value(phase, part, name, figure):
    return [row['value'] for row in rows
            if (row['phase'], row['part'], row['name'], row['figure']) == (phase, part, name, figure)]
total = document['total']
if 'classes' in total:
    for name, figures in total['classes'].items():
        for figure, number in figures.items():
            assert value('all', 'classes', name, figure) == [str(number)], (name, figure)
assert value('run', 'rusage', '', 'wall_ns') == [str(document['rusage']['wall_ns'])]
markdown = open('odd.md', encoding='utf-8').read()
assert '\\x0a' in markdown.splitlines()[0] and '\\xff\\xfe raw' in markdown and '\033' not in markdown, markdown[:200]
for lines in re.findall(r'(?:^\|.*\n)+', markdown, re.M):
    cells = {len(re.findall(r'(?<!\\)\|', line)) for line in lines.splitlines()}
    assert len(cells) == 1, lines
END
python3 check_run.py 2>err
is csv-and-markdown 0 $?
cat err
"$AT" report --format csv compare.gz >compare.csv
"$AT" report --format markdown compare.gz >compare.md
cat >check_compare.py <<'END'
import csv, json
document = json.load(open('compare.json', encoding='utf-8'))
rows = list(csv.DictReader(open('compare.csv', newline='')))
seen = 0
for program in document['programs']:
    for config, figures in program['configurations'].items():
        for key, figure in figures.items():
            row, = [r for r in rows if (r['program'], r['configuration'], r['figure']) == (program['name'], config, key)]
            assert float(row['median']) == figure['median'] and float(row['high']) == figure['high'], row
            assert ('same' in figure) == bool(row['same']), row
            seen += 1
assert seen == len(rows) > 100, (seen, len(rows))
END
python3 check_compare.py 2>err
is compare-csv 0 $?
cat err
has compare-markdown compare.md "| figure | none | trim |"
fails unknown-format 2 "--format: unknown 'xml'; known: table, json, csv, markdown" report --format xml run.gz

# Two files against each other.
"$AT" run --tier 0 --policy -trim --save A.gz -o A.txt trim_loop --iterations 1021 >/dev/null
"$AT" run --tier 0 --save B.gz -o B.txt trim_loop --iterations 1021 >/dev/null
unprivileged "$AT" report A.gz B.gz >pair.txt 2>err
has pair pair.txt "one run each: no statistics are possible"
check pair-base grep -q '^  A.gz  *1,021 .*base$' pair.txt
check pair-other grep -q '^  B.gz  *0 .*-100.0 %' pair.txt
"$AT" report -j A.gz B.gz >pair.json
is pair-json "-1021 True" "$(json pair.json '"%d %s" % (
	d["programs"][0]["configurations"]["B.gz"]["calls.madvise.dontneed"]["difference"]["median"], d["method"]["apart"])')"
fails pair-expect 1 "not met: 'calls(B.gz)>=calls(A.gz)'" report -o out.txt --expect 'calls(B.gz)>=calls(A.gz)' A.gz B.gz
mkdir twice && cp A.gz twice/A.gz
"$AT" report A.gz twice/A.gz >pair.txt
has pair-same-name pair.txt "twice/A.gz"
"$AT" report A.gz A.gz >pair.txt
check pair-of-one grep -q '^  B\|  ~ the same in all' pair.txt
for i in 1 2; do
	"$AT" compare --tier 0 --runs $((i + 4)) --seed $i --policy none --policy trim --save pair$i.gz -o out.txt \
		'trim_loop --iterations 1021' 2>err
done
unprivileged "$AT" report -j pair1.gz pair2.gz >pair.json
is pair-of-comparisons "trim_loop --iterations 1021, none;trim_loop --iterations 1021, trim 5 True" "$(json pair.json '"%s %d %s" % (
	";".join(p["name"] for p in d["programs"]), d["method"]["blocks"],
	all(p["configurations"]["pair2.gz"]["calls"]["same"] for p in d["programs"]))')"
"$AT" report pair1.gz pair2.gz >pair.txt
has pair-of-comparisons-says pair.txt "measured apart, not in turn"
fails pair-of-kinds 2 "is a run and 'pair1.gz' a comparison" report A.gz pair1.gz
fails three-files 2 "not 'A.gz' as well" report A.gz A.gz A.gz

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
