/* SPDX-License-Identifier: MIT
 * The points of -D with several values, which --check and --compare go through: each combination of
 * the values is a point. The parameter that was given last varies fastest. */
#ifndef PIPEC_SWEEP_H
#define PIPEC_SWEEP_H

#include "pipec.h"

/* Does some -D have several values? */
bool sweep_any(const Options *opt);
/* The number of points; 1 without ranges. 0: there are more than `most`, or a parameter with
 * several values is given twice; reported. */
uint64_t sweep_points(Sched *s, uint64_t most);
/* Sets the values of define[0..n) to those of a point, below sweep_points. */
void sweep_go_to(Define *define, uint32_t n, uint64_t point);
/* The values of the parameters that have several, such as "P = 8, M = 3". */
const char *sweep_text(Arena *arena, const Define *define, uint32_t n);

#endif
