/* SPDX-License-Identifier: MIT
 * Transfers become instructions. Requires order, and slot counts in s->channel (all 0: start from
 * MIN_CHANNEL_SLOTS). Ensures, of each rank, a compute and a comm stream in which every data
 * dependence and every reuse of a channel slot is a `wait`.
 *
 * note [one rank]: the one global order of the transfers says in which order each rank has its own (turn) and what
 * waits for what (wait): that is all there is between the ranks. From it instructions follow, those of one rank after
 * the other in one place (make_streams), or one by one for the machine (stream_maker); where something needs the lists of
 * all ranks (Sched.all_lists), comm makes them at once. An instruction takes 48 bytes, what it is made from 4 to 8.
 *
 * note [channel slots]: transfer n of a channel uses slot n mod k at each end. At the sender the op
 * that makes tensor n waits until the SEND of n - k has left the slot; at the receiver the RECV of n
 * waits until the op that reads n - k has ended. Slots of a rank are numbered from 0: for each of
 * its stages, for each link that leaves it y out, dy in, then for each that reaches it x in, dx out.
 *
 * note [enough slots]: play the ops on an idle network and call a channel fit when the op that reads
 * n - k has ended before transfer n starts there, and started earlier (an op may take no time). If
 * all channels are fit, every edge of the happens-before graph points forward in that play (to a
 * later start, or at the same instant in the order in which it was played), so there is no cycle.
 * Fewer slots may do and save memory: comm starts from MIN_CHANNEL_SLOTS, and check_deadlock asks
 * for fit channels only if that closes a cycle. Those of edges that are not of the chain are made fit
 * from the start: the receiver keeps such a tensor while the chain goes its longer way, and a sender
 * that waited for its slot would hold up the chain as well.
 *
 * note [actions]: the ops of an action start together, so what one of them needs all wait for, and an
 * action has a send slot for each tensor that it puts into one channel. Its tensors leave, and what it
 * read is free, when all of it has ended, or as each op does (Sched.send).
 *
 * Linear in ops and transfers, but that an op with several tensors looks at all of them for each transfer, and that
 * with channels what the ops of a rank need is sorted. May run again with more slots. */
#include <string.h>

#include "graph.h"

/* Started before `time` and ended by then. */
static bool is_over(const Sched *s, uint32_t op, uint64_t time) {
  bool takes_time = op_cost(s, s->stage, false, op) > 0; /* FB, if given, is not 0 */
  return s->ideal_end[op] < time || (s->ideal_end[op] == time && takes_time);
}

/* The slot that comes next of n, which are used in turns. */
static uint32_t next_slot(uint32_t *next, uint32_t n) {
  uint32_t at = *next;
  *next = at + 1 == n ? 0 : at + 1;
  return at;
}

/* Ops and transfers of a rank are gone through nearly in their order, but with those of the others in between: too
 * many places for the hardware to follow. */
enum { AHEAD = 8 };
static inline void fetch_op(const Sched *s, uint32_t op) {
  if (op + AHEAD < s->nop)
    __builtin_prefetch(&s->op[op + AHEAD]);
}
static inline void fetch_turn(const CommTurn *turn) {
  /* as a number: what is there may belong to another rank, or to none */
  __builtin_prefetch((const void *)((uintptr_t)turn + AHEAD * sizeof *turn), 1);
}

static Channel *channels_of(Sched *s, uint32_t link) { return &s->channel[2 * (size_t)link]; }

/* Numbers the channel slots of every rank; nrank_slot[r] is what they take. */
static void number_slots(Sched *s) {
  for (uint32_t r = 0; r < s->nrank; r++) {
    uint32_t n = 0;
    for (uint32_t i = s->rank_stage0[r]; i < s->rank_stage0[r + 1]; i++)
      for (int out = 1; out >= 0; out--) {
        uint32_t st = s->rank_stage[i], nlink = row_links(s, st, out);
        for (uint32_t k = 0; k < nlink; k++) {
          uint32_t link = row_link(s, st, out, k);
          Channel *fwd = channels_of(s, link), *bwd = fwd + 1;
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
    s->nrank_slot[r] = n;
  }
}

/* Room for the slots of ops with several tensors on one side. */
static void room_for_lists(Sched *s) {
  s->slot_list = NEW_ARRAY(s->arena, uint32_t *, s->nrank);
  s->nslot_list = NEW_ARRAY(s->arena, uint32_t, s->nrank);
  for (uint32_t r = 0; r < s->nrank; r++) {
    size_t n = 0;
    for (uint32_t i = s->rank_op0[r]; i < s->rank_op0[r + 1]; i++) {
      uint32_t nin = op_inputs(s, &s->op[i]), nout = op_written(s, &s->op[i]);
      n += (nin > 1 ? nin : 0) + (nout > 1 ? nout : 0);
    }
    s->slot_list[r] = arena_alloc(s->arena, n * sizeof **s->slot_list + 1);
  }
}

/* Where op o's several slots are to be listed, or NONE. */
static uint32_t list_slots(Sched *s, uint32_t r, uint32_t n) {
  uint32_t at = s->nslot_list[r];
  if (n < 2)
    return NONE;
  for (uint32_t k = 0; k < n; k++)
    s->slot_list[r][s->nslot_list[r]++] = NONE;
  return at;
}

/* What an op puts into a channel: 1, or 0. */
static uint32_t puts_into(const Sched *s, const Op *o, size_t channel) {
  for (uint32_t k = 0, n = op_outputs(s, o); k < n; k++)
    if (2 * (size_t)output_link(s, o, k) + (o->kind != PIPE_F) == channel)
      return 1;
  return 0;
}

/* Room for all that the action from `first` on puts into one channel. */
static void action_slots(Sched *s, uint32_t first) {
  for (uint32_t i = first; i <= first + s->op[first].group; i++)
    for (uint32_t k = 0, noutput = op_outputs(s, &s->op[i]); k < noutput; k++) {
      size_t c = 2 * (size_t)output_link(s, &s->op[i], k) + (s->op[i].kind != PIPE_F);
      uint32_t n = 0;
      for (uint32_t m = first; m <= i; m++)
        n += puts_into(s, &s->op[m], c);
      if (s->channel[c].out_slots > 0 && n > s->channel[c].out_slots)
        s->channel[c].out_slots = n;
    }
}

/* ---- the order of each rank's transfers ---- */

/* The sum over the replicas of a stage for their update number k: each waits for its own last gradient. */
static void add_reduce(Sched *s, uint32_t first, uint32_t k, uint32_t *ncomm) {
  uint32_t st = first;
  do {
    const Round *round = &s->round[s->round0[st] + k];
    uint32_t r = s->stage[st].rank;
    s->turn[r][ncomm[r]++] = (CommTurn){2 * round->u,
                                        op_release(s, round->grad) - s->rank_op0[r] + 1};
  } while ((st = s->stage[st].replica) != first);
}

/* The sum over stages that share weights for their update number k, one instruction a rank: for all its
 * rows of the tie, after their last gradients and, by its place in the stream, their REDUCE. */
static void add_tie(Sched *s, uint32_t tie, uint32_t k, uint32_t *ncomm) {
  for (uint32_t j = s->tie_row0[tie]; j < s->tie_row0[tie + 1]; j++) {
    uint32_t st = s->tie_row[j], lead = s->stage[st].tied, r = s->stage[st].rank;
    const Round *round = &s->round[s->round0[st] + k];
    uint32_t grad = op_release(s, round->grad) - s->rank_op0[r] + 1;
    if (lead == st)
      s->turn[r][ncomm[r]++] = (CommTurn){2 * round->u + 1, 0};
    CommTurn *c = &s->turn[r][ncomm[r] - 1];
    c->wait = grad > c->wait ? grad : c->wait;
  }
}

static size_t nturns(const Sched *s) {
  size_t total = 0;
  for (uint32_t r = 0; r < s->nrank; r++)
    total += s->stream[r].ncomm;
  return total;
}

/* Room for the turns of all ranks. */
static void room_for_turns(Sched *s) {
  size_t total = nturns(s);
  bool rows = s->graph || s->ncomm_side > 0;
  if (s->nop > UINT32_MAX / 2) /* CommTurn.of */
    s->arena->oom(SIZE_MAX);
  s->turn = NEW_ARRAY(s->arena, CommTurn *, s->nrank);
  CommTurn *turn = arena_alloc(s->arena, total * sizeof *turn);
  s->turn_row = rows ? arena_alloc(s->arena, total * sizeof *s->turn_row) : NULL;
  for (uint32_t r = 0; r < s->nrank; r++) {
    s->turn[r] = turn;
    turn += s->stream[r].ncomm;
  }
  s->wait = NEW_ARRAY(s->arena, uint32_t, s->nop);
}

static void forget_turns(Sched *s) {
  size_t total = nturns(s);
  if (s->turn_row)
    arena_forget(s->arena, s->turn_row, total * sizeof *s->turn_row);
  arena_forget(s->arena, s->wait, s->nop * sizeof *s->wait);
  arena_forget(s->arena, s->turn[0], total * sizeof **s->turn);
  s->turn = NULL;
  s->turn_row = s->wait = NULL;
}

/* Row of CommTurn x of rank r in turn_row. */
static uint32_t *turn_row(const Sched *s, uint32_t r, uint32_t x) {
  return &s->turn_row[(size_t)(s->turn[r] - s->turn[0]) + x];
}

/* The link that the transfer passes that is turn x of rank r. */
static inline uint32_t link_of_turn(const Sched *s, uint32_t r, uint32_t x) {
  if (s->graph)
    return *turn_row(s, r, x);
  uint32_t of = s->turn[r][x].of;
  const Op *o = &s->op[of / 2];
  return (o->kind == PIPE_F) == (of % 2 == 0) ? o->stage : s->stage[o->stage].prev;
}

/* The transfers in their one global order: of each rank those in which it has a part. Nobody reads the global order
 * then but with all_lists. */
static void lay_turns(Sched *s) {
  uint32_t *ncomm = NEW_ARRAY(s->arena, uint32_t, s->nrank),
           *sums = NEW_ARRAY(s->arena, uint32_t,
                             s->nmodel), /* so far, of each stage of the model, of each tie */
               *ties = NEW_ARRAY(s->arena, uint32_t, s->ntie);
  room_for_turns(s);
  for (uint32_t i = 0; i < s->nxfer; i++) {
    uint32_t from = s->xfer[i].from, to = s->xfer[i].to;
    if (to == XFER_SIDE) {
      SideUse *u = &s->side_use[from];
      uint32_t r = s->stage[u->stage].rank, at = ncomm[r]++;
      u->pos = at + 1;
      s->turn[r][at] = (CommTurn){
          NONE, u->at - s->rank_op0[r]}; /* behind the op before it in the order */
      *turn_row(s, r, at) = from;
      continue;
    }
    fetch_op(s, from);
    uint32_t st = s->op[from].stage;
    if (to == XFER_REDUCE)
      add_reduce(s, st, sums[s->stage[st].model]++, ncomm);
    else if (to == XFER_TIE)
      add_tie(s, s->tie_of[st], ties[s->tie_of[st]]++, ncomm);
    else {
      Link l = link_at(s, xfer_link(s, &s->xfer[i]));
      bool forward = s->op[from].kind == PIPE_F;
      uint32_t a = s->stage[forward ? l.from : l.to].rank,
               b = s->stage[forward ? l.to : l.from].rank;
      uint32_t send = ncomm[a]++, recv = ncomm[b]++;
      fetch_turn(&s->turn[a][send]);
      fetch_turn(&s->turn[b][recv]);
      s->turn[a][send].of = 2 * from;
      s->turn[b][recv].of = 2 * to + 1;
      if (s->graph)
        *turn_row(s, a, send) = *turn_row(s, b, recv) = xfer_link(s, &s->xfer[i]);
    }
  }
  for (uint32_t r = 0; r < s->nrank; r++)
    BUG_IF(ncomm[r] != s->stream[r].ncomm);
  if (s->all_lists)
    return;
  arena_forget(s->arena, s->xfer, s->xfer_room * sizeof *s->xfer);
  s->xfer = NULL;
}

/* Gives the channels, of skips only or all, the slots that the ideal timing needs. False: nothing to add. */
static bool more_slots(Sched *s, bool skips) {
  size_t nchannel = 2 * (size_t)nlinks(s);
  uint32_t *first = NEW_ARRAY(s->arena, uint32_t, nchannel + 1),
           *fill = NEW_ARRAY(s->arena, uint32_t, nchannel);
  Xfer *list = arena_alloc(s->arena, (size_t)s->nxfer * sizeof *list + 1); /* by channel */
  if (!s->turn)
    lay_turns(s);
  for (int pass = 0; pass < 2; pass++) {
    for (uint32_t r = 0; r < s->nrank; r++)
      for (uint32_t x = 0; x < s->stream[r].ncomm; x++) {
        uint32_t of = s->turn[r][x].of;
        const Op *o = &s->op[of / 2];
        if (of == NONE || of % 2 || o->kind == PIPE_U)
          continue; /* of transfers the SENDs */
        uint32_t link = link_of_turn(s, r, x);
        bool forward = o->kind == PIPE_F;
        size_t c = 2 * (size_t)link + !forward;
        Link l = link_at(s, link);
        if (pass)
          list[first[c] + fill[c]++] = (Xfer){
              of / 2, *op_at(s, forward, forward ? l.to : l.from, o->mb) - 1};
        else
          first[c + 1]++;
      }
    for (size_t c = 0; !pass && c < nchannel; c++)
      first[c + 1] += first[c];
  }
  bool added = false;
  for (size_t c = 0; c < nchannel; c++) {
    if (skips && !link_skips(s, link_at(s, (uint32_t)(c / 2))))
      continue;
    uint32_t read = first[c], k = 0; /* all before `read` have been read when the next one starts */
    for (uint32_t i = first[c]; i < first[c + 1]; i++) {
      uint64_t start = s->ideal_end[list[i].from];
      while (read < i && is_over(s, list[read].to, start))
        read++;
      k = i - read + 1 > k ? i - read + 1 : k;
    }
    if (k > s->channel[c].in_slots) {
      s->channel[c].in_slots = k;
      added = true;
    }
  }
  arena_forget(s->arena, list, (size_t)s->nxfer * sizeof *list);
  return added;
}

static void first_time(Sched *s) {
  size_t nlink = nlinks(s);
  s->channel = NEW_ARRAY(s->arena, Channel, 2 * nlink);
  s->nrank_slot = NEW_ARRAY(s->arena, uint32_t, s->nrank);
  s->stream = NEW_ARRAY(s->arena, Streams, s->nrank);
  bool skips = false;
  uint32_t *nmb_of = link_nmb(s);
  for (uint32_t i = 0; i < nlink; i++) {
    Link l = link_at(s, i);
    if (!link_crosses(s, l))
      continue;
    uint32_t nmb = nmb_of[i],
             least = s->lists && s->lowering != PIPE_MANUAL
                         ? 1
                         : MIN_CHANNEL_SLOTS, /* no two at once */
        k = least < nmb ? least : nmb;
    for (int back = 0; back < (s->forward ? 1 : 2); back++) {
      channels_of(s, i)[back].out_slots = channels_of(s, i)[back].in_slots = k;
      s->stream[s->stage[l.from].rank].ncomm += nmb; /* each of them is a transfer */
      s->stream[s->stage[l.to].rank].ncomm += nmb;
    }
    skips |= link_skips(s, l);
  }
  for (uint32_t i = 0; i < s->nop; i++) /* note [actions] */
    if (s->op[i].group > 0 && (i == 0 || s->op[i - 1].group == 0))
      action_slots(s, i);
  if (s->graph)
    room_for_lists(s);
  for (uint32_t i = 0; i < s->nside_use; i++)
    if (s->side_use[i].kind == PIPE_SIDE_COMM)
      s->stream[s->stage[s->side_use[i].stage].rank].ncomm++;
  for (uint32_t st = 0; st < s->nstage; st++)
    s->stream[s->stage[st].rank].ncomm += ((s->stage[st].replica != st) +
                                           (s->stage[st].tied == st)) *
                                          (s->round0[st + 1] - s->round0[st]);
  for (uint32_t r = 0; r < s->nrank; r++) {
    Streams *t = &s->stream[r];
    t->ncompute = s->rank_op0[r + 1] - s->rank_op0[r];
    t->ncopy = s->ncopy ? s->rank_copy0[r + 1] - s->rank_copy0[r] : 0;
  }
  if (skips)
    more_slots(s, true);
}

/* ---- what waits for them ---- */

/* Op `op` of rank r starts once so many instructions of COMM have ended. */
static void need_op(Sched *s, uint32_t r, uint32_t op, uint32_t count) {
  s->wait[op] = count > s->wait[op] ? count : s->wait[op];
  if (s->lowering == PIPE_CHANNELS && count > 0)
    keep_need(s, r, op - s->rank_op0[r], count);
}

/* Update u of rank r, and with a TIE those of its rows that share weights, need the sum that is turn x. */
static void need_sum(Sched *s, uint32_t r, uint32_t x, uint32_t u, bool tie) {
  uint32_t st = s->op[u].stage;
  if (!tie) {
    need_op(s, r, u, x + 1);
    return;
  }
  uint32_t k = round_of(s, u) - s->round0[st], j = s->tie_row0[s->tie_of[st]];
  for (; j < s->tie_row0[s->tie_of[st] + 1]; j++)
    if (s->stage[s->tie_row[j]].rank == r)
      need_op(s, r, s->round[s->round0[s->tie_row[j]] + k].u, x + 1);
}

/* The waits of rank r, for the slots that its channels have: its turns in their order. ring[ring0[c] ..]: of channel
 * c, 0 at first, who used each slot last: at the sender the position of the SEND, at the receiver that of the op that
 * reads. */
static void lay_waits(Sched *s, uint32_t r, const size_t *ring0, uint32_t *ring, SlotTurns *next) {
  uint32_t op0 = s->rank_op0[r], op1 = s->rank_op0[r + 1];
  for (uint32_t x = 0; x < s->stream[r].ncomm; x++) {
    CommTurn *t = &s->turn[r][x];
    if (t->of == NONE)
      continue;
    uint32_t op = t->of / 2;
    bool odd = t->of % 2;
    if (s->op[op].kind == PIPE_U) {
      need_sum(s, r, x, op, odd);
      continue;
    }
    size_t c = 2 * (size_t)link_of_turn(s, r, x) + (s->op[op].kind != PIPE_F);
    const Channel *ch = &s->channel[c];
    uint32_t over = op_release(s, op) - op0 + 1;
    if (odd) {
      uint32_t *user = &ring[ring0[c] + ch->out_slots + next_slot(&next[c].in, ch->in_slots)];
      need_op(s, r, op, x + 1);
      t->wait = *user;
      *user = over;
      continue;
    }
    uint32_t *user = &ring[ring0[c] + next_slot(&next[c].out, ch->out_slots)];
    need_op(s, r, op, *user);
    t->wait = over;
    *user = x + 1;
    uint32_t after = op + s->op[op].group + 1; /* the next action */
    if (s->send == SEND_NEXT && after < op1)
      need_op(s, r, after, x + 1);
  }
}

static void lay_all_waits(Sched *s) {
  size_t nchannel = 2 * (size_t)nlinks(s);
  size_t *ring0 = NEW_ARRAY(s->arena, size_t, nchannel + 1);
  for (size_t c = 0; c < nchannel; c++)
    ring0[c + 1] = ring0[c] + s->channel[c].out_slots + s->channel[c].in_slots;
  uint32_t *ring = NEW_ARRAY(s->arena, uint32_t, ring0[nchannel]);
  SlotTurns *next = NEW_ARRAY(s->arena, SlotTurns, nchannel);
  memset(s->wait, 0, s->nop * sizeof *s->wait);
  for (uint32_t r = 0; r < s->nrank; r++)
    lay_waits(s, r, ring0, ring, next);
}

/* ---- instructions ---- */

/* What an op is, without what transfers add to it. */
static inline void op_alone(const Sched *s, const Op *o, PipeInstr *c) {
  *c = pipe_instr((PipeOp)o->kind, o->stage, o->mb);
  if (o->kind == PIPE_SIDE)
    c->keep = (o->site - s->side_site0) * s->nstage + o->stage;
  c->phase = o->phase, c->site = o->site, c->group = o->group;
}

/* CommTurn x of rank r, but for its slot. Returns the link that it passes; NONE: it is no transfer. */
static inline uint32_t comm_alone(const Sched *s, uint32_t r, uint32_t x, PipeInstr *c) {
  const CommTurn *t = &s->turn[r][x];
  if (t->of == NONE) {
    *c = side_instr(s, &s->side_use[*turn_row(s, r, x)]);
    c->gout = channel_of_sides(s, r);
    c->wait = t->wait;
    return NONE;
  }
  const Op *o = &s->op[t->of / 2];
  bool odd = t->of % 2;
  uint32_t link = NONE;
  if (o->kind == PIPE_U) {
    *c = pipe_instr(odd ? PIPE_TIE : PIPE_REDUCE, o->stage, NONE);
    if (s->channel_of)
      c->gout = channel_of_sum(s, odd ? s->nmodel + s->tie_of[o->stage] : s->stage[o->stage].model);
  } else {
    bool forward = o->kind == PIPE_F;
    link = link_of_turn(s, r, x);
    Link l = link_at(s, link);
    *c = pipe_instr(forward ? (odd ? PIPE_RECV_F : PIPE_SEND_F)
                    : odd   ? PIPE_RECV_B
                            : PIPE_SEND_B,
                    o->stage, o->mb);
    c->peer = s->stage[forward == odd ? l.from : l.to].rank;
    c->keep = l.edge;
    if (s->channel_of)
      c->gout = channel_of_link(s, link, forward);
  }
  c->phase = o->phase, c->site = o->site, c->wait = t->wait;
  return link;
}

/* PipeMake: these two, of a Sched. The first op of an action waits for all of it. */
static void make_compute(const void *of, uint32_t r, uint32_t i, PipeInstr *c) {
  const Sched *s = of;
  uint32_t op = s->rank_op0[r] + i;
  const Op *o = &s->op[op];
  fetch_op(s, op);
  __builtin_prefetch((const void *)((uintptr_t)&s->wait[op] + AHEAD * sizeof *s->wait));
  op_alone(s, o, c);
  for (uint32_t k = op; k <= op + o->group; k++)
    c->wait = s->wait[k] > c->wait ? s->wait[k] : c->wait;
}

static void make_comm(const void *of, uint32_t r, uint32_t x, PipeInstr *c) {
  const Sched *s = of;
  const CommTurn *t = &s->turn[r][x];
  if (t->of != NONE)
    fetch_op(s, t->of / 2);
  fetch_turn(t);
  comm_alone(s, r, x, c);
}

PipeMake stream_maker(const Sched *s) { return (PipeMake){make_compute, make_comm, s}; }

/* The instructions of a rank, into its streams: COMPUTE. True: there are actions of several ops. */
static bool fill_compute(Sched *s, uint32_t r) {
  bool joined = false;
  if (s->graph)
    s->nslot_list[r] = 0;
  for (uint32_t i = s->rank_op0[r]; i < s->rank_op0[r + 1]; i++) {
    const Op *o = &s->op[i];
    PipeInstr *c = op_instr(s, r, i);
    op_alone(s, o, c);
    c->wait = s->lists ? 0 : s->wait[i];
    joined |= o->group > 0;
    if (s->graph) {
      c->in = list_slots(s, r, op_inputs(s, o));
      c->out = list_slots(s, r, op_written(s, o));
    }
  }
  return joined;
}

/* And COMM: with the slots of its transfers, here and at their ops. */
static void fill_comm(Sched *s, uint32_t r) {
  for (uint32_t x = 0; x < s->stream[r].ncomm; x++) {
    PipeInstr *c = &s->stream[r].comm[x];
    uint32_t link = comm_alone(s, r, x, c), op = s->turn[r][x].of / 2;
    if (link == NONE)
      continue;
    bool forward = s->op[op].kind == PIPE_F, recv = s->turn[r][x].of % 2;
    size_t n = 2 * (size_t)link + !forward;
    const Channel *ch = &s->channel[n];
    PipeInstr *own = op_instr(s, r, op);
    uint32_t *at = recv ? &own->in : &own->out;
    if (s->graph) {
      Link l = link_at(s, link);
      at = slot_at(s, own, recv, forward == recv ? link_in(s, l) : link_out(s, l));
    }
    if (recv)
      c->out = *at = ch->in_first + next_slot(&s->next_slot[n].in, ch->in_slots);
    else
      c->in = *at = ch->out_first + next_slot(&s->next_slot[n].out, ch->out_slots);
  }
}

/* The first op of each action waits for all of it. */
static void join_waits(const Streams *t) {
  for (uint32_t i = 0; i < t->ncompute; i += t->compute[i].group + 1u) {
    PipeInstr *first = &t->compute[i];
    for (PipeInstr *c = first + 1; c <= first + first->group; c++) {
      first->wait = c->wait > first->wait ? c->wait : first->wait;
      first->wait_copy = c->wait_copy > first->wait_copy ? c->wait_copy : first->wait_copy;
      c->wait = c->wait_copy = 0;
    }
  }
}

/* Places for the streams of rank r in `list`. */
static PipeInstr *place_streams(Sched *s, uint32_t r, PipeInstr *list) {
  Streams *t = &s->stream[r];
  t->list = list;
  t->compute = list + t->ncopy;
  t->comm = t->compute + t->ncompute;
  return t->comm + t->ncomm;
}

void make_streams(Sched *s, uint32_t r) {
  if (s->all_lists)
    return;
  if (!s->room) {
    uint32_t most = 0;
    for (uint32_t q = 0; q < s->nrank; q++) {
      const Streams *t = &s->stream[q];
      most = t->ncompute + t->ncomm > most ? t->ncompute + t->ncomm : most;
    }
    s->room = arena_alloc(s->arena, most * sizeof *s->room + 1);
  }
  place_streams(s, r, s->room);
  bool joined = fill_compute(s, r);
  fill_comm(s, r);
  if (joined)
    join_waits(&s->stream[r]);
  if (r + 1 == s->nrank)
    forget_turns(s);
}

/* The same of all ranks, with copies and side ops. */
static void make_all(Sched *s) {
  size_t total = 0;
  for (uint32_t r = 0; r < s->nrank; r++)
    total += (size_t)s->stream[r].ncompute + s->stream[r].ncomm + s->stream[r].ncopy;
  if (!s->room) {
    PipeInstr *at = s->room = arena_alloc(s->arena, total * sizeof *at + 1);
    for (uint32_t r = 0; r < s->nrank; r++)
      at = place_streams(s, r, at);
  }
  bool joined = false;
  for (uint32_t r = 0; r < s->nrank; r++) {
    joined |= fill_compute(s, r);
    if (!s->lists)
      fill_comm(s, r);
  }
  if (s->lists) {
    lay_lists(s); /* how many slots that takes */
    number_slots(s);
    for (uint32_t r = 0; r < s->nrank; r++)
      fill_compute(s, r);
    lay_lists(s);
  } else {
    forget_turns(s);
  }
  offload_streams(s);
  side_waits(s);
  for (uint32_t r = 0; joined && r < s->nrank; r++)
    join_waits(&s->stream[r]);
  if (s->lowering == PIPE_CHANNELS)
    channel_needs(s);
}

bool comm(Sched *s) {
  if (!s->channel)
    first_time(s);
  if (s->lowering == PIPE_CHANNELS && !s->channel_of)
    find_channels(s);
  number_slots(s);
  for (uint32_t r = 0; r < s->nrank; r++)
    s->stream[r].nneed = 0;
  if (!s->lists) {
    if (!s->turn)
      lay_turns(s);
    lay_all_waits(s);
    s->next_slot = NEW_ARRAY(s->arena, SlotTurns, 2 * (size_t)nlinks(s));
  }
  if (s->all_lists)
    make_all(s);
  return true;
}

bool comm_more_slots(Sched *s) { return s->lists ? more_list_slots(s) : more_slots(s, false); }
