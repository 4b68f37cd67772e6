/* SPDX-License-Identifier: BSD-2-Clause */
/* chain_calls, built with frame pointers. */
#pragma GCC optimize("no-omit-frame-pointer")
#include "tests/trace/chain_calls.c"
