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
/* Is it a WAIT_SEND of a file? It waits for the SEND that it names. */
static inline bool is_wait_send(const Sched *s, const PipeInstr *in) {
  return s->orders->lists && in->wait == WAIT_SEND;
}
static inline bool is_comm(const PipeInstr *in) { return pipe_op_info[in->op].comm != 0; }
/* Is it a transfer or a sum? */
static inline bool is_transfer(const PipeInstr *in) {
  return is_comm(in) && in->op != PIPE_SIDE_COMM;
}

/* A copy, in a list whose copies take turns. out: row of Orders.copy. Its place in the list is no
 * need of other instructions. */
static inline bool is_copy(const PipeInstr *in) { return pipe_op_info[in->op].stream == PIPE_COPY; }

/* 1 + position in the list, 0: none. send, recv: by tensor (tensor_of). reduce, tie: by row of
 * Orders.round; a TIE has the round of the first tied row of its rank. */
typedef struct Places { uint32_t *send, *recv, *reduce, *tie; } Places;

const char *list_op_text(Sched *s, const PipeInstr *in); /* op notation */
/* The tensor that a transfer carries: index in Places.send and Places.recv. */
static inline uint64_t tensor_of(const Sched *s, const PipeInstr *in) {
  const PipeStage *st = &s->model->stage[in->stage];
  uint64_t of = s->model->graph         ? in->edge
                : pipe_is_send(in->op)    ? in->stage
                : is_forward(in) ? st->prev
                                 : st->next;
  return 2 * (of * s->model->nmb + in->mb) + !is_forward(in);
}
/* The tensor that crosses `link` for op o, which makes or reads it: the same index. */
uint64_t link_tensor(const Sched *s, const Op *o, uint32_t link);
/* Finds the place of each tensor and sum. Proves that each tensor that crosses ranks is sent once,
 * after it is made, and received once, before it is read. False: reported. */
bool find_places(Sched *s, Places *at);

#endif
