/* SPDX-License-Identifier: MIT
 * See sequential.h. */
#include "sequential.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { EDGE = 64 }; /* guard bytes on both sides of a buffer; also its alignment */

/* NULL if it takes no bytes, or if there is no memory, which s->error says. */
static void *guarded_alloc(Seq *s, uint64_t bytes) {
  if (!bytes)
    return NULL;
  uint64_t all = (bytes + EDGE - 1) / EDGE * EDGE + 2 * EDGE;
  uint8_t *p = aligned_alloc(EDGE, all);
  if (!p) {
    s->error = "out of memory";
    return NULL;
  }
  s->bytes += all;
  memset(p, 0xa5, all);
  memset(p + EDGE, 0, bytes);
  return p + EDGE;
}
static void guarded_free(void *p) {
  if (p)
    free((uint8_t *)p - EDGE);
}
static int guarded_ok(const void *p, uint64_t bytes) {
  const uint8_t *b = p;
  for (int i = 0; p && i < EDGE; i++)
    if (b[i - EDGE] != 0xa5 || b[bytes + (uint64_t)i] != 0xa5)
      return 0;
  return 1;
}

static uint32_t slices_of(const Seq *s) { return s->model.nslice > 1 ? s->model.nslice : 1; }

static uint64_t input_bytes(const Seq *s, uint32_t stage) {
  return stage ? s->stage[stage - 1].size.boundary : 0;
}

static bool forward_only(const Seq *s) { return !s->model.update; }

/* A model that is only evaluated has one stash for all stages, that of stage 0, and it fits the
 * largest. */
static void take_sizes(Seq *s) {
  uint64_t act = 0;
  for (uint32_t i = 0; i < s->model.nstage; i++) {
    PrSizes *z = &s->stage[i].size;
    s->model.sizes(s->model.self, i, z); /* never fails */
    act = z->act > act ? z->act : act;
    s->work_bytes = z->work > s->work_bytes ? z->work : s->work_bytes;
  }
  for (uint32_t i = 0; forward_only(s) && i < s->model.nstage; i++) {
    PrSizes *z = &s->stage[i].size;
    z->grad = z->opt = z->gout = 0;
    z->act = act;
  }
}

static void open_stage(Seq *s, uint32_t i) {
  SeqStage *t = &s->stage[i];
  const PrModel *m = &s->model;
  bool shared = forward_only(s) && i > 0;
  if (!(t->acts = calloc(slices_of(s), sizeof *t->acts)))
    s->error = "out of memory";
  t->weight = guarded_alloc(s, t->size.weight);
  t->grad = guarded_alloc(s, t->size.grad);
  t->opt = guarded_alloc(s, t->size.opt);
  for (uint32_t q = 0; t->acts && q < slices_of(s); q++)
    t->acts[q] = shared ? s->stage->acts[q] : guarded_alloc(s, t->size.act);
  t->act = t->acts ? t->acts[0] : NULL;
  t->gout = guarded_alloc(s, t->size.gout);
  t->x = guarded_alloc(s, input_bytes(s, i));
  t->dx = forward_only(s) ? NULL : guarded_alloc(s, input_bytes(s, i));
  if (!s->error && m->init(m->self, i, t->weight, t->opt))
    s->error = "init failed";
}

int seq_open(Seq *s, const PrModel *m, int strict) {
  *s = (Seq){.model = *m, .strict = strict};
  s->stage = calloc(m->nstage, sizeof *s->stage);
  if (!s->stage)
    s->error = "out of memory";
  else
    take_sizes(s);
  for (uint32_t i = 0; !s->error && i < m->nstage; i++)
    open_stage(s, i);
  if (!s->error)
    s->work = guarded_alloc(s, s->work_bytes);
  return s->error ? -1 : 0;
}

void seq_close(Seq *s) {
  for (uint32_t i = 0; s->stage && i < s->model.nstage; i++) {
    SeqStage *t = &s->stage[i];
    void *all[] = {t->weight, t->grad, t->opt, t->gout, t->x, t->dx, t->sum};
    for (uint32_t q = 0; t->acts && q < slices_of(s) && !(forward_only(s) && i > 0); q++)
      guarded_free(t->acts[q]);
    free(t->acts);
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
      guarded_free(all[k]);
  }
  guarded_free(s->work);
  free(s->stage);
  memset(s, 0, sizeof *s);
}

/* Contents that an op must not count on. */
static void poison(const Seq *s, void *p, uint64_t bytes) {
  if (s->strict && p)
    memset(p, 0xff, bytes); /* a NaN in float and double */
}

static int check_edges(Seq *s) {
  int ok = guarded_ok(s->work, s->work_bytes);
  for (uint32_t i = 0; i < s->model.nstage; i++) {
    const SeqStage *t = &s->stage[i];
    ok = ok && guarded_ok(t->weight, t->size.weight) && guarded_ok(t->grad, t->size.grad) &&
         guarded_ok(t->opt, t->size.opt) && guarded_ok(t->gout, t->size.gout) &&
         guarded_ok(t->x, input_bytes(s, i)) && guarded_ok(t->dx, input_bytes(s, i));
    for (uint32_t q = 0; q < slices_of(s); q++)
      ok = ok && guarded_ok(t->acts[q], t->size.act);
  }
  if (!ok)
    s->error = "an op wrote outside its buffers";
  return ok ? 0 : -1;
}

int seq_op(Seq *s, PipeOp op, uint32_t stage, uint64_t step, uint32_t mb, uint32_t nmb,
           double *loss) {
  return seq_slice(s, op, stage, step, mb, 0, nmb, loss);
}

int seq_slice(Seq *s, PipeOp op, uint32_t stage, uint64_t step, uint32_t mb, uint32_t slice,
              uint32_t nmb, double *loss) {
  SeqStage *t = &s->stage[stage], *next = stage + 1 < s->model.nstage ? t + 1 : NULL;
  const PrModel *m = &s->model;
  PrCall c = {.op = op,
              .stage = stage,
              .nstage = m->nstage,
              .mb = mb,
              .nmb = nmb,
              .slice = slice,
              .nslice = slices_of(s),
              .past = slice > 0 && op != PIPE_W && op != PIPE_U ? t->acts : NULL,
              .step = step,
              .work = s->work};
  int (*run)(void *, const PrCall *) = NULL;
  poison(s, s->work, s->work_bytes);
  if (op == PIPE_F) {
    run = m->forward;
    c.x = t->x, c.weight = t->weight, c.act = t->acts[slice];
    c.y = next ? next->x : NULL;
    c.loss = next ? NULL : loss;
    poison(s, c.act, t->size.act);
    poison(s, c.y, t->size.boundary);
  } else if (op == PIPE_B || op == PIPE_I) {
    run = op == PIPE_B ? m->backward : m->backward_input;
    c.dy = next ? next->dx : NULL;
    c.dx = t->dx, c.weight = t->weight, c.act = t->acts[slice];
    poison(s, t->x, input_bytes(s, stage)); /* x was valid in F only */
    poison(s, t->dx, input_bytes(s, stage));
    if (op == PIPE_I) {
      c.gout = t->gout;
      poison(s, t->gout, t->size.gout);
    }
  } else if (op == PIPE_W) {
    run = m->backward_weight;
    c.act = t->acts[slice], c.gout = t->gout;
  } else if (op == PIPE_U) {
    run = m->update;
    c.weight = t->weight, c.newest = t->weight, c.opt = t->opt;
    c.rate = 1, c.updates = c.step;
  }
  if (op == PIPE_B || op == PIPE_W) {
    c.first_grad = !t->used;
    t->used = 1;
  }
  if (op != PIPE_F && op != PIPE_I)
    c.grad = t->grad;
  if (op == PIPE_U)
    t->used = 0;
  if (!run || run(m->self, &c)) {
    s->error = "a callback failed or is missing";
    return -1;
  }
  return s->strict ? check_edges(s) : 0;
}

int seq_forward(Seq *s, uint64_t step, uint32_t mb, uint32_t nmb, double *loss) {
  double part = 0;
  for (uint32_t q = 0; q < slices_of(s); q++) {
    for (uint32_t i = 0; i < s->model.nstage; i++)
      if (seq_slice(s, PIPE_F, i, step, mb, q, nmb, &part))
        return -1;
    *loss = q ? *loss + part : part;
  }
  return 0;
}

int seq_backward(Seq *s, uint64_t step, uint32_t mb, uint32_t nmb, int split) {
  for (uint32_t q = slices_of(s); q-- > 0;)
    for (uint32_t i = s->model.nstage; i-- > 0;)
      if (split ? seq_slice(s, PIPE_I, i, step, mb, q, nmb, NULL) ||
                      seq_slice(s, PIPE_W, i, step, mb, q, nmb, NULL)
                : seq_slice(s, PIPE_B, i, step, mb, q, nmb, NULL))
        return -1;
  return 0;
}

/* Adds the gradients of a replica to the sum of those before it and leaves none; after the last one
 * the sum is the gradient. */
static int add_replica(Seq *s, bool first, bool last) {
  for (uint32_t i = 0; i < s->model.nstage; i++) {
    SeqStage *t = &s->stage[i];
    uint64_t bytes = t->size.grad;
    if (bytes && !t->sum && !(t->sum = guarded_alloc(s, bytes)))
      return -1;
    if (first)
      memcpy(t->sum, t->grad, bytes);
    else if (s->model.reduce(s->model.self, i, (void *[]){t->sum, t->grad}, 2, bytes)) {
      s->error = "a callback failed or is missing";
      return -1;
    }
    if (!last) {
      memset(t->grad, 0, bytes);
      t->used = 0;
    }
  }
  return 0;
}

int seq_step(Seq *s, uint64_t step, uint32_t nmb, int split, double *loss) {
  return seq_step_ordered(s, step, NULL, &nmb, 1, split, loss);
}

int seq_step_ordered(Seq *s, uint64_t step, const uint32_t *order, const uint32_t *end,
                     uint32_t nreplica, int split, double *loss) {
  uint32_t n = s->model.nstage, nmb = end[nreplica - 1], replica = 0;
  for (uint32_t k = 0; k < nmb; k++) {
    uint32_t mb = order ? order[k] : k;
    if (seq_forward(s, step, mb, nmb, &loss[mb]) || seq_backward(s, step, mb, nmb, split))
      return -1;
    if (nreplica > 1 && k + 1 == end[replica]) {
      if (add_replica(s, replica == 0, k + 1 == nmb))
        return -1;
      replica++;
    }
  }
  for (uint32_t i = 0; i < n; i++)
    if (seq_op(s, PIPE_U, i, step, PIPE_NONE, nmb, NULL))
      return -1;
  return 0;
}
