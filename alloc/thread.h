/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the rest of the allocator needs of thread.c. The pthread and C11 thread
 * functions that it exports are declared by the C library.
 */
#ifndef ALLOCTRACE_ALLOC_THREAD_H
#define ALLOCTRACE_ALLOC_THREAD_H

/*
 * Starts a detached thread of the library's own, with all signals blocked and a
 * small stack of the C library's. Returns 0 or an error number; keeps errno.
 */
int atm_thread_start_helper(void *(*run)(void *));

#endif
