/* SPDX-License-Identifier: MIT
 * Chooses what comm leaves open, by playing the program: the number of slots of each channel, the
 * order of transfers, and the lowering that `auto` stands for. Requires comm. Model: rendezvous
 * transfers; FIFO per directed rank pair without tags; one compute stream per rank; one comm stream
 * per rank, or per channel; one copy stream (note [copies cannot stall] in offload.c).
 *
 * Method: the timed machine (pipe_sim.h) runs the program of each choice. Of two programs that
 * complete settle takes the shorter one.
 *
 * All data points forward in the one global order of transfers. So a wait cycle needs an edge of
 * the form "wait until a slot is free", and more slots cure it: note [enough slots] in comm.c.
 *
 * Ensures streams, xfer, channel_slots, lowering, and Times: of the play of these streams. Times
 * says how far each stream came; check_deadlock requires that all came to their ends.
 *
 * Cost: a play of each program that is tried; comm for each but the first. */
#include <string.h>

#include "graph.h"
#include "lower.h"
#include "orders.h"

bool transfers_take_time(const Sched *s) {
  for (uint32_t i = 0; i < s->model->nstage; i++)
    if (s->model->stage[i].time[PIPE_SEND_F] || s->model->stage[i].time[PIPE_SEND_B])
      return true;
  for (uint32_t i = 0; s->model->graph && i < s->model->graph->nedge; i++)
    if (s->model->graph->edge[i].send[0] || s->model->graph->edge[i].send[1])
      return true;
  return false;
}

/* ---- one program ---- */

static PipeStream stream_view(const Streams *streams, PipeOn on) {
  if (on == PIPE_COMPUTE)
    return (PipeStream){streams->compute, NULL, streams->ncompute};
  if (on == PIPE_COMM)
    return (PipeStream){streams->comm, NULL, streams->ncomm};
  return (PipeStream){streams->copy, NULL, streams->ncopy};
}

static PipeStream *stream_views(const Sched *s, const Lowered *lowered, PipeOn on) {
  PipeStream *view = NEW_ARRAY(s->arena, PipeStream, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    view[r] = stream_view(&lowered->stream[r], on);
  return view;
}

/* [nrank][n] room for a time of each instruction of the streams, in one piece. */
static uint64_t **time_rows(const Sched *s, const PipeStream *stream) {
  size_t n = 0;
  uint64_t **row = NEW_ARRAY(s->arena, uint64_t *, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    n += stream[r].n;
  uint64_t *at = arena_alloc(s->arena, n * sizeof *at);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    row[r] = at;
    at += stream[r].n;
  }
  return row;
}

/* A program of comm, and its play in the timed machine. */
typedef struct Play {
  const PipeWait **wait; /* PipeSimIn.wait, nwait */
  uint32_t *nwait;
  PipeSimIn in;
  PipeSimOut out;
} Play;

/* Plays the program; gives channels more slots if too few close a cycle. False: some rank cannot go
 * on, and no channel needs more slots. */
static bool complete(Sched *s, Lowered *lowered, Play *play) {
  for (;;) {
    for (uint32_t r = 0; r < s->model->nrank; r++) {
      play->wait[r] = lowered->stream[r].wait;
      play->nwait[r] = lowered->stream[r].nwait;
    }
    play->in.nchannel = lowered->npipe_channel;
    PipeSimStatus status = pipe_sim(&play->in, &play->out, NULL);
    BUG_IF(status == PIPE_SIM_MISMATCH); /* both ends come from one list */
    if (status == PIPE_SIM_DONE)
      return true;
    if (!comm_more_slots(s, lowered))
      return false;
    comm(s, lowered);
  }
}

static Play new_play(const Sched *s, const Lowered *lowered) {
  const Model *m = s->model;
  const PipeGraph graph = sched_graph(s);
  Play play = {.in = {.nrank = m->nrank,
                      .stage = m->stage,
                      .nstage = m->nstage,
                      .edge = graph.edge,
                      .row = graph.row,
                      .nmb = m->nmb,
                      .side = s->sides->row,
                      .unit_time = m->unit_time,
                      .nunit_time = m->nunit_time,
                      .share = m->share,
                      .nshare = m->nshare,
                      .nlink = m->nlink,
                      .compute = stream_views(s, lowered, PIPE_COMPUTE),
                      .comm = stream_views(s, lowered, PIPE_COMM)}};
  PipeSimOut *out = &play.out;
  play.in.wait = play.wait = NEW_ARRAY(s->arena, const PipeWait *, m->nrank);
  play.in.nwait = play.nwait = NEW_ARRAY(s->arena, uint32_t, m->nrank);
  out->compute_done = NEW_ARRAY(s->arena, uint32_t, m->nrank);
  out->comm_done = NEW_ARRAY(s->arena, uint32_t, m->nrank);
  out->link_busy = m->nshare ? NEW_ARRAY(s->arena, uint64_t, m->nlink) : NULL;
  out->rank_busy = NEW_ARRAY(s->arena, uint64_t, m->nrank);
  out->rank_window = NEW_ARRAY(s->arena, uint64_t, m->nrank);
  out->compute_start = time_rows(s, play.in.compute);
  out->comm_start = time_rows(s, play.in.comm);
  out->compute_end = time_rows(s, play.in.compute);
  if (s->orders->ncopy) {
    play.in.copy = stream_views(s, lowered, PIPE_COPY);
    out->copy_done = NEW_ARRAY(s->arena, uint32_t, m->nrank);
    out->copy_start = time_rows(s, play.in.copy);
  }
  if (lowered->lowering == PIPE_CHANNELS) {
    out->comm_turn = NEW_ARRAY(s->arena, uint32_t *, m->nrank);
    for (uint32_t r = 0; r < m->nrank; r++)
      out->comm_turn[r] = arena_alloc(s->arena, play.in.comm[r].n * sizeof **out->comm_turn + 1);
  }
  return play;
}

/* ---- shorter programs ---- */

/* A copy of the slots of all channels. A program that is tried may take more of them. */
static const Channel *copy_channels(const Sched *s, const Lowered *lowered) {
  const size_t n = 2 * (size_t)nlinks(s);
  Channel *copy = arena_alloc(s->arena, n * sizeof *copy + 1);
  memcpy(copy, lowered->channel, n * sizeof *copy);
  return copy;
}

static void restore_channels(const Sched *s, Lowered *lowered, const Channel *copy) {
  memcpy(lowered->channel, copy, 2 * (size_t)nlinks(s) * sizeof *copy);
}

/* CHANNELS exists for speed: takes the slots that the ideal timing needs if the program is then
 * shorter. */
static void try_more_slots(Sched *s, Lowered *lowered, Play *play) {
  const Channel *few = copy_channels(s, lowered);
  uint64_t makespan = play->out.makespan;
  if (!comm_more_slots(s, lowered))
    return;
  comm(s, lowered);
  complete(s, lowered, play);
  if (play->out.makespan < makespan)
    return;
  restore_channels(s, lowered, few);
  comm(s, lowered);
  complete(s, lowered, play);
}

/* Takes the order of reorder_transfers if the program is shorter with it. */
static void try_other_order(Sched *s, Lowered *lowered, Play *play) {
  const uint64_t makespan = play->out.makespan;
  Xfer *const before = lowered->xfer, *const other = reorder_transfers(s, makespan);
  if (!other)
    return;
  const Channel *few = copy_channels(s, lowered);
  lowered->xfer = other;
  comm(s, lowered);
  if (complete(s, lowered, play) && play->out.makespan < makespan)
    return;
  lowered->xfer = before;
  restore_channels(s, lowered, few);
  comm(s, lowered);
  complete(s, lowered, play);
}

/* The shortest program with this lowering. False: as complete. */
static bool play_best(Sched *s, Lowered *lowered, Play *play) {
  if (!complete(s, lowered, play))
    return false;
  if (play->out.makespan <= s->ideal->time.makespan)
    return true;
  if (lowered->lowering == PIPE_CHANNELS)
    try_more_slots(s, lowered, play);
  if (lowered->lowering == PIPE_GLOBAL && !s->orders->lists && s->sides->ncomm == 0)
    try_other_order(s, lowered, play);
  return true;
}

/* The most channels of transfers on a rank. */
static uint32_t most_communicators(Sched *s) {
  uint32_t *n = NEW_ARRAY(s->arena, uint32_t, s->model->nrank), most = 0;
  for (uint32_t i = 0; i < s->lowered->npipe_channel; i++) {
    const PipeChannel *channel = &s->lowered->pipe_channel[i];
    const uint32_t from = channel->from, to = channel->to;
    if (channel->op != PIPE_SEND_F && channel->op != PIPE_SEND_B)
      continue;
    n[from]++;
    n[to]++;
    most = n[from] > most ? n[from] : most;
    most = n[to] > most ? n[to] : most;
  }
  return most;
}

/* Chooses the lowering for `auto`. play: of the program with GLOBAL. CHANNELS replaces it if GLOBAL
 * takes at least LEAST_GAIN percent longer and no rank has more than MOST_COMMUNICATORS. */
static void choose_lowering(Sched *s, Lowered *lowered, Play *play) {
  enum { LEAST_GAIN = 5, MOST_COMMUNICATORS = 8 };
  const uint64_t makespan = play->out.makespan;
  const double enough = (double)makespan * 100 / (100 + LEAST_GAIN);
  if (!transfers_take_time(s) || (double)s->ideal->time.makespan > enough)
    return;
  const Lowered global = *lowered;
  *lowered = (Lowered){.lowering = PIPE_CHANNELS, .choice = global.choice};
  comm(s, lowered);
  Play other = new_play(s, lowered);
  BUG_IF(!play_best(s, lowered, &other)); /* its transfers wait for less */
  const uint32_t n = most_communicators(s);
  const bool better = (double)other.out.makespan <= enough && n <= MOST_COMMUNICATORS;
  if (better)
    *play = other;
  else
    *lowered = global;
  lowered->choice.other = better ? makespan : other.out.makespan;
  lowered->choice.communicators = n;
}

bool settle(Sched *s, Lowered *lowered, Times *times) {
  Play play = new_play(s, lowered);
  const bool done = play_best(s, lowered, &play);
  if (done && lowered->choice.open)
    choose_lowering(s, lowered, &play);
  const PipeSimOut *out = &play.out;
  *times = (Times){.compute_done = out->compute_done,
                   .comm_done = out->comm_done,
                   .copy_done = out->copy_done,
                   .compute_start = out->compute_start,
                   .comm_start = out->comm_start,
                   .copy_start = out->copy_start,
                   .makespan = out->makespan,
                   .busy = out->busy,
                   .rank_busy = out->rank_busy,
                   .link_busy = out->link_busy,
                   .link_wait = out->link_wait};
  if (!done)
    return true; /* check_deadlock ends the compile */
  for (uint32_t r = 0; r < s->model->nrank; r++)
    times->span = out->rank_window[r] > times->span ? out->rank_window[r] : times->span;
  times->steady = find_steady(s, times, out->compute_end);
  if (out->comm_turn)
    sort_channels(s, lowered, times, out->comm_turn);
  for (size_t c = 0; c < 2 * (size_t)nlinks(s); c++)
    if (lowered->channel[c].in_slots > lowered->channel_slots)
      lowered->channel_slots = lowered->channel[c].in_slots;
  return true;
}
