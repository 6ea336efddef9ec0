/* SPDX-License-Identifier: MIT
 * The streams of a rank, and vector clocks over them. streams.c places events with them and
 * check_streams.c proves the events. See note [clocks] in streams.c. */
#ifndef PIPEC_STREAMS_H
#define PIPEC_STREAMS_H

#include "pipec.h"

/* With CHANNELS: row i waits for the COMM rows on[first[i] .. first[i + 1] - 1]. */
typedef struct RowNeeds {
  uint32_t *first, *on;
} RowNeeds;
RowNeeds row_needs(Arena *a, const Sched *s, uint32_t r, const PipeRank *k); /* channels.c */

/* The streams of a rank: COMPUTE, COMM and, if the program has copies or channels, COPY. With
 * channels, COMM is the first channel, and the other channels come after COPY. A clock has one
 * count for each stream. */
typedef struct RankStreams {
  const PipeRank *k;
  uint32_t n;
  uint32_t *count; /* [n] instructions of each stream */
  uint32_t *of;  /* [nchannel] stream of each channel; NULL: no channels */
  uint32_t *nth; /* [ninstr] with channels: the position of a row in its stream, from 1 */
  RowNeeds need; /* with channels */
} RankStreams;
RankStreams rank_streams(Arena *a, const Sched *s, uint32_t r, const PipeRank *k);

static inline uint32_t stream_of_row(const RankStreams *w, const PipeInstr *in) {
  PipeOn on = (PipeOn)pipe_op_info[in->op].stream;
  return on == PIPE_COMM && w->of ? w->of[in->channel] : on;
}

/* n is any number of streams; a constant n makes faster code. */
static inline void clock_join(uint32_t *a, const uint32_t *b, uint32_t n) {
  for (uint32_t x = 0; x < n; x++)
    a[x] = b[x] > a[x] ? b[x] : a[x];
}
static inline void clock_copy(uint32_t *a, const uint32_t *b, uint32_t n) {
  for (uint32_t x = 0; x < n; x++)
    a[x] = b[x];
}

/* Sets `clock` to the counts that must be complete before row `row` starts: instructions of each
 * other stream. COMPUTE counts one more, for the begin of the step. n: w->n. */
static inline void clock_needed(const RankStreams *w, uint32_t row, uint32_t *clock, uint32_t n) {
  const PipeInstr *in = &w->k->instr[row];
  PipeOn own = (PipeOn)pipe_op_info[in->op].stream;
  if (n == PIPE_COPY) { /* the rank has only COMPUTE and COMM */
    clock[own] = 0;
    clock[!own] = in->wait + (own == PIPE_COMM);
    return;
  }
  for (uint32_t x = 0; x < n; x++)
    clock[x] = 0;
  for (uint32_t x = 0; x < PIPE_NSTREAMS && x < n; x++)
    if (x != (uint32_t)own && (x != PIPE_COMM || !w->of))
      clock[x] = pipe_wait_for(in, (PipeOn)x) + (x == PIPE_COMPUTE);
  for (uint32_t j = w->of ? w->need.first[row] : 0; w->of && j < w->need.first[row + 1]; j++) {
    uint32_t on = w->need.on[j], x = stream_of_row(w, &w->k->instr[on]);
    clock[x] = w->nth[on] > clock[x] ? w->nth[on] : clock[x];
  }
}

/* Clocks of a rank. At first every stream knows only the begin of the step. */
typedef struct StreamRoom {
  uint32_t *known; /* [ninstr + 1][n] row i + 1: what is known once instruction i is complete; row
                      0: the begin */
  uint32_t *now;   /* [n][n] what each stream knows so far */
  uint32_t *done;  /* [n] instructions so far */
} StreamRoom;
StreamRoom stream_room(Arena *a, const RankStreams *w);

/* Places the events of rank r, whose list k is complete. Ensures sync, nsync and nevent. */
void place_events(Sched *s, PipeRank *k, uint32_t r);

#endif
