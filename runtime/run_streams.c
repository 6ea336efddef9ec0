/* SPDX-License-Identifier: MIT
 * What the streams of all ranks are made of, found once from the table: the instructions of each, the
 * channels between ranks, who takes part in each REDUCE and TIE, and where with slices the stash of every
 * unit lies. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

/* Channels while they are looked for, rank after rank. A channel is found from either end in one
 * step: `at` has, for the rank at hand, the row of the channel from or to each peer, and what is
 * there from the ranks before is told by the channel's own ends. A channel found first from the
 * lower rank is on the list of the higher, which puts its list into `at` when its turn comes. */
typedef struct ChanFind {
  uint32_t *at[2];        /* [nrank] each: channels from a peer, channels to it */
  uint32_t *first, *next; /* [nrank], [room]: PIPE_NONE ends */
  uint32_t n;
  size_t room;
} ChanFind;

static void chan_enter(PrRun *run, ChanFind *f, uint32_t r) {
  for (uint32_t i = f->first[r]; i != PIPE_NONE; i = f->next[i]) {
    const Chan *c = &run->chan[i];
    f->at[c->src == r][c->src == r ? c->dst : c->src] = i;
  }
}

/* The row of the channel between r, which has been entered, and peer; it is added if not there. */
static uint32_t chan_of(PrRun *run, ChanFind *f, uint32_t r, uint32_t peer, bool to_peer) {
  uint32_t src = to_peer ? r : peer, dst = to_peer ? peer : r, i = f->at[to_peer][peer];
  if (i < f->n && run->chan[i].src == src && run->chan[i].dst == dst)
    return i;
  i = f->at[to_peer][peer] = f->n++;
  run->chan[i].src = src;
  run->chan[i].dst = dst;
  if (peer > r) {
    f->next[i] = f->first[peer];
    f->first[peer] = i;
  }
  return i;
}

/* Numbers the ties: those of a row are coll[nmodel + number]. Returns how many there are. */
static uint32_t number_ties(const PipeProgram *p, uint32_t *tie) {
  uint32_t n = 0;
  for (uint32_t s = 0; s < p->nstage; s++)
    tie[s] = PIPE_NONE;
  for (uint32_t s = 0; s < p->nstage; s++) {
    if (p->stage[s].tied != s || tie[s] != PIPE_NONE)
      continue;
    for (uint32_t q = s; tie[q] == PIPE_NONE; q = p->stage[q].tie)
      tie[q] = n;
    n++;
  }
  for (uint32_t s = 0; s < p->nstage; s++)
    if (p->stage[s].tied != PIPE_NONE)
      tie[s] = tie[p->stage[s].tied];
  return n;
}

/* Finds who takes part in each REDUCE and TIE. Gradients have addresses by now. */
PrStatus pr_take_sums(PrRun *run) {
  const PipeProgram *p = run->p;
  run->coll_block = calloc(p->nstage, 4 * sizeof(void *) + 11 * sizeof(uint32_t));
  if (!run->coll_block)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u stages", p->nstage);
  void **ptr = run->coll_block; /* a row is in one REDUCE, and perhaps one TIE */
  uint32_t *num = (uint32_t *)(ptr + 4 * (size_t)p->nstage);
  uint32_t *tie = num; /* of a row */
  num += p->nstage;
  uint32_t n = p->nmodel + number_ties(p, tie);
  run->coll = aligned_alloc(PR_LINE, n * sizeof *run->coll);
  if (!run->coll)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u stages", p->nstage);
  memset(run->coll, 0, n * sizeof *run->coll);
  for (uint32_t r = 0; r < p->nrank; r++) {
    RankRun *k = &run->rank[r];
    for (uint32_t i = 0; i < k->ncomm; i++) {
      const PipeInstr *c = &k->t->instr[k->comm[i].index];
      if (c->op == PIPE_TIE)
        k->comm[i].chan = p->nmodel + tie[c->stage];
    }
  }
  for (uint32_t s = 0; s < p->nstage; s++) {
    run->coll[p->stage[s].model].n++;
    if (tie[s] != PIPE_NONE)
      run->coll[p->nmodel + tie[s]].n++;
  }
  for (uint32_t i = 0; i < n; i++) { /* room for all rows of each */
    Coll *l = &run->coll[i];
    l->grad = ptr, l->copy = ptr + l->n, l->row = num, l->index = num + l->n,
    l->stage = num + 2 * l->n, l->grad_row = num + 3 * l->n, l->copy_row = num + 4 * l->n;
    ptr += 2 * l->n, num += 5 * l->n;
    l->n = 0;
    l->tie = i >= p->nmodel;
  }
  for (uint32_t s = 0; s < p->nstage; s++) { /* rows in order: so are the members */
    Coll *l = &run->coll[p->stage[s].model];
    l->row[l->n] = s;
    l->stage[l->ngrad] = p->stage[s].model;
    l->grad_row[l->ngrad] = s;
    l->grad[l->ngrad++] = run->stage[s].grad;
    l->n++;
  }
  for (uint32_t s = 0; s < p->nstage; s++) {
    if (tie[s] == PIPE_NONE)
      continue;
    Coll *l = &run->coll[p->nmodel + tie[s]];
    uint32_t m = p->stage[s].model;
    if (p->stage[s].tied == s)
      l->row[l->n++] = s;
    if (m == s) { /* the first row of its stage: they ascend */
      l->stage[l->ngrad] = m;
      l->grad_row[l->ngrad] = s;
      l->grad[l->ngrad++] = run->stage[s].grad;
    } else {
      l->copy_row[l->ncopy] = s;
      l->copy[l->ncopy++] = run->stage[s].grad;
    }
  }
  return PR_OK;
}

/* Splits each list into its streams and finds the channels. Each needs a SEND, which bounds their
 * number. Linear in instructions and ranks. */
PrStatus pr_take_streams(PrRun *run) {
  const PipeProgram *p = run->p;
  ChanFind f = {.room = 2 * (size_t)p->nstage};
  for (uint32_t r = 0; p->edge && r < p->nrank; r++)
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++)
      f.room += p->rank[r].instr[i].op == PIPE_SEND_F || p->rank[r].instr[i].op == PIPE_SEND_B;
  bool *graded = calloc(p->nstage, sizeof *graded);
  f.at[0] = calloc(2 * (size_t)p->nrank, sizeof *f.at[0]);
  f.first = malloc(p->nrank * sizeof *f.first);
  f.next = malloc(f.room * sizeof *f.next);
  run->chan = aligned_alloc(PR_LINE, f.room * sizeof *run->chan);
  bool ok = graded && f.at[0] && f.first && f.next && run->chan;
  if (ok) {
    f.at[1] = f.at[0] + p->nrank;
    memset(f.first, 0xff, p->nrank * sizeof *f.first);
    memset(run->chan, 0, f.room * sizeof *run->chan);
  }
  for (uint32_t r = 0; ok && r < p->nrank; r++) {
    RankRun *k = &run->rank[r];
    const PipeRank *t = k->t;
    k->compute = malloc((t->ninstr + (size_t)1) * sizeof *k->compute);
    k->comm = malloc((t->ninstr + (size_t)1) * sizeof *k->comm);
    k->copy = malloc((t->ninstr + (size_t)1) * sizeof *k->copy);
    ok = k->compute && k->comm && k->copy;
    chan_enter(run, &f, r);
    for (uint32_t i = 0; ok && i < t->ninstr; i++) {
      const PipeInstr *c = &t->instr[i];
      if (c->op == PIPE_SEND_F || c->op == PIPE_SEND_B) {
        k->comm[k->ncomm++] = (CommAt){i, chan_of(run, &f, r, c->peer, true), COMM_WAITS};
      } else if (pipe_is_sum(c->op)) { /* of a TIE: pr_take_sums says it */
        k->comm[k->ncomm++] = (CommAt){i, p->stage[c->stage].model, COMM_WAITS};
      } else if (c->op == PIPE_SIDE_COMM) {
        k->comm[k->ncomm++] = (CommAt){i, PIPE_NONE, COMM_WAITS};
      } else if (pipe_op_info[c->op].comm) {
        k->comm[k->ncomm++] = (CommAt){i, chan_of(run, &f, r, c->peer, false), COMM_WAITS};
      } else if (pipe_op_info[c->op].stream == PIPE_COPY) {
        k->copy[k->ncopy++] = (CopyAt){i};
      } else {
        bool grad = c->op == PIPE_B || c->op == PIPE_W;
        k->compute[k->ncompute++] = (ComputeAt){i, grad && !graded[c->stage], 0,
                                                run->stage[c->stage].nupdate, 0};
        run->stage[c->stage].nupdate += c->op == PIPE_U;
        if (c->op != PIPE_SIDE)
          graded[c->stage] = c->op != PIPE_U && (graded[c->stage] || grad);
      }
    }
  }
  free(graded);
  free(f.at[0]);
  free(f.first);
  free(f.next);
  return ok ? PR_OK : pr_fail(run, PR_E_MEMORY, "no memory for the streams of the ranks");
}

/* With slices, where the stash of every unit lies: what takes it has the same slot in every step. */
PrStatus pr_take_stashes(PrRun *run) {
  const PipeProgram *p = run->p;
  if (pipe_slices(p) == 1)
    return PR_OK;
  size_t n = 0;
  for (uint32_t s = 0; s < p->nstage; s++)
    n += p->stage[s].nmb;
  void **act = run->act = calloc(2 * n, sizeof *act);
  bool *done = calloc(n, sizeof *done); /* its backward: a LOAD behind that is for W alone */
  if (!act || !done) {
    free(done);
    return pr_fail(run, PR_E_MEMORY, "no memory for %u units", p->nmb);
  }
  for (uint32_t s = 0; s < p->nstage; act += p->stage[s++].nmb)
    run->stage[s].act = act, run->stage[s].back = act + n;
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; pr_is_here(run, r) && i < p->rank[r].ninstr; i++) {
      const PipeInstr *c = &p->rank[r].instr[i];
      const StageRun *at = &run->stage[c->stage];
      uint32_t unit = c->mb - p->stage[c->stage].mb0;
      if (c->op == PIPE_F)
        at->act[unit] = run->rank[r].slot[c->act];
      size_t all = (size_t)(at->act - run->act) + unit;
      if (c->op == PIPE_F || c->op == PIPE_R || (c->op == PIPE_LOAD && !done[all]))
        at->back[unit] = run->rank[r].slot[c->act];
      if (c->op == PIPE_B || c->op == PIPE_I)
        done[all] = true;
    }
  free(done);
  return PR_OK;
}
