/* SPDX-License-Identifier: BSD-2-Clause */
/* Unpacks .gnu_debugdata. Apart, as lzma.h declares much. */
#ifndef ALLOCTRACE_CLI_LZMA_TEXT_H
#define ALLOCTRACE_CLI_LZMA_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* To be freed; NULL when it is broken, or unreasonably large. */
uint8_t *lzma_text__unpack(const uint8_t *packed, size_t packed_bytes, size_t *bytes);

#endif
