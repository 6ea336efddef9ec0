/* SPDX-License-Identifier: MIT
 * Computes the times of a program: plays it on the timed machine once more. */
#include "timing.h"
#include "orders.h"

uint64_t **program_times(Sched *s, uint64_t ***end) {
  uint64_t makespan = 0, **start = pipe_predict(s->prog, end, &makespan);
  if (!start)
    guard_no_memory(sizeof(uint64_t) * 2 * ((size_t)s->orders->nop + 2 * (size_t)s->ideal->nxfer));
  guard_own(*start, free);
  BUG_IF(makespan != s->prog->makespan);
  return start;
}
