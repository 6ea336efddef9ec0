/* SPDX-License-Identifier: MIT
 * Merges the streams of each rank into one list in issue order and makes the PipeProgram. Requires
 * slots, and the predicted starts of settle. Ensures prog; its tables are in the arena.
 * waits.c drops the waits that follow from others.
 *
 * The merge is by predicted start. Invariant: an instruction stands after every instruction that
 * its waits count, so a host can issue the list from the top. The ops of an action stay together,
 * and so do the transfers of a group.
 *
 * Cost: linear, apart from events. The list reuses the memory of the streams: the program is never
 * in memory twice. */
#include <string.h>

#include "graph.h"
#include "lower.h"
#include "base.h"
#include "orders.h"
#include "pipe_rows.h"
#include "weights.h"

/* Are the waits of c over? done: by queue. */
static bool can_start(const Streams *t, const PipeInstr *c, const uint32_t *done) {
  for (uint32_t i = c->waits; i < c->waits + c->nwait; i++)
    if (done[t->wait[i].queue] < t->wait[i].count)
      return false;
  return true;
}

/* Merges into t->list, which ends with compute and comm. Writing cannot overtake the reading of
 * comm; COMPUTE is first copied to `compute`, which has room for it. weights: a row for each row of
 * the list, or NULL. done: [queues] scratch. */
static void merge(const Sched *s, Lowered *lowered, uint32_t r, PipeInstr *compute,
                  PipeWeights *weights, uint32_t *done) {
  Streams *t = &lowered->stream[r];
  PipeInstr *out = t->list;
  const uint64_t *at_y = s->orders->ncopy ? s->times->copy_start[r] : NULL;
  uint32_t c = 0, x = 0, y = 0;
  memcpy(compute, t->compute, t->ncompute * sizeof *compute);
  memset(done, 0, (PIPE_NSTREAMS + (size_t)lowered->npipe_channel) * sizeof *done);
  bool can_c = false, can_x = false, can_y = false; /* of the heads of the streams */
  while (c < t->ncompute || x < t->ncomm || y < t->ncopy) {
    const PipeInstr *const first = out;
    can_c = can_c || (c < t->ncompute && can_start(t, &compute[c], done));
    can_x = can_x || (x < t->ncomm && can_start(t, &t->comm[x], done));
    can_y = can_y || (y < t->ncopy && can_start(t, &t->copy[y], done));
    BUG_IF(!can_c && !can_x && !can_y);
    uint64_t at_c = can_c && (can_x || can_y) ? s->times->compute_start[r][c] : 0;
    uint64_t at_x = can_x && (can_c || can_y) ? s->times->comm_start[r][x] : 0;
    if (can_x && (!can_c || at_x <= at_c) && (!can_y || at_x <= at_y[y])) {
      do
        *out++ = t->comm[x];
      while (t->comm[x++].group > 0);
      can_x = false;
    } else if (can_y && (!can_c || at_y[y] <= at_c)) {
      *out++ = t->copy[y++];
      can_y = false;
    } else {
      do {
        if (weights)
          weights[out - t->list] = s->versions->weights[s->orders->rank_op0[r] + c];
        *out++ = compute[c];
      } while (compute[c++].group > 0);
      can_c = false;
    }
    done[pipe_queue(lowered->lowering, first)] += (uint32_t)(out - first);
  }
  t->compute = t->comm = NULL;
}

/* Fills in the program except its ranks. */
static PipeProgram *begin(Sched *s) {
  PipeProgram *p = NEW(s->arena, PipeProgram);
  PipeSite *site = NEW_ARRAY(s->arena, PipeSite, s->orders->nsite);
  uint32_t *file_row = NEW_ARRAY(s->arena, uint32_t, s->diag->nsource);
  const char **file = NEW_ARRAY(s->arena, const char *, s->diag->nsource);
  for (uint32_t i = 0; i < s->orders->nsite; i++) {
    uint32_t f = s->orders->site[i].file;
    LineCol at = diag_linecol(s->diag, f, s->orders->site[i].beg);
    if (!file_row[f]) {
      file[p->nfile] = file_name(s->diag->source[f].path); /* no path of this machine */
      file_row[f] = ++p->nfile;
    }
    site[i] = (PipeSite){file_row[f] - 1, at.line, at.col};
  }
  p->magic = PIPE_MAGIC;
  p->abi = PIPE_ABI;
  p->name = s->model->name;
  p->params = s->model->params;
  p->nrank = s->model->nrank, p->nstage = s->model->nstage, p->nmb = s->model->nmb,
  p->nsite = s->orders->nsite;
  p->nmodel = s->model->nmodel;
  p->sized = s->model->sized, p->timed = s->model->timed, p->forward = s->model->forward,
  p->slices = s->model->slices;
  p->slots = s->lowered->channel_slots;
  p->makespan = s->times->makespan, p->ideal = s->ideal->time.makespan, p->busy = s->times->busy;
  if (s->model->graph)
    p->edge = s->model->graph->edge, p->nedge = s->model->nedge, p->row = s->model->graph->row;
  p->unit_time = s->model->unit_time, p->nunit_time = s->model->nunit_time;
  p->share = s->model->share, p->nshare = s->model->nshare, p->nlink = s->model->nlink;
  p->formula = s->versions->formula, p->nformula = s->versions->nformula,
  p->rule = s->versions->rule, p->nrule = s->versions->nrule;
  p->then = s->versions->then, p->nthen = s->versions->nthen;
  if (s->versions->nformula)
    p->state = s->versions->state, p->nstate = s->versions->nstate;
  p->lowering = s->lowered->lowering;
  p->channel = s->lowered->npipe_channel ? s->lowered->pipe_channel : NULL,
  p->nchannel = s->lowered->npipe_channel;
  p->side = s->sides->nrow ? s->sides->row : NULL, p->nside = s->sides->nrow;
  p->stage = s->model->stage, p->site = site, p->file = file;
  return p;
}

/* One row of PipeWeights for each of n instructions; NULL: no versions. */
static PipeWeights *room_for_weights(Sched *s, uint32_t n) {
  if (!s->versions->weights)
    return NULL;
  PipeWeights *w = arena_alloc(s->arena, n * sizeof *w);
  for (uint32_t i = 0; i < n; i++)
    w[i] = pipe_no_weights();
  return w;
}

static PipeRank lower_rank(Sched *s, Lowered *lowered, uint32_t r, PipeInstr *compute,
                           uint32_t *done) {
  const Streams *t = &lowered->stream[r];
  uint32_t n = t->ncompute + t->ncomm + t->ncopy;
  PipeWeights *weights = room_for_weights(s, n);
  merge(s, lowered, r, compute, weights, done);
  return (PipeRank){.instr = t->list,
                    .pool = lowered->pool[r],
                    .ninstr = n,
                    .npool = lowered->npool[r],
                    .nslot = lowered->nrank_slot[r],
                    .inflight = lowered->peak[r].inflight,
                    .bytes = s->model->sized ? lowered->peak[r].bytes[PEAK_total] : 0,
                    .host = s->model->sized ? lowered->peak[r].bytes[PEAK_host] : 0,
                    .list = s->model->graph ? lowered->slot_list[r] : NULL,
                    .nlist = s->model->graph ? lowered->nslot_list[r] : 0,
                    .weights = weights};
}

/* Adds n messages of `bytes` each to a row of `sent`. The sum saturates. */
static void add_sends(Lowered *lowered, uint32_t row, uint32_t n, uint64_t bytes) {
  uint64_t all, *sum = &lowered->sent_bytes[row];
  lowered->sent[row] += n;
  if (__builtin_mul_overflow(bytes, (uint64_t)n, &all) || __builtin_add_overflow(*sum, all, sum))
    *sum = UINT64_MAX;
}

static void count_sends(Sched *s, Lowered *lowered) {
  lowered->sent = NEW_ARRAY(s->arena, uint64_t, (size_t)s->model->nrank + 1);
  lowered->sent_bytes = NEW_ARRAY(s->arena, uint64_t, (size_t)s->model->nrank + 1);
  uint32_t *nmb = link_nmb(s);
  for (uint32_t i = 0; i < nlinks(s); i++) { /* a transfer for each tensor that crosses ranks */
    Link l = link_at(s, i);
    if (!link_crosses(s, l))
      continue;
    for (int back = 0; back < (s->model->forward ? 1 : 2); back++) {
      add_sends(lowered, s->model->stage[back ? l.to : l.from].rank, nmb[i], link_bytes(s, l));
      add_sends(lowered, s->model->nrank, nmb[i], link_bytes(s, l));
    }
  }
}

bool lower(Sched *s, Lowered *lowered) {
  count_sends(s, lowered);
  PipeProgram *p = begin(s);
  PipeRank *rank = NEW_ARRAY(s->arena, PipeRank, s->model->nrank);
  uint32_t most = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++)
    most = lowered->stream[r].ncompute > most ? lowered->stream[r].ncompute : most;
  PipeInstr *compute = arena_alloc(s->arena, most * sizeof *compute);
  const size_t nqueue = PIPE_NSTREAMS + (size_t)lowered->npipe_channel;
  uint32_t *done = arena_alloc(s->arena, nqueue * sizeof *done);
  if (s->orders->ncopy || s->orders->lists)
    lowered->all_waits = NEW_ARRAY(s->arena, WaitRange *, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    rank[r] = lower_rank(s, lowered, r, compute, done);
    const Streams *t = &lowered->stream[r];
    if (lowered->all_waits)
      lowered->all_waits[r] = arena_alloc(s->arena, rank[r].ninstr * sizeof(WaitRange) + 1);
    prune_waits(s, t, &rank[r], t->list, lowered->all_waits ? lowered->all_waits[r] : NULL);
  }
  p->rank = rank;
  p->hash = pipe_program_hash(p);
  s->prog = p;
  return true;
}
