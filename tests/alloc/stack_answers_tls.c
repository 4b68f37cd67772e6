/* SPDX-License-Identifier: BSD-2-Clause */
/* stack_answers with 300 KB of thread-local storage, which lives in every thread's stack. */
#define TLS_BYTES 300000
#include "tests/alloc/stack_answers.c"
