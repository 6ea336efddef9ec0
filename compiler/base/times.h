/* SPDX-License-Identifier: MIT
 * The predicted times of a program, by instruction. */
#ifndef PIPEC_TIMES_H
#define PIPEC_TIMES_H

#include "pipe_instr.h"

typedef struct PipeTimes { /* members of PipeProgram */
  const PipeStage *stage;
  const PipeSide *side;
  const uint64_t *unit_time;
  uint32_t nunit_time;
} PipeTimes;

/* The times of a unit of a stage, by column. Requires unit_time. */
static inline const uint64_t *pipe_unit_times(PipeTimes t, uint32_t stage, uint32_t mb) {
  size_t row = (size_t)stage * t.nunit_time + (mb - t.stage[stage].mb0) % t.nunit_time;
  return &t.unit_time[row * PIPE_UNIT_TIMES];
}

/* The column of an op; PIPE_NONE: its time does not depend on the unit. */
static inline uint32_t pipe_unit_column(uint32_t op) {
  if (op == PIPE_OFF || op == PIPE_LOAD)
    return op - PIPE_OFF + PIPE_UNIT_OFF;
  return op <= PIPE_R ? op : PIPE_NONE;
}

/* The time of an instruction. SEND: the whole transfer; SIDE: as its row of PipeSide says. */
static inline uint64_t pipe_time(PipeTimes t, const PipeInstr *c) {
  if (pipe_is_side(c->op))
    return t.side[c->side].time;
  if (t.unit_time && pipe_unit_column(c->op) != PIPE_NONE)
    return pipe_unit_times(t, c->stage, c->mb)[pipe_unit_column(c->op)];
  return t.stage[c->stage].time[c->op];
}

/* The time of an action of an F of this unit and one B; 0: the sum of both. */
static inline uint64_t pipe_fused_time(PipeTimes t, uint32_t stage, uint32_t mb) {
  return t.unit_time ? pipe_unit_times(t, stage, mb)[PIPE_UNIT_FB] : t.stage[stage].time_fb;
}

/* The time of the transfer that begins with `send`. edge: of PipeGraph. */
static inline uint64_t pipe_send_time(const PipeStage *stage, const PipeEdge *edge,
                                      const PipeInstr *send) {
  return edge ? edge[send->edge].send[send->op == PIPE_SEND_B] : stage[send->stage].time[send->op];
}

/* The first row of share[n] from rank `from` to rank `to`; NULL: none. */
static inline const PipeShare *pipe_shares(const PipeShare *share, uint32_t n, uint32_t from,
                                           uint32_t to) {
  uint32_t lo = 0, hi = n;
  while (lo < hi) {
    uint32_t mid = lo + (hi - lo) / 2;
    if (share[mid].from < from || (share[mid].from == from && share[mid].to < to))
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo < n && share[lo].from == from && share[lo].to == to ? &share[lo] : NULL;
}

#endif
