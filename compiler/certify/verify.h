/* SPDX-License-Identifier: MIT
 * What the parts of verify.c share: the tables of a program that say who meets whom, read anew. */
#ifndef PIPEC_VERIFY_H
#define PIPEC_VERIFY_H

#include "pipec.h"
#include "stall_picture.h"

#define SEEN(op) ((uint8_t)(1u << PIPE_##op)) /* F B I W R in bits 0-4 */
_Static_assert(PIPE_F == 0 && PIPE_B == 1 && PIPE_I == 2 && PIPE_W == 3 && PIPE_R == 4, "bits");
static inline size_t cell_at(uint32_t nmb, uint32_t stage, uint32_t mb) {
  return (size_t)stage * nmb + mb;
}

/* Unit `next` of a stage may run now: its slice, forward, again or backward, comes where it belongs. seen: what
 * has run of the units of the stage, from that of `next`. */
void verify_slice(uint32_t slices, uint32_t unit, uint8_t kind, const uint8_t *seen, size_t step);
/* Exactly F, perhaps R, then B, or I, then W; nothing after. */
void verify_next_op(uint8_t seen, uint8_t kind);
bool verify_is_complete(uint8_t seen); /* the ops of a microbatch on a stage */

/* The edges of a program by the stage that they reach, and the first that leaves each; NULL: chains. */
typedef struct VerifyEdges {
  const PipeProgram *p;
  const uint32_t *in0, *in_edge, *out0;
} VerifyEdges;

/* What passes between two rows: the row at the other end of the tensor, the row whose output it is or
 * whose output's gradient, and its edge. */
typedef struct Passage {
  uint32_t other, owner, edge;
} Passage;

/* Verifies the stage table, the edges and the ties of a program. */
VerifyEdges verify_tables(const PipeProgram *p, Arena *a);

static inline bool is_send(const PipeInstr *in) { return in->op == PIPE_SEND_F || in->op == PIPE_SEND_B; }
static inline bool is_forward(const PipeInstr *in) { return in->op == PIPE_SEND_F || in->op == PIPE_RECV_F; }
/* 0 COMPUTE, 1 COMM, 2 COPY */
static inline int stream_of(uint8_t op) {
  bool copy = op == PIPE_OFF || op == PIPE_LOAD || op == PIPE_SIDE_COPY;
  return op <= PIPE_U || op == PIPE_SIDE ? 0 : copy ? 2 : 1;
}

/* Does no rank of these ever go on from its op, whatever carries the messages (verify_circle.c)? */
bool circle_holds(const Sched *s, const StallHop *hop, uint32_t nhop);

/* Plays the program: verify_play.c. */
void verify_play(const PipeProgram *p, const VerifyEdges *edges, Arena *a);
/* The same by its events and channels, with lowering CHANNELS: verify_channels.c. */
void verify_play_channels(const PipeProgram *p, const VerifyEdges *edges, Arena *a);
/* Verifies the slots of stashes and the limits, in the order of the text (verify_stashes.c). */
void verify_stashes(const Sched *s);
/* Verifies the versions of the weights (verify_weights.c). */
void verify_weights(const Sched *s);

/* Verifies the formulas of a program against the text (verify_formulas.c). */
void verify_formulas(const Sched *s);

/* The events of a rank, row by row (verify_streams.c). Streams are numbered 0 COMPUTE, 1 COMM, 2 COPY, but that
 * each channel is one: then COMM has none, and the channels are 3, 4, ... heard[x * n + y]: instructions of stream y that
 * stream x knows to be over; UINT32_MAX: not even the begin of the step, which COMPUTE makes. */
typedef struct VerifySync {
  const PipeRank *k;
  uint32_t n;
  uint32_t *stream;   /* [ninstr] */
  uint32_t *nth;      /* [ninstr] of its stream, from 1 */
  uint32_t *comm;     /* rows of all of COMM */
  uint32_t *records;  /* [ninstr + 1] event + 1 that is recorded after a row, at row + 1 */
  uint32_t *recorded; /* [nevent] row + 2 after which it was recorded last */
  uint32_t *sent;     /* [nevent][n] what was known then */
  uint32_t *heard, *done, *waited; /* [n][n], [n], [n][3]: most that a stream has waited for of COMPUTE, COMM, COPY */
  uint32_t next;
  bool channels;
} VerifySync;
VerifySync verify_sync_begin(const PipeProgram *p, const PipeRank *k, Arena *a);
/* Before and after instruction `row`: its waits are covered; after the last one all is over. */
void verify_sync_row(VerifySync *v, uint32_t row);
void verify_sync_done(VerifySync *v, uint32_t row);
/* Does the stream of instruction `row`, by its waits and by events, know that `count` instructions of COMPUTE (0), COMM
 * (1) or COPY (2) are over? Of COMM with channels: the last of these is. */
bool verify_synced(const VerifySync *v, uint32_t row, int other, uint32_t count);

/* Does the row run the microbatch? */
static inline bool verify_runs(const PipeProgram *p, uint32_t row, uint32_t mb) {
  const PipeStage *st = &p->stage[row];
  return mb >= st->mb0 && mb - st->mb0 < st->nmb &&
         (!p->row || p->row[(size_t)st->model * p->nmb + mb] == row);
}

/* Tensor k of those on one side of an op: towards later stages (down) or earlier ones. */
static inline Passage verify_passage(const VerifyEdges *v, uint32_t row, uint32_t mb, bool down, uint32_t k) {
  const PipeProgram *p = v->p;
  const PipeStage *st = &p->stage[row];
  uint32_t edge = NONE, other = down ? st->next : st->prev;
  if (p->edge) {
    edge = down ? v->out0[st->model] + k : v->in_edge[v->in0[st->model] + k];
    other = p->row[(size_t)(down ? p->edge[edge].to : p->edge[edge].from) * p->nmb + mb];
  }
  return (Passage){other, down ? row : other, edge};
}

/* verify_side.c: the table of side ops; every side op that a clause asks for, where it asks for it, and no other. */
void verify_side_table(const Sched *s);
void verify_sides(const Sched *s);

#endif
