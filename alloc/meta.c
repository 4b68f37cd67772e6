/* SPDX-License-Identifier: BSD-2-Clause */
/* A bump allocator for records; see meta.h. */
#include "alloc/meta.h"

#include <stdint.h>

#include "alloc/os.h"

/* Large enough that its mmap is rare, small enough to be charged without regret. */
#define META_CHUNK_BYTES ((size_t)256 << 10)

struct atm_lock atm_meta_lock;
static char *meta_next, *meta_end;

void *atm_meta_alloc(size_t bytes)
{
	void *record = NULL;

	bytes = (bytes + 63) & ~(size_t)63;
	atm_lock_acquire(&atm_meta_lock);
	if ((size_t)(meta_end - meta_next) < bytes) {
		size_t chunk_bytes = bytes > META_CHUNK_BYTES ? atm_page_round(bytes) : META_CHUNK_BYTES;
		void *chunk;

		if (atm_os_map(chunk_bytes, &chunk))
			goto out;
		meta_next = chunk;
		meta_end = meta_next + chunk_bytes;
	}
	record = meta_next;
	meta_next += bytes;
out:
	atm_lock_release(&atm_meta_lock);
	return record;
}
