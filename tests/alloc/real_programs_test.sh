#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 280
# Real programs do under the library, all policies on and all off, what they do
# without it: each writes a text, and the texts must be equal. A program that is
# not installed is skipped.
set -u

O=${O:-.output}
library=$(realpath "$O")/libatmalloc.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# Each prints what must not depend on malloc, in a directory of its own.

run_python() { # the interpreter's own tests, one line each
	"$python" "$work/threads.py" 2>"$1.log"
}

run_git() {
	git clone -q --no-local "$work/repository" "$1.git" &&
		git -C "$1.git" log --stat -p --format='%H %an %s' | sha256sum &&
		git -C "$1.git" gc -q --prune=now && git -C "$1.git" fsck --full --strict 2>&1 &&
		git -C "$1.git" blame -s Makefile | sha256sum
	rm -rf "$1.git"
}

run_gcc() {
	mkdir "$1.objects"
	for source in alloc/settings.c scenarios/scenario.c scenarios/record_search.c; do
		gcc -std=gnu11 -O2 -I. -D_GNU_SOURCE -c "$source" -o "$1.objects/$(basename "$source").o" || return
	done
	g++ -std=gnu++17 -O0 -c tests/alloc/cxx_program.cc -o "$1.objects/cxx_program.o" || return
	(cd "$1.objects" && sha256sum -- *)
}

run_redis() {
	local socket=$1.socket preload=${LD_PRELOAD-} server

	redis-server --port 0 --unixsocket "$socket" --dir "$work" --dbfilename "$(basename "$1").rdb" --save '' \
		--io-threads 2 --daemonize no --loglevel warning --logfile '' >"$1.log" 2>&1 &
	server=$!
	trap 'kill $server 2>/dev/null' EXIT
	for _ in $(seq 200); do [ -S "$socket" ] && break; sleep 0.05; done
	if [ -n "$preload" ] && ! grep -q libatmalloc "/proc/$server/maps"; then
		echo "the server runs without the library"
	fi
	redis-benchmark -s "$socket" -q -n 5000 -c 20 -P 8 -d 500 -t set,get,incr,lpush,rpop,sadd,hset,zadd,lrange_100 \
		>"$1.benchmark" 2>&1
	echo "benchmark $?"
	awk 'BEGIN {
		printf "FLUSHALL\r\n"
		for (i = 1; i <= 3000; i++) printf "SET key:%d %0*d\r\n", i, i % 700, i
		for (i = 1; i <= 2000; i++) printf "RPUSH list:%d value%d\r\n", i % 50, i
		for (i = 1; i <= 2000; i++) printf "HSET hash:%d field%d value%d\r\n", i % 20, i, i
		for (i = 1; i <= 3000; i += 2) printf "DEL key:%d\r\n", i
		for (i = 2; i <= 1000; i += 2) printf "APPEND key:%d tail%d\r\n", i, i
	}' | redis-cli -s "$socket" --pipe | grep -o 'errors: [0-9]*, replies: [0-9]*'
	redis-cli -s "$socket" DBSIZE
	redis-cli -s "$socket" LRANGE list:7 0 -1 | sha256sum
	redis-cli -s "$socket" HGETALL hash:3 | sort | sha256sum
	redis-cli -s "$socket" GETRANGE key:998 0 1000 | sha256sum
	redis-cli -s "$socket" BGSAVE >/dev/null # in a forked child
	for _ in $(seq 200); do
		redis-cli -s "$socket" INFO persistence | grep -q 'rdb_bgsave_in_progress:0' && break
		sleep 0.05
	done
	redis-cli -s "$socket" INFO persistence | grep -o 'rdb_last_bgsave_status:[a-z]*'
	redis-cli -s "$socket" SHUTDOWN NOSAVE >/dev/null 2>&1
	wait "$server"
	echo "server $?"
	trap - EXIT
	redis-check-rdb "$1.rdb" | grep -o 'keys read' # its own allocations, too
}

run_sqlite3() {
	sqlite3 "$1.db" <<-'SQL'
		PRAGMA journal_mode = wal;
		CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, amount INTEGER, note BLOB);
		INSERT INTO item SELECT value, 'name ' || (value * 7919 % 10007), value * 31 % 1009, zeroblob(value % 400)
			FROM (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 40000) SELECT value FROM n);
		CREATE INDEX by_name ON item(name);
		CREATE INDEX by_amount ON item(amount, name);
		UPDATE item SET amount = amount + 1, note = zeroblob(900) WHERE id % 7 = 0;
		DELETE FROM item WHERE id % 11 = 0;
		SELECT count(*), sum(amount), sum(length(note)) FROM item;
		SELECT a.amount, count(*), group_concat(b.id) FROM item a JOIN item b ON a.name = b.name
			WHERE a.id < 2000 GROUP BY a.amount ORDER BY 2 DESC, 1 LIMIT 20;
		SELECT name, row_number() OVER (PARTITION BY amount ORDER BY id) FROM item ORDER BY name, id LIMIT 500;
		VACUUM;
		PRAGMA integrity_check;
	SQL
	rm -f "$1".db*
}

run_perl() { perl "$work/work.pl"; }

run_cxx() { "$O/tests/alloc/cxx_program"; }

prepare() {
	cat >"$work/threads.py" <<-'PYTHON'
		import queue, sys, threading, unittest
		def pool():
		    work, results = queue.Queue(), []
		    def worker():
		        while (item := work.get()) is not None:
		            results.append(sum(len(str(n)) for n in range(item)))
		    threads = [threading.Thread(target=worker) for _ in range(8)]
		    for t in threads: t.start()
		    for n in range(400): work.put(n * 10)
		    for _ in threads: work.put(None)
		    for t in threads: t.join()
		    for n in range(500):
		        t = threading.Thread(target=results.append, args=(n,)); t.start(); t.join()
		    print(sum(results), len(results))
		class Outcomes(unittest.TestResult):
		    outcomes = {}
		    def stopTest(self, test):
		        bad = any(test is t for t, _ in self.failures + self.errors)
		        self.outcomes[test.id()] = "failed" if bad else "passed"
		        for t, text in self.failures + self.errors:
		            if t is test: print(text, file=sys.stderr)
		pool()
		try:
		    import test.support
		    test.support.verbose = 0
		    import test.test_threading as tests
		except ImportError:
		    tests = None # not in every package
		if tests:
		    # Those that start threads and fork; the others check times, or one class of objects.
		    names = ("ThreadTests", "ThreadJoinOnShutdown", "BarrierTests")
		    suites = [unittest.defaultTestLoader.loadTestsFromTestCase(getattr(tests, n)) for n in names if hasattr(tests, n)]
		    unittest.TestSuite(suites).run(Outcomes())
		    for name, outcome in sorted(Outcomes.outcomes.items()): print(name, outcome)
	PYTHON
	cat >"$work/work.pl" <<-'PERL'
		use strict; use warnings;
		my (%count, @texts);
		for my $i (1 .. 60000) { $count{"key " . ($i * 7919 % 5003)} .= chr(97 + $i % 26); push @texts, "x" x ($i % 500) if $i % 9 == 0; }
		my $sum = 0; $sum += length for values %count; $sum += tr/x// for @texts;
		my $joined = join ",", map { "$_=$count{$_}" } sort keys %count;
		(my $copy = $joined) =~ s/(\d+)=(\w+)/$2:$1/g;
		print "$sum ", length($joined), " ", unpack("%32C*", $copy), "\n";
		for my $n (1 .. 5) { my $pid = fork // die; if (!$pid) { my @more = map { "y" x $_ } 1 .. 2000; exit(@more == 2000 ? 0 : 1) } waitpid $pid, 0; print "child $?\n"; }
		if (eval { require threads; 1 }) { my @t = map { my $n = $_; threads->create(sub { my $s = 0; $s += length("z" x $_) for 1 .. 3000; $s + $n }) } 1 .. 4; print "thread ", $_->join, "\n" for @t; }
	PERL
	# Debian's redis-tools has the server under another name; the package redis-server would start a service.
	if ! command -v redis-server >/dev/null && command -v redis-check-rdb >/dev/null; then
		mkdir "$work/bin"
		ln -s "$(command -v redis-check-rdb)" "$work/bin/redis-server"
		PATH=$PATH:$work/bin
	fi
	python=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null)
	if command -v git >/dev/null; then
		# Of this repository where it is one, else of its files.
		git clone -q --no-local --bare . "$work/repository" 2>/dev/null || {
			git init -q "$work/repository" && cp -r ./*/ Makefile "$work/repository" &&
				git -C "$work/repository" add . &&
				git -C "$work/repository" -c user.name=t -c user.email=t@localhost commit -qm files
		}
	fi
}

# NAME COMMAND PACKAGE: plain, then under the library.
compare() {
	local name=$1 command=$2 package=$3 policy

	if [ -z "$command" ] || ! command -v "$command" >/dev/null; then
		echo "skip $name: package $package is not installed"
		return
	fi
	# At once: much of the time is waiting.
	"run_$name" "$work/$name-plain" >"$work/$name.expected" 2>&1 &
	for policy in all none; do
		(
			export LD_PRELOAD=$library ATMALLOC_POLICY=$policy
			"run_$name" "$work/$name-$policy"
		) >"$work/$name.$policy" 2>&1 &
	done
	wait
	for policy in all none; do
		if [ ! -s "$work/$name.expected" ]; then
			echo "not ok $name, policies $policy: it printed nothing without the library"
			failed=1
		elif cmp -s "$work/$name.expected" "$work/$name.$policy"; then
			echo "ok $name, policies $policy"
		else
			echo "not ok $name, policies $policy: $(diff "$work/$name.expected" "$work/$name.$policy" | head -n 4 | tr '\n' ' ')"
			tail -n 20 "$work/$name-$policy.log" 2>/dev/null
			failed=1
		fi
	done
}

if ! LD_PRELOAD=$library cat /proc/self/maps | grep -q libatmalloc; then
	echo "not ok the library can be preloaded: $library"
	exit 1
fi
prepare
compare python "$python" python3
compare git git git
compare gcc gcc gcc
compare redis redis-server redis-tools
compare sqlite3 sqlite3 sqlite3
compare perl perl perl
compare cxx "$O/tests/alloc/cxx_program" g++
exit $failed
