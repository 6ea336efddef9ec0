/* SPDX-License-Identifier: MIT
 * Lists of instructions in the order of a file, with their own transfers (Orders.lists), and the
 * place of each tensor in these lists. */
#ifndef PIPEC_TRANSFERS_H
#define PIPEC_TRANSFERS_H

#include "graph.h"
#include "lower.h"

static inline bool is_forward(const PipeInstr *in) {
  return in->op == PIPE_SEND_F || in->op == PIPE_RECV_F;
}
/* Is it a WAIT_SEND of a file? It waits for the SEND that it names. */
static inline bool is_wait_send(const Sched *s, const PipeInstr *in) {
  return s->orders->lists && in->waits == WAIT_SEND;
}
static inline bool is_comm(const PipeInstr *in) { return pipe_op_info[in->op].comm != 0; }

/* By tensor (tensor_of): 1 + position of its SEND and RECV in the list, 0: none. */
typedef struct Places { uint32_t *send, *recv; } Places;

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
/* *move: the SEND (send) of the tensor that op `in` makes, or the RECV of the tensor that it reads.
 * False: the op has no such tensor, or the tensor stays on its rank. */
bool own_transfer(const Sched *s, const PipeInstr *in, bool send, PipeInstr *move);
/* Finds the peer of each transfer of Orders.lists, and the place of each tensor. Proves that each
 * tensor that crosses ranks is sent once, after it is made, and received once, before it is read.
 * False: reported. */
bool find_places(Sched *s, Orders *orders, Places *at);

#endif
