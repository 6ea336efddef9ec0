/* SPDX-License-Identifier: MIT
 * Fits y = 8 x with a chain of factors, one per stage: stage s computes y = w[s] * x. The loss of a
 * microbatch is (y - 8 x)^2 / 2. Trains it under two schedules, with the same number of stages or
 * not, and exits 0 if each got there. */
#include <math.h>
#include <stdio.h>

#include "pipe_run.h"

extern const PipeProgram pipe_program, gpipe_program;

typedef struct Stash {
  double x, y;
} Stash;

static double input(uint32_t mb) { return 0.5 + 0.25 * mb; }

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  uint32_t nstage = *(uint32_t *)self;
  *out = (PrSizes){.act = sizeof(Stash),
                   .boundary = stage + 1 < nstage ? sizeof(double) : 0,
                   .weight = sizeof(double),
                   .grad = sizeof(double)};
  return 0;
}

static int init(void *self, uint32_t stage, void *weight, void *opt) {
  (void)self, (void)stage, (void)opt;
  *(double *)weight = 1.5;
  return 0;
}

static int forward(void *self, const PrCall *c) {
  (void)self;
  Stash *a = c->act;
  a->x = c->x ? *(const double *)c->x : input(c->mb);
  a->y = a->x * *(double *)c->weight;
  if (c->y)
    *(double *)c->y = a->y;
  else
    *c->loss = 0.5 * pow(a->y - 8 * input(c->mb), 2);
  return 0;
}

static int backward(void *self, const PrCall *c) {
  (void)self;
  const Stash *a = c->act;
  double dy = c->dy ? *(const double *)c->dy : (a->y - 8 * input(c->mb)) / c->nmb;
  *(double *)c->grad += dy * a->x;
  if (c->dx)
    *(double *)c->dx = dy * *(double *)c->weight;
  return 0;
}

static int update(void *self, const PrCall *c) {
  (void)self;
  *(double *)c->weight = *(const double *)c->newest - 0.01 * *(double *)c->grad;
  *(double *)c->grad = 0;
  return 0;
}

static int train(const PipeProgram *p) {
  uint32_t nstage = p->nstage;
  PrModel model = {.self = &nstage,
                   .nstage = nstage,
                   .sizes = sizes,
                   .init = init,
                   .forward = forward,
                   .backward = backward,
                   .update = update};
  PrRun *run;
  if (pr_open(&run, p, &model, NULL) || pr_steps(run, 1)) {
    fprintf(stderr, "%s\n", run ? pr_error(run) : "out of memory");
    pr_close(run);
    return 1;
  }
  double before = pr_loss(run), product = 1;
  if (pr_steps(run, 400)) {
    fprintf(stderr, "%s\n", pr_error(run));
    pr_close(run);
    return 1;
  }
  for (uint32_t s = 0; s < nstage; s++)
    product *= *(double *)pr_weight(run, s);
  printf("%s, %u ranks: loss %.3f -> %.6f, product of weights %.3f\n", p->name, (unsigned)p->nrank,
         before, pr_loss(run), product);
  int bad = before < 1 || pr_loss(run) > 1e-6 || fabs(product - 8) > 1e-3;
  pr_close(run);
  return bad;
}

int main(void) { return train(&pipe_program) | train(&gpipe_program); }
