#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Every header compiles alone; the public one also as C99 and as C++.
# Kernel-side headers (bpf/kernel.h, bpf/*.bpf.h) have no user-space form.

try() { # try NAME HEADERS COMPILER ARG...: HEADERS are include operands
	name=$1 headers=$2
	shift 2
	if errors=$(for header in $headers; do echo "#include $header"; done | "$@" -I. -I"$O" -fsyntax-only -Wall -Wextra -Werror - 2>&1); then
		echo "ok header $name"
	else
		echo "not ok header $name: does not compile alone"
		echo "$errors"
	fi
}

for header in alloc/*.h cli/*.h scenarios/*.h; do
	try "$header" "\"$header\"" "${CC:-gcc}" -std=gnu11 -D_GNU_SOURCE -xc
done
try bpf/event.h '<linux/types.h> "bpf/event.h"' "${CC:-gcc}" -std=gnu11 -xc
try 'alloc/atmalloc.h as C99' '"alloc/atmalloc.h"' "${CC:-gcc}" -std=c99 -pedantic -xc
if command -v "${CXX:-g++}" >/dev/null; then
	try 'alloc/atmalloc.h as C++' '"alloc/atmalloc.h"' "${CXX:-g++}" -std=c++11 -pedantic -xc++
else
	echo "skip header alloc/atmalloc.h as C++: no C++ compiler"
fi
