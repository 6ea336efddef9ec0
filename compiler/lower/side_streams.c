/* SPDX-License-Identifier: MIT
 * Puts side ops into the streams: their instructions, waits and slots. Requires offload, which
 * decides their places. */
#include "lower.h"

static PipeOn stream_of(const SideUse *u) { return (PipeOn)pipe_op_info[u->kind].stream; }

PipeInstr side_instr(const Sched *s, const SideUse *u) {
  PipeInstr c = pipe_instr((PipeOp)u->kind, u->stage, u->mb);
  c.phase = u->phase;
  c.site = s->sides->site0 + u->decl;
  c.side = u->row;
  return c;
}

/* Makes c wait until u, on the same rank r, has ended. */
static void wait_for(Sched *s, uint32_t r, PipeInstr *c, const SideUse *u) {
  PipeOn on = stream_of(u), own = (PipeOn)pipe_op_info[c->op].stream;
  if (on == own)
    return;
  if (on == PIPE_COMM) {
    need_comm(s, r, c, u->pos);
    return;
  }
  uint32_t *wait = on == PIPE_COPY ? &c->wait_copy : &c->wait;
  if (u->pos > *wait)
    *wait = u->pos;
}

/* Requires u->pos. */
static PipeInstr *side_at(const Sched *s, const SideUse *u) {
  const Streams *t = &s->lowered->stream[s->model->stage[u->stage].rank];
  return &(u->kind == PIPE_SIDE        ? t->compute
           : u->kind == PIPE_SIDE_COMM ? t->comm
                                       : t->copy)[u->pos - 1];
}

void side_waits(Sched *s) {
  for (uint32_t r = 0; r < s->model->nrank && s->sides->nuse; r++) {
    Streams *t = &s->lowered->stream[r];
    for (uint32_t i = s->sides->use0[r]; i < s->sides->use0[r + 1]; i++) {
      SideUse *u = &s->sides->use[i];
      if (u->kind == PIPE_SIDE)
        u->pos = u->op - s->orders->rank_op0[r] + 1;
    }
    for (uint32_t i = s->sides->use0[r]; i < s->sides->use0[r + 1]; i++) {
      SideUse *u = &s->sides->use[i];
      PipeInstr *c = side_at(s, u);
      for (int k = 0; k < 2; k++)
        for (int x = 0; x < PIPE_NSTREAMS; x++)
          if (u->dep[k][x] != NONE)
            wait_for(s, r, c, &s->sides->use[u->dep[k][x]]);
      if (u->user != NONE)
        wait_for(s, r, &t->compute[u->user - s->orders->rank_op0[r]], u);
    }
  }
}

void side_slots(Sched *s, uint32_t r) {
  uint32_t n = s->lowered->nrank_slot[r];
  for (uint32_t k = 0; s->sides->nuse && k < s->sides->nbuffers[r]; k++) {
    SideBuffers *b = &s->sides->buffers[r][k];
    b->first = n;
    n += b->count;
    s->lowered->pool[r][s->lowered->npool[r]++] = (PipePool){.cls = PIPE_BUFFER,
                                                             .stage = b->stage,
                                                             .first = b->first,
                                                             .count = b->count,
                                                             .bytes = b->bytes};
  }
  for (uint32_t i = s->sides->nuse ? s->sides->use0[r] : 0;
       s->sides->nuse && i < s->sides->use0[r + 1]; i++) {
    const SideUse *u = &s->sides->use[i];
    PipeInstr *c = side_at(s, u);
    if (u->out != NONE)
      c->taken = s->sides->buffers[r][u->out_pool].first + u->out;
    if (u->in != NONE)
      c->given = s->sides->buffers[r][u->in_pool].first + u->in;
  }
  s->lowered->nrank_slot[r] = n;
}
