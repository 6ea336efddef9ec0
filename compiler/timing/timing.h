/* SPDX-License-Identifier: MIT
 * The door of timing/, what other rooms call: predictions: steady state, critical path, bounds. */
#ifndef PIPEC_TIMING_H
#define PIPEC_TIMING_H

#include "lower.h"

void find_steady(Sched *s, uint64_t *const *end); /* steady.c; [nrank][n] of the compute streams */
/* ---- bound.c: requires slots; ensures bound ---- */
void fill_bound(Sched *s);
/* The least makespan and span with room[r] stashes on rank r; requires check_deps only. */
Timing bound_of(Sched *s, Arena *a, const int64_t *room);
void emit_critical(Sched *s, FILE *f); /* critical.c */
void count_sends(Sched *s);            /* rank_costs.c: ensures sent, sent_bytes */
extern const char *const peak_class_name[PEAK_NCLASSES];
void peak_sums(const Sched *s, uint64_t v[PEAK_NREPORTED]); /* of all ranks; UINT64_MAX: more than that */
void emit_rank_costs(Sched *s, FILE *f);
uint64_t **predict(Sched *s, uint64_t ***end); /* emit_timeline.c */

#endif
