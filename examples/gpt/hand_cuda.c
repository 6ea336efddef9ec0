/* SPDX-License-Identifier: MIT
 * See hand_cuda.h. A rank fetches its input when the host issues the op that reads it.
 *
 * note [rings] Slot m % depth holds what F(m) and B(m) of a rank leave for their neighbour. Depth
 * is the number of ranks, at most that of microbatches. No wait guards a slot that is filled again:
 * its copy is over, because of the order of 1F1B. F(m) of rank r follows B(m - (P-r)) of rank r,
 * which follows F(m - (P-r)) of rank r + 1. B(m) of rank r > 0 follows the last F of rank r before
 * it, hence that F of rank r - 1, hence B(m - 2) there, or B(M-1 - (P-r+1)) in the flush.
 */
#include "hand_cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "stages_cuda.h"

enum { F, B, KINDS };

typedef struct Lane {
  cudaStream_t stream;
  cudaEvent_t *mark; /* [2 * (2 nmb + 1)]: before and after each; nmark of the last marked step */
  uint32_t nmark;
} Lane;

typedef struct HandRank {
  PrSizes size;
  void *weight, *grad, *opt, *work;
  void **act;          /* [depth] */
  void **given[KINDS]; /* [depth]: y, dx */
  void *taken[KINDS];  /* x, dy */
  Lane ops, copies;
  cudaEvent_t *ran[KINDS], *came[KINDS]; /* [nmb]: the op, the copy of its input */
  uint32_t issued[KINDS];
} HandRank;

struct Hand {
  PrModel *model;
  uint32_t nrank, nmb, depth;
  HandRank *rank;
  double *loss;
  uint64_t *step_at;
};

static void check(cudaError_t e) {
  if (e != cudaSuccess)
    stages_die(cudaGetErrorString(e));
}

static void *room_for(size_t n, size_t bytes) {
  void *p = calloc(n + 1, bytes);
  if (!p)
    stages_die("no memory");
  return p;
}

static cudaEvent_t *events(uint32_t n, unsigned flags) {
  cudaEvent_t *e = room_for(n, sizeof *e);
  for (uint32_t i = 0; i < n; i++)
    check(cudaEventCreateWithFlags(&e[i], flags));
  return e;
}

static void **slots(uint32_t n, uint64_t bytes) {
  void **p = room_for(n, sizeof *p);
  for (uint32_t i = 0; i < n; i++)
    p[i] = stages_device(bytes);
  return p;
}

static Lane lane(uint32_t nmb, int priority) {
  Lane l = {.mark = events(2 * (2 * nmb + 1), cudaEventDefault)};
  check(cudaStreamCreateWithPriority(&l.stream, cudaStreamNonBlocking, priority));
  return l;
}

Hand *hand_open(PrModel *model, uint32_t nmb) {
  Hand *h = room_for(1, sizeof *h);
  int least, greatest;
  h->model = model, h->nrank = model->nstage, h->nmb = nmb;
  h->depth = h->nrank < nmb ? h->nrank : nmb;
  h->rank = room_for(h->nrank, sizeof *h->rank);
  h->loss = stages_device(nmb * sizeof *h->loss);
  h->step_at = stages_device(sizeof *h->step_at);
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  for (uint32_t r = 0; r < h->nrank; r++) {
    HandRank *d = &h->rank[r];
    if (model->sizes(model->self, r, &d->size))
      stages_die("the model fails");
    const uint64_t given[KINDS] = {d->size.boundary, r ? d[-1].size.boundary : 0};
    d->weight = stages_device(d->size.weight), d->grad = stages_device(d->size.grad);
    d->opt = stages_device(d->size.opt), d->work = stages_device(d->size.work);
    d->act = slots(h->depth, d->size.act);
    for (int k = F; k < KINDS; k++) {
      d->given[k] = slots(h->depth, given[k]);
      d->taken[k] = stages_device(given[1 - k]);
      d->ran[k] = events(nmb, cudaEventDisableTiming);
      d->came[k] = events(nmb, cudaEventDisableTiming);
    }
    d->ops = lane(nmb, least), d->copies = lane(nmb, greatest);
    if (model->init(model->self, r, d->weight, d->opt))
      stages_die("the model fails");
  }
  check(cudaDeviceSynchronize());
  return h;
}

/* ---- a step ---- */

static void mark(Lane *l, int marked) {
  if (marked)
    check(cudaEventRecord(l->mark[l->nmark++], l->stream));
}

static void call(Hand *h, uint32_t r, PipeOp op, uint32_t mb) {
  HandRank *d = &h->rank[r];
  PrCall c = {.op = op,
              .rank = r,
              .stage = r,
              .nstage = h->nrank,
              .mb = mb,
              .nmb = h->nmb,
              .nslice = 1,
              .weight = d->weight,
              .newest = d->weight,
              .rate = 1,
              .nupdate = 1,
              .grad = d->grad,
              .opt = d->opt,
              .work = d->work,
              .stream = d->ops.stream,
              .step_at = h->step_at};
  const int begins = r == 0, ends = r + 1 == h->nrank;
  if (op != PIPE_U) {
    const uint32_t slot = mb % h->depth;
    c.act = d->act[slot], c.loss = h->loss + mb;
    if (op == PIPE_F)
      c.x = begins ? NULL : d->taken[F], c.y = ends ? NULL : d->given[F][slot];
    else
      c.dy = ends ? NULL : d->taken[B], c.dx = begins ? NULL : d->given[B][slot];
  }
  if (h->model->forward(h->model->self, &c))
    stages_die("an op fails");
}

/* Fetches the input of F(mb) or B(mb) from rank `from`, behind the op that had the last one. */
static void fetch(Hand *h, uint32_t r, uint32_t from, int kind, uint32_t mb, int marked) {
  HandRank *d = &h->rank[r], *p = &h->rank[from];
  cudaStream_t s = d->copies.stream;
  if (mb > 0)
    check(cudaStreamWaitEvent(s, d->ran[kind][mb - 1], 0));
  check(cudaStreamWaitEvent(s, p->ran[kind][mb], 0));
  mark(&d->copies, marked);
  check(cudaMemcpyAsync(d->taken[kind], p->given[kind][mb % h->depth],
                        kind == F ? p->size.boundary : d->size.boundary, cudaMemcpyDeviceToDevice,
                        s));
  mark(&d->copies, marked);
  check(cudaEventRecord(d->came[kind][mb], s));
  check(cudaStreamWaitEvent(d->ops.stream, d->came[kind][mb], 0));
}

/* Issues the next op of rank r. False: there is none, or its input has not been issued. */
static int issue(Hand *h, uint32_t r, int marked) {
  HandRank *d = &h->rank[r];
  const uint32_t nf = d->issued[F], nb = d->issued[B], lead = h->nrank - r;
  if (nb == h->nmb)
    return 0;
  const int kind = nf < h->nmb && nf - nb < lead ? F : B;
  const uint32_t mb = d->issued[kind];
  const int has = kind == F ? r > 0 : r + 1 < h->nrank; /* an input of another rank */
  const uint32_t from = kind == F ? r - 1 : r + 1;
  if (has && h->rank[from].issued[kind] <= mb)
    return 0;
  if (has)
    fetch(h, r, from, kind, mb, marked);
  mark(&d->ops, marked);
  call(h, r, kind == F ? PIPE_F : PIPE_B, mb);
  mark(&d->ops, marked);
  check(cudaEventRecord(d->ran[kind][mb], d->ops.stream));
  d->issued[kind]++;
  if (d->issued[B] == h->nmb) {
    mark(&d->ops, marked);
    call(h, r, PIPE_U, PIPE_NONE);
    mark(&d->ops, marked);
  }
  return 1;
}

void hand_step(Hand *h, int marked) {
  for (uint32_t r = 0; r < h->nrank; r++) {
    HandRank *d = &h->rank[r];
    d->issued[F] = d->issued[B] = 0;
    if (marked)
      d->ops.nmark = d->copies.nmark = 0;
  }
  for (int moved = 1; moved;) {
    moved = 0;
    for (uint32_t r = 0; r < h->nrank; r++)
      while (issue(h, r, marked))
        moved = 1;
  }
}

void hand_number(Hand *h, uint64_t step) {
  check(cudaMemcpy(h->step_at, &step, sizeof step, cudaMemcpyDefault));
  check(cudaDeviceSynchronize());
}

void hand_losses(Hand *h, double *to) {
  check(cudaDeviceSynchronize());
  check(cudaMemcpy(to, h->loss, h->nmb * sizeof *to, cudaMemcpyDefault));
}

static double add_gaps(const Lane *l, uint32_t *n) {
  double sum = 0;
  for (uint32_t i = 2; i < l->nmark; i += 2, ++*n) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, l->mark[i - 1], l->mark[i]));
    sum += 1e3 * (double)ms;
  }
  return sum;
}

HandGaps hand_gaps(Hand *h) {
  HandGaps g = {0, 0};
  uint32_t nop = 0, ncopy = 0;
  for (uint32_t r = 0; r < h->nrank; r++) {
    g.compute += add_gaps(&h->rank[r].ops, &nop);
    g.comm += add_gaps(&h->rank[r].copies, &ncopy);
  }
  return (HandGaps){nop ? g.compute / nop : 0, ncopy ? g.comm / ncopy : 0};
}

/* ---- closing ---- */

static void free_events(cudaEvent_t *e, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    cudaEventDestroy(e[i]);
  free(e);
}

static void free_slots(void **p, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    cudaFree(p[i]);
  free(p);
}

void hand_close(Hand *h) {
  for (uint32_t r = 0; r < h->nrank; r++) {
    HandRank *d = &h->rank[r];
    void *own[] = {d->weight, d->grad, d->opt, d->work, d->taken[F], d->taken[B]};
    Lane *lanes[] = {&d->ops, &d->copies};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
      cudaFree(own[i]);
    free_slots(d->act, h->depth);
    for (int k = F; k < KINDS; k++) {
      free_slots(d->given[k], h->depth);
      free_events(d->ran[k], h->nmb);
      free_events(d->came[k], h->nmb);
      free_events(lanes[k]->mark, 2 * (2 * h->nmb + 1));
      cudaStreamDestroy(lanes[k]->stream);
    }
  }
  cudaFree(h->loss);
  cudaFree(h->step_at);
  free(h->rank);
  free(h);
}
