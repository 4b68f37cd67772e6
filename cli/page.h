/* SPDX-License-Identifier: BSD-2-Clause */
/* The fixed text of the page of a comparison: what comes before its data, and what comes behind. */
#ifndef ALLOCTRACE_CLI_PAGE_H
#define ALLOCTRACE_CLI_PAGE_H

/* Both are empty where the build did not find the charting library. */
extern const char page_head[], page_tail[];

#endif
