#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Who may include whom (docs/architecture.md): bpf/event.h and alloc/control.h
# are the whole coupling; alloc/settings.h is a pure parser that the library and
# the CLI share. And the promise that one file makes the allocator's syscalls.

# check NAME ALLOWED FILE...: every "..." include of the files matches the
# extended regular expression ALLOWED.
check() {
	name=$1 allowed=$2
	shift 2
	bad=
	for file; do
		[ -e "$file" ] || continue
		bad="$bad$(sed -n 's/^[ \t]*#[ \t]*include[ \t]*"\([^"]*\)".*/\1/p' "$file" | grep -E -v -x "$allowed" |
			sed "s|^| $file includes |;s|\$|;|" | tr -d '\n')"
	done
	if [ -z "$bad" ]; then echo "ok include $name"; else echo "not ok include $name:$bad"; fi
}

check bpf 'bpf/[a-z_.]*\.h' bpf/*.[ch]
check bpf-event '' bpf/event.h bpf/callchain.h
check alloc 'alloc/[a-z_]*\.h' alloc/*.[ch]
check alloc-control '' alloc/control.h alloc/atmalloc.h
check alloc-settings 'alloc/(control|settings)\.h' alloc/settings.[ch]
check cli '(cli/[a-z_]*|alloc/control|alloc/settings|bpf/event|bpf/callchain|bpf/alloctrace\.skel)\.h' cli/*.[ch]
check scenarios '(scenarios/scenario|alloc/atmalloc)\.h' scenarios/*.[ch]
check tests '(cli/[a-z_]*|alloc/(control|settings|atmalloc)|bpf/event|bpf/callchain|scenarios/scenario)\.h|tests/[a-z_/]*(\.skel)?\.[ch]' $(ls tests/*/*.[ch] | grep -v -e '^tests/fuzz/' -e '\.bpf\.c$')
check tests-bpf 'bpf/kernel\.h' tests/*/*.bpf.c
check fuzz '(alloc|cli)/[a-z_]*\.h' tests/fuzz/*.[ch]

users=$(grep -l 'bpf/alloctrace\.skel\.h' cli/*.[ch] 2>/dev/null | grep -v -x -E 'cli/(tracer[a-z_]*|feature)\.c' | tr '\n' ' ')
if [ -z "$users" ]; then echo "ok include skeleton"; else echo "not ok include skeleton: also in $users"; fi

calls=$(grep -n -E '(^|[^a-zA-Z0-9_])(mmap|munmap|mprotect|madvise|mremap|brk|sbrk|syscall) *\(' alloc/*.[ch] 2>/dev/null |
	grep -v -E '^alloc/os\.c:|^[^:]*:[0-9]*:[ \t]*(/?\*|//)' | tr '\n' ' ')
if [ -z "$calls" ]; then echo "ok syscalls only in alloc/os.c"; else echo "not ok syscalls only in alloc/os.c: $calls"; fi
