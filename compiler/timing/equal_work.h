/* SPDX-License-Identifier: MIT
 * The work that a step does for the model, and factors that make it equal among compared
 * schedules. */
#ifndef PIPE_EQUAL_WORK_H
#define PIPE_EQUAL_WORK_H

#include "pipec.h"

/* What a step does for the model: its forwards and backwards, without recomputation and updates. */
typedef struct ModelWork {
  double all, forward; /* ns if timed, else units; 0: nothing was compiled */
  uint32_t mbs;
  bool forward_only, timed;
} ModelWork;
ModelWork model_work(const Sched *s);

/* [n] factors by which times in units are multiplied: then a microbatch takes as much of each, and
 * the microbatches of schedules that stand side by side, so many at a time, add up to the same. One
 * without backwards is scaled to the forwards of the others. 1 for times in ns. */
void equal_work(const ModelWork *w, uint32_t n, uint32_t side_by_side, double *scale);

#endif
