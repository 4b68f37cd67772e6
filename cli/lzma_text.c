/* SPDX-License-Identifier: BSD-2-Clause */
/* See lzma_text.h. */
#include "cli/lzma_text.h"

#include <lzma.h>
#include <stdlib.h>

/* A symbol table of a large library has a few MiB; what promises more is after our memory. */
enum { PLAIN_MAX_BYTES = 256 << 20, MEMORY_MAX_BYTES = 128 << 20 };

uint8_t *lzma_text__unpack(const uint8_t *packed, size_t packed_bytes, size_t *bytes)
{
	size_t max = packed_bytes * 4 + 4096;

	while (max <= PLAIN_MAX_BYTES) {
		uint64_t limit = MEMORY_MAX_BYTES;
		size_t from = 0;
		uint8_t *plain = malloc(max);
		lzma_ret result;

		if (!plain)
			return NULL;
		*bytes = 0;
		result = lzma_stream_buffer_decode(&limit, 0, NULL, packed, &from, packed_bytes, plain, bytes, max);
		if (result == LZMA_OK)
			return plain;
		free(plain);
		if (result != LZMA_BUF_ERROR)
			return NULL;
		max *= 2;
	}
	return NULL;
}
