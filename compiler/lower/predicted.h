/* SPDX-License-Identifier: MIT
 * When the instructions of the streams start, between check_deadlock and lower. A start is the end less what the
 * instruction takes, and not kept beside it, but where groups of transfers make it another, or channels ask for it: then
 * all starts are there, in place of the ends. No sum of times overflows (costs.c), and the rows that take part in a sum
 * have one time. */
#ifndef PIPEC_PREDICTED_H
#define PIPEC_PREDICTED_H

#include "graph.h"

/* The end of instruction i of COMPUTE, of COMM, of rank r. */
static inline uint64_t compute_end(const Sched *s, uint32_t r, uint32_t i) {
  return s->compute_end32 ? s->compute_end32[r][i] : s->compute_end[r][i];
}
static inline uint64_t comm_end(const Sched *s, uint32_t r, uint32_t i) {
  return s->comm_end32 ? s->comm_end32[r][i] : s->comm_end[r][i];
}

/* Of instruction i of COMPUTE of rank r. In an action one op starts as the one before it ends (pipe_sim.c). */
static inline uint64_t compute_start(const Sched *s, uint32_t r, uint32_t i) {
  if (s->compute_start)
    return s->compute_start[r][i];
  uint32_t op = s->rank_op0[r] + i;
  if (i > 0 && s->op[op - 1].group > 0)
    return compute_end(s, r, i - 1);
  if (s->op[op].group > 0)
    return compute_end(s, r, i + s->op[op].group) - action_time(s, s->stage, false, op);
  return compute_end(s, r, i) - op_cost(s, s->stage, false, op);
}

/* Of c, instruction i of COMM. A RECV takes what its SEND takes. */
static inline uint64_t comm_start(const Sched *s, uint32_t r, uint32_t i, const PipeInstr *c) {
  if (s->comm_start)
    return s->comm_start[r][i];
  uint64_t end = comm_end(s, r, i);
  if (pipe_is_sum(c->op))
    return end - s->stage[c->stage].time[c->op];
  if (c->op == PIPE_SIDE_COMM)
    return end - s->side[c->keep].time;
  bool forward = c->op == PIPE_SEND_F || c->op == PIPE_RECV_F;
  if (s->graph)
    return end - s->graph->edge[c->keep].send[!forward];
  const PipeStage *st = &s->stage[c->stage];
  if (c->op == PIPE_RECV_F || c->op == PIPE_RECV_B)
    st = &s->stage[forward ? st->prev : st->next];
  return end - send_time(st, forward ? PIPE_F : PIPE_B);
}

#endif
