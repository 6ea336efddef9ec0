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

/* Computes [n] factors for times in units. After scaling, a microbatch takes equal work in each
 * schedule, and so do the microbatches of side_by_side schedules together. A schedule without
 * backwards is scaled to the forwards of the others. The factor is 1 for times in ns. */
void equal_work(const ModelWork *w, uint32_t n, uint32_t side_by_side, double *scale);

#endif
