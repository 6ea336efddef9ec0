/* SPDX-License-Identifier: MIT
 * Splits the lists of a compute_comms file into COMPUTE and COMM streams (transfers.c). comm calls
 * this file after it has laid out the compute instructions. A transfer waits for all computation
 * above it; an op waits for the RECV of its input, and for what a WAIT_SEND or WAIT above it names.
 *
 * note [slots in text order]: a channel hands out its slots in the order of the text: the slot that
 * became free first goes first. At the sender, the op that makes the tensor takes a slot and its
 * SEND frees it. At the receiver, the RECV takes a slot and the op that reads the tensor frees it.
 * A channel makes a new slot when all are taken, or when it has fewer slots than asked for.
 *
 * Lemma: with enough slots, the streams have no wait that the proof of the lists lacks. Proof: a
 * RECV gets no further wait, because what it waits for stands above it. An op that makes a tensor
 * waits for the SEND that freed its slot; with a slot for each tensor there is no such SEND. */
#include "transfers.h"

/* The slots of one end of a channel. slot[first .. n) are free, oldest first. */
typedef struct Ring {
  uint32_t *slot, *after; /* after: COMM (receiver: COMPUTE) instructions that must be over */
  uint32_t first, n, cap;
  uint32_t made;
} Ring;

typedef struct Lay {
  Sched *s;
  Lowered *lowered;
  Ring *out, *in;        /* [channels] */
  uint32_t *sent;        /* by tensor: COMM instructions up to the end of the group of its SEND */
  uint32_t r, op, ncomm; /* rank; row of the next op; COMM instructions so far */
  uint32_t ended;        /* COMM instructions that the next op waits for */
} Lay;

/* A slot of q for instruction c. on: the stream of Ring.after. */
static uint32_t take(Lay *l, Ring *q, uint32_t *slots, const PipeInstr *c, PipeOn on) {
  if (q->made < *slots || q->first == q->n) {
    if (q->made == *slots)
      ++*slots;
    return q->made++;
  }
  wait_for(l->s, l->lowered, l->r, c, on, q->after[q->first]);
  return q->slot[q->first++];
}

static void leave(Sched *s, Ring *q, uint32_t slot, uint32_t after) {
  if (q->n == q->cap) {
    uint32_t cap = q->cap;
    vec_grow(s->arena, (void **)&q->slot, &q->cap, sizeof *q->slot);
    vec_grow(s->arena, (void **)&q->after, &cap, sizeof *q->after);
  }
  q->slot[q->n] = slot;
  q->after[q->n++] = after;
}

/* The channel of the tensor that op o makes (output) or reads; NONE: it stays on the rank. */
static uint32_t channel_of(const Sched *s, const Op *o, bool output) {
  if ((output ? op_outputs(s, o) : op_inputs(s, o)) == 0)
    return NONE;
  uint32_t link = output ? output_link(s, o, 0) : input_link(s, o, 0);
  return link_crosses(s, link_at(s, link)) ? 2 * link + (o->kind != PIPE_F) : NONE;
}

/* The next op takes its send slot and frees its receive slot. */
static void run(Lay *l) {
  Sched *s = l->s;
  const Op *o = &s->orders->op[l->op];
  PipeInstr *c = op_instr(s, l->lowered, l->r, l->op++);
  uint32_t out = channel_of(s, o, true), in = channel_of(s, o, false);
  wait_for(s, l->lowered, l->r, c, PIPE_COMM, l->ended);
  if (out != NONE) {
    Channel *ch = &l->lowered->channel[out];
    c->out = ch->out_first + take(l, &l->out[out], &ch->out_slots, c, PIPE_COMM);
  }
  if (in != NONE)
    leave(s, &l->in[in], c->in - l->lowered->channel[in].in_first,
          l->op - s->orders->rank_op0[l->r]);
}

/* Lays a SEND or RECV. */
static void move(Lay *l, const PipeInstr *in) {
  Sched *s = l->s;
  uint32_t op = *op_at(s, is_forward(in), in->stage, in->mb) - 1;
  PipeInstr *x = &l->lowered->stream[l->r].comm[l->ncomm++], *c = op_instr(s, l->lowered, l->r, op);
  bool send = pipe_is_send(in->op);
  uint32_t done = l->ncomm + in->group, of = channel_of(s, &s->orders->op[op], send);
  Channel *ch = &l->lowered->channel[of];
  const PipeInstr *first = x; /* of its group: it waits for all */
  *x = *in;
  while (first > l->lowered->stream[l->r].comm && first[-1].group > 0)
    first--;
  wait_for(s, l->lowered, l->r, first, PIPE_COMPUTE, l->op - s->orders->rank_op0[l->r]);
  x->phase = c->phase;
  if (send) {
    x->in = c->out;
    leave(s, &l->out[of], x->in - ch->out_first, done);
    l->sent[tensor_of(s, in)] = done;
  } else {
    x->out = c->in = ch->in_first + take(l, &l->in[of], &ch->in_slots, first, PIPE_COMPUTE);
    wait_for(s, l->lowered, l->r, c, PIPE_COMM, done);
  }
}

void lay_lists(Sched *s, Lowered *lowered) {
  const size_t nchannel = 2 * (size_t)nlinks(s), ntensor = 2 * (size_t)s->model->nstage;
  Lay l = {.s = s,
           .lowered = lowered,
           .out = NEW_ARRAY(s->arena, Ring, nchannel),
           .in = NEW_ARRAY(s->arena, Ring, nchannel),
           .sent = NEW_ARRAY(s->arena, uint32_t, ntensor * s->model->nmb)};
  for (l.r = 0; l.r < s->model->nrank; l.r++) {
    const List *list = &s->orders->lists[l.r];
    l.ncomm = l.ended = 0;
    l.op = s->orders->rank_op0[l.r];
    for (uint32_t i = 0; i < list->n; i++) {
      const PipeInstr *in = &list->instr[i];
      if (in->waits == WAIT_ALL)
        l.ended = l.ncomm;
      if (is_wait_send(s, in) && l.sent[tensor_of(s, in)] > l.ended)
        l.ended = l.sent[tensor_of(s, in)];
      if (is_wait_send(s, in))
        continue;
      if (is_comm(in))
        move(&l, in);
      else
        run(&l);
    }
    while (l.op < s->orders->rank_op0[l.r + 1]) /* the updates, which a file does not have */
      run(&l);
  }
}

bool more_list_slots(const Sched *s, Lowered *lowered) {
  bool added = false;
  for (size_t c = 0; c < 2 * (size_t)nlinks(s); c++) {
    Channel *ch = &lowered->channel[c];
    if (ch->out_slots > 0 && ch->out_slots < s->model->nmb)
      ch->out_slots = 2 * ch->out_slots < s->model->nmb ? 2 * ch->out_slots : s->model->nmb,
      added = true;
  }
  return added;
}
