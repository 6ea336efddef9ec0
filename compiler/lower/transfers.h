/* SPDX-License-Identifier: MIT
 * Lists of instructions in the order of a text, with their own transfers (Orders.lists), and the
 * place of each tensor and each sum in these lists. */
#ifndef PIPEC_TRANSFERS_H
#define PIPEC_TRANSFERS_H

#include "graph.h"
#include "lower.h"

static inline bool is_forward(const PipeInstr *in) {
  return in->op == PIPE_SEND_F || in->op == PIPE_RECV_F;
}
/* In a list from a file: waits for the SEND that it names. */
static inline bool is_wait_send(const Sched *s, const PipeInstr *in) {
  return s->orders->lists && in->wait == WAIT_SEND;
}
static inline bool is_comm(const PipeInstr *in) { return pipe_op_info[in->op].comm != 0; }
/* Is it a transfer or a sum? */
static inline bool is_transfer(const PipeInstr *in) {
  return is_comm(in) && in->op != PIPE_SIDE_COMM;
}

/* A copy in a list whose copies take turns (out: row of Orders.copy); its place is no need. */
static inline bool is_copy(const PipeInstr *in) { return pipe_op_info[in->op].stream == PIPE_COPY; }

/* 1 + position in its list of the SEND and RECV of a tensor, the REDUCE of a round (row of
 * Orders.round), and the TIE of a round of the first tied row of a rank; 0: there is none. */
typedef struct Places { uint32_t *send, *recv, *reduce, *tie; } Places;

const char *list_op_text(Sched *s, const PipeInstr *in); /* op notation */
/* The tensor that a transfer carries: its index in Places.send and recv. */
static inline uint64_t tensor_of(const Sched *s, const PipeInstr *in) {
  const PipeStage *st = &s->model->stage[in->stage];
  uint64_t of = s->model->graph         ? in->edge
                : pipe_is_send(in->op)    ? in->stage
                : is_forward(in) ? st->prev
                                 : st->next;
  return 2 * (of * s->model->nmb + in->mb) + !is_forward(in);
}
/* The same for the tensor that crosses a link for op o, which makes or reads it. */
uint64_t link_tensor(const Sched *s, const Op *o, uint32_t link);
/* Proves that each tensor that crosses ranks is sent once after it is made and received once before
 * it is read, and that each sum stands between its last gradient and its update. False:
 * reported. */
bool find_places(Sched *s, Places *at);

#endif
