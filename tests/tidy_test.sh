#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 1200
# clang-tidy finds nothing, file by file (.clang-tidy says what it looks for).
tool=${CLANG_TIDY:-clang-tidy-14}
if ! command -v "$tool" >/dev/null; then
	echo "skip tidy: $tool is not installed"
	exit 0
fi
make -s O="$O" -k -j"$(nproc)" tidy CLANG_TIDY="$tool" 2>/dev/null | grep -a error:
for file in $(make -s O="$O" tidy-files); do
	stamp=$O/tidy/${file%.c}.ok
	if [ -e "$stamp" ] && [ "$stamp" -nt "$file" ]; then
		echo "ok tidy $file"
	else
		echo "not ok tidy $file: see above, or run make tidy"
	fi
done
