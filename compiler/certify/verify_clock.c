/* SPDX-License-Identifier: MIT
 * Finds pipec's own mistakes in the proof for all values of a parameter (all_m.c), on the program
 * at hand: by the clock that the proof gives, every op starts after what it waits for. Shares no
 * code with the proof. Cost: linear in ops times the ops of a period. */
#include "certify.h"
#include "graph.h"

void verify_clock(const Sched *s, int64_t S, uint32_t nnode, const uint32_t *first,
                  const uint32_t *per, const __int128 *at, uint64_t num, uint64_t by) {
  /* node[op]: its node; turn[op]: how many periods after the op that names the node. */
  uint32_t *node = arena_alloc(s->arena, s->orders->nop * sizeof *node + 1);
  int64_t *turn = arena_alloc(s->arena, s->orders->nop * sizeof *turn + 1);
  uint32_t base = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    for (uint32_t i = s->orders->rank_op0[r]; i < s->orders->rank_op0[r + 1]; i++) {
      const Op *o = &s->orders->op[i];
      node[i] = NONE;
      for (uint32_t k = 0; k < per[r] && o->kind != PIPE_U; k++) {
        const Op *n = &s->orders->op[first[r] + k];
        int64_t d = (int64_t)o->mb - n->mb;
        if (n->stage == o->stage && n->kind == o->kind && d % S == 0)
          node[i] = base + k, turn[i] = d / S;
      }
      BUG_IF(o->kind != PIPE_U && node[i] == NONE);
    }
    base += per[r];
  }
  BUG_IF(base != nnode);
#define CLOCK(i) (at[node[i]] + (__int128)num * turn[i])
  for (uint32_t i = 0; i < s->orders->nop; i++) {
    const Op *o = &s->orders->op[i];
    if (o->kind == PIPE_U)
      continue;
    const PipeStage *st = &s->model->stage[o->stage];
    const struct StageGraph *g = s->model->graph;
    const uint32_t *made = o->kind == PIPE_F ? s->orders->at_f : s->orders->at_b;
    uint32_t n = o->kind == PIPE_W ? 0 : o->kind == PIPE_F ? st->nin : st->nout;
    for (uint32_t e = 0; e <= n; e++) { /* what it reads, and the op before it on its rank */
      uint32_t from = o->kind == PIPE_F ? st->prev : st->next, before;
      if (g && e < n) /* the rows of a pipe are one after the other */
        from = o->stage - st->model +
               (o->kind == PIPE_F ? g->edge[g->in_edge[g->in0[st->model] + e]].from
                                  : g->edge[g->out0[st->model] + e].to);
      if (e < n)
        before = made[(size_t)from * s->model->nmb + o->mb] - 1;
      else if (i > 0 && i != s->orders->rank_op0[st->rank])
        before = i - 1;
      else
        continue;
      const Op *b = &s->orders->op[before];
      const PipeStage *sender = &s->model->stage[b->stage];
      uint64_t time = sender->time[b->kind], hold = 0;
      if (e < n && s->model->stage[b->stage].rank != st->rank)
        time += !g ? s->model->stage[b->stage].time[b->kind == PIPE_F ? PIPE_SEND_F : PIPE_SEND_B]
                : o->kind == PIPE_F ? g->edge[g->in_edge[g->in0[st->model] + e]].send[0]
                                    : g->edge[g->out0[st->model] + e].send[1];
      bool down = b->kind == PIPE_F,
           sends = s->orders->send == SEND_NEXT && e == n && b->kind != PIPE_W;
      for (uint32_t k = 0; sends && k < (down ? sender->nout : sender->nin); k++) {
        const PipeEdge *edge = !g     ? NULL
                               : down ? &g->edge[g->out0[sender->model] + k]
                                      : &g->edge[g->in_edge[g->in0[sender->model] + k]];
        uint32_t to = !g ? (down ? sender->next : sender->prev)
                         : b->stage - sender->model + (down ? edge->to : edge->from);
        uint64_t send = g ? edge->send[!down] : sender->time[down ? PIPE_SEND_F : PIPE_SEND_B];
        if (s->model->stage[to].rank != sender->rank && send > hold)
          hold = send;
      }
      BUG_IF(CLOCK(i) < CLOCK(before) + (__int128)(time + hold) * by);
    }
  }
#undef CLOCK
}
