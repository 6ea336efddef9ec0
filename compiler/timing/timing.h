/* SPDX-License-Identifier: MIT
 * The door of timing/: predictions (critical path, bounds), and a table of what each
 * rank sends and stores. */
#ifndef PIPEC_TIMING_H
#define PIPEC_TIMING_H

#include "lower.h"

/* ---- bound.c: lower bounds for these places, costs and stashes. Requires slots ---- */
Timing program_bound(Sched *s);
/* The bounds with room[r] stashes on rank r. Requires only check_deps. */
Timing bound_of(Sched *s, Arena *a, const int64_t *room);
void emit_critical(Sched *s, FILE *f); /* critical.c */
/* ---- rank_costs.c ---- */
extern const char *const peak_class_name[PEAK_NCLASSES];
/* Sums each class of memory over all ranks; UINT64_MAX: overflow. */
void peak_sums(const Sched *s, uint64_t v[PEAK_NREPORTED]);
void emit_rank_costs(Sched *s, FILE *f);

#endif
