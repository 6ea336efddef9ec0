/* SPDX-License-Identifier: MIT
 * See hand_cuda.h. */
#include "hand_cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipe_rows.h"
#include "stages_cuda.h"

typedef enum Kind { WAIT, RECORD, CALL, MOVE, MARK } Kind;
typedef struct Act {
  Kind kind;
  uint32_t rank, row; /* MOVE: of the sender */
  uint32_t to, at;    /* MOVE: of the receiver; else `to`: event, or mark */
} Act;

typedef struct HandRank {
  const PipeRank *t;
  void **slot, *work;
  cudaStream_t compute, comm;
  cudaEvent_t *event, *mark, ready, over;
  uint32_t next, sync;
  uint64_t moved;
} HandRank;

struct Hand {
  const PipeProgram *p;
  PipeProgram *lists; /* p, mine */
  PrModel *model;
  PrSizes *size; /* [nstage] */
  void **weight, **grad, **opt;
  HandRank *rank;
  PrCall **call;   /* [nrank][ninstr] */
  uint32_t **pair; /* of pipe_pair, until the order is found */
  Act *act;
  uint32_t nact, room;
  cudaEvent_t begin;
  double *loss;
  uint64_t *step_at;
};

static void die(const char *what) {
  fprintf(stderr, "by hand: %s\n", what);
  exit(1);
}

static void check(cudaError_t e) {
  if (e != cudaSuccess)
    die(cudaGetErrorString(e));
}

static void *room_for(size_t n, size_t bytes) {
  void *p = calloc(n + 1, bytes);
  if (!p)
    die("no memory");
  return p;
}

static int is_comm(const PipeInstr *in) { return pipe_op_info[in->op].comm; }
static cudaStream_t stream_of(const HandRank *d, const PipeInstr *in) {
  return is_comm(in) ? d->comm : d->compute;
}

int hand_is_head(const PipeRank *r, uint32_t i) {
  for (uint32_t j = i; j-- > 0 && i - j < 64;)
    if (r->instr[j].group >= i - j && is_comm(&r->instr[j]))
      return 0;
  return 1;
}

/* ---- the order ---- */

static void add(Hand *h, Act a) {
  if (h->nact == h->room) {
    h->room = 2 * h->room + 256;
    h->act = realloc(h->act, h->room * sizeof *h->act);
    if (!h->act)
      die("no memory");
  }
  h->act[h->nact++] = a;
}

/* Waits of row d->next, or at the end. */
static void add_waits(Hand *h, uint32_t r) {
  HandRank *d = &h->rank[r];
  for (; d->sync < d->t->nsync && d->t->sync[d->sync].before == d->next; d->sync++)
    add(h, (Act){WAIT, r, d->next, d->t->sync[d->sync].event, 0});
}

/* The record after row + 1, if there is one; 0: the begin. */
static void add_record(Hand *h, uint32_t r, uint32_t row) {
  const PipeRank *t = h->rank[r].t;
  for (uint32_t i = 0; i < t->nsync; i++)
    if (t->sync[i].after + 1 == row) {
      add(h, (Act){RECORD, r, row - 1, t->sync[i].event, 0});
      return;
    }
}

static void add_marks(Hand *h, uint32_t r, uint32_t n, uint32_t after) {
  for (uint32_t i = 0; i < n; i++)
    add(h, (Act){MARK, r, h->rank[r].next + i, 2 * (h->rank[r].next + i) + after, 0});
}

static void begin_group(Hand *h, uint32_t r) {
  HandRank *d = &h->rank[r];
  if (d->moved)
    return;
  add_waits(h, r);
  add_marks(h, r, d->t->instr[d->next].group + 1u, 0);
}

static void end_transfer(Hand *h, uint32_t r, uint32_t i) {
  HandRank *d = &h->rank[r];
  const uint32_t n = d->t->instr[d->next].group + 1u;
  d->moved |= UINT64_C(1) << i;
  if (d->moved != UINT64_MAX >> (64 - n))
    return;
  add_marks(h, r, n, 1);
  for (uint32_t k = 0; k < n; k++)
    add_record(h, r, d->next + k + 1);
  d->next += n;
  d->moved = 0;
}

static int at_transfers(const HandRank *d) {
  return d->next < d->t->ninstr && is_comm(&d->t->instr[d->next]);
}

/* The first SEND at the head of r whose RECV is at the head of its peer. */
static int add_transfer(Hand *h, uint32_t r) {
  HandRank *d = &h->rank[r];
  const PipeInstr *x = &d->t->instr[d->next];
  for (uint32_t i = 0; i <= x->group; i++) {
    if (!pipe_is_send(x[i].op) || d->moved >> i & 1)
      continue;
    const uint32_t row = d->next + i, at = h->pair[r][row], to = x[i].peer;
    const HandRank *q = &h->rank[to];
    if (!at_transfers(q) || at < q->next || at > q->next + q->t->instr[q->next].group)
      continue;
    begin_group(h, r);
    begin_group(h, to);
    add(h, (Act){MOVE, r, row, to, at});
    end_transfer(h, to, at - q->next);
    end_transfer(h, r, i);
    return 1;
  }
  return 0;
}

static void find_order(Hand *h) {
  uint32_t left = h->p->nrank;
  for (uint32_t r = 0; r < h->p->nrank; r++)
    add_record(h, r, 0);
  for (int moved = 1; moved;) {
    moved = 0;
    for (uint32_t r = 0; r < h->p->nrank; r++) {
      HandRank *d = &h->rank[r];
      while (d->next < d->t->ninstr && !at_transfers(d)) {
        add_waits(h, r);
        add_marks(h, r, 1, 0);
        add(h, (Act){CALL, r, d->next, 0, 0});
        add_marks(h, r, 1, 1);
        add_record(h, r, ++d->next);
        moved = 1;
      }
      moved |= at_transfers(d) && add_transfer(h, r);
    }
  }
  for (uint32_t r = 0; r < h->p->nrank; r++) {
    left -= h->rank[r].next == h->rank[r].t->ninstr;
    add_waits(h, r);
  }
  if (left)
    die("the program does not complete");
}

/* ---- opening ---- */

static PrCall call_of(const Hand *h, uint32_t r, const PipeInstr *in) {
  const HandRank *d = &h->rank[r];
  const uint32_t s = in->stage;
  const int update = in->op == PIPE_U;
  PrCall a = {.op = (PipeOp)in->op,
              .rank = r,
              .stage = h->p->stage[s].model,
              .nstage = h->p->nmodel,
              .mb = in->mb,
              .nmb = h->p->nmb,
              .nslice = 1,
              .weight = h->weight[s],
              .newest = h->weight[s],
              .rate = 1,
              .nupdate = 1,
              .grad = h->grad[s],
              .opt = h->opt[s],
              .work = d->work,
              .stream = d->compute,
              .step_at = h->step_at,
              .act = in->act == PIPE_NONE ? NULL : d->slot[in->act],
              .loss = update ? NULL : h->loss + in->mb};
  void *from = update || in->in == PIPE_NONE ? NULL : d->slot[in->in],
       *to = update || in->out == PIPE_NONE ? NULL : d->slot[in->out];
  if (in->op == PIPE_F)
    a.x = from, a.y = to;
  else
    a.dy = from, a.dx = to;
  return a;
}

static void open_rank(Hand *h, uint32_t r) {
  HandRank *d = &h->rank[r];
  const PipeRank *t = d->t = &h->p->rank[r];
  uint64_t work = 0;
  int least, greatest;
  d->slot = room_for(t->nslot, sizeof *d->slot);
  d->event = room_for(t->nevent, sizeof *d->event);
  d->mark = room_for(2 * (size_t)t->ninstr, sizeof *d->mark);
  for (uint32_t i = 0; i < t->npool; i++) {
    const PrSizes *z = &h->size[t->pool[i].stage];
    const uint32_t cls = t->pool[i].cls;
    const int tensor = cls == PIPE_OUT || cls == PIPE_IN || cls == PIPE_LOCAL;
    if (!tensor && cls != PIPE_ACT)
      die("the program has other slots than of stashes and tensors");
    for (uint32_t j = 0; j < t->pool[i].count; j++)
      d->slot[t->pool[i].first + j] = stages_device(tensor ? z->boundary : z->act);
  }
  for (uint32_t i = 0; i < t->ninstr; i++) {
    const PipeInstr *in = &t->instr[i];
    if (in->op != PIPE_F && in->op != PIPE_B && in->op != PIPE_U &&
        !(in->op >= PIPE_SEND_F && in->op <= PIPE_RECV_B))
      die("the program has other ops than F, B, U and transfers");
    work = h->size[in->stage].work > work ? h->size[in->stage].work : work;
  }
  d->work = stages_device(work);
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  check(cudaStreamCreateWithPriority(&d->compute, cudaStreamNonBlocking, least));
  check(cudaStreamCreateWithPriority(&d->comm, cudaStreamNonBlocking, greatest));
  for (uint32_t i = 0; i < t->nevent; i++)
    check(cudaEventCreateWithFlags(&d->event[i], cudaEventDisableTiming));
  for (uint32_t i = 0; i < 2 * t->ninstr; i++)
    check(cudaEventCreateWithFlags(&d->mark[i], cudaEventDefault));
  check(cudaEventCreateWithFlags(&d->ready, cudaEventDisableTiming));
  check(cudaEventCreateWithFlags(&d->over, cudaEventDisableTiming));
  h->call[r] = room_for(t->ninstr, sizeof *h->call[r]);
  for (uint32_t i = 0; i < t->ninstr; i++)
    if (!is_comm(&t->instr[i]))
      h->call[r][i] = call_of(h, r, &t->instr[i]);
}

Hand *hand_open(const PipeProgram *p, PrModel *model) {
  Hand *h = room_for(1, sizeof *h);
  char why[PIPE_EXPAND_TEXT];
  h->lists = pipe_expand(p, why);
  if (!h->lists)
    die(why);
  h->p = p = h->lists, h->model = model;
  if (p->nchannel || p->slices > 1 || p->nedge)
    die("the program has channels, or slices, or stages that are no chain");
  h->size = room_for(p->nstage, sizeof *h->size);
  h->weight = room_for(p->nstage, sizeof *h->weight);
  h->grad = room_for(p->nstage, sizeof *h->grad);
  h->opt = room_for(p->nstage, sizeof *h->opt);
  h->rank = room_for(p->nrank, sizeof *h->rank);
  h->call = room_for(p->nrank, sizeof *h->call);
  h->loss = stages_device(p->nmb * sizeof *h->loss);
  h->step_at = stages_device(sizeof *h->step_at);
  check(cudaEventCreateWithFlags(&h->begin, cudaEventDisableTiming));
  for (uint32_t s = 0; s < p->nstage; s++) {
    PrSizes z = {0};
    if (model->sizes(model->self, p->stage[s].model, &z))
      die("the model fails");
    h->size[s] = z;
    h->weight[s] = stages_device(z.weight), h->grad[s] = stages_device(z.grad),
    h->opt[s] = stages_device(z.opt);
    if (model->init(model->self, p->stage[s].model, h->weight[s], h->opt[s]))
      die("the model fails");
  }
  for (uint32_t r = 0; r < p->nrank; r++)
    open_rank(h, r);
  h->pair = pipe_pair(p);
  if (!h->pair)
    die("its transfers have no other ends, or there is no memory");
  find_order(h);
  free(h->pair);
  check(cudaDeviceSynchronize());
  return h;
}

void hand_close(Hand *h) {
  for (uint32_t r = 0; r < h->p->nrank; r++) {
    HandRank *d = &h->rank[r];
    for (uint32_t i = 0; i < d->t->nslot; i++)
      cudaFree(d->slot[i]);
    for (uint32_t i = 0; i < d->t->nevent; i++)
      cudaEventDestroy(d->event[i]);
    for (uint32_t i = 0; i < 2 * d->t->ninstr; i++)
      cudaEventDestroy(d->mark[i]);
    cudaEventDestroy(d->ready);
    cudaEventDestroy(d->over);
    cudaFree(d->work);
    cudaStreamDestroy(d->compute);
    cudaStreamDestroy(d->comm);
    free(d->slot);
    free(d->event);
    free(d->mark);
    free(h->call[r]);
  }
  for (uint32_t s = 0; s < h->p->nstage; s++) {
    cudaFree(h->weight[s]);
    cudaFree(h->grad[s]);
    cudaFree(h->opt[s]);
  }
  cudaEventDestroy(h->begin);
  cudaFree(h->loss);
  cudaFree(h->step_at);
  pipe_expand_free(h->lists);
  void *mine[] = {h->size, h->weight, h->grad, h->opt, h->rank, h->call, h->act, h};
  for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
    free(mine[i]);
}

/* ---- a step ---- */

/* The copy of a transfer, for which the streams of both ranks meet. */
static void move(Hand *h, const Act *a) {
  HandRank *from = &h->rank[a->rank], *to = &h->rank[a->to];
  const PipeInstr *x = &from->t->instr[a->row], *y = &to->t->instr[a->at];
  /* The tensor of an edge has the size of what the earlier stage gives. */
  const uint32_t first = x->op == PIPE_SEND_F ? x->stage : y->stage;
  check(cudaEventRecord(from->ready, from->comm));
  check(cudaStreamWaitEvent(to->comm, from->ready, 0));
  check(cudaMemcpyAsync(to->slot[y->out], from->slot[x->in], h->size[first].boundary,
                        cudaMemcpyDeviceToDevice, to->comm));
  check(cudaEventRecord(to->ready, to->comm));
  check(cudaStreamWaitEvent(from->comm, to->ready, 0));
}

void hand_step(Hand *h, int marked) {
  cudaStream_t lead = h->rank[0].compute;
  if (h->p->nrank > 1)
    check(cudaEventRecord(h->begin, lead));
  for (uint32_t r = 1; r < h->p->nrank; r++)
    check(cudaStreamWaitEvent(h->rank[r].compute, h->begin, 0));
  for (uint32_t i = 0; i < h->nact; i++) {
    const Act *a = &h->act[i];
    HandRank *d = &h->rank[a->rank];
    const int in_list = a->row < d->t->ninstr; /* else the begin, or the end */
    cudaStream_t s = in_list ? stream_of(d, &d->t->instr[a->row]) : d->compute;
    switch (a->kind) {
    case WAIT: check(cudaStreamWaitEvent(s, d->event[a->to], 0)); break;
    case RECORD: check(cudaEventRecord(d->event[a->to], s)); break;
    case CALL:
      if (h->model->forward(h->model->self, &h->call[a->rank][a->row]))
        die("an op fails");
      break;
    case MOVE: move(h, a); break;
    case MARK:
      if (marked)
        check(cudaEventRecord(d->mark[a->to], s));
    }
  }
  for (uint32_t r = 1; r < h->p->nrank; r++) {
    check(cudaEventRecord(h->rank[r].over, h->rank[r].compute));
    check(cudaStreamWaitEvent(lead, h->rank[r].over, 0));
  }
}

void hand_number(Hand *h, uint64_t step) {
  check(cudaMemcpy(h->step_at, &step, sizeof step, cudaMemcpyDefault));
  check(cudaDeviceSynchronize());
}

void hand_losses(Hand *h, double *to) {
  check(cudaDeviceSynchronize());
  check(cudaMemcpy(to, h->loss, h->p->nmb * sizeof *to, cudaMemcpyDefault));
}

HandGaps hand_gaps(Hand *h) {
  double sum[2] = {0, 0};
  uint32_t n[2] = {0, 0};
  for (uint32_t r = 0; r < h->p->nrank; r++) {
    const HandRank *d = &h->rank[r];
    uint32_t last[2] = {PIPE_NONE, PIPE_NONE};
    for (uint32_t i = 0; i < d->t->ninstr; i++) {
      const int comm = is_comm(&d->t->instr[i]);
      float ms = 0;
      if (!hand_is_head(d->t, i))
        continue;
      if (last[comm] != PIPE_NONE) {
        check(cudaEventElapsedTime(&ms, d->mark[2 * last[comm] + 1], d->mark[2 * i]));
        sum[comm] += 1e3 * (double)ms;
        n[comm]++;
      }
      last[comm] = i;
    }
  }
  return (HandGaps){n[0] ? sum[0] / n[0] : 0, n[1] ? sum[1] / n[1] : 0};
}
