#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 300
# What `make install` puts in place works from there, and `make uninstall` takes
# all of it away; `make STATIC=1` needs none of the libraries it links in.
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

result() { # result NAME STATUS WHY
	if [ "$2" = 0 ]; then echo "ok $1"; else echo "not ok $1: $3"; fi
}

make -s O="$O" install DESTDIR="$dir" PREFIX=/usr
result 'install' $? 'make install fails'

"$dir/usr/bin/alloctrace" list >"$dir/list" && grep -q trim_loop "$dir/list"
result 'installed list' $? 'the installed alloctrace does not list trim_loop'

"$dir/usr/bin/alloctrace" run --tier 0 -o "$dir/report" trim_loop --iterations 7 >/dev/null && grep -q -w bundled "$dir/report"
result 'installed run' $? 'the installed alloctrace does not run trim_loop under the bundled allocator'

if command -v pkg-config >/dev/null; then
	cat >"$dir/user.c" <<-'C'
		#include <atmalloc.h>
		int main(void)
		{
			uint64_t value = 0;
			return atmalloc_set_policy("none") || atmalloc_get_counter("heaps", &value) || value != 0;
		}
	C
	export PKG_CONFIG_PATH="$dir/usr/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$dir"
	# shellcheck disable=SC2046
	"${CC:-gcc}" -I"$dir/usr/include" "$dir/user.c" $(pkg-config --cflags --libs atmalloc) -o "$dir/user" &&
		LD_LIBRARY_PATH="$dir/usr/lib/alloctrace" "$dir/user"
	result 'installed atmalloc.pc' $? 'a program cannot be built with it, or does not run'
	if command -v "${CXX:-g++}" >/dev/null; then
		cat >"$dir/user.cc" <<-'CC'
			#include <atmalloc.h>
			#include <cstdint>
			#include <cstring>
			#include <memory>
			#include <vector>
			int main()
			{
				char policy[64];
				std::uint64_t before, after;
				if (atmalloc_set_policy("-commit") || atmalloc_get_policy(policy, sizeof(policy)) != 18 ||
				    std::strcmp(policy, "stack,realloc,trim") != 0)
					return 1;
				if (atmalloc_get_counter("malloc.1024", &before))
					return 2;
				for (int i = 0; i < 101; i++)
					std::make_unique<std::vector<char>>(1000)->at(999) = 1;
				if (atmalloc_get_counter("malloc.1024", &after) || after - before != 101)
					return 3;
				std::vector<std::uint64_t> values(atmalloc_read_counters(nullptr, 0));
				return atmalloc_read_counters(values.data(), values.size()) != values.size();
			}
		CC
		# shellcheck disable=SC2046
		"${CXX:-g++}" -std=c++17 -I"$dir/usr/include" "$dir/user.cc" \
			$(pkg-config --cflags --libs atmalloc) -o "$dir/cxx" &&
			LD_LIBRARY_PATH="$dir/usr/lib/alloctrace" "$dir/cxx"
		result 'installed atmalloc.h in C++' $? "exit status $?"
	else
		echo "skip installed atmalloc.h in C++: ${CXX:-g++} is not installed"
	fi
else
	echo 'skip installed atmalloc.pc: pkg-config is not installed'
fi

make -s O="$O" uninstall DESTDIR="$dir" PREFIX=/usr
left=$(find "$dir/usr" ! -type d)
[ -z "$left" ]
result 'uninstall' $? "left behind: $left"

# Of the objects that are there: what differs is how they are linked.
rm -rf "$O/static" && mkdir "$O/static" && cp -a "$O/.flags" "$O/alloc" "$O/bpf" "$O/cli" "$O/static" &&
	make -s O="$O/static" STATIC=1 -o FORCE "$O/static/alloctrace" &&
	needed=$(readelf -d "$O/static/alloctrace" | grep NEEDED | grep -E 'bpf|libdw|elf|lzma|bz2|libz|jansson|zstd')
[ -x "$O/static/alloctrace" ] && [ -z "$needed" ]
result 'static' $? "still needs: $needed"
