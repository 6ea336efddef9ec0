/* SPDX-License-Identifier: MIT
 * Puts side ops into the streams: their instructions, waits and slots. Requires offload, which
 * decides their places. */
#include "lower.h"

PipeInstr side_instr(const Sched *s, const SideUse *u) {
  PipeInstr c = pipe_instr((PipeOp)u->kind, u->stage, u->mb);
  c.phase = u->phase;
  c.site = s->sides->site0 + u->decl;
  c.side = u->row;
  return c;
}

/* Makes c wait until side op `use`, on the same rank r, has ended. */
static void wait_for_side(Sched *s, Lowered *lowered, uint32_t r, const PipeInstr *c,
                          uint32_t use) {
  const uint32_t pos = lowered->side_pos[use];
  PipeOn on = pipe_stream_of(s->sides->use[use].kind), own = pipe_stream_of(c->op);
  if (on != own)
    wait_for(s, lowered, r, c, on, pos);
}

/* The instruction of a side op. Requires its side_pos. */
static PipeInstr *side_at(const Sched *s, Lowered *lowered, uint32_t use) {
  const SideUse *u = &s->sides->use[use];
  Streams *t = &lowered->stream[s->model->stage[u->stage].rank];
  const uint32_t at = lowered->side_pos[use] - 1;
  if (u->kind == PIPE_SIDE)
    return &t->compute[at];
  return u->kind == PIPE_SIDE_COMM ? &t->comm[at] : &t->copy[at];
}

void side_waits(Sched *s, Lowered *lowered) {
  const Sides *sides = s->sides;
  for (uint32_t r = 0; r < s->model->nrank && sides->nuse; r++) {
    const Streams *t = &lowered->stream[r];
    for (uint32_t i = sides->use0[r]; i < sides->use0[r + 1]; i++)
      if (sides->use[i].kind == PIPE_SIDE)
        lowered->side_pos[i] = sides->use[i].op - s->orders->rank_op0[r] + 1;
    for (uint32_t i = sides->use0[r]; i < sides->use0[r + 1]; i++) {
      const SideUse *u = &sides->use[i];
      PipeInstr *c = side_at(s, lowered, i);
      for (int k = 0; k < 2; k++)
        for (int x = 0; x < PIPE_NSTREAMS; x++)
          if (u->dep[k][x] != NONE)
            wait_for_side(s, lowered, r, c, u->dep[k][x]);
      if (u->user != NONE)
        wait_for_side(s, lowered, r, &t->compute[u->user - s->orders->rank_op0[r]], i);
    }
  }
}

void side_slots(Sched *s, Lowered *lowered, uint32_t r) {
  const Sides *sides = s->sides;
  if (sides->nuse == 0)
    return;
  uint32_t *first = arena_alloc(s->arena, sides->nbuffers[r] * sizeof *first + 1);
  for (uint32_t k = 0; k < sides->nbuffers[r]; k++) {
    const SideBuffers *b = &sides->buffers[r][k];
    first[k] = lowered->nrank_slot[r];
    lowered->nrank_slot[r] += b->count;
    lowered->pool[r][lowered->npool[r]++] = (PipePool){.cls = PIPE_BUFFER,
                                                       .stage = b->stage,
                                                       .first = first[k],
                                                       .count = b->count,
                                                       .bytes = b->bytes};
  }
  for (uint32_t i = sides->use0[r]; i < sides->use0[r + 1]; i++) {
    const SideUse *u = &sides->use[i];
    PipeInstr *c = side_at(s, lowered, i);
    if (u->out != NONE)
      c->taken = first[u->out_pool] + u->out;
    if (u->in != NONE)
      c->given = first[u->in_pool] + u->in;
  }
}
