/* SPDX-License-Identifier: MIT
 * See tiny_model.h. */
#include "tiny_model.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test_model.h"

enum { NWEIGHT = 5, FIRST_IN = 4, LAST_OUT = 3, UNIFORM = 6 };

static uint64_t mix(uint64_t a, uint64_t b) {
  a = (a ^ (b + UINT64_C(0x9e3779b97f4a7c15) + (a << 6))) * UINT64_C(0xff51afd7ed558ccd);
  return a ^ a >> 32;
}

static uint32_t nout(const Tiny *t, uint32_t stage) {
  if (stage + 1 == t->nstage)
    return LAST_OUT;
  return t->uniform ? UNIFORM : 3 + stage % 9;
}

static uint32_t nin(const Tiny *t, uint32_t stage) {
  return stage == 0 ? FIRST_IN : nout(t, stage - 1);
}

PrSizes tiny_sizes(const Tiny *t, uint32_t stage) {
  uint32_t in = t->uniform ? UNIFORM : nin(t, stage), out = t->uniform ? UNIFORM : nout(t, stage);
  PrSizes z = {.act = 8 * in + 8,
               .gout = 8 * out,
               .boundary = 8 * nout(t, stage),
               .weight = 8 * NWEIGHT,
               .grad = 8 * NWEIGHT,
               .opt = 16 * NWEIGHT + 8,
               .work = 200};
  if (stage + 1 == t->nstage)
    z.boundary = 0;
  return z;
}

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  *out = tiny_sizes(self, stage);
  return 0;
}

static void broken(Tiny *t, const PrCall *c, const char *what) {
  char op[PIPE_OP_TEXT];
  pipe_op_text(op, c->op, c->stage, c->mb);
  fprintf(stderr, "rank %u, step %llu, %s: %s\n", c->rank, (unsigned long long)c->step, op, what);
  atomic_fetch_add(&t->broken, 1);
}

static void check(Tiny *t, const PrCall *c) {
  bool f = c->op == PIPE_F || c->op == PIPE_R, b = c->op == PIPE_B, i = c->op == PIPE_I,
       w = c->op == PIPE_W, u = c->op == PIPE_U, first = c->stage == 0,
       last = c->stage + 1 == c->nstage;
  const void *p[] = {c->x,      c->dy,   c->y,   c->dx,   c->act,  c->gout,
                     c->weight, c->grad, c->opt, c->work, c->loss, c->newest};
  const bool want[] = {f && !first,
                       (b || i) && !last,
                       f && !last,
                       (b || i) && !first,
                       f || b || i || w,
                       i || w,
                       f || b || i || u,
                       b || w || u,
                       u,
                       true,
                       f && last,
                       u};
  for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
    if ((p[k] != NULL) != want[k])
      broken(t, c, want[k] ? "a pointer is NULL" : "a pointer is not NULL");
    if (p[k] != c->loss && (uintptr_t)p[k] % 64)
      broken(t, c, "a pointer is not aligned");
  }
  if (t->in_rank && atomic_fetch_add(&t->in_rank[c->rank], 1))
    broken(t, c, "two ops of a rank at once");
}

static int leave(Tiny *t, const PrCall *c) {
  if (t->in_rank)
    atomic_fetch_sub(&t->in_rank[c->rank], 1);
  if (t->shake) {
    uint64_t ns = mix(mix(c->stage * 64 + (uint64_t)c->op, c->mb), c->step) % 100000;
    struct timespec d = {0, (long)ns};
    if (ns % 4)
      nanosleep(&d, NULL);
  }
  if (!(t->code || t->hang) || c->op != t->bad_op || c->stage != t->bad_stage ||
      c->mb != t->bad_mb || c->step != t->bad_step)
    return 0;
  struct timespec d = {0, 1000000};
  while (t->hang && !atomic_load(&t->release))
    nanosleep(&d, NULL);
  return t->code;
}

static int init(void *self, uint32_t stage, void *weight, void *opt) {
  Tiny *t = self;
  uint64_t *w = weight, *o = opt;
  for (uint32_t i = 0; i < NWEIGHT; i++) {
    if (w[i] || o[i]) {
      fprintf(stderr, "init of stage %u: memory is not zero\n", stage);
      atomic_fetch_add(&t->broken, 1);
    }
    w[i] = mix(stage, i);
  }
  return t->bad_op == PIPE_NOPS && t->bad_stage == stage ? t->code : 0;
}

static int forward(void *self, const PrCall *c) {
  Tiny *t = self;
  check(t, c);
  const uint64_t *x = c->x, *w = c->weight;
  uint64_t *y = c->y, *act = c->act, *work = c->work, sum = 0;
  uint32_t n = nin(t, c->stage), m = nout(t, c->stage);
  for (uint32_t i = 0; i < n; i++) {
    act[i] = work[i] = x ? x[i] : mix(mix(c->step, c->mb), i);
    sum = mix(sum, act[i]);
  }
  act[n] = mix(c->stage, c->mb);
  for (uint32_t j = 0; y && j < m; j++)
    y[j] = mix(sum, w[j % NWEIGHT] + j);
  if (c->loss)
    *c->loss = (double)(mix(sum, w[0]) >> 12) / 1e6;
  return leave(t, c);
}

static uint64_t dy_at(const Tiny *t, const PrCall *c, uint32_t j) {
  const uint64_t *dy = c->dy, *act = c->act;
  return dy ? dy[j] : mix(act[j % nin(t, c->stage)], j);
}

static void input_gradient(const Tiny *t, const PrCall *c) {
  const uint64_t *w = c->weight, *act = c->act;
  uint64_t *dx = c->dx, sum = act[nin(t, c->stage)];
  for (uint32_t j = 0; j < nout(t, c->stage); j++)
    sum = mix(sum, dy_at(t, c, j));
  for (uint32_t i = 0; dx && i < nin(t, c->stage); i++)
    dx[i] = mix(sum ^ act[i], w[i % NWEIGHT]);
}

static void weight_gradient(Tiny *t, const PrCall *c, const uint64_t *dy) {
  const uint64_t *act = c->act;
  uint64_t *grad = c->grad;
  for (uint32_t i = 0; i < NWEIGHT; i++) {
    uint64_t g = mix(dy[i % nout(t, c->stage)], act[i % nin(t, c->stage)] + i);
    if (c->first_grad && grad[i])
      broken(t, c, "first_grad, but the gradient is not zero");
    grad[i] += g * (1 + c->mb);
  }
  if (!c->first_grad && !grad[0] && !grad[1] && !grad[2])
    broken(t, c, "not first_grad, but the gradient was zero");
}

static int backward(void *self, const PrCall *c) {
  Tiny *t = self;
  check(t, c);
  uint64_t *dy = c->work; /* scratch */
  for (uint32_t j = 0; j < nout(t, c->stage); j++)
    dy[j] = dy_at(t, c, j);
  input_gradient(t, c);
  weight_gradient(t, c, dy);
  return leave(t, c);
}

static int backward_input(void *self, const PrCall *c) {
  Tiny *t = self;
  check(t, c);
  uint64_t *gout = c->gout;
  for (uint32_t j = 0; j < nout(t, c->stage); j++)
    gout[j] = dy_at(t, c, j);
  input_gradient(t, c);
  memset(c->work, 0x5a, 200);
  return leave(t, c);
}

static int backward_weight(void *self, const PrCall *c) {
  Tiny *t = self;
  check(t, c);
  weight_gradient(t, c, c->gout);
  return leave(t, c);
}

static int update(void *self, const PrCall *c) {
  Tiny *t = self;
  check(t, c);
  uint64_t *w = c->weight, *grad = c->grad, *opt = c->opt;
  const uint64_t *newest = c->newest;
  if (c->rate != 1)
    broken(t, c, "rate is not 1");
  if (c->updates != opt[2 * NWEIGHT]++) /* which checkpoints keep */
    broken(t, c, "`updates` is not the number of updates so far");
  for (uint32_t i = 0; i < NWEIGHT; i++) {
    opt[i] += grad[i];
    opt[NWEIGHT + i] = mix(opt[NWEIGHT + i], c->step);
    w[i] = mix(newest[i] + opt[NWEIGHT + i], opt[i]);
    grad[i] = 0;
  }
  return leave(t, c);
}

static int reduce(void *self, uint32_t stage, void *const *grad, uint32_t n, uint64_t bytes) {
  Tiny *t = self;
  uint64_t sum[NWEIGHT] = {0};
  if (stage >= t->nstage || n < 2) {
    fprintf(stderr, "reduce of stage %u: %u replicas\n", stage, n);
    atomic_fetch_add(&t->broken, 1);
  }
  for (uint32_t k = 0; k < n; k++)
    for (uint32_t i = 0; i < bytes / sizeof *sum; i++)
      sum[i] += ((const uint64_t *)grad[k])[i];
  for (uint32_t k = 0; k < n; k++)
    memcpy(grad[k], sum, bytes);
  return t->bad_op == PIPE_REDUCE && t->bad_stage == stage ? t->code : 0;
}

static void *need(void *p) {
  if (!p)
    abort();
  return p;
}

Tiny *tiny_new(uint32_t nstage, int uniform) {
  Tiny *t = need(calloc(1, sizeof *t));
  t->nstage = nstage;
  t->uniform = uniform;
  t->in_rank = need(calloc(nstage, sizeof *t->in_rank));
  t->bad_op = PIPE_F;
  return t;
}

void tiny_free(Tiny *t) {
  free(t->in_rank);
  free(t);
}

static int overlap(void *self, const PrCall *c, uint32_t n) {
  int code = 0;
  for (uint32_t i = 0; i < n && !code; i++) {
    bool f = c[i].op == PIPE_F || c[i].op == PIPE_R;
    code = f                   ? forward(self, &c[i])
           : c[i].op == PIPE_B ? backward(self, &c[i])
           : c[i].op == PIPE_I ? backward_input(self, &c[i])
           : c[i].op == PIPE_U ? update(self, &c[i])
                               : backward_weight(self, &c[i]);
  }
  return code;
}

PrModel tiny_model(Tiny *t) {
  return (PrModel){.self = t,
                   .nstage = t->nstage,
                   SPLIT_OPS(update),
                   .reduce = reduce,
                   .overlap = overlap,
                   .nslice = 1};
}

TinyRef *tiny_reference(uint32_t nstage, uint32_t nmb, int uniform, uint64_t steps) {
  Tiny *t = tiny_new(nstage, uniform);
  TinyRef *r = need(calloc(1, sizeof *r));
  *r = (TinyRef){nstage, nmb, need(calloc(nstage, sizeof(void *))), need(calloc(nmb, 8))};
  void **grad = need(calloc(nstage, sizeof *grad)), **opt = need(calloc(nstage, sizeof *opt)),
       **act = need(calloc(nstage, sizeof *act));
  char *flow[2], *work = need(aligned_alloc(64, 256));
  for (int i = 0; i < 2; i++)
    flow[i] = need(aligned_alloc(64, 256));
  for (uint32_t s = 0; s < nstage; s++) {
    void **of[] = {&r->weight[s], &grad[s], &opt[s], &act[s]};
    for (int i = 0; i < 4; i++)
      memset(*of[i] = need(aligned_alloc(64, 256)), 0, 256);
    init(t, s, r->weight[s], opt[s]);
  }
  for (uint64_t step = 0; step < steps; step++) {
    for (uint32_t m = 0; m < nmb; m++) {
      int at = 0;
      for (uint32_t s = 0; s < nstage; s++, at ^= 1) {
        bool last = s + 1 == nstage;
        PrCall c = {.op = PIPE_F,
                    .stage = s,
                    .nstage = nstage,
                    .mb = m,
                    .nmb = nmb,
                    .step = step,
                    .x = s ? flow[at] : NULL,
                    .y = last ? NULL : flow[at ^ 1],
                    .act = act[s],
                    .weight = r->weight[s],
                    .work = work,
                    .loss = last ? &r->loss[m] : NULL};
        forward(t, &c);
      }
      for (uint32_t s = nstage; s-- > 0; at ^= 1) {
        PrCall c = {.op = PIPE_B,
                    .stage = s,
                    .nstage = nstage,
                    .mb = m,
                    .nmb = nmb,
                    .step = step,
                    .dy = s + 1 < nstage ? flow[at] : NULL,
                    .dx = s ? flow[at ^ 1] : NULL,
                    .act = act[s],
                    .weight = r->weight[s],
                    .grad = grad[s],
                    .work = work,
                    .first_grad = m == 0};
        backward(t, &c);
      }
    }
    for (uint32_t s = 0; s < nstage; s++) {
      PrCall c = {.op = PIPE_U,
                  .stage = s,
                  .nstage = nstage,
                  .mb = PIPE_NONE,
                  .nmb = nmb,
                  .step = step,
                  .weight = r->weight[s],
                  .newest = r->weight[s],
                  .rate = 1,
                  .updates = step,
                  .grad = grad[s],
                  .opt = opt[s],
                  .work = work};
      update(t, &c);
    }
  }
  if (atomic_load(&t->broken))
    abort(); /* the oracle itself breaks the rules */
  for (uint32_t s = 0; s < nstage; s++) {
    free(grad[s]);
    free(opt[s]);
    free(act[s]);
  }
  free(grad);
  free(opt);
  free(act);
  free(flow[0]);
  free(flow[1]);
  free(work);
  tiny_free(t);
  return r;
}

void tiny_reference_free(TinyRef *r) {
  for (uint32_t s = 0; s < r->nstage; s++)
    free(r->weight[s]);
  free(r->weight);
  free(r->loss);
  free(r);
}
