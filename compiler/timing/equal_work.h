/* SPDX-License-Identifier: MIT
 * The work that a step does for the model, and factors that make it equal among compared
 * schedules. */
#ifndef PIPE_EQUAL_WORK_H
#define PIPE_EQUAL_WORK_H

#include "pipec.h"

/* The work of a step for the model: forwards and backwards, without recomputation and updates. */
typedef struct ModelWork {
  double all, forward; /* ns if timed, else units; 0: not compiled */
  uint32_t mbs;
  bool forward_only, timed;
} ModelWork;
ModelWork model_work(const Sched *s);

/* Computes scale[n], factors for times in units. After scaling, a microbatch takes equal work in
 * each schedule, and so do the microbatches of side_by_side schedules together. A schedule without
 * backwards is scaled to the forwards of the others. Times in ns have factor 1. */
void equal_work(const ModelWork *w, uint32_t n, uint32_t side_by_side, double *scale);

#endif
