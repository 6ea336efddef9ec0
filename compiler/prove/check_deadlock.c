/* SPDX-License-Identifier: MIT
 * Proves that the program completes. Model: rendezvous transfers; FIFO per directed rank pair
 * without tags; one compute stream per rank; one comm stream per rank, or per channel; one copy
 * stream (note [copies cannot stall] in offload.c). Requires comm. Method: the timed machine
 * (pipe_sim.h) runs the program. The machine has no choice, so it completes if and only if the
 * happens-before graph is acyclic.
 *
 * All data points forward in the one global order of transfers. So a cycle needs an edge of the
 * form "wait until a slot is free", and more slots cure it: note [enough slots] in comm.c. A
 * program that is stuck with them is a mistake of the compiler.
 *
 * Ensures starts, makespan, busy, steady, channel_slots, and the lowering that `auto` stands
 * for. */
#include <string.h>

#include "graph.h"
#include "lower.h"
#include "orders.h"
#include "plant.h"
#include "prove.h"
#include "timing.h"

static PipeStream *stream_views(Sched *s, bool comm_stream) {
  PipeStream *v = NEW_ARRAY(s->arena, PipeStream, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    const Streams *t = &s->lowered->stream[r];
    v[r] = comm_stream ? (PipeStream){t->comm, NULL, t->ncomm}
                       : (PipeStream){t->compute, NULL, t->ncompute};
  }
  return v;
}

/* [nrank][n] room for a time of each instruction of a stream, in one piece. */
static uint64_t **time_rows(Sched *s, bool comm_stream) {
  size_t n = 0;
  uint64_t **row = NEW_ARRAY(s->arena, uint64_t *, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    n += comm_stream ? s->lowered->stream[r].ncomm : s->lowered->stream[r].ncompute;
  uint64_t *at = arena_alloc(s->arena, n * sizeof *at);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    row[r] = at;
    at += comm_stream ? s->lowered->stream[r].ncomm : s->lowered->stream[r].ncompute;
  }
  return row;
}

/* A program of comm, and its play in the timed machine. */
typedef struct Play {
  PipeSimIn in;
  PipeSimOut out;
} Play;

/* Plays the program; gives channels more slots if too few close a cycle. False: some rank cannot go
 * on, and no channel needs more slots. */
static bool complete(Sched *s, Lowered *lowered, Play *p) {
  for (;;) {
    p->in.needs = lowered->lowering == PIPE_CHANNELS ? lowered->needs : NULL;
    p->in.nchannel = lowered->npipe_channel;
    PipeSimStatus status = pipe_sim(&p->in, &p->out, NULL);
    BUG_IF(status == PIPE_SIM_MISMATCH); /* both ends come from one list */
    if (status == PIPE_SIM_DONE)
      return true;
    if (!comm_more_slots(s))
      return false;
    comm(s, lowered);
  }
}

/* Allocates the play and runs complete, with its result. */
static bool play(Sched *s, Lowered *lowered, Play *p) {
  const Model *m = s->model;
  PipeGraph g = sched_graph(s);
  p->in = (PipeSimIn){.nrank = m->nrank,
                      .stage = m->stage,
                      .nstage = m->nstage,
                      .edge = g.edge,
                      .row = g.row,
                      .nmb = m->nmb,
                      .side = s->sides->row,
                      .unit_time = m->unit_time,
                      .nunit_time = m->nunit_time,
                      .group = m->group,
                      .ngroup = m->ngroup,
                      .share = m->share,
                      .nshare = m->nshare,
                      .nlink = m->nlink,
                      .compute = stream_views(s, false),
                      .comm = stream_views(s, true)};
  p->out = (PipeSimOut){.compute_done = NEW_ARRAY(s->arena, uint32_t, m->nrank),
                        .comm_done = NEW_ARRAY(s->arena, uint32_t, m->nrank),
                        .link_busy = m->nshare ? NEW_ARRAY(s->arena, uint64_t, m->nlink) : NULL,
                        .rank_busy = NEW_ARRAY(s->arena, uint64_t, m->nrank),
                        .rank_window = NEW_ARRAY(s->arena, uint64_t, m->nrank),
                        .compute_start = time_rows(s, false),
                        .comm_start = time_rows(s, true),
                        .compute_end = time_rows(s, false)};
  if (s->orders->ncopy) {
    PipeStream *copy = NEW_ARRAY(s->arena, PipeStream, m->nrank);
    uint64_t *cell = arena_alloc(s->arena, s->orders->ncopy * sizeof *cell);
    p->out.copy_start = NEW_ARRAY(s->arena, uint64_t *, m->nrank);
    p->out.copy_done = NEW_ARRAY(s->arena, uint32_t, m->nrank);
    for (uint32_t r = 0; r < m->nrank; r++) {
      copy[r] = (PipeStream){lowered->stream[r].copy, NULL, lowered->stream[r].ncopy};
      p->out.copy_start[r] = cell + s->orders->rank_copy0[r];
    }
    p->in.copy = copy;
  }
  if (lowered->lowering == PIPE_CHANNELS) {
    p->out.comm_turn = NEW_ARRAY(s->arena, uint32_t *, m->nrank);
    for (uint32_t r = 0; r < m->nrank; r++)
      p->out.comm_turn[r] = arena_alloc(s->arena,
                                        lowered->stream[r].ncomm * sizeof **p->out.comm_turn + 1);
  }
  return complete(s, lowered, p);
}

/* ---- shorter programs ---- */

/* CHANNELS exists for speed: takes the slots that the ideal timing needs if the program is then
 * shorter. */
static void try_more_slots(Sched *s, Lowered *lowered, Play *p) {
  size_t n = 2 * (size_t)nlinks(s);
  Channel *few = arena_alloc(s->arena, n * sizeof *few + 1);
  memcpy(few, lowered->channel, n * sizeof *few);
  uint64_t makespan = p->out.makespan;
  if (!comm_more_slots(s))
    return;
  comm(s, lowered);
  complete(s, lowered, p);
  if (p->out.makespan < makespan)
    return;
  memcpy(lowered->channel, few, n * sizeof *few);
  comm(s, lowered);
  complete(s, lowered, p);
}

/* Takes the order of reorder_transfers if the program is shorter with it. */
static void try_other_order(Sched *s, Lowered *lowered, Play *p) {
  const uint64_t makespan = p->out.makespan;
  Xfer *const before = lowered->xfer, *const other = reorder_transfers(s, makespan);
  if (!other)
    return;
  lowered->xfer = other;
  comm(s, lowered);
  if (complete(s, lowered, p) && p->out.makespan < makespan)
    return;
  lowered->xfer = before;
  comm(s, lowered);
  complete(s, lowered, p);
}

static bool play_best(Sched *s, Lowered *lowered, Play *p) {
  if (!play(s, lowered, p))
    return false;
  if (p->out.makespan <= s->ideal->time.makespan)
    return true;
  if (lowered->lowering == PIPE_CHANNELS)
    try_more_slots(s, lowered, p);
  if (lowered->lowering == PIPE_GLOBAL && !s->orders->lists && s->sides->ncomm == 0)
    try_other_order(s, lowered, p);
  return true;
}

/* The most channels of transfers on a rank. */
static uint32_t most_communicators(Sched *s) {
  uint32_t *n = NEW_ARRAY(s->arena, uint32_t, s->model->nrank), most = 0;
  for (uint32_t i = 0; i < s->lowered->npipe_channel; i++) {
    const PipeChannel *c = &s->lowered->pipe_channel[i];
    if (c->op != PIPE_SEND_F && c->op != PIPE_SEND_B)
      continue;
    n[c->from]++, n[c->to]++;
    most = n[c->from] > most ? n[c->from] : most;
    most = n[c->to] > most ? n[c->to] : most;
  }
  return most;
}

/* Chooses the lowering for `auto`. *p: the program with GLOBAL. CHANNELS replaces it if GLOBAL
 * takes at least LEAST_GAIN percent longer and no rank has more than MOST_COMMUNICATORS. */
static void choose_lowering(Sched *s, Lowered *lowered, Play *p) {
  enum { LEAST_GAIN = 5, MOST_COMMUNICATORS = 8 };
  const uint64_t makespan = p->out.makespan;
  const double enough = (double)makespan * 100 / (100 + LEAST_GAIN);
  if (!transfers_take_time(s) || (double)s->ideal->time.makespan > enough)
    return;
  const Lowered global = *lowered;
  Play other;
  *lowered = (Lowered){.lowering = PIPE_CHANNELS, .choice = global.choice};
  comm(s, lowered);
  BUG_IF(!play_best(s, lowered, &other)); /* its transfers wait for less */
  const uint32_t n = most_communicators(s);
  const bool better = (double)other.out.makespan <= enough && n <= MOST_COMMUNICATORS;
  if (better)
    *p = other;
  else
    *lowered = global;
  lowered->choice.other = better ? makespan : other.out.makespan;
  lowered->choice.communicators = n;
}

/* Ends the compile if the play has not carried out all instructions of a stream of the rank. */
static void check_over(const Sched *s, uint32_t rank, const PipeStream *stream, uint32_t done) {
  char text[PIPE_OP_TEXT];
  if (done == stream->n || PLANTED(DEADLOCK_STUCK))
    return;
  pipe_instr_text(text, sched_graph(s), &stream->instr[done]);
  guard_fail(GUARD_BUG, "rank %u cannot go on at %s", rank, text);
}

bool check_deadlock(Sched *s, Lowered *lowered, Times *times) {
  Play p;
  const bool done = play_best(s, lowered, &p);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    check_over(s, r, &p.in.compute[r], p.out.compute_done[r]);
    check_over(s, r, &p.in.comm[r], p.out.comm_done[r]);
    if (p.in.copy)
      check_over(s, r, &p.in.copy[r], p.out.copy_done[r]);
  }
  if (done && lowered->choice.open)
    choose_lowering(s, lowered, &p);
  *times = (Times){.compute_start = p.out.compute_start,
                   .comm_start = p.out.comm_start,
                   .copy_start = p.out.copy_start,
                   .makespan = p.out.makespan,
                   .busy = p.out.busy,
                   .rank_busy = p.out.rank_busy,
                   .link_busy = p.out.link_busy,
                   .link_wait = p.out.link_wait};
  for (uint32_t r = 0; r < s->model->nrank; r++)
    times->span = p.out.rank_window[r] > times->span ? p.out.rank_window[r] : times->span;
  times->steady = find_steady(s, times, p.out.compute_end);
  if (p.out.comm_turn)
    sort_channels(s, lowered, p.out.comm_turn);
  for (size_t c = 0; c < 2 * (size_t)nlinks(s); c++)
    if (lowered->channel[c].in_slots > lowered->channel_slots)
      lowered->channel_slots = lowered->channel[c].in_slots;
  return true;
}
