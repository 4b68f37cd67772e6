#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The manual page is well-formed.
if ! command -v mandoc >/dev/null; then
	echo "skip man: mandoc is not installed"
elif out=$(mandoc -T lint -W warning docs/alloctrace.1 2>&1); then
	echo "ok man"
else
	echo "not ok man: mandoc -T lint reports something"
	echo "$out"
fi
