/* SPDX-License-Identifier: MIT
 * See float_model.h: y[i] = x[i] w[i] + x[i+1] / 8, round in a circle, and Adam with a learning
 * rate that falls. */
#include "float_model.h"

#include <string.h>

#include "pipe_cuda.h"
#include "pipe_optim.h"
#include "shim.h"

enum { N = 18, BYTES = N * sizeof(float) };

static const PrOptim adam = {PR_ADAM, 0.9, 0.999, 1e-8, 0, 0};

static double learning_rate(void *self, uint32_t stage, uint64_t update) {
  (void)self, (void)stage;
  return 0.01 / (1 + 0.01 * (double)update);
}

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  const FloatModel *m = self;
  *out = (PrSizes){.act = BYTES,
                   .gout = BYTES,
                   .boundary = stage + 1 < m->nstage ? BYTES : 0,
                   .weight = BYTES,
                   .grad = BYTES,
                   .opt = 2 * BYTES};
  return 0;
}

static void fill(float *to, uint64_t seed) {
  for (uint64_t i = 0; i < N; i++)
    to[i] = 0.25f + (float)((seed * 2654435761u + i * 40503u) % 1000) / 1000;
}

static int init(void *self, uint32_t stage, void *weight, void *opt) {
  (void)self, (void)opt;
  fill(weight, stage);
  return 0;
}

static void forward(const PrCall *c) {
  float *x = c->act, y[N], sum = 0;
  const float *w = c->weight;
  if (c->x)
    memcpy(x, c->x, BYTES);
  else
    fill(x, c->step * 97 + c->mb);
  for (int i = 0; i < N; i++) {
    y[i] = x[i] * w[i] + x[(i + 1) % N] / 8;
    sum += y[i];
  }
  if (c->y)
    memcpy(c->y, y, BYTES);
  if (c->loss)
    *c->loss = (double)sum;
}

static void backward(const PrCall *c) {
  const float *x = c->act, *w = c->weight, *dy = c->dy;
  for (int i = 0; i < N; i++) {
    float d = dy ? dy[i] : 1, before = dy ? dy[(i + N - 1) % N] : 1;
    if (c->dx)
      ((float *)c->dx)[i] = d * w[i] + before / 8;
    ((float *)c->grad)[i] += d * x[i];
  }
}

static void work(const PrCall *c) {
  float *v = c->opt;
  if (c->op == PIPE_U)
    pr_optim(&adam, c->updates + 1, learning_rate(NULL, c->stage, c->updates) * c->rate, N,
             c->newest, c->weight, c->grad, v, v + N);
  else if (c->op == PIPE_B)
    backward(c);
  else
    forward(c);
}

static void kernel(void *arg) {
  PrCall c = *(PrCall *)arg;
  c.updates += (*c.step_at - c.step) * c.nupdate;
  c.step = *c.step_at;
  work(&c);
}

static int put(void *self, const PrCall *c) {
  (void)self;
  bool u = c->op == PIPE_U, f = c->op == PIPE_F || c->op == PIPE_R;
  if (!c->stream) {
    work(c);
    return 0;
  }
  const ShimAccess a[] = {
      {c->x, false},  {c->y, true},       {c->dy, false},     {c->dx, true},
      {c->act, f},    {c->newest, false}, {c->weight, u},     {f ? NULL : c->grad, true},
      {c->opt, true}, {c->loss, true},    {c->step_at, false}};
  return shim_launch(c->stream, kernel, c, sizeof *c, a, sizeof a / sizeof *a) != cudaSuccess;
}

typedef struct Sum {
  float *grad[8];
  uint32_t n;
  uint64_t count;
} Sum;

static void sum_up(void *arg) {
  const Sum *s = arg;
  for (uint64_t i = 0; i < s->count; i++) {
    for (uint32_t k = 1; k < s->n; k++)
      s->grad[0][i] += s->grad[k][i];
    for (uint32_t k = 1; k < s->n; k++)
      s->grad[k][i] = s->grad[0][i];
  }
}

static int reduce(void *self, uint32_t stage, void *const *grad, uint32_t n, uint64_t bytes) {
  Sum s = {.n = n, .count = bytes / sizeof(float)};
  ShimAccess a[8];
  (void)self, (void)stage;
  for (uint32_t k = 0; k < n; k++) {
    s.grad[k] = grad[k];
    a[k] = (ShimAccess){grad[k], true};
  }
  if (pr_cuda_stream())
    return shim_launch(pr_cuda_stream(), sum_up, &s, sizeof s, a, n) != cudaSuccess;
  sum_up(&s);
  return 0;
}

static int64_t moment(void *self, uint32_t stage, int which) {
  (void)self, (void)stage;
  return which * (int64_t)BYTES;
}

PrModel float_model(FloatModel *m, const PipeProgram *p) {
  *m = (FloatModel){p->nmodel};
  return (PrModel){.self = m,
                   .nstage = p->nmodel,
                   .sizes = sizes,
                   .init = init,
                   .forward = put,
                   .backward = put,
                   .update = put,
                   .reduce = reduce,
                   .elem = sizeof(float),
                   .lr = learning_rate,
                   .moment = moment};
}
