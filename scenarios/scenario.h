/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the scenario programs share: phase markers, argument parsing, the
 * report of what was requested. Plain programs that work under any malloc.
 */
#ifndef ALLOCTRACE_SCENARIOS_SCENARIO_H
#define ALLOCTRACE_SCENARIOS_SCENARIO_H

enum scenario_phase { SCENARIO_STARTUP = 0, SCENARIO_MEASURED = 1, SCENARIO_TEARDOWN = 2 };

/*
 * Marks a phase: through atmalloc_phase() where the bundled allocator is
 * loaded (so that its own counters follow), else by the madvise that the
 * tracer knows (docs/output.md, "Phases").
 */
void scenario__phase(enum scenario_phase phase);

#endif
