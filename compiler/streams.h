/* SPDX-License-Identifier: MIT
 * What the placement of events (streams.c) and its proof (check_streams.c) have in common: the contract
 * of a wait, and clocks. See note [clocks]. */
#ifndef PIPEC_STREAMS_H
#define PIPEC_STREAMS_H

#include "pipec.h"

/* How many instructions of each stream are known to be over; of COMPUTE one more, for the begin of the step. */
typedef struct Clock {
  uint32_t of[PIPE_NSTREAMS];
} Clock;

static inline void clock_join(Clock *a, const Clock *b) {
  for (int x = 0; x < PIPE_NSTREAMS; x++)
    a->of[x] = b->of[x] > a->of[x] ? b->of[x] : a->of[x];
}

/* What must be over before an instruction starts, of the streams that are not its own. */
static inline Clock clock_needed(const PipeInstr *in) {
  Clock c = {{0}};
  for (int x = 0; x < PIPE_NSTREAMS; x++)
    if (x != pipe_op_info[in->op].stream)
      c.of[x] = pipe_wait_for(in, (PipeOn)x) + (x == PIPE_COMPUTE);
  return c;
}

/* Ensures sync, nsync and nevent of a rank whose list is complete. */
void place_events(Arena *a, PipeRank *k);

#endif
