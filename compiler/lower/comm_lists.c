/* SPDX-License-Identifier: MIT
 * Splits the list of each rank into its COMPUTE and COMM stream, for the lowering `grouped`
 * (transfers.c). comm calls this file after it has laid out the compute instructions. A transfer
 * waits for all computation above it; an op waits for all transfers and sums above it.
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
  Ring *out, *in;                   /* [channels] */
  uint32_t *next_reduce, *next_tie; /* [nstage] */
  uint32_t r, ncomm, next;          /* rank; COMM instructions so far; row of the next op */
  uint32_t nmoved;                  /* ncomm at the last transfer or sum */
} Lay;

static uint32_t take(Ring *q, uint32_t *slots, uint32_t *wait) {
  if (q->made < *slots || q->first == q->n) {
    if (q->made == *slots)
      ++*slots;
    return q->made++;
  }
  if (q->after[q->first] > *wait)
    *wait = q->after[q->first];
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

static size_t channel_of(uint32_t link, bool forward) { return 2 * (size_t)link + !forward; }

static void raise(uint32_t *wait, uint32_t to) { *wait = to > *wait ? to : *wait; }

/* The next n ops, one action, take their send slots. */
static void make(Lay *l, uint32_t n) {
  Sched *s = l->s;
  for (uint32_t i = l->next; i < l->next + n; i++) {
    const Op *o = &s->orders->op[i];
    for (uint32_t k = 0, nout = op_outputs(s, o); k < nout; k++) {
      uint32_t link = output_link(s, o, k);
      if (!link_crosses(s, link_at(s, link)))
        continue;
      size_t c = channel_of(link, o->kind == PIPE_F);
      Channel *ch = &s->lowered->channel[c];
      *slot_at(s, op_instr(s, l->r, i), false,
               k) = ch->out_first + take(&l->out[c], &ch->out_slots, &op_instr(s, l->r, i)->wait);
    }
  }
}

/* The next n ops, one action, free their receive slots. */
static void use(Lay *l, uint32_t n) {
  Sched *s = l->s;
  uint32_t ended = l->next + n - s->orders->rank_op0[l->r];
  for (uint32_t i = l->next; i < l->next + n; i++) {
    const Op *o = &s->orders->op[i];
    for (uint32_t k = 0, nin = op_inputs(s, o); k < nin; k++) {
      uint32_t link = input_link(s, o, k);
      size_t c = channel_of(link, o->kind == PIPE_F);
      if (link_crosses(s, link_at(s, link)))
        leave(s, &l->in[c],
              *slot_at(s, op_instr(s, l->r, i), true, k) - s->lowered->channel[c].in_first, ended);
    }
  }
}

/* The op at this end of transfer `in`, and which of its inputs or outputs the transfer moves: *k,
 * *link. */
static uint32_t own_op(const Sched *s, const PipeInstr *in, uint32_t *k, uint32_t *link) {
  bool forward = is_forward(in), send = pipe_is_send(in->op);
  uint32_t op = *op_at(s, forward, in->stage, in->mb) - 1;
  const Op *o = &s->orders->op[op];
  for (*k = 0;; ++*k) {
    *link = send ? output_link(s, o, *k) : input_link(s, o, *k);
    if (!s->model->graph || link_at(s, *link).edge == in->edge)
      return op;
  }
}

/* A side op waits for all ops above it. */
static void run_beside(Lay *l, const PipeInstr *in) {
  Sched *s = l->s;
  SideUse *u = &s->sides->use[in->out];
  PipeInstr *x = &s->lowered->stream[l->r].comm[l->ncomm++];
  *x = side_instr(s, u);
  x->wait = l->next - s->orders->rank_op0[l->r];
  u->pos = l->ncomm;
}

/* Lays a SEND, RECV or sum; `more` members of its group follow. */
static void move(Lay *l, const PipeInstr *in, uint32_t more) {
  Sched *s = l->s;
  l->nmoved = l->ncomm + 1;
  PipeInstr *x = &s->lowered->stream[l->r].comm[l->ncomm++], *op;
  uint32_t done = l->ncomm + more, k, link;
  *x = *in;
  x->wait = l->next - s->orders->rank_op0[l->r];
  if (pipe_is_sum(in->op)) {
    uint32_t turn = (in->op == PIPE_TIE ? l->next_tie : l->next_reduce)[in->stage]++;
    for (uint32_t i = s->model->rank_stage0[l->r]; i < s->model->rank_stage0[l->r + 1]; i++) {
      uint32_t row = s->model->rank_stage[i];
      if (in->op == PIPE_TIE ? s->model->stage[row].tied != in->stage : row != in->stage)
        continue;
      op = op_instr(s, l->r, s->orders->round[s->orders->round0[row] + turn].u);
      raise(&op->wait, done);
      x->phase = op->phase;
    }
    return;
  }
  op = op_instr(s, l->r, own_op(s, in, &k, &link));
  x->phase = op->phase;
  size_t c = channel_of(link, is_forward(in));
  Channel *ch = &s->lowered->channel[c];
  if (pipe_is_send(in->op)) {
    x->in = *slot_at(s, op, false, k);
    leave(s, &l->out[c], x->in - ch->out_first, done);
  } else {
    x->out = *slot_at(s, op, true, k) = ch->in_first + take(&l->in[c], &ch->in_slots, &x->wait);
    raise(&op->wait, done);
  }
}

void lay_lists(Sched *s) {
  size_t nchannel = 2 * (size_t)nlinks(s);
  Lay l = {.s = s,
           .out = NEW_ARRAY(s->arena, Ring, nchannel),
           .in = NEW_ARRAY(s->arena, Ring, nchannel),
           .next_reduce = NEW_ARRAY(s->arena, uint32_t, s->model->nstage),
           .next_tie = NEW_ARRAY(s->arena, uint32_t, s->model->nstage)};
  for (l.r = 0; l.r < s->model->nrank; l.r++) {
    const List *list = &s->orders->lists[l.r];
    l.ncomm = l.nmoved = 0;
    l.next = s->orders->rank_op0[l.r];
    for (uint32_t i = 0, n; i < list->n; i += n) {
      const PipeInstr *in = &list->instr[i];
      n = 1;
      if (is_copy(in))
        continue; /* offload_streams lays copies */
      if (in->op == PIPE_SIDE_COMM) {
        run_beside(&l, in);
        continue;
      }
      if (is_comm(in)) {
        move(&l, in, in->group);
        continue;
      }
      n += in->group;
      raise(&op_instr(s, l.r, l.next)->wait, l.nmoved);
      make(&l, n);
      use(&l, n);
      l.next += n;
    }
    PipeInstr *comm = s->lowered->stream[l.r].comm;
    for (uint32_t i = 1; i < l.ncomm; i++)
      if (comm[i - 1].group > 0)
        comm[i].wait = 0; /* the first of the group waits for all: they stand above the same op */
  }
}

bool more_list_slots(Sched *s) {
  bool added = false;
  for (size_t c = 0; c < 2 * (size_t)nlinks(s); c++) {
    Channel *ch = &s->lowered->channel[c];
    if (ch->out_slots > 0 && ch->out_slots < s->model->nmb)
      ch->out_slots = 2 * ch->out_slots < s->model->nmb ? 2 * ch->out_slots : s->model->nmb,
      added = true;
  }
  return added;
}
