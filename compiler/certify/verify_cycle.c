/* SPDX-License-Identifier: MIT
 * Checks the certificate of a deadlock under every channel model (order.c): a wait cycle of hops.
 *
 * Definition: a hop is a rank that stands at an op A, which needs the result of an op N. N is on
 * the rank of the next hop, in the action at which the next hop stands, or in a later action.
 *
 * Lemma: no op of the cycle ever starts. Proof: suppose some do, and let the action of A be the
 * first to start. N has run before it. So the action of the next hop has started before A: it
 * contains N, or stands above N. This contradicts the choice of A.
 *
 * Takes what an op needs from the op table, the stages and the edges, and nothing from the play.
 * Cost: linear in the ops of the ranks that have updates, and in hops times edges of a stage. */
#include "certify.h"
#include "graph.h"
#include "orders.h"
#include "verify.h"

/* Does an edge of the model pass a tensor of this microbatch between these two rows? */
static bool passes(const Sched *s, uint32_t from, uint32_t to, uint32_t mb) {
  const struct StageGraph *g = s->model->graph;
  const PipeStage *a = &s->model->stage[from], *b = &s->model->stage[to];
  if (!g)
    return a->next == to && b->prev == from;
  bool edge = false;
  for (uint32_t e = 0; e < g->nedge; e++)
    edge |= g->edge[e].from == a->model && g->edge[e].to == b->model;
  return edge && g->row[cell_at(s->model->nmb, a->model, mb)] == from &&
         g->row[cell_at(s->model->nmb, b->model, mb)] == to;
}

/* Are the gradients of the two rows added in one sum? */
static bool summed(const Sched *s, uint32_t a, uint32_t b) {
  bool tied = s->model->tie_of && s->model->tie_of[a] != NONE;
  return tied ? s->model->tie_of[a] == s->model->tie_of[b]
              : s->model->stage[a].model == s->model->stage[b].model;
}

/* The number of updates of `row` that stand before op i. */
static uint32_t updates_before(const Sched *s, uint32_t row, uint32_t i) {
  uint32_t n = 0;
  for (uint32_t k = s->orders->rank_op0[s->model->stage[row].rank]; k < i; k++)
    n += s->orders->op[k].kind == PIPE_U && s->orders->op[k].stage == row;
  return n;
}

/* Does update number n of its row apply the gradient that op i makes? */
static bool applied_by(const Sched *s, uint32_t i, uint32_t n) {
  const Op *o = &s->orders->op[i];
  return (o->kind == PIPE_B || o->kind == PIPE_W) && updates_before(s, o->stage, i) == n;
}

static bool needs(const Sched *s, uint32_t at, uint32_t on) {
  const Op *a = &s->orders->op[at], *b = &s->orders->op[on];
  switch (a->kind) {
  case PIPE_F: return b->kind == PIPE_F && a->mb == b->mb && passes(s, b->stage, a->stage, a->mb);
  case PIPE_B:
  case PIPE_I:
    return (b->kind == PIPE_B || b->kind == PIPE_I) && a->mb == b->mb &&
           passes(s, a->stage, b->stage, a->mb);
  case PIPE_U:
    return summed(s, a->stage, b->stage) && applied_by(s, on, updates_before(s, a->stage, at));
  default: return false;
  }
}

/* The first op of the action of op i, on rank r. */
static uint32_t action_of(const Sched *s, uint32_t r, uint32_t i) {
  while (i > s->orders->rank_op0[r] && s->orders->op[i - 1].group > 0)
    i--;
  return i;
}

static bool on_rank(const Sched *s, uint32_t r, uint32_t i) {
  return r < s->model->nrank && i >= s->orders->rank_op0[r] && i < s->orders->rank_op0[r + 1];
}

bool cycle_holds(const Sched *s, const StallHop *hop, uint32_t nhop) {
  for (uint32_t i = 0; i < nhop; i++) {
    const StallHop *h = &hop[i], *next = &hop[(i + 1) % nhop];
    if (!on_rank(s, h->rank, h->at) || !on_rank(s, next->rank, h->on) ||
        !on_rank(s, next->rank, next->at) || !needs(s, h->at, h->on) ||
        h->on < action_of(s, next->rank, next->at))
      return false;
  }
  return nhop > 0;
}

void verify_cycle(const Sched *s) {
  BUG_IF(s->ideal->cycle && !cycle_holds(s, s->ideal->cycle, s->ideal->ncycle));
}
