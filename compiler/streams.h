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

/* What place_events works in, for ranks of at most n instructions. */
typedef struct EventRoom {
  uint32_t n;
  uint32_t *row[PIPE_NSTREAMS]; /* [n + 1] */
  Clock *known;                 /* [n + 1] */
  PipeSync *sync;               /* [2 * n + 2] */
  uint32_t *last, *event;       /* [n + 1], all 0 */
  uint32_t *free;               /* [n + 1] */
} EventRoom;
EventRoom event_room(Arena *a, uint32_t n);
void forget_event_room(Arena *a, EventRoom *room);
/* Ensures sync, nsync and nevent of a rank whose list is complete. */
void place_events(Arena *a, EventRoom *room, PipeRank *k);

#endif
