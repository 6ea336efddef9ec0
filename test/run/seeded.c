/* SPDX-License-Identifier: MIT
 * The seeded engine, without threads: executes one instruction after the other, picked at random
 * among those that can run. A seed determines the order, so a failure that depends on the order can
 * be replayed; over many seeds tests compare the results of many orders. */
#include "seeded.h"

#include <stdlib.h>

#include "local.h"

/* An instruction that can run: the head of COMPUTE or COPY of a rank, or instruction i of the head
 * of a COMM stream. A transfer is listed by its sender, a sum by the stream that arrived last. */
typedef struct Ready {
  PipeOn on;
  uint32_t i;
  RankRun *k;
  CommRun *c;
} Ready;

typedef struct Seeded {
  uint64_t random;
  bool *queued[2]; /* [nrank] the head of COMPUTE [0], of COPY [1] is in `ready` */
  Ready *ready;
  size_t nready, room;
} Seeded;

static uint64_t draw(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static void put(PrRun *run, Ready e) {
  Seeded *s = run->of_engine;
  if (s->nready == s->room) {
    size_t room = 2 * s->room + 64;
    Ready *more = realloc(s->ready, room * sizeof *more);
    if (!more) {
      pr_fail(run, PR_E_MEMORY, "no memory for %zu instructions that can go on", room);
      return;
    }
    s->ready = more, s->room = room;
  }
  s->ready[s->nready++] = e;
}

static void met(PrRun *run, Chan *ch, CommRun **todo) {
  (void)todo;
  put(run, (Ready){PIPE_COMM, ch->post[0].at, ch->post[0].stream->k, ch->post[0].stream});
}

static void begin(PrRun *run, CommRun *c, uint32_t i, CommRun **todo) {
  const CommAt *at = pr_comm_at(c, i);
  uint32_t op = c->k->t->instr[at->index].op;
  Chan *ch;
  if (op == PIPE_SIDE_COMM || (pipe_is_sum(op) && local_arrive(&run->coll[at->chan])))
    put(run, (Ready){PIPE_COMM, i, c->k, c});
  else if (!pipe_is_sum(op) && (ch = local_post(run, c, i)))
    met(run, ch, todo);
}

/* Adds the heads of COMPUTE and COPY of rank k that can run to `ready`. */
static void look_at(PrRun *run, RankRun *k) {
  Seeded *s = run->of_engine;
  uint64_t step = atomic_load(&k->step), copied = atomic_load(&k->copy_done) - step * k->ncopy;
  uint64_t computed = atomic_load(&k->compute_done) - step * k->ncompute;
  uint32_t i = (uint32_t)computed, j = (uint32_t)copied;
  if (i < k->ncompute && !s->queued[0][k->id] && pr_is_ready(k, k->compute[i].index, step)) {
    s->queued[0][k->id] = true;
    put(run, (Ready){PIPE_COMPUTE, i, k, NULL});
  }
  if (j < k->ncopy && !s->queued[1][k->id] && pr_is_ready(k, k->copy[j].index, step)) {
    s->queued[1][k->id] = true;
    put(run, (Ready){PIPE_COPY, j, k, NULL});
  }
}

static PrStatus carry_out_copy(PrRun *run, RankRun *k, const CopyAt *at, uint64_t step) {
  pr_fault_at(run, k->id, at->index, step);
  PrStatus st = pr_copy(run, k, at, step);
  if (st)
    return st;
  pr_did_copy(run, k);
  return PR_OK;
}

static PrStatus carry_out_comm(PrRun *run, CommRun *c, uint32_t i) {
  const CommAt *at = pr_comm_at(c, i);
  uint32_t op = c->k->t->instr[at->index].op;
  CommRun *todo = NULL;
  Coll *l = pipe_is_sum(op) ? &run->coll[at->chan] : NULL;
  Chan *ch = l || op == PIPE_SIDE_COMM ? NULL : &run->chan[at->chan];
  if (l)
    local_sum(run, l, &todo);
  else if (ch)
    local_transfer(run, ch, met, &todo);
  else if (!pr_side(run, c->k, at->index, c->step))
    pr_over(run, c, i, &todo);
  pr_advance(run, todo);
  look_at(run, c->k);
  if (ch)
    look_at(run, &run->rank[ch->dst]);
  for (uint32_t j = 0; l && j < l->n; j++)
    look_at(run, l->at[j]->k);
  return (PrStatus)atomic_load(&run->status);
}

static PrStatus carry_out(PrRun *run, Ready e, uint64_t step) {
  Seeded *s = run->of_engine;
  uint32_t n = 0;
  PrStatus st;
  if (e.on == PIPE_COMM)
    return carry_out_comm(run, e.c, e.i);
  s->queued[e.on == PIPE_COPY][e.k->id] = false;
  st = e.on == PIPE_COPY ? carry_out_copy(run, e.k, &e.k->copy[e.i], step)
                         : pr_compute(run, e.k, &e.k->compute[e.i], step, &n);
  if (st)
    return st;
  if (n > 0)
    pr_did_compute(run, e.k, n);
  look_at(run, e.k);
  return (PrStatus)atomic_load(&run->status);
}

/* True if every stream of the rank has reached its end of the step. */
static bool is_done(const RankRun *k, uint64_t steps) {
  bool done = atomic_load(&k->compute_done) == steps * k->ncompute &&
              atomic_load(&k->copy_done) == steps * k->ncopy;
  for (uint32_t x = 0; x < k->nstream; x++)
    done = done && atomic_load(&k->stream[x].done) == steps * k->stream[x].n;
  return done;
}

static PrStatus run_step(PrRun *run, uint64_t step) {
  Seeded *s = run->of_engine;
  for (uint32_t r = 0; r < run->p->nrank; r++)
    pr_begin_step(run, &run->rank[r], step);
  for (uint32_t r = 0; r < run->p->nrank; r++)
    look_at(run, &run->rank[r]);
  while (s->nready > 0) {
    uint32_t pick = (uint32_t)(draw(&s->random) % s->nready);
    Ready e = s->ready[pick];
    s->ready[pick] = s->ready[--s->nready];
    PrStatus st = carry_out(run, e, step);
    if (st)
      return st;
  }
  for (uint32_t r = 0; r < run->p->nrank; r++)
    if (!is_done(&run->rank[r], step + 1))
      return pr_report_stall(run);
  for (uint32_t r = 0; r < run->p->nrank; r++)
    atomic_store(&run->rank[r].step, step + 1);
  pr_step_done(run, step);
  return PR_OK;
}

static PrStatus seeded_open(PrRun *run) {
  PrStatus st = PR_OK;
  size_t nrank = run->p->nrank;
  Seeded *s = run->of_engine = calloc(1, sizeof *s);
  bool *queued = calloc(2 * nrank, sizeof *queued);
  if (!s || !queued) {
    free(queued);
    return pr_fail(run, PR_E_MEMORY, "no memory for %zu ranks", nrank);
  }
  s->random = *(const uint64_t *)run->o.engine_options;
  s->queued[0] = queued, s->queued[1] = queued + nrank;
  for (uint32_t r = 0; !st && r < nrank; r++)
    st = pr_init_rank(run, &run->rank[r]);
  return st;
}

static PrStatus seeded_steps(PrRun *run, uint64_t n) {
  uint64_t step = atomic_load(&run->rank[0].step), end = step + n;
  PrStatus st = PR_OK;
  for (; step < end && !st; step++)
    st = run_step(run, step);
  return st;
}

static void seeded_close(PrRun *run) {
  Seeded *s = run->of_engine;
  if (!s)
    return;
  free(s->queued[0]);
  free(s->ready);
  free(s);
}

const PrEngine seeded_engine = {.name = "seeded",
                                .open = seeded_open,
                                .steps = seeded_steps,
                                .close = seeded_close,
                                .begin = begin};
