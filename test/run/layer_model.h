/* SPDX-License-Identifier: MIT
 * A model of the toy layers of layer.h as an engine calls it: stage s is y = tanh(x A + b), the
 * loss is |y - target|^2 / (2 M), momentum. */
#ifndef LAYER_MODEL_H
#define LAYER_MODEL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer.h"
#include "pipe_run.h"

typedef struct Act {
  float x[N], y[N], dy[N];
} Act; /* dy: of the loss, on the last stage */

static inline void init_weight(uint32_t stage, float *w) {
  for (int i = 0; i < NW; i++)
    w[i] = 0.4f * noise(1, stage, (uint64_t)i);
}

static inline void input(uint64_t step, uint32_t mb, float *x) {
  for (int i = 0; i < N; i++)
    x[i] = noise(2, step * 1000003 + mb, (uint64_t)i);
}

static inline PrSizes model_sizes(uint32_t nstage, uint32_t stage) {
  return (PrSizes){.act = sizeof(Act),
                   .gout = N * sizeof(float),
                   .boundary = stage + 1 < nstage ? N * sizeof(float) : 0,
                   .weight = NW * sizeof(float),
                   .grad = NW * sizeof(float),
                   .opt = NW * sizeof(float),
                   .work = N * sizeof(float)};
}

static inline int model_forward(const PrCall *c) {
  Act *a = c->act;
  if (c->stage == 0)
    input(c->step, c->mb, a->x);
  else
    memcpy(a->x, c->x, sizeof a->x);
  layer(a->x, c->weight, a->y);
  if (c->stage + 1 == c->nstage)
    *c->loss = loss_of(a->y, c->nmb, a->dy);
  else
    memcpy(c->y, a->y, sizeof a->y);
  return 0;
}

static inline const float *output_gradient(const PrCall *c) {
  return c->stage + 1 == c->nstage ? ((Act *)c->act)->dy : c->dy;
}

static inline int model_backward_input(const PrCall *c) {
  layer_input(output_gradient(c), ((Act *)c->act)->y, c->weight, c->gout, c->dx);
  return 0;
}

static inline int model_backward_weight(const PrCall *c) {
  layer_weight(((Act *)c->act)->x, c->gout, c->grad);
  return 0;
}

static inline int model_backward(const PrCall *c) {
  layer_input(output_gradient(c), ((Act *)c->act)->y, c->weight, c->work, c->dx);
  layer_weight(((Act *)c->act)->x, c->work, c->grad);
  return 0;
}

#endif
