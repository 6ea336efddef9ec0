/* SPDX-License-Identifier: MIT
 * The door of timing/, the predictions: steady state, critical path, bounds. */
#ifndef PIPEC_TIMING_H
#define PIPEC_TIMING_H

#include "lower.h"

/* steady.c. end: [nrank][n] of COMPUTE. Requires compute_start and rank_busy of Times. */
Steady find_steady(Sched *s, const Times *times, uint64_t *const *end);
/* ---- bound.c: no order at these places and costs, with these stashes, is shorter. Requires the
 * stashes of slots ---- */
Timing program_bound(Sched *s);
/* The least makespan and span with room[r] stashes on rank r; requires check_deps only. */
Timing bound_of(Sched *s, Arena *a, const int64_t *room);
void emit_critical(Sched *s, FILE *f); /* critical.c */
extern const char *const peak_class_name[PEAK_NCLASSES];
/* of all ranks; UINT64_MAX: more than that */
void peak_sums(const Sched *s, uint64_t v[PEAK_NREPORTED]);
void emit_rank_costs(Sched *s, FILE *f);
uint64_t **predict(Sched *s, uint64_t ***end); /* emit_timeline.c */

#endif
