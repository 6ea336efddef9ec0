/* SPDX-License-Identifier: MIT
 * The loss of a step and of its microbatches, from the losses of forwards. */
#include "run.h"

#include <math.h>

/* Adds up the loss of a microbatch over its slices and over the stages without output. */
static double loss_of(const PrRun *run, const double *loss, uint32_t mb) {
  uint32_t slices = pipe_slices(run->p);
  double sum = 0;
  for (uint32_t k = 0; k < run->nsink; k++) {
    const double *of = &loss[(size_t)k * run->p->nmb + (size_t)mb * slices];
    double one = of[0];
    for (uint32_t q = 1; q < slices; q++)
      one += of[q];
    sum = k ? sum + one : one;
  }
  return sum;
}

void pr_tell_loss(PrRun *run, uint64_t step, uint32_t mb) {
  if (run->nsink > 1 && pr_rank(run) != PIPE_NONE)
    return; /* no process has all losses */
  _Atomic uint32_t *left = &run->left[step & 1][mb];
  if (atomic_fetch_sub(left, 1) > 1)
    return;
  atomic_store(left, run->nsink * pipe_slices(run->p)); /* for the step after the next */
  run->o.on_loss(run->o.arg, step, mb, loss_of(run, run->loss[step & 1], mb));
}

double pr_loss_mb(const PrRun *run, uint32_t mb) {
  if (run->loss_steps == 0 || mb >= run->p->nmb / pipe_slices(run->p))
    return NAN;
  return loss_of(run, run->loss[(run->loss_steps - 1) & 1], mb);
}

double pr_loss(const PrRun *run) {
  if (run->loss_steps == 0)
    return NAN;
  const double *loss = run->loss[(run->loss_steps - 1) & 1];
  uint32_t nmb = run->p->nmb / pipe_slices(run->p);
  double sum = 0;
  for (uint32_t m = 0; m < nmb; m++)
    sum += loss_of(run, loss, m);
  return sum / nmb;
}
