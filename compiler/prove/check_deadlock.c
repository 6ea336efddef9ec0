/* SPDX-License-Identifier: MIT
 * Proof: the program completes. Model: rendezvous transfers, FIFO per directed rank pair without
 * tags, one compute and one comm stream per rank, or per channel (and one copy stream: note [copies cannot stall]). Requires comm. Method: the machine of pipe_sim.h
 * runs it; there is no choice in it, so it completes iff the happens-before graph is acyclic.
 *
 * The transfers have one global order in which all data points forward, so a cycle needs an edge
 * that says "wait until a slot is free". More slots cure it: note [enough slots] in comm.c.
 *
 * Ensures starts, makespan, busy, steady, channel_slots. */
#include <string.h>

#include "graph.h"
#include "lower.h"
#include "orders.h"
#include "plant.h"
#include "prove.h"
#include "timing.h"

typedef struct Hop {
  uint32_t rank;
  bool comm;
} Hop;

static PipeStream *stream_views(Sched *s, bool comm_stream) {
  PipeStream *v = NEW_ARRAY(s->arena, PipeStream, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    const Streams *t = &s->lowered->stream[r];
    v[r] = comm_stream ? (PipeStream){t->comm, NULL, t->ncomm}
                       : (PipeStream){t->compute, NULL, t->ncompute};
  }
  return v;
}

/* Room for a time of each instruction of a stream, rank after rank in one piece. */
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

/* The head of a stuck stream, or NULL when the stream is finished. */
static PipeInstr *head_of(Sched *s, const PipeSimOut *o, Hop h) {
  Streams *t = &s->lowered->stream[h.rank];
  uint32_t i = h.comm ? o->comm_done[h.rank] : o->compute_done[h.rank];
  return i >= (h.comm ? t->ncomm : t->ncompute) ? NULL : h.comm ? &t->comm[i] : &t->compute[i];
}

/* The first row after that of a REDUCE or TIE that has not come to it. */
static uint32_t late_replica(Sched *s, const PipeSimOut *o, const PipeInstr *reduce) {
  for (uint32_t st = pipe_sum_next(s->model->stage, reduce->op, reduce->stage); st != reduce->stage;
       st = pipe_sum_next(s->model->stage, reduce->op, st)) {
    uint32_t r = s->model->stage[st].rank;
    const PipeInstr *head = head_of(s, o, (Hop){r, true});
    if (!head || head->op != reduce->op || head->stage != st || head->wait > o->compute_done[r])
      return st;
  }
  return reduce->stage;
}

/* What a stuck head waits for: the other stream of its rank, or its peer. */
static Hop waits_for(Sched *s, const PipeSimOut *o, Hop h, const PipeInstr *head) {
  uint32_t other = h.comm ? o->compute_done[h.rank] : o->comm_done[h.rank];
  if (head->wait > other)
    return (Hop){h.rank, !h.comm};
  if (head->op == PIPE_SIDE_COMM || !h.comm) /* a copy, which waits for compute */
    return (Hop){h.rank, false};
  return (Hop){pipe_is_sum(head->op) ? s->model->stage[late_replica(s, o, head)].rank : head->peer,
               true};
}

static Hop find_cycle(Sched *s, const PipeSimOut *o) {
  uint32_t *mark = NEW_ARRAY(s->arena, uint32_t, 2 * (size_t)s->model->nrank), tour = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (int c = 0; c < 2; c++) {
      Hop h = {r, c == 1};
      const PipeInstr *head;
      tour++;
      while ((head = head_of(s, o, h)) && !mark[2 * (size_t)h.rank + h.comm]) {
        mark[2 * (size_t)h.rank + h.comm] = tour;
        h = waits_for(s, o, h, head);
      }
      if (head && mark[2 * (size_t)h.rank + h.comm] == tour)
        return h;
    }
  BUG_IF(true);
  return (Hop){0, false};
}

/* Says who waits for whom, from `start` on, which is on the wait cycle. */
static void report(Sched *s, const PipeSimOut *o, Hop start) {
  char text[OP_TEXT], other[OP_TEXT];
  Hop h = start;
  const PipeInstr *head = head_of(s, o, h);
  diag_error(s->diag, DIAG_DEADLOCK, s->orders->site[head->site],
             "deadlock: rank %u cannot go on; model: %s", h.rank, model_text(s));
  uint32_t hops = 0;
  do {
    head = head_of(s, o, h);
    Hop next = waits_for(s, o, h, head);
    pipe_instr_text(text, sched_graph(s), head);
    const PipeInstr *that = head_of(s, o, next);
    pipe_instr_text(other, sched_graph(s), that);
    if (hops++ < 12)
      diag_note(s->diag, s->orders->site[head->site],
                "%s on rank %u waits for rank %u, whose %s stream is at %s", text, h.rank,
                next.rank, next.comm ? "comm" : "compute", other);
    h = next;
  } while (h.rank != start.rank || h.comm != start.comm);
}

/* Runs the machine, with more slots where too few close a cycle. False: reported. */
static bool complete(Sched *s, Lowered *lowered, PipeSimIn *in, PipeSimOut *out) {
  for (;;) {
    uint32_t rank;
    in->needs = s->orders->lowering == PIPE_CHANNELS ? lowered->needs : NULL;
    in->nchannel = lowered->npipe_channel;
    PipeSimStatus st = pipe_sim(in, out, &rank);
    if (st == PIPE_SIM_DONE || (st == PIPE_SIM_STUCK && PLANTED(DEADLOCK_STUCK)))
      return true;
    if (st == PIPE_SIM_NOMEM)
      s->arena->oom(0);
    BUG_IF(st == PIPE_SIM_MISMATCH); /* both ends come from one list */
    if (!comm_more_slots(s)) {
      report(s, out, find_cycle(s, out));
      return false;
    }
    comm(s, lowered);
  }
}

/* Channels are there to be fast: where transfers wait for slots, those that the ideal timing needs, if it is shorter
 * then. */
static void try_more_slots(Sched *s, Lowered *lowered, PipeSimIn *in, PipeSimOut *out) {
  size_t n = 2 * (size_t)nlinks(s);
  Channel *few = arena_alloc(s->arena, n * sizeof *few + 1);
  memcpy(few, lowered->channel, n * sizeof *few);
  uint64_t makespan = out->makespan;
  if (!comm_more_slots(s))
    return;
  comm(s, lowered);
  complete(s, lowered, in, out);
  if (out->makespan < makespan)
    return;
  memcpy(lowered->channel, few, n * sizeof *few);
  comm(s, lowered);
  complete(s, lowered, in, out);
}

static bool transfers_take_time(const Sched *s) {
  for (uint32_t i = 0; i < s->model->nstage; i++)
    if (s->model->stage[i].time[PIPE_SEND_F] || s->model->stage[i].time[PIPE_SEND_B])
      return true;
  for (uint32_t i = 0; s->model->graph && i < s->model->graph->nedge; i++)
    if (s->model->graph->edge[i].send[0] || s->model->graph->edge[i].send[1])
      return true;
  return false;
}

/* Where transfers take time: the order of a list schedule, if the program is shorter with it. */
static void try_list_schedule(Sched *s, Lowered *lowered, PipeSimIn *in, PipeSimOut *out) {
  const uint64_t makespan = out->makespan;
  Xfer *const before = lowered->xfer, *const other = list_schedule(s, makespan);
  if (!other)
    return;
  lowered->xfer = other;
  comm(s, lowered);
  if (complete(s, lowered, in, out) && out->makespan < makespan)
    return;
  lowered->xfer = before;
  comm(s, lowered);
  complete(s, lowered, in, out);
}

bool check_deadlock(Sched *s, Lowered *lowered, Times *times) {
  PipeGraph g = sched_graph(s);
  PipeSimIn in = {.nrank = s->model->nrank,
                  .stage = s->model->stage,
                  .edge = g.edge,
                  .row = g.row,
                  .nmb = s->model->nmb,
                  .side = s->sides->row,
                  .unit_time = s->model->unit_time,
                  .nunit_time = s->model->nunit_time,
                  .group = s->model->group,
                  .ngroup = s->model->ngroup,
                  .share = s->model->share,
                  .nshare = s->model->nshare,
                  .nlink = s->model->nlink,
                  .groups = s->orders->lists};
  PipeSimOut out = {.compute_done = NEW_ARRAY(s->arena, uint32_t, s->model->nrank),
                    .comm_done = NEW_ARRAY(s->arena, uint32_t, s->model->nrank)};
  out.link_busy = times->link_busy = s->model->nshare
                                         ? NEW_ARRAY(s->arena, uint64_t, s->model->nlink)
                                         : NULL;
  out.rank_busy = times->rank_busy = NEW_ARRAY(s->arena, uint64_t, s->model->nrank);
  out.rank_window = NEW_ARRAY(s->arena, uint64_t, s->model->nrank);
  in.compute = stream_views(s, false);
  in.comm = stream_views(s, true);
  out.compute_start = times->compute_start = time_rows(s, false);
  out.comm_start = times->comm_start = time_rows(s, true);
  out.compute_end = time_rows(s, false);
  if (s->orders->ncopy) {
    PipeStream *copy = NEW_ARRAY(s->arena, PipeStream, s->model->nrank);
    uint64_t *cell = arena_alloc(s->arena, s->orders->ncopy * sizeof *cell);
    times->copy_start = NEW_ARRAY(s->arena, uint64_t *, s->model->nrank);
    for (uint32_t r = 0; r < s->model->nrank; r++) {
      copy[r] = (PipeStream){lowered->stream[r].copy, NULL, lowered->stream[r].ncopy};
      times->copy_start[r] = cell + s->orders->rank_copy0[r];
    }
    in.copy = copy;
    out.copy_start = times->copy_start;
  }
  if (s->orders->lowering == PIPE_CHANNELS) {
    out.comm_turn = NEW_ARRAY(s->arena, uint32_t *, s->model->nrank);
    for (uint32_t r = 0; r < s->model->nrank; r++)
      out.comm_turn[r] = arena_alloc(s->arena,
                                     lowered->stream[r].ncomm * sizeof **out.comm_turn + 1);
  }
  if (!complete(s, lowered, &in, &out))
    return false;
  if (s->orders->lowering == PIPE_GLOBAL && out.makespan > s->ideal->time.makespan &&
      s->sides->ncomm == 0 && transfers_take_time(s))
    try_list_schedule(s, lowered, &in, &out);
  if (out.comm_turn && out.makespan > s->ideal->time.makespan)
    try_more_slots(s, lowered, &in, &out);
  times->steady = find_steady(s, times, out.compute_end);
  if (out.comm_turn)
    sort_channels(s, lowered, out.comm_turn);
  times->makespan = out.makespan;
  times->link_wait = out.link_wait;
  times->span = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++)
    times->span = out.rank_window[r] > times->span ? out.rank_window[r] : times->span;
  times->busy = out.busy;
  for (size_t c = 0; c < 2 * (size_t)nlinks(s); c++)
    if (lowered->channel[c].in_slots > lowered->channel_slots)
      lowered->channel_slots = lowered->channel[c].in_slots;
  return true;
}
