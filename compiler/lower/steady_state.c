/* SPDX-License-Identifier: MIT
 * Computes the time per microbatch in the steady state of one step, for settle. Cost:
 * linear, and two sorts of the microbatches. */
#include <stdlib.h>

#include "lower.h"

static int by_value(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/* A microbatch enters with its first forward and completes with its last backward, or forward. The
 * rate is measured between the completions of the middle half. If all enter before any completes
 * (phases), the time in which they enter is added. No rate is faster than the busiest rank. */
Steady find_steady(Sched *s, const Times *times, uint64_t *const *end) {
  uint32_t n = s->model->nmb / s->model->slices, lo = n / 4, hi = lo + n / 2;
  uint64_t *done = NEW_ARRAY(s->arena, uint64_t, n), *begun = NEW_ARRAY(s->arena, uint64_t, n),
           most = 0;
  if (n < 4)
    return (Steady){0, 0};
  for (uint32_t m = 0; m < n; m++)
    begun[m] = UINT64_MAX;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    most = times->rank_busy[r] > most ? times->rank_busy[r] : most;
    const Op *op = &s->orders->op[s->orders->rank_op0[r]];
    for (uint32_t i = 0; i < s->lowered->stream[r].ncompute; i++) {
      uint32_t m = op[i].mb / s->model->slices;
      if (op[i].kind > PIPE_W) /* R, U and SIDE do not count */
        continue;
      uint64_t start = times->compute_start[r][i];
      begun[m] = start < begun[m] ? start : begun[m];
      done[m] = end[r][i] > done[m] ? end[r][i] : done[m];
    }
  }
  qsort(done, n, sizeof *done, by_value);
  qsort(begun, n, sizeof *begun, by_value);
  Steady middle = {.per = hi - lo, .time = done[hi] - done[lo]};
  if (begun[n - 1] <= done[0])
    middle.time += begun[hi] - begun[lo];
  const bool full = (double)most * middle.per > (double)middle.time * n;
  return full ? (Steady){most, n} : middle;
}
