/* SPDX-License-Identifier: BSD-2-Clause */
/* The fixed text of the page of a comparison, as the build put it together from cli/page/. */
#include "cli/page.h"

#define EMBED(name, file)                                 \
	__asm__(".pushsection .rodata\n"                  \
		".global " #name "\n" #name ":\n"         \
		".incbin \"" AT_BUILD "/cli/" file "\"\n" \
		".byte 0\n"                               \
		".popsection\n")

EMBED(page_head, "page.head");
EMBED(page_tail, "page.tail");
