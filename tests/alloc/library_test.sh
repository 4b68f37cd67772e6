#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The library beside others: preloads that hook what it may call (B34), loaded
# and unloaded by dlopen (B37), modules with another malloc (B76), little address
# space (B52), and the arguments of its own memory syscalls (A23).
set -u

O=${O:-.output}
library=$(realpath "$O")/libatmalloc.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

check() { # NAME COMMAND...: ok when the command succeeds
	local name=$1
	shift
	if "$@" >"$work/said" 2>&1; then
		echo "ok $name"
	else
		echo "not ok $name: status $?: $(tail -n 2 "$work/said" | tr '\n' ' ')"
		failed=1
	fi
}

build() { # OUTPUT FLAG...: from standard input
	gcc -D_GNU_SOURCE -O1 -fno-builtin -w -xc - -o "$@" -pthread -ldl
}

make_programs() {
	# Hooks that look up the real function when first called: dlsym may allocate.
	build "$work/hooks.so" -shared -fPIC <<-'C'
		#include <dlfcn.h>
		#include <stdarg.h>
		#include <stddef.h>
		#define HOOK(ret, name, params, args) \
			ret name params { static ret (*real) params; if (!real) real = dlsym(RTLD_NEXT, #name); return real args; }
		HOOK(void *, mmap, (void *a, size_t n, int p, int f, int d, long o), (a, n, p, f, d, o))
		HOOK(int, munmap, (void *a, size_t n), (a, n))
		HOOK(int, mprotect, (void *a, size_t n, int p), (a, n, p))
		HOOK(int, madvise, (void *a, size_t n, int p), (a, n, p))
		HOOK(long, read, (int d, void *p, size_t n), (d, p, n))
		int open(const char *path, int flags, ...) {
			static int (*real)(const char *, int, int); va_list list; int mode;
			va_start(list, flags); mode = va_arg(list, int); va_end(list);
			if (!real) real = dlsym(RTLD_NEXT, "open");
			return real(path, flags, mode);
		}
	C
	build "$work/module.so" -shared -fPIC <<-'C'
		#include <stdlib.h>
		void *module_malloc(size_t bytes) { return malloc(bytes); }
		void module_free(void *p) { free(p); }
	C
	# usage: deep MODULE to_ours|to_theirs|own
	build "$work/deep" <<-'C'
		#include <dlfcn.h>
		#include <stdlib.h>
		#include <string.h>
		int main(int argc, char **argv) {
			void *module = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
			void *(*module_malloc)(size_t) = dlsym(module, "module_malloc");
			void (*module_free)(void *) = dlsym(module, "module_free");
			if (!strcmp(argv[2], "to_ours")) free(module_malloc(100));
			else if (!strcmp(argv[2], "to_theirs")) module_free(malloc(100));
			else for (int i = 0; i < 1000; i++) module_free(module_malloc(i * 100));
			return 0;
		}
	C
	# Loads the library itself, uses it in threads, unloads it while they live.
	build "$work/loader" <<-'C'
		#include <dlfcn.h>
		#include <pthread.h>
		#include <stdio.h>
		static void *(*their_malloc)(size_t); static void (*their_free)(void *);
		static pthread_barrier_t used, closed;
		static void *use(void *arg) {
			void *blocks[100];
			for (int i = 0; i < 100; i++) blocks[i] = their_malloc(i * 997);
			for (int i = 0; i < 100; i++) their_free(blocks[i]);
			pthread_barrier_wait(&used); pthread_barrier_wait(&closed);
			return arg;
		}
		int main(int argc, char **argv) {
			void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
			pthread_t threads[4];
			if (!library) { puts(dlerror()); return 1; }
			their_malloc = dlsym(library, "malloc"); their_free = dlsym(library, "free");
			pthread_barrier_init(&used, 0, 5); pthread_barrier_init(&closed, 0, 5);
			for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, use, 0);
			pthread_barrier_wait(&used);
			dlclose(library);
			pthread_barrier_wait(&closed);
			for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
			return 0;
		}
	C
	build "$work/fail_large" <<-'C'
		#include <errno.h>
		#include <stdlib.h>
		int main(void) { errno = 0; return malloc((size_t)9 << 30) || errno != ENOMEM || !malloc(1 << 20); }
	C
}

hooked() { # PRELOADS: a hundred short programs, none hangs
	local i

	for i in $(seq 100); do
		[ "$(LD_PRELOAD=$1 timeout 20 ls -d / 2>&1)" = / ] || return
	done
	[ "$(LD_PRELOAD=$1 timeout 60 python3 -c 'import threading; t = [threading.Thread(target=lambda: [bytes(n) for n in range(3000)]) for _ in range(4)]; [x.start() for x in t]; [x.join() for x in t]; print(7919)' 2>&1)" = 7919 ]
}

# The first argument's text is in what the rest says, which ends by SIGABRT.
aborts() {
	local text=$1 status
	shift
	(ulimit -c 0; LD_PRELOAD=$library "$@") >"$work/abort" 2>&1
	status=$?
	cat "$work/abort"
	[ $status = 134 ] && grep -q "$text" "$work/abort"
}

limited() { # MIB COMMAND...
	local mib=$1
	shift
	(ulimit -v $((mib << 10)) && LD_PRELOAD=$library "$@")
}

# Addresses and lengths of every memory syscall are whole pages, and none is refused as malformed.
whole_pages() {
	local bad

	ATM_OPS=150 ATM_SEED=17 strace -f -qq -e trace=munmap,mprotect,madvise,mremap -o "$work/strace" \
		-E LD_PRELOAD="$library" "$O/tests/alloc/model_test" || return
	[ "$(wc -l <"$work/strace")" -gt 200 ] || return
	sed -i "/munmap(0x[0-9a-f]*, $(stat -c %s /etc/ld.so.cache))/d" "$work/strace" # the loader's
	bad=$(grep -v -e '--- SIG' -e '+++ ' -e 'resumed>' "$work/strace" | grep -vE \
		'(munmap|mprotect|madvise|mremap)\(0x[0-9a-f]+000, ' | grep -vE 'madvise\((NULL|0), 0, 0x4154' | head -n 3)
	[ -z "$bad" ] && bad=$(sed -nE 's/.*(munmap|mprotect|madvise)\(0x[0-9a-f]+, ([0-9]+).*/\2/p' "$work/strace" |
		awk '$1 % 4096 != 0' | head -n 3)
	[ -z "$bad" ] && bad=$(grep EINVAL "$work/strace" | grep -vE 'madvise\((NULL|0), 0, 0x4154' | head -n 3)
	[ -z "$bad" ] || { echo "$bad"; return 1; }
}

if ! command -v gcc >/dev/null; then
	echo "skip library: package gcc is not installed"
	exit 0
fi
make_programs || exit 1
check "hooks after the library" hooked "$library:$work/hooks.so"
check "hooks before the library" hooked "$work/hooks.so:$library"
check "marked to stay loaded" bash -c "readelf -d '$library' | grep -q NODELETE"
check "dlopen, use in threads, dlclose" timeout 60 "$work/loader" "$library"
check "a module with a malloc of its own" env LD_PRELOAD="$library" "$work/deep" "$work/module.so" own
check "another malloc's block, freed by ours" aborts 'atmalloc: not an allocated block' "$work/deep" "$work/module.so" to_ours
check "our block, freed by another" aborts '(): ' "$work/deep" "$work/module.so" to_theirs
for mib in 256 1024 8192; do
	check "echo within $mib MiB" limited $mib /bin/echo
	check "a block larger than $mib MiB" limited $mib "$work/fail_large"
done
if command -v strace >/dev/null; then
	check "whole pages" whole_pages
else
	echo "skip whole pages: package strace is not installed"
fi
exit $failed
