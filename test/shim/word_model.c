/* SPDX-License-Identifier: MIT
 * See word_model.h. */
#include "word_model.h"

#include <stdbool.h>
#include <string.h>

#include "pipe_cuda.h"
#include "shim.h"

_Atomic uint32_t word_broken;

static uint64_t mix(uint64_t a, uint64_t b) {
  a = (a ^ (b + UINT64_C(0x9e3779b97f4a7c15) + (a << 6))) * UINT64_C(0xff51afd7ed558ccd);
  return a ^ a >> 32;
}

static uint64_t fold(uint64_t a, const void *words) {
  for (int i = 0; i < WORDS; i++)
    a = mix(a, ((const uint64_t *)words)[i]);
  return a;
}

static void spread(void *to, uint64_t seed) {
  for (uint64_t i = 0; i < WORDS; i++)
    ((uint64_t *)to)[i] = mix(seed, i);
}

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  WordModel *m = self;
  const uint64_t n = 8 * WORDS;
  *out = (PrSizes){.act = n,
                   .gout = n,
                   .boundary = stage + 1 < m->nstage ? n : 0,
                   .weight = n,
                   .grad = n - m->odd,
                   .opt = n,
                   .work = n,
                   .edge = m->edges ? n : 0,
                   .tied = m->tied[stage] ? n / 3 - m->odd : 0};
  return 0;
}

static int init(void *self, uint32_t stage, void *weight, void *opt) {
  (void)self;
  spread(weight, stage);
  if (opt)
    spread(opt, 77 + stage);
  return 0;
}

/* ---- the work ---- */

static void forward(const PrCall *c) {
  uint64_t sum = mix(mix(c->stage, c->mb), c->slice);
  for (uint32_t i = 0; i < c->nx; i++)
    sum = fold(sum, c->xs[i]);
  if (c->nx == 0)
    sum = mix(sum, c->step);
  for (uint32_t q = 0; q < c->slice; q++)
    sum = fold(sum, c->past[q]);
  sum = fold(sum, c->weight);
  spread(c->work, sum);
  memcpy(c->act, c->work, 8 * WORDS);
  for (uint32_t i = 0; i < c->ny; i++)
    spread(c->ys[i], mix(fold(sum, c->act), i));
  if (c->loss)
    *c->loss = (double)(sum >> 40);
}

static uint64_t backward_sum(const PrCall *c) {
  uint64_t sum = mix(mix(c->stage, c->mb), c->slice + 1);
  for (uint32_t i = 0; i < c->ny; i++)
    sum = fold(sum, c->dys[i]);
  for (uint32_t q = 0; q < c->slice && c->past; q++)
    sum = fold(sum, c->past[q]);
  return fold(fold(sum, c->act), c->weight);
}

static void add(void *grad, uint64_t seed) {
  for (uint64_t i = 0; i < WORDS; i++)
    ((uint64_t *)grad)[i] += mix(seed, i);
}

/* A buffer holds a number of its own from taking to giving; one of a name with U in it adds to the
 * gradients. */
static void side_work(const PrCall *c) {
  uint64_t held[WORDS];
  spread(held, mix(mix(c->stage, c->mb), 5));
  if (c->given && memcmp(c->given, held, sizeof held) != 0)
    word_broken++;
  if (c->given)
    spread(c->given, 0);
  if (c->taken)
    memcpy(c->taken, held, sizeof held);
  if (strchr(c->side, 'U'))
    add(c->grad, 11);
}

static void work(const PrCall *c) {
  uint64_t sum = c->op == PIPE_B || c->op == PIPE_I ? backward_sum(c) : 0;
  switch (c->op) {
  case PIPE_F:
  case PIPE_R: forward(c); break;
  case PIPE_B:
  case PIPE_I:
    for (uint32_t i = 0; i < c->nx; i++)
      spread(c->dxs[i], mix(sum, 3 + i));
    if (c->op == PIPE_B)
      add(c->grad, sum);
    else
      spread(c->gout, sum);
    break;
  case PIPE_W: add(c->grad, fold(fold(0, c->act), c->gout)); break;
  case PIPE_SIDE: side_work(c); break;
  default:
    for (int i = 0; i < WORDS; i++) {
      const uint64_t *newest = c->newest;
      uint64_t *w = c->weight, *g = c->grad, *o = c->opt;
      o[i] = mix(o[i], g[i] + c->updates);
      w[i] = newest[i] + 3 * g[i] + o[i];
      g[i] = 0;
    }
  }
}

/* ---- on a stream ---- */

static void kernel(void *arg) {
  PrCall c = *(PrCall *)arg;
  if (c.step_at) {
    c.updates += (*c.step_at - c.step) * c.nupdate;
    c.step = *c.step_at;
  }
  work(&c);
}

static int put(void *self, const PrCall *c) {
  WordModel *m = self;
  if (!c->stream) {
    work(c);
    return 0;
  }
  if (c->op == PIPE_SIDE) { /* beside others */
    ShimAccess s[] = {
        {c->taken, true}, {c->given, true}, {strchr(c->side, 'U') ? c->grad : NULL, true}};
    return shim_launch(c->stream, kernel, c, sizeof *c, s, 3) != cudaSuccess;
  }
  ShimAccess a[64];
  uint32_t n = 0;
  bool f = c->op == PIPE_F || c->op == PIPE_R, b = c->op == PIPE_B || c->op == PIPE_I,
       u = c->op == PIPE_U;
  for (uint32_t i = 0; i < c->nx && (f || b); i++)
    a[n++] = f ? (ShimAccess){c->xs[i], false} : (ShimAccess){c->dxs[i], true};
  for (uint32_t i = 0; i < c->ny && (f || b); i++)
    a[n++] = f ? (ShimAccess){c->ys[i], true} : (ShimAccess){c->dys[i], false};
  for (uint32_t q = 0; q < c->slice && c->past && (f || b); q++)
    a[n++] = (ShimAccess){c->past[q], false};
  a[n++] = (ShimAccess){c->act, f};
  a[n++] = (ShimAccess){c->gout, c->op == PIPE_I};
  a[n++] = (ShimAccess){c->newest, false};
  a[n++] = (ShimAccess){c->weight, u};
  a[n++] = (ShimAccess){c->grad, true};
  a[n++] = (ShimAccess){c->opt, true};
  a[n++] = (ShimAccess){c->loss, true};
  a[n++] = (ShimAccess){c->work, true};
  a[n++] = (ShimAccess){c->step_at, false};
  PrCall copy = *c;
  if (m->no_step)
    copy.step_at = NULL;
  return shim_launch(c->stream, kernel, &copy, sizeof copy, a, n) != cudaSuccess;
}

static int overlap(void *self, const PrCall *c, uint32_t n) {
  int code = 0;
  for (uint32_t i = n; i-- > 0;) /* any order will do */
    code |= put(self, &c[i]);
  return code;
}

typedef struct Sum {
  void *grad[32];
  uint32_t n;
  uint64_t words;
} Sum;

static void sum_up(void *arg) {
  const Sum *s = arg;
  for (uint64_t i = 0; i < s->words; i++) {
    uint64_t sum = 0;
    for (uint32_t k = 0; k < s->n; k++)
      sum += ((uint64_t *)s->grad[k])[i];
    for (uint32_t k = 0; k < s->n; k++)
      ((uint64_t *)s->grad[k])[i] = sum;
  }
}

static int sum(void *const *grad, uint32_t n, uint64_t bytes) {
  Sum s = {.n = n, .words = bytes / 8};
  ShimAccess a[32];
  for (uint32_t k = 0; k < n; k++) {
    s.grad[k] = grad[k];
    a[k] = (ShimAccess){grad[k], true};
  }
  if (!pr_cuda_stream()) {
    sum_up(&s);
    return 0;
  }
  return shim_launch(pr_cuda_stream(), sum_up, &s, sizeof s, a, n) != cudaSuccess;
}

static int reduce(void *self, uint32_t stage, void *const *grad, uint32_t n, uint64_t bytes) {
  (void)self, (void)stage;
  return sum(grad, n, bytes);
}

static int tie(void *self, const uint32_t *stage, void *const *grad, uint32_t n, uint64_t bytes) {
  (void)self, (void)stage;
  return sum(grad, n, bytes);
}

PrModel word_model(WordModel *m, const PipeProgram *p) {
  int joins = m->joins, no_step = m->no_step;
  const uint32_t odd = m->odd;
  *m = (WordModel){.nstage = p->nmodel,
                   .nslice = p->slices,
                   .joins = joins,
                   .no_step = no_step,
                   .odd = odd,
                   .edges = p->edge != NULL};
  for (uint32_t s = 0; s < p->nstage; s++)
    m->tied[p->stage[s].model] = p->stage[s].tied != PIPE_NONE;
  return (PrModel){.self = m,
                   .nstage = p->nmodel,
                   .nslice = p->slices,
                   .sizes = sizes,
                   .init = init,
                   .forward = put,
                   .backward = put,
                   .backward_input = put,
                   .backward_weight = put,
                   .update = put,
                   .side = put,
                   .reduce = reduce,
                   .tie = tie,
                   .overlap = joins ? overlap : NULL};
}
