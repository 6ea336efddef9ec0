/* SPDX-License-Identifier: MIT
 * Makes the times of schedules comparable. A stage takes one unit of time whether a model is cut
 * into 8 stages or 16. So times in units are scaled until each schedule does the same work for the
 * model. Cost: linear. */
#include "equal_work.h"

ModelWork model_work(const Sched *s) {
  ModelWork w = {.mbs = s->model->nmb / s->model->slices,
                 .forward_only = s->model->forward,
                 .timed = s->model->timed};
  for (uint32_t i = 0; i < s->orders->nop; i++) {
    uint8_t kind = s->orders->op[i].kind;
    double cost = (double)op_cost(s, s->model->stage, false, i);
    if (kind == PIPE_F)
      w.forward += cost;
    if (kind == PIPE_F || kind == PIPE_B || kind == PIPE_I || kind == PIPE_W)
      w.all += cost;
  }
  return w;
}

static bool counts(const ModelWork *w) { return !w->timed && w->all > 0; }

/* Does a microbatch of a take more work than one of b? A schedule with backwards takes more than
 * one without. */
static bool takes_more(const ModelWork *a, const ModelWork *b) {
  return a->forward_only != b->forward_only ? b->forward_only : a->all / a->mbs > b->all / b->mbs;
}

void equal_work(const ModelWork *w, uint32_t n, uint32_t side_by_side, double *scale) {
  const ModelWork *most = NULL;
  for (uint32_t i = 0; i < n; i++)
    if (counts(&w[i]) && (!most || takes_more(&w[i], most)))
      most = &w[i];
  for (uint32_t i = 0, from = 0; i < n; i++) {
    double mbs = 0, of, own;
    from = i % side_by_side ? from : i;
    for (uint32_t k = from; k < from + side_by_side; k++)
      mbs = counts(&w[k]) && w[k].mbs > mbs ? w[k].mbs : mbs;
    scale[i] = 1;
    if (!counts(&w[i]))
      continue;
    of = w[i].forward_only ? most->forward : most->all;
    own = w[i].forward_only ? w[i].forward : w[i].all;
    scale[i] = of * (mbs / most->mbs) / own;
  }
}
