/* SPDX-License-Identifier: BSD-2-Clause */
/* Resource limits of which the tool needs more than a command is to inherit. */
#ifndef ALLOCTRACE_CLI_LIMITS_H
#define ALLOCTRACE_CLI_LIMITS_H

/*
 * Raises what this process may have of descriptors and locked memory, as far as it may
 * do that; what needs more says so itself when it fails. Not safe against other threads.
 */
void limits__raise(void);

/* In a child, before exec: as they were before limits__raise. Safe between fork and exec. */
void limits__restore(void);

#endif
