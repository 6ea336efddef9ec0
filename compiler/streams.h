/* SPDX-License-Identifier: MIT
 * What the placement of events (streams.c) and its proof (check_streams.c) have in common: the streams of a rank,
 * the contract of a wait, and clocks. See note [clocks]. */
#ifndef PIPEC_STREAMS_H
#define PIPEC_STREAMS_H

#include "pipec.h"

/* Rows of COMM that the rows of a list need: on[first[i] .. first[i + 1] - 1] of row i. With lowering CHANNELS. */
typedef struct RowNeeds {
  uint32_t *first, *on;
} RowNeeds;
RowNeeds row_needs(Arena *a, const Sched *s, uint32_t r, const PipeRank *k); /* channels.c */

/* The streams of a rank: COMPUTE, COMM and COPY; with channels the first of them is COMM, and the others come after
 * COPY. A clock has one count for each. */
typedef struct RankStreams {
  const PipeRank *k;
  uint32_t n;
  uint32_t *of;  /* [nchannel] stream of a channel; NULL: there are none */
  uint32_t *nth; /* [ninstr] how manieth of its stream a row is, from 1; with channels */
  RowNeeds need; /* with channels */
} RankStreams;
RankStreams rank_streams(Arena *a, const Sched *s, uint32_t r, const PipeRank *k);

static inline uint32_t stream_of_row(const RankStreams *w, const PipeInstr *in) {
  PipeOn on = (PipeOn)pipe_op_info[in->op].stream;
  return on == PIPE_COMM && w->of ? w->of[in->gout] : on;
}

/* a is at least b. */
static inline void clock_join(uint32_t *a, const uint32_t *b, uint32_t n) {
  for (uint32_t x = 0; x < n; x++)
    a[x] = b[x] > a[x] ? b[x] : a[x];
}

/* What must be over before row `row` starts, of the streams that are not its own: how many instructions of each;
 * of COMPUTE one more, for the begin of the step. */
void clock_needed(const RankStreams *w, uint32_t row, uint32_t *clock);

/* Ensures sync, nsync and nevent of a rank whose list is complete. */
void place_events(Sched *s, uint32_t r, PipeRank *k);

#endif
