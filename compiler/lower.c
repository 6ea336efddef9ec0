/* SPDX-License-Identifier: MIT
 * The streams of a rank become one list in issue order, and the result becomes a PipeProgram.
 * Requires slots and check_deadlock (predicted starts). Ensures prog: its tables are in the arena. The
 * events between the streams of a rank are placed by streams.c.
 *
 * A list merges the rank's streams by predicted start; an instruction stands after everything its
 * wait counts, so that a host can issue the list from the top; the ops of an action stay together, and the
 * transfers of a group.
 * Linear. What has been merged is given back as it goes, so a program is not held twice. */
#include <string.h>

#include "graph.h"
#include "pipe_loop.h"
#include "streams.h"

/* weights: rows beside those of out, or NULL. */
static PipeInstr *merge(Sched *s, uint32_t r, PipeInstr *out, PipeWeights *weights) {
  const Streams *t = &s->stream[r];
  const uint64_t *at_c = s->compute_start[r], *at_x = s->comm_start[r];
  const uint64_t *at_y = s->ncopy ? s->copy_start[r] : NULL;
  uint32_t c = 0, x = 0, y = 0;
  const PipeInstr *first = out;
  while (c < t->ncompute || x < t->ncomm || y < t->ncopy) {
    bool can_c = c < t->ncompute && t->compute[c].wait <= x && t->compute[c].wait_copy <= y;
    bool can_x = x < t->ncomm && t->comm[x].wait <= c && t->comm[x].wait_copy <= y;
    bool can_y = y < t->ncopy && t->copy[y].wait <= c && t->copy[y].wait_copy <= x;
    BUG_IF(!can_c && !can_x && !can_y);
    if (can_x && (!can_c || at_x[x] <= at_c[c]) && (!can_y || at_x[x] <= at_y[y]))
      do
        *out++ = t->comm[x];
      while (t->comm[x++].group > 0);
    else if (can_y && (!can_c || at_y[y] <= at_c[c]))
      *out++ = t->copy[y++];
    else
      do {
        if (weights)
          weights[out - first] = s->weights[s->rank_op0[r] + c];
        *out++ = t->compute[c];
      } while (t->compute[c++].group > 0);
  }
  return out;
}

/* Nobody reads them, nor the times by which they were merged, after this. */
static void forget_streams(Sched *s, uint32_t r) {
  Streams *t = &s->stream[r];
  arena_forget(t->compute, (size_t)t->ncompute * sizeof *t->compute);
  arena_forget(t->comm, (size_t)t->ncomm * sizeof *t->comm);
  arena_forget(s->compute_start[r], (size_t)t->ncompute * sizeof **s->compute_start);
  arena_forget(s->comm_start[r], (size_t)t->ncomm * sizeof **s->comm_start);
}

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

bool lower(Sched *s) {
  PipeProgram *p = NEW(s->arena, PipeProgram);
  PipeRank *rank = NEW_ARRAY(s->arena, PipeRank, s->nrank);
  PipeSite *site = NEW_ARRAY(s->arena, PipeSite, s->nsite);
  size_t total = (size_t)s->nop + s->ncopy;
  for (uint32_t r = 0; r < s->nrank; r++)
    total += s->stream[r].ncomm;
  PipeInstr *out = arena_alloc(s->arena, total * sizeof *out + 1);
  for (uint32_t r = 0; r < s->nrank; r++) {
    PipeInstr *first = out;
    PipeWeights *weights = NULL;
    size_t n = (size_t)s->stream[r].ncompute + s->stream[r].ncomm + s->stream[r].ncopy;
    if (s->weights) {
      weights = arena_alloc(s->arena, n * sizeof *weights + 1);
      for (size_t i = 0; i < n; i++)
        weights[i] = pipe_no_weights();
    }
    out = merge(s, r, out, weights);
    forget_streams(s, r);
    rank[r] = (PipeRank){.instr = first,
                         .pool = s->pool[r],
                         .ninstr = (uint32_t)(out - first),
                         .npool = s->npool[r],
                         .nslot = s->nrank_slot[r],
                         .inflight = s->peak[r].inflight,
                         .bytes = s->sized ? s->peak[r].total : 0,
                         .host = s->sized ? s->peak[r].host_bytes : 0,
                         .group = s->group ? s->group[r] : 0,
                         .list = s->graph ? s->slot_list[r] : NULL,
                         .nlist = s->graph ? s->nslot_list[r] : 0,
                         .weights = weights};
    place_events(s, r, &rank[r]);
  }
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
  p->slice_time = s->slice_time;
  p->share = s->share, p->nshare = s->nshare, p->nlink = s->nlink;
  p->formula = s->formula, p->nformula = s->nformula, p->rule = s->rule, p->nrule = s->nrule;
  p->then = s->then, p->nthen = s->nthen;
  if (s->nformula)
    p->state = s->state, p->nstate = s->nstate;
  p->lowering = s->lowering;
  p->channel = s->npipe_channel ? s->pipe_channel : NULL, p->nchannel = s->npipe_channel;
  p->ngroup = s->ngroup;
  p->side = s->nside ? s->side : NULL, p->nside = s->nside;
  p->rank = rank, p->stage = s->stage, p->site = site, p->file = file;
  p->hash = pipe_program_hash(p);
  s->prog = p;
  return true;
}
