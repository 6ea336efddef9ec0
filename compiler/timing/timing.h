/* SPDX-License-Identifier: MIT
 * The door of timing/, the predictions: steady state, critical path, bounds; and a table of what
 * each rank sends and of its memory. */
#ifndef PIPEC_TIMING_H
#define PIPEC_TIMING_H

#include "lower.h"

/* steady_state.c. end: [nrank][n] of COMPUTE. Requires compute_start and rank_busy of
 * Times. */
Steady find_steady(Sched *s, const Times *times, uint64_t *const *end);
/* ---- bound.c: lower bounds at these places, costs and stashes. Requires slots ---- */
Timing program_bound(Sched *s);
/* Bounds with room[r] stashes on rank r. Requires check_deps only. */
Timing bound_of(Sched *s, Arena *a, const int64_t *room);
void emit_critical(Sched *s, FILE *f); /* critical.c */
/* ---- rank_costs.c ---- */
extern const char *const peak_class_name[PEAK_NCLASSES];
/* Sums over all ranks by class of memory; UINT64_MAX: overflow. */
void peak_sums(const Sched *s, uint64_t v[PEAK_NREPORTED]);
void emit_rank_costs(Sched *s, FILE *f);
/* predict.c: start and end of each instruction of prog as pipe_predict gives them, in the arena. */
uint64_t **program_times(Sched *s, Arena *a, uint64_t ***end);

#endif
