#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The sources are formatted as .clang-format says. Other versions than 14 format
# some constructs differently, so they are not asked.
tool=${CLANG_FORMAT:-clang-format-14}
if ! command -v "$tool" >/dev/null; then
	echo "skip format: $tool is not installed"
elif out=$(make -s O="$O" check-format CLANG_FORMAT="$tool" 2>&1); then
	echo "ok format"
else
	echo "not ok format: make format would change$(echo "$out" | sed -n 's/^\([a-z_/]*\.[ch]c*\):.*/\1/p' | sort -u | tr '\n' ' ' | sed 's/^/ /')"
	echo "$out"
fi
