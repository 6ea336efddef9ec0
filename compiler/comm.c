/* SPDX-License-Identifier: MIT
 * Transfers become instructions. Requires order, and slot counts in s->channel (all 0: start from
 * MIN_CHANNEL_SLOTS). Ensures s->stream: per rank a compute and a comm stream in which every data
 * dependence and every reuse of a channel slot is a `wait`.
 *
 * note [channel slots]: transfer n of a channel uses slot n mod k at each end. At the sender the op
 * that makes tensor n waits until the SEND of n - k has left the slot; at the receiver the RECV of n
 * waits until the op that reads n - k has ended. Slots of a rank are numbered from 0: for each of
 * its stages y out, x in, dx out, dy in.
 *
 * note [enough slots]: play the ops on an idle network and call a channel fit when the op that reads
 * n - k has ended before transfer n starts there, and started earlier (an op may take no time). If
 * all channels are fit, every edge of the happens-before graph points forward in that play (to a
 * later start, or at the same instant in the order in which it was played), so there is no cycle.
 * Fewer slots may do and save memory: comm starts from MIN_CHANNEL_SLOTS, and check_deadlock asks
 * for fit channels only if that closes a cycle.
 *
 * note [actions]: the ops of an action start together, so what one of them needs all wait for, and an
 * action has a send slot for each tensor that it puts into one channel. Its tensors leave, and what it
 * read is free, when all of it has ended, or as each op does (Sched.send).
 *
 * Linear in ops and transfers. May run again with more slots. */
#include "pipec.h"

enum { FORWARD = 0, BACKWARD = 1 };

static Channel *channel_of(Sched *s, uint32_t stage, int dir) {
  return &s->channel[2 * (size_t)stage + (size_t)dir];
}

static bool crosses(const Sched *s, uint32_t a, uint32_t b) {
  return a != NONE && b != NONE && s->stage[a].rank != s->stage[b].rank;
}

/* Numbers the channel slots of every rank; nrank_slot[r] is what they take. */
static void number_slots(Sched *s) {
  for (uint32_t r = 0; r < s->nrank; r++) {
    uint32_t n = 0;
    for (uint32_t i = s->rank_stage0[r]; i < s->rank_stage0[r + 1]; i++) {
      uint32_t st = s->rank_stage[i], prev = s->stage[st].prev, next = s->stage[st].next;
      if (crosses(s, st, next)) {
        channel_of(s, st, FORWARD)->out_first = n, n += channel_of(s, st, FORWARD)->out_slots;
        channel_of(s, next, BACKWARD)->in_first = n, n += channel_of(s, next, BACKWARD)->in_slots;
      }
      if (crosses(s, prev, st)) {
        channel_of(s, prev, FORWARD)->in_first = n, n += channel_of(s, prev, FORWARD)->in_slots;
        channel_of(s, st, BACKWARD)->out_first = n, n += channel_of(s, st, BACKWARD)->out_slots;
      }
    }
    s->nrank_slot[r] = n;
  }
}

/* Room for all that the action from `first` on puts into one channel. */
static void action_slots(Sched *s, uint32_t first) {
  for (uint32_t i = first; i <= first + s->op[first].group; i++) {
    int dir = s->op[i].kind == PIPE_F ? FORWARD : BACKWARD;
    Channel *c = channel_of(s, s->op[i].stage, dir);
    uint32_t n = 0;
    for (uint32_t m = first; m <= i && s->op[i].kind != PIPE_W; m++)
      n += s->op[m].stage == s->op[i].stage && s->op[m].kind != PIPE_W &&
           (s->op[m].kind == PIPE_F) == (dir == FORWARD);
    if (c->out_slots > 0 && n > c->out_slots)
      c->out_slots = n;
  }
}

static void first_time(Sched *s) {
  s->channel = NEW_ARRAY(s->arena, Channel, 2 * (size_t)s->nstage);
  s->nrank_slot = NEW_ARRAY(s->arena, uint32_t, s->nrank);
  s->stream = NEW_ARRAY(s->arena, Streams, s->nrank);
  for (uint32_t st = 0; st < s->nstage; st++) {
    uint32_t nmb = s->stage[st].nmb, k = MIN_CHANNEL_SLOTS < nmb ? MIN_CHANNEL_SLOTS : nmb;
    if (crosses(s, st, s->stage[st].next))
      channel_of(s, st, FORWARD)->out_slots = channel_of(s, st, FORWARD)->in_slots = k;
    if (!s->forward && crosses(s, s->stage[st].prev, st))
      channel_of(s, st, BACKWARD)->out_slots = channel_of(s, st, BACKWARD)->in_slots = k;
  }
  for (uint32_t i = 0; i < s->nop; i++) /* note [actions] */
    if (s->op[i].group > 0 && (i == 0 || s->op[i - 1].group == 0))
      action_slots(s, i);
  uint64_t total = 0;
  for (uint32_t i = 0; i < s->nxfer; i++) {
    if (s->xfer[i].to == NONE)
      continue;
    s->stream[op_rank(s, s->xfer[i].from)].ncomm++;
    s->stream[op_rank(s, s->xfer[i].to)].ncomm++;
  }
  for (uint32_t st = 0; st < s->nstage; st++)
    if (s->stage[st].replica != st)
      s->stream[s->stage[st].rank].ncomm += s->round0[st + 1] - s->round0[st];
  for (uint32_t r = 0; r < s->nrank; r++)
    total += s->stream[r].ncomm;
  PipeInstr *compute = arena_alloc(s->arena, (size_t)s->nop * sizeof *compute + 1);
  PipeInstr *comm_ = arena_alloc(s->arena, total * sizeof *comm_ + 1);
  for (uint32_t r = 0; r < s->nrank; r++) {
    Streams *t = &s->stream[r];
    t->compute = compute + s->rank_op0[r];
    t->ncompute = s->rank_op0[r + 1] - s->rank_op0[r];
    t->comm = comm_;
    comm_ += t->ncomm;
  }
}

/* The sum over the replicas of a stage for their update number k: each waits for its own last gradient,
 * each update for the sum. */
static void add_reduce(Sched *s, uint32_t first, uint32_t k, PipeInstr *compute, uint32_t *ncomm) {
  uint32_t st = first;
  do {
    const Round *round = &s->round[s->round0[st] + k];
    uint32_t r = s->stage[st].rank, at = ncomm[r]++, grad = round->grad;
    PipeInstr *u = &compute[round->u];
    PipeInstr *c = &s->stream[r].comm[at];
    *c = pipe_instr(PIPE_REDUCE, st, NONE);
    c->phase = u->phase, c->site = u->site;
    c->wait = op_release(s, grad) - s->rank_op0[r] + 1;
    u->wait = at + 1 > u->wait ? at + 1 : u->wait;
  } while ((st = s->stage[st].replica) != first);
}

bool comm(Sched *s) {
  if (!s->channel)
    first_time(s);
  number_slots(s);
  PipeInstr *compute = s->nrank ? s->stream[0].compute : NULL; /* instruction of op i */
  for (uint32_t i = 0; i < s->nop; i++) {
    const Op *o = &s->op[i];
    compute[i] = pipe_instr((PipeOp)o->kind, o->stage, o->mb);
    compute[i].phase = o->phase, compute[i].site = o->site, compute[i].group = o->group;
  }
  /* Who used a channel's slot last: at the sender the position of the SEND, at the receiver that of
   * the reading op. Rings of k entries per channel, one after the other. */
  size_t *ring0 = NEW_ARRAY(s->arena, size_t, 2 * (size_t)s->nstage + 1);
  for (size_t c = 0; c < 2 * (size_t)s->nstage; c++)
    ring0[c + 1] = ring0[c] + s->channel[c].out_slots + s->channel[c].in_slots;
  uint32_t *ring = NEW_ARRAY(s->arena, uint32_t, ring0[2 * (size_t)s->nstage]);
  uint32_t *count = NEW_ARRAY(s->arena, uint32_t, 2 * (size_t)s->nstage);
  uint32_t *ncomm = NEW_ARRAY(s->arena, uint32_t, s->nrank),
           *sums = NEW_ARRAY(s->arena, uint32_t,
                             s->nmodel); /* so far, of each stage of the model */
  for (uint32_t i = 0; i < s->nxfer; i++) {
    uint32_t from = s->xfer[i].from, to = s->xfer[i].to;
    if (to == NONE) {
      add_reduce(s, s->op[from].stage, sums[s->stage[s->op[from].stage].model]++, compute, ncomm);
      continue;
    }
    uint32_t a = op_rank(s, from), b = op_rank(s, to);
    bool forward = s->op[from].kind == PIPE_F;
    size_t c = 2 * (size_t)s->op[from].stage + !forward;
    const Channel *ch = &s->channel[c];
    uint32_t n = count[c]++, out = n % ch->out_slots, in = n % ch->in_slots;
    uint32_t *out_user = &ring[ring0[c] + out], *in_user = &ring[ring0[c] + ch->out_slots + in];
    uint32_t send = ncomm[a]++, recv = ncomm[b]++;
    PipeInstr *make = &compute[from], *use = &compute[to];
    uint32_t made = op_release(s, from) - s->rank_op0[a] + 1,
             used = op_release(s, to) - s->rank_op0[b] + 1;

    make->out = ch->out_first + out;
    if (*out_user > make->wait)
      make->wait = *out_user;
    *out_user = send + 1;
    PipeInstr *x = &s->stream[a].comm[send];
    *x = pipe_instr(forward ? PIPE_SEND_F : PIPE_SEND_B, make->stage, make->mb);
    x->phase = make->phase, x->site = make->site, x->peer = b;
    x->in = make->out, x->wait = made;
    uint32_t next = from + s->op[from].group + 1; /* the action after */
    if (s->send == SEND_NEXT && next < s->rank_op0[a + 1] && compute[next].wait < send + 1)
      compute[next].wait = send + 1;

    use->in = ch->in_first + in;
    if (recv + 1 > use->wait)
      use->wait = recv + 1;
    x = &s->stream[b].comm[recv];
    *x = pipe_instr(forward ? PIPE_RECV_F : PIPE_RECV_B, use->stage, use->mb);
    x->phase = use->phase, x->site = use->site, x->peer = a;
    x->out = use->in, x->wait = *in_user;
    *in_user = used;
  }
  offload_streams(s);
  for (uint32_t i = 0; i < s->nop; i += s->op[i].group + 1u) /* the first op waits for all */
    for (uint32_t m = i + 1; m <= i + s->op[i].group; m++) {
      if (compute[m].wait > compute[i].wait)
        compute[i].wait = compute[m].wait;
      if (compute[m].wait_copy > compute[i].wait_copy)
        compute[i].wait_copy = compute[m].wait_copy;
      compute[m].wait = compute[m].wait_copy = 0;
    }
  return true;
}

/* Started before `time` and ended by then. */
static bool is_over(const Sched *s, uint32_t op, uint64_t time) {
  const Op *o = &s->op[op];
  bool takes_time = s->stage[o->stage].time[o->kind] > 0; /* FB, if given, is not 0 */
  return s->ideal_end[op] < time || (s->ideal_end[op] == time && takes_time);
}

bool comm_more_slots(Sched *s) {
  size_t nchannel = 2 * (size_t)s->nstage;
  uint32_t *first = NEW_ARRAY(s->arena, uint32_t, nchannel + 1),
           *fill = NEW_ARRAY(s->arena, uint32_t, nchannel);
  uint32_t *list = arena_alloc(s->arena,
                               (size_t)s->nxfer * sizeof *list + 1); /* transfers by channel */
  for (uint32_t i = 0; i < s->nxfer; i++) {
    if (s->xfer[i].to == NONE)
      continue;
    const Op *o = &s->op[s->xfer[i].from];
    first[2 * (size_t)o->stage + (o->kind != PIPE_F) + 1]++;
  }
  for (size_t c = 0; c < nchannel; c++)
    first[c + 1] += first[c];
  for (uint32_t i = 0; i < s->nxfer; i++) {
    if (s->xfer[i].to == NONE)
      continue;
    const Op *o = &s->op[s->xfer[i].from];
    size_t c = 2 * (size_t)o->stage + (o->kind != PIPE_F);
    list[first[c] + fill[c]++] = i;
  }
  bool added = false;
  for (size_t c = 0; c < nchannel; c++) {
    uint32_t read = first[c], k = 0; /* all before `read` have been read when the next one starts */
    for (uint32_t i = first[c]; i < first[c + 1]; i++) {
      uint64_t start = s->ideal_end[s->xfer[list[i]].from];
      while (read < i && is_over(s, s->xfer[list[read]].to, start))
        read++;
      k = i - read + 1 > k ? i - read + 1 : k;
    }
    if (k > s->channel[c].in_slots) {
      s->channel[c].in_slots = k;
      added = true;
    }
  }
  return added;
}
