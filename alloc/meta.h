/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for the allocator's own records. Never given back; owners keep free
 * lists of their record types.
 */
#ifndef ALLOCTRACE_ALLOC_META_H
#define ALLOCTRACE_ALLOC_META_H

#include <stddef.h>

#include "alloc/lock.h"

/* Zeroed, 64-byte aligned; NULL when the kernel has no memory. Thread-safe. */
void *atm_meta_alloc(size_t bytes);

/* Its lock, under which no other one is taken. */
extern struct atm_lock atm_meta_lock;

#endif
