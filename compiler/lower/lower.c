/* SPDX-License-Identifier: MIT
 * The streams of a rank become one list in issue order, and the result becomes a PipeProgram.
 * Requires slots and check_deadlock (predicted starts). Ensures prog: its tables are in the arena. The
 * events between the streams of a rank are placed by streams.c.
 *
 * A list merges the rank's streams by predicted start; an instruction stands after everything its
 * wait counts, so that a host can issue the list from the top; the ops of an action stay together, and the
 * transfers of a group.
 * Linear but for the events. The list takes the place of what is merged, so a program is not held twice. */
#include <string.h>

#include "graph.h"
#include "lower.h"
#include "pipe_loop.h"
#include "streams.h"

/* Into t->list, which has compute and comm at its end: what is written never reaches what of comm is still to be
 * read, and compute: room for the COMPUTE stream, is copied out of the way. weights: rows beside those of the
 * list, or NULL. */
static void merge(Sched *s, uint32_t r, PipeInstr *compute, PipeWeights *weights) {
  Streams *t = &s->stream[r];
  PipeInstr *out = t->list;
  const uint64_t *at_y = s->ncopy ? s->copy_start[r] : NULL;
  uint32_t c = 0, x = 0, y = 0;
  memcpy(compute, t->compute, t->ncompute * sizeof *compute);
  while (c < t->ncompute || x < t->ncomm || y < t->ncopy) {
    bool can_c = c < t->ncompute && compute[c].wait <= x && compute[c].wait_copy <= y;
    bool can_x = x < t->ncomm && t->comm[x].wait <= c && t->comm[x].wait_copy <= y;
    bool can_y = y < t->ncopy && t->copy[y].wait <= c && t->copy[y].wait_copy <= x;
    BUG_IF(!can_c && !can_x && !can_y);
    uint64_t at_c = can_c && (can_x || can_y) ? s->compute_start[r][c] : 0;
    uint64_t at_x = can_x && (can_c || can_y) ? s->comm_start[r][x] : 0;
    if (can_x && (!can_c || at_x <= at_c) && (!can_y || at_x <= at_y[y]))
      do
        *out++ = t->comm[x];
      while (t->comm[x++].group > 0);
    else if (can_y && (!can_c || at_y[y] <= at_c))
      *out++ = t->copy[y++];
    else
      do {
        if (weights)
          weights[out - t->list] = s->weights[s->rank_op0[r] + c];
        *out++ = compute[c];
      } while (compute[c++].group > 0);
  }
  t->compute = t->comm = NULL;
}

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* All of the program but its ranks. */
static PipeProgram *begin(Sched *s) {
  PipeProgram *p = NEW(s->arena, PipeProgram);
  PipeSite *site = NEW_ARRAY(s->arena, PipeSite, s->nsite);
  uint32_t *file_row = NEW_ARRAY(s->arena, uint32_t, s->diag->nsource);
  const char **file = NEW_ARRAY(s->arena, const char *, s->diag->nsource);
  for (uint32_t i = 0; i < s->nsite; i++) {
    uint32_t f = s->site[i].file;
    LineCol at = diag_linecol(s->diag, f, s->site[i].beg);
    if (!file_row[f]) {
      file[p->nfile] = base_name(s->diag->source[f].path); /* no machine's path in the output */
      file_row[f] = ++p->nfile;
    }
    site[i] = (PipeSite){file_row[f] - 1, at.line, at.col};
  }
  p->magic = PIPE_MAGIC;
  p->abi = PIPE_ABI;
  p->name = s->name;
  p->params = s->params;
  p->nrank = s->nrank, p->nstage = s->nstage, p->nmb = s->nmb, p->nsite = s->nsite;
  p->nmodel = s->nmodel;
  p->sized = s->sized, p->timed = s->timed, p->forward = s->forward, p->slices = s->slices;
  p->slots = s->channel_slots;
  p->makespan = s->makespan, p->ideal = s->ideal.makespan, p->busy = s->busy;
  if (s->graph)
    p->edge = s->graph->edge, p->nedge = s->nedge, p->row = s->graph->row;
  p->unit_time = s->unit_time, p->nunit_time = s->nunit_time;
  p->share = s->share, p->nshare = s->nshare, p->nlink = s->nlink;
  p->formula = s->formula, p->nformula = s->nformula, p->rule = s->rule, p->nrule = s->nrule;
  p->then = s->then, p->nthen = s->nthen;
  if (s->nformula)
    p->state = s->state, p->nstate = s->nstate;
  p->lowering = s->lowering;
  p->channel = s->npipe_channel ? s->pipe_channel : NULL, p->nchannel = s->npipe_channel;
  p->ngroup = s->ngroup;
  p->side = s->nside ? s->side : NULL, p->nside = s->nside;
  p->stage = s->stage, p->site = site, p->file = file;
  return p;
}

/* Rows of PipeWeights for n instructions. */
static PipeWeights *room_for_weights(Sched *s, uint32_t n) {
  if (!s->weights)
    return NULL;
  PipeWeights *w = arena_alloc(s->arena, n * sizeof *w);
  for (uint32_t i = 0; i < n; i++)
    w[i] = pipe_no_weights();
  return w;
}

static PipeRank lower_rank(Sched *s, uint32_t r, PipeInstr *compute) {
  const Streams *t = &s->stream[r];
  uint32_t n = t->ncompute + t->ncomm + t->ncopy;
  PipeWeights *weights = room_for_weights(s, n);
  merge(s, r, compute, weights);
  return (PipeRank){.instr = t->list,
                    .pool = s->pool[r],
                    .ninstr = n,
                    .npool = s->npool[r],
                    .nslot = s->nrank_slot[r],
                    .inflight = s->peak[r].inflight,
                    .bytes = s->sized ? s->peak[r].bytes[PEAK_total] : 0,
                    .host = s->sized ? s->peak[r].bytes[PEAK_host] : 0,
                    .group = s->group ? s->group[r] : 0,
                    .list = s->graph ? s->slot_list[r] : NULL,
                    .nlist = s->graph ? s->nslot_list[r] : 0,
                    .weights = weights};
}

bool lower(Sched *s) {
  PipeProgram *p = begin(s);
  PipeRank *rank = NEW_ARRAY(s->arena, PipeRank, s->nrank);
  uint32_t most = 0;
  for (uint32_t r = 0; r < s->nrank; r++)
    most = s->stream[r].ncompute > most ? s->stream[r].ncompute : most;
  PipeInstr *compute = arena_alloc(s->arena, most * sizeof *compute);
  for (uint32_t r = 0; r < s->nrank; r++) {
    rank[r] = lower_rank(s, r, compute);
    place_events(s, &rank[r], r);
  }
  p->rank = rank;
  p->hash = pipe_program_hash(p);
  s->prog = p;
  return true;
}
