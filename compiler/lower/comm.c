/* SPDX-License-Identifier: MIT
 * Turns transfers into instructions and derives every wait on them. Requires order, and slot counts
 * in Lowered.channel (all 0: start from MIN_CHANNEL_SLOTS). Ensures Lowered.stream: each rank has a
 * compute and a comm stream in which a wait carries each data dependence and each reuse of a
 * channel slot.
 *
 * note [channel slots]: transfer n of a channel with k slots uses slot n mod k at both ends. The op
 * that makes tensor n waits until SEND n - k has left the slot. RECV n waits until the op that
 * reads tensor n - k has ended. The slots of a rank are numbered from 0, stage by stage: y out and
 * dy in of each outgoing link, then x in and dx out of each incoming link.
 *
 * note [enough slots]: fit channels close no wait cycle.
 *
 * Definition: play the ops on an idle network. A channel is fit when, for every n, the op that
 * reads tensor n - k has ended before transfer n starts, and has started earlier. (An op may take
 * no time.)
 *
 * Lemma: if all channels are fit, there is no wait cycle. Proof: every edge of the happens-before
 * graph points forward in the play: to a later start, or at the same instant to a later place in
 * the play.
 *
 * Fewer slots may suffice and save memory. So comm starts from MIN_CHANNEL_SLOTS, and settle
 * asks for fit channels only if the small ones close a cycle. Channels of edges outside the chain
 * are fit from the start: their receiver holds the tensor while the chain takes its longer way, and
 * a sender that waits for a slot would block the chain as well.
 *
 * note [actions]: the ops of an action start together, so each waits for the needs of all. An
 * action has a send slot for each tensor that it puts into one channel. Orders.send says when
 * tensors leave and inputs are free: when the whole action has ended, or as each op ends.
 *
 * Cost: linear in ops and transfers, with two exceptions. An op with several tensors looks at all
 * of them for each transfer. With lowering CHANNELS, the needs of a rank are sorted. comm may run
 * again with more slots. */
#include <string.h>

#include "base.h"
#include "graph.h"
#include "lower.h"
#include "names.h"
#include "orders.h"

/* Has `op` started before `time` and ended by then? */
static bool is_over(const Sched *s, uint32_t op, uint64_t time) {
  bool takes_time = op_cost(s, s->model->stage, false, op) > 0; /* FB, if given, is not 0 */
  return s->ideal->end[op] < time || (s->ideal->end[op] == time && takes_time);
}

uint32_t *xfers_by_channel(const Sched *s, Arena *a, uint32_t **first) {
  const uint32_t n = s->ideal->nxfer;
  uint32_t *channel = arena_alloc(a, n * sizeof *channel);
  for (uint32_t i = 0; i < n; i++) {
    const Xfer *x = &s->lowered->xfer[i];
    channel[i] = xfer_moves(x) ? 2 * xfer_link(s, x) + (s->orders->op[x->from].kind != PIPE_F)
                               : NONE;
  }
  return group_by(a, channel, n, 2 * nlinks(s), first);
}

/* Gives channels (skips: only those of edges outside the chain) the slots that the ideal timing
 * needs. False: no change. */
static bool more_slots(Sched *s, Lowered *lowered, bool skips) {
  Arena own = {0};
  uint32_t *first, *list = xfers_by_channel(s, &own, &first);
  bool added = false;
  for (uint32_t c = 0; c < 2 * nlinks(s); c++) {
    if (skips && !link_skips(s, link_at(s, c / 2)))
      continue;
    uint32_t read = first[c], k = 0; /* tensors before `read` are read when transfer i starts */
    for (uint32_t i = first[c]; i < first[c + 1]; i++) {
      uint64_t start = s->ideal->end[lowered->xfer[list[i]].from];
      while (read < i && is_over(s, lowered->xfer[list[read]].to, start))
        read++;
      k = i - read + 1 > k ? i - read + 1 : k;
    }
    if (k > lowered->channel[c].in_slots) {
      lowered->channel[c].in_slots = k;
      added = true;
    }
  }
  arena_free(&own);
  return added;
}

static Channel *channels_of(Lowered *lowered, uint32_t link) {
  return &lowered->channel[2 * (size_t)link];
}

/* Numbers the channel slots of every rank, and counts them in nrank_slot. */
static void number_slots(const Sched *s, Lowered *lowered) {
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    uint32_t n = 0;
    for (uint32_t i = s->model->rank_stage0[r]; i < s->model->rank_stage0[r + 1]; i++)
      for (int out = 1; out >= 0; out--) {
        uint32_t st = s->model->rank_stage[i], nlink = row_links(s, st, out);
        for (uint32_t k = 0; k < nlink; k++) {
          uint32_t link = row_link(s, st, out, k);
          Channel *fwd = channels_of(lowered, link), *bwd = fwd + 1;
          if (!link_crosses(s, link_at(s, link)))
            continue;
          if (out) {
            fwd->out_first = n, n += fwd->out_slots;
            bwd->in_first = n, n += bwd->in_slots;
          } else {
            fwd->in_first = n, n += fwd->in_slots;
            bwd->out_first = n, n += bwd->out_slots;
          }
        }
      }
    lowered->nrank_slot[r] = n;
  }
}

/* Room for the slot lists of ops with several inputs or outputs. */
static void room_for_lists(Sched *s, Lowered *lowered) {
  lowered->slot_list = NEW_ARRAY(s->arena, uint32_t *, s->model->nrank);
  lowered->nslot_list = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    size_t n = 0;
    for (uint32_t i = s->orders->rank_op0[r]; i < s->orders->rank_op0[r + 1]; i++) {
      uint32_t nin = op_inputs(s, &s->orders->op[i]), nout = op_written(s, &s->orders->op[i]);
      n += (nin > 1 ? nin : 0) + (nout > 1 ? nout : 0);
    }
    lowered->slot_list[r] = arena_alloc(s->arena, n * sizeof **lowered->slot_list + 1);
  }
}

/* Reserves n entries of the slot list of rank r. Returns the first; NONE: n < 2 needs no list. */
static uint32_t list_slots(Lowered *lowered, uint32_t r, uint32_t n) {
  uint32_t at = lowered->nslot_list[r];
  if (n < 2)
    return NONE;
  for (uint32_t k = 0; k < n; k++)
    lowered->slot_list[r][lowered->nslot_list[r]++] = NONE;
  return at;
}

/* The number of tensors, 0 or 1, that an op puts into a channel. */
static uint32_t puts_into(const Sched *s, const Op *o, size_t channel) {
  for (uint32_t k = 0, n = op_outputs(s, o); k < n; k++)
    if (2 * (size_t)output_link(s, o, k) + (o->kind != PIPE_F) == channel)
      return 1;
  return 0;
}

/* Gives each channel enough send slots for the action that begins with op `first`. */
static void action_slots(const Sched *s, Lowered *lowered, uint32_t first) {
  for (uint32_t i = first; i <= first + s->orders->op[first].group; i++)
    for (uint32_t k = 0, noutput = op_outputs(s, &s->orders->op[i]); k < noutput; k++) {
      size_t c = 2 * (size_t)output_link(s, &s->orders->op[i], k) +
                 (s->orders->op[i].kind != PIPE_F);
      uint32_t n = 0;
      for (uint32_t m = first; m <= i; m++)
        n += puts_into(s, &s->orders->op[m], c);
      if (lowered->channel[c].out_slots > 0 && n > lowered->channel[c].out_slots)
        lowered->channel[c].out_slots = n;
    }
}

/* Allocates all lists in one piece; each rank has COPY, COMPUTE, COMM in this order (Streams). */
static void room_for_streams(Sched *s, Lowered *lowered) {
  size_t total = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    Streams *t = &lowered->stream[r];
    t->ncompute = s->orders->rank_op0[r + 1] - s->orders->rank_op0[r];
    t->ncopy = s->orders->ncopy ? s->orders->rank_copy0[r + 1] - s->orders->rank_copy0[r] : 0;
    total += (size_t)t->ncompute + t->ncomm + t->ncopy;
  }
  PipeInstr *list = arena_alloc(s->arena, total * sizeof *list);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    Streams *t = &lowered->stream[r];
    t->list = list;
    t->compute = list + t->ncopy;
    t->comm = t->compute + t->ncompute;
    list = t->comm + t->ncomm;
  }
}

static void first_time(Sched *s, Lowered *lowered) {
  size_t nlink = nlinks(s);
  lowered->xfer = s->ideal->xfer;
  lowered->channel = NEW_ARRAY(s->arena, Channel, 2 * nlink);
  lowered->nrank_slot = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  lowered->stream = NEW_ARRAY(s->arena, Streams, s->model->nrank);
  lowered->side_pos = NEW_ARRAY(s->arena, uint32_t, s->sides->nuse);
  bool skips = false;
  uint32_t *nmb_of = link_nmb(s);
  for (uint32_t i = 0; i < nlink; i++) {
    Link l = link_at(s, i);
    if (!link_crosses(s, l))
      continue;
    uint32_t nmb = nmb_of[i], k = MIN_CHANNEL_SLOTS < nmb ? MIN_CHANNEL_SLOTS : nmb;
    for (int back = 0; back < (s->model->forward ? 1 : 2); back++) {
      channels_of(lowered, i)[back].out_slots = k;
      channels_of(lowered, i)[back].in_slots = k;
      lowered->stream[s->model->stage[l.from].rank].ncomm += nmb; /* one end of each transfer */
      lowered->stream[s->model->stage[l.to].rank].ncomm += nmb;
    }
    skips |= link_skips(s, l);
  }
  for (uint32_t i = 0; i < s->orders->nop; i++) /* note [actions] */
    if (s->orders->op[i].group > 0 && (i == 0 || s->orders->op[i - 1].group == 0))
      action_slots(s, lowered, i);
  if (skips)
    more_slots(s, lowered, true);
  if (s->model->graph)
    room_for_lists(s, lowered);
  for (uint32_t i = 0; i < s->sides->nuse; i++)
    if (s->sides->use[i].kind == PIPE_SIDE_COMM)
      lowered->stream[s->model->stage[s->sides->use[i].stage].rank].ncomm++;
  for (uint32_t st = 0; st < s->model->nstage; st++)
    lowered->stream[s->model->stage[st].rank].ncomm += ((s->model->stage[st].replica != st) +
                                                        (s->model->stage[st].tied == st)) *
                                                       updates_of(s, st);
  room_for_streams(s, lowered);
}

/* REDUCE number k of a stage: on each replica it waits for the last gradient of its update k, and
 * this update waits for it. */
static void add_reduce(Sched *s, Lowered *lowered, uint32_t first, uint32_t k, uint32_t *ncomm) {
  uint32_t st = first;
  do {
    const Round *round = &s->orders->round[s->orders->round0[st] + k];
    uint32_t r = s->model->stage[st].rank, at = ncomm[r]++, grad = round->grad;
    PipeInstr *u = op_instr(s, lowered, r, round->u);
    PipeInstr *c = &lowered->stream[r].comm[at];
    *c = pipe_instr(PIPE_REDUCE, st, NONE);
    c->phase = u->phase, c->site = u->site;
    c->channel = channel_of_sum(s, s->model->stage[st].model);
    wait_for(s, lowered, r, c, PIPE_COMPUTE, op_release(s, grad) - s->orders->rank_op0[r] + 1);
    wait_for(s, lowered, r, u, PIPE_COMM, at + 1);
  } while ((st = s->model->stage[st].replica) != first);
}

/* TIE number k: one instruction per rank for all rows of the tie there. It waits for the last
 * gradient of each row; the REDUCE of a row stands above it in the stream. The updates wait for
 * it. */
static void add_tie(Sched *s, Lowered *lowered, uint32_t tie, uint32_t k, uint32_t *ncomm) {
  for (uint32_t j = s->model->tie_row0[tie]; j < s->model->tie_row0[tie + 1]; j++) {
    uint32_t st = s->model->tie_row[j], lead = s->model->stage[st].tied,
             r = s->model->stage[st].rank;
    const Round *round = &s->orders->round[s->orders->round0[st] + k];
    PipeInstr *u = op_instr(s, lowered, r, round->u);
    uint32_t grad = op_release(s, round->grad) - s->orders->rank_op0[r] + 1;
    if (lead == st) {
      PipeInstr *c = &lowered->stream[r].comm[ncomm[r]++];
      *c = pipe_instr(PIPE_TIE, st, NONE);
      c->phase = u->phase, c->site = u->site;
      c->channel = channel_of_sum(s, s->model->nmodel + tie);
    }
    const PipeInstr *c = &lowered->stream[r].comm[ncomm[r] - 1];
    wait_for(s, lowered, r, c, PIPE_COMPUTE, grad);
    wait_for(s, lowered, r, u, PIPE_COMM, ncomm[r]);
  }
}

/* A side op of the COMM stream. It waits for all ops before its place. */
static void add_side(Sched *s, Lowered *lowered, uint32_t use, uint32_t *ncomm) {
  const SideUse *u = &s->sides->use[use];
  uint32_t r = s->model->stage[u->stage].rank, at = ncomm[r]++;
  PipeInstr *c = &lowered->stream[r].comm[at];
  lowered->side_pos[use] = at + 1;
  *c = side_instr(s, u);
  c->channel = channel_of_sides(s, r);
  wait_for(s, lowered, r, c, PIPE_COMPUTE, u->at - s->orders->rank_op0[r]);
}

/* Each rank reads its ops and transfers nearly in sequence, but the ranks alternate. Hardware does
 * not follow that many sequences. */
static inline void fetch_ahead(const Sched *s, uint32_t op, const PipeInstr *compute,
                               const PipeInstr *comm) {
  enum { AHEAD = 8 };
  if (op + AHEAD < s->orders->nop)
    __builtin_prefetch(&s->orders->op[op + AHEAD]);
  /* through integers: the address may lie in another list, or in none */
  __builtin_prefetch((const void *)((uintptr_t)compute + AHEAD * sizeof *compute), 1);
  __builtin_prefetch((const void *)((uintptr_t)comm + AHEAD * sizeof *comm), 1);
}

/* Lays the transfers in their one global order. */
static void lay_xfers(Sched *s, Lowered *lowered) {
  /* The last user of each channel slot: at the sender the position of the SEND, at the receiver the
   * position of the reading op. One ring of k entries per channel end. */
  size_t nchannel = 2 * (size_t)nlinks(s);
  size_t *ring0 = NEW_ARRAY(s->arena, size_t, nchannel + 1);
  for (size_t c = 0; c < nchannel; c++)
    ring0[c + 1] = ring0[c] + lowered->channel[c].out_slots + lowered->channel[c].in_slots;
  uint32_t *ring = NEW_ARRAY(s->arena, uint32_t, ring0[nchannel]);
  struct Turn {
    uint32_t out, in;
  } *turn = NEW_ARRAY(s->arena, struct Turn, nchannel); /* the next slot at each end */
  uint32_t *ncomm = NEW_ARRAY(s->arena, uint32_t, s->model->nrank),
           *sums = NEW_ARRAY(s->arena, uint32_t,
                             s->model->nmodel), /* sums so far: by stage of the model; by tie */
               *ties = NEW_ARRAY(s->arena, uint32_t, s->model->ntie);
  for (uint32_t i = 0; i < s->ideal->nxfer; i++) {
    uint32_t from = lowered->xfer[i].from, to = lowered->xfer[i].to;
    if (to == XFER_SIDE) {
      add_side(s, lowered, from, ncomm);
      continue;
    }
    uint32_t st = s->orders->op[from].stage;
    if (xfer_is_sum(&lowered->xfer[i])) {
      if (to == XFER_REDUCE)
        add_reduce(s, lowered, st, sums[s->model->stage[st].model]++, ncomm);
      else
        add_tie(s, lowered, s->model->tie_of[st], ties[s->model->tie_of[st]]++, ncomm);
      continue;
    }
    bool forward = s->orders->op[from].kind == PIPE_F;
    uint32_t a = op_rank(s, from), b = op_rank(s, to), edge = NONE;
    uint32_t link = s->model->graph ? xfer_link(s, &lowered->xfer[i])
                                    : s->orders->op[forward ? from : to].stage;
    size_t c = 2 * (size_t)link + !forward;
    const Channel *ch = &lowered->channel[c];
    uint32_t out = turn[c].out++, in = turn[c].in++;
    turn[c].out = turn[c].out == ch->out_slots ? 0 : turn[c].out;
    turn[c].in = turn[c].in == ch->in_slots ? 0 : turn[c].in;
    uint32_t *out_user = &ring[ring0[c] + out], *in_user = &ring[ring0[c] + ch->out_slots + in];
    uint32_t send = ncomm[a]++, recv = ncomm[b]++;
    PipeInstr *make = op_instr(s, lowered, a, from), *use = op_instr(s, lowered, b, to);
    uint32_t made = op_release(s, from) - s->orders->rank_op0[a] + 1,
             used = op_release(s, to) - s->orders->rank_op0[b] + 1;
    uint32_t *make_out = &make->out, *use_in = &use->in;
    if (s->model->graph) {
      Link l = link_at(s, link);
      edge = l.edge;
      make_out = slot_at(s, lowered, make, false, forward ? link_out(s, l) : link_in(s, l));
      use_in = slot_at(s, lowered, use, true, forward ? link_in(s, l) : link_out(s, l));
    }

    *make_out = ch->out_first + out;
    wait_for(s, lowered, a, make, PIPE_COMM, *out_user);
    *out_user = send + 1;
    PipeInstr *x = &lowered->stream[a].comm[send];
    fetch_ahead(s, from, make, x);
    *x = pipe_instr(forward ? PIPE_SEND_F : PIPE_SEND_B, make->stage, make->mb);
    x->phase = make->phase, x->site = make->site, x->peer = b;
    x->in = *make_out, x->edge = edge;
    x->channel = channel_of_link(s, link, forward);
    wait_for(s, lowered, a, x, PIPE_COMPUTE, made);

    *use_in = ch->in_first + in;
    wait_for(s, lowered, b, use, PIPE_COMM, recv + 1);
    x = &lowered->stream[b].comm[recv];
    fetch_ahead(s, to, use, x);
    *x = pipe_instr(forward ? PIPE_RECV_F : PIPE_RECV_B, use->stage, use->mb);
    x->phase = use->phase, x->site = use->site, x->peer = a;
    x->out = *use_in, x->edge = edge;
    x->channel = channel_of_link(s, link, forward);
    wait_for(s, lowered, b, x, PIPE_COMPUTE, *in_user);
    *in_user = used;
  }
}

/* Resets the streams to the compute instructions alone. True: some action has several ops. */
static bool restart(const Sched *s, Lowered *lowered) {
  bool joined = false;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    Streams *t = &lowered->stream[r];
    t->nneed = 0;
    memset(t->counts, 0, instrs_of(t) * sizeof *t->counts);
    if (s->model->graph)
      lowered->nslot_list[r] = 0;
    for (uint32_t i = s->orders->rank_op0[r]; i < s->orders->rank_op0[r + 1]; i++) {
      const Op *o = &s->orders->op[i];
      PipeInstr *c = op_instr(s, lowered, r, i);
      *c = pipe_instr((PipeOp)o->kind, o->stage, o->mb);
      if (o->kind == PIPE_SIDE)
        c->side = (o->site - s->sides->site0) * s->model->nstage + o->stage;
      c->phase = o->phase, c->site = o->site, c->group = o->group;
      joined |= o->group > 0;
      if (s->model->graph) {
        c->in = list_slots(lowered, r, op_inputs(s, o));
        c->out = list_slots(lowered, r, op_written(s, o));
      }
    }
  }
  return joined;
}

/* Moves the waits of each action to its first op. */
static void join_waits(const Streams *t) {
  for (uint32_t i = 0; i < t->ncompute; i += t->compute[i].group + 1u) {
    Counts *first = &t->counts[i];
    for (Counts *counts = first + 1; counts <= first + t->compute[i].group; counts++)
      for (int on = 0; on < PIPE_NSTREAMS; on++) {
        first->on[on] = counts->on[on] > first->on[on] ? counts->on[on] : first->on[on];
        counts->on[on] = 0;
      }
  }
}

bool first_comm(Sched *s, Lowered *lowered) {
  const bool open = s->orders->lowering == LOWERING_AUTO;
  lowered->choice.open = open && s->opt->emit != EMIT_COMMS_CSV; /* the format has no channels */
  lowered->lowering = open ? PIPE_GLOBAL : (PipeLowering)s->orders->lowering;
  return comm(s, lowered);
}

bool comm(Sched *s, Lowered *lowered) {
  if (!lowered->channel)
    first_time(s, lowered);
  if (lowered->lowering == PIPE_CHANNELS && !lowered->channel_of)
    find_channels(s, lowered);
  Arena own = {0};
  for (uint32_t r = 0; r < s->model->nrank; r++)
    lowered->stream[r].counts = arena_alloc(&own, instrs_of(&lowered->stream[r]) * sizeof(Counts));
  number_slots(s, lowered);
  bool joined = restart(s, lowered);
  if (s->orders->lists) {
    lay_lists(s, lowered); /* first run: counts the slots that the lists need */
    number_slots(s, lowered);
    restart(s, lowered);
    lay_lists(s, lowered);
  } else {
    lay_xfers(s, lowered);
  }
  offload_streams(s, lowered);
  side_waits(s, lowered);
  for (uint32_t r = 0; joined && r < s->model->nrank; r++)
    join_waits(&lowered->stream[r]);
  list_waits(s, lowered);
  arena_free(&own);
  return true;
}

bool comm_more_slots(Sched *s, Lowered *lowered) {
  return s->orders->lists ? more_list_slots(s, lowered) : more_slots(s, lowered, false);
}
