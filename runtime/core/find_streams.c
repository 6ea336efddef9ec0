/* SPDX-License-Identifier: MIT
 * Derives the streams of ranks from the table, once: the instructions of each stream, the directed
 * pairs (Chan) between ranks of this process, the members of each REDUCE and TIE, and, with slices,
 * the place of the stash of every unit. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

/* Chans while they are being found, rank after rank, each lookup in constant time. For the current
 * rank, `at` has the index of the Chan from or to each peer; an entry left by an earlier rank shows
 * in src and dst of its Chan. A Chan found first from the lower rank is in a list of the higher
 * rank, which enters its list into `at` at its turn. */
typedef struct ChanFind {
  uint32_t *at[2];        /* [nrank] each: Chan from a peer, to a peer */
  uint32_t *first, *next; /* lists: [nrank], [room]; PIPE_NONE ends a list */
  uint32_t n;
  size_t room;
} ChanFind;

static void chan_enter(PrRun *run, ChanFind *f, uint32_t r) {
  for (uint32_t i = f->first[r]; i != PIPE_NONE; i = f->next[i]) {
    const Chan *c = &run->chan[i];
    f->at[c->src == r][c->src == r ? c->dst : c->src] = i;
  }
}

/* The index of the Chan between r, which has been entered, and peer; adds it if necessary. */
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

/* Numbers the ties: coll[nmodel + tie[s]] is the tie of row s. Returns their count. */
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

/* With lowering CHANNELS: sets stream c as the one that contains its sums. */
static void find_sums(PrRun *run, CommRun *c) {
  for (uint32_t i = 0; i < c->n; i++) {
    const PipeInstr *in = pr_comm_instr(c, i);
    Coll *l = pipe_is_sum(in->op) ? &run->coll[pr_comm_at(c, i)->chan] : NULL;
    for (uint32_t j = 0; l && j < l->n; j++)
      if (l->row[j] == in->stage)
        l->at[j] = c;
  }
}

/* Finds the members of each REDUCE and TIE. Requires addresses of gradients. */
PrStatus pr_take_sums(PrRun *run) {
  const PipeProgram *p = run->p;
  run->coll_block = calloc(p->nstage, 6 * sizeof(void *) + 11 * sizeof(uint32_t));
  if (!run->coll_block)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u stages", p->nstage);
  void **ptr = run->coll_block; /* a row is in one REDUCE and at most one TIE */
  CommRun **at = (CommRun **)(ptr + 4 * (size_t)p->nstage);
  uint32_t *num = (uint32_t *)(at + 2 * (size_t)p->nstage);
  uint32_t *tie = num; /* number of the tie of a row */
  num += p->nstage;
  uint32_t n = run->ncoll = p->nmodel + number_ties(p, tie);
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
  for (uint32_t i = 0; i < n; i++) { /* arrays for the rows of each */
    Coll *l = &run->coll[i];
    const size_t each = l->n;
    l->grad = ptr, l->copy = ptr + each, l->row = num, l->index = num + each,
    l->stage = num + 2 * each, l->grad_row = num + 3 * each, l->copy_row = num + 4 * each;
    l->at = at;
    ptr += 2 * each, num += 5 * each, at += each;
    l->n = 0;
    l->tie = i >= p->nmodel;
  }
  for (uint32_t s = 0; s < p->nstage; s++) { /* rows are in order, so members are too */
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
    if (m == s) { /* the first row of its stage; these ascend */
      l->stage[l->ngrad] = m;
      l->grad_row[l->ngrad] = s;
      l->grad[l->ngrad++] = run->stage[s].grad;
    } else {
      l->copy_row[l->ncopy] = s;
      l->copy[l->ncopy++] = run->stage[s].grad;
    }
  }
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < run->coll[i].n; j++)
      run->coll[i].at[j] = run->rank[p->stage[run->coll[i].row[j]].rank].stream;
  for (uint32_t r = 0; p->nchannel && r < p->nrank; r++)
    for (uint32_t x = 0; x < run->rank[r].nstream; x++)
      find_sums(run, &run->rank[r].stream[x]);
  return PR_OK;
}

/* Resolves the waits of rank k. of[queue]: number of the COMM stream. */
static void take_needs(RankRun *k, const uint32_t *of) {
  const PipeRank *t = k->t;
  for (uint32_t i = 0; i < t->ninstr; i++)
    for (uint32_t at = pipe_wait0(t, i); at < pipe_wait_end(t, i); at++)
      k->comm_joins |= pipe_op_info[t->instr[i].op].comm && t->wait[at].queue != PIPE_COMPUTE &&
                       t->wait[at].queue != PIPE_COPY;
  for (uint32_t i = 0; i < t->nwait; i++) {
    const PipeWait wait = t->wait[i];
    if (wait.queue == PIPE_COMPUTE) {
      k->need[i] = (Need){&k->compute_done, k->ncompute, wait.count, PIPE_COMPUTE};
    } else if (wait.queue == PIPE_COPY) {
      k->need[i] = (Need){&k->copy_done, k->ncopy, wait.count, PIPE_COPY};
    } else {
      const CommRun *stream = &k->stream[of[wait.queue]];
      k->need[i] = (Need){&stream->done, stream->n, wait.count, pr_comm_queue(stream->number)};
    }
  }
}

/* Makes the COMM streams of rank k, one for each queue, and its needs. */
static bool take_comm(const PipeProgram *p, RankRun *k) {
  const PipeRank *t = k->t;
  const size_t nqueue = PIPE_NSTREAMS + (size_t)p->nchannel;
  uint32_t at = 0;
  uint32_t *of = malloc(nqueue * sizeof *of);
  if (!of)
    return false;
  memset(of, 0xff, nqueue * sizeof *of);
  if (p->lowering != PIPE_CHANNELS)
    of[PIPE_COMM] = k->nstream++; /* exists even if it is empty */
  for (uint32_t i = 0; i < k->ncomm; i++) {
    uint32_t *number = &of[pipe_queue(p->lowering, &t->instr[k->comm[i].index])];
    *number = *number == PIPE_NONE ? k->nstream++ : *number;
  }
  k->stream = aligned_alloc(PR_LINE, (k->nstream + (size_t)1) * sizeof *k->stream);
  k->place = malloc((k->ncomm + (size_t)1) * sizeof *k->place);
  k->need = malloc((t->nwait + (size_t)1) * sizeof *k->need);
  if (!k->stream || !k->place || !k->need) {
    free(of);
    return false;
  }
  for (uint32_t x = 0; x <= k->nstream; x++)
    k->stream[x] = (CommRun){.k = k, .number = x};
  for (uint32_t i = 0; i < k->ncomm; i++)
    k->stream[of[pipe_queue(p->lowering, &t->instr[k->comm[i].index])]].n++;
  for (uint32_t x = 0; x < k->nstream; at += k->stream[x++].n)
    k->stream[x].place = k->place + at;
  for (uint32_t i = 0; i < k->ncomm; i++) {
    CommRun *stream = &k->stream[of[pipe_queue(p->lowering, &t->instr[k->comm[i].index])]];
    k->place[stream->place - k->place + stream->next++] = i;
  }
  for (uint32_t x = 0; x < k->nstream; x++)
    k->stream[x].next = 0;
  take_needs(k, of);
  free(of);
  return true;
}

bool pr_is_ready(const RankRun *k, uint32_t row, uint64_t step) {
  for (uint32_t i = pipe_wait0(k->t, row); i < pipe_wait_end(k->t, row); i++)
    if (!pr_is_met(&k->need[i], step))
      return false;
  return true;
}

uint32_t pr_comm_prefix(const RankRun *k, uint64_t step, const CommRun **of) {
  uint32_t least = k->ncomm;
  *of = k->stream;
  for (uint32_t x = 0; x < k->nstream; x++) {
    const CommRun *c = &k->stream[x];
    uint64_t done = atomic_load(&c->done), before = step * c->n;
    uint32_t i = done <= before ? 0 : done - before < c->n ? (uint32_t)(done - before) : c->n;
    uint32_t at = i == c->n ? k->ncomm : c->place[i];
    if (at < least)
      *of = c, least = at;
  }
  return least;
}

/* Finds the Fs that are recomputed. Walks backwards: R comes after its F. */
static bool take_recomputed(const PipeProgram *p, RankRun *k) {
  bool *again = calloc((size_t)k->nstage * p->nmb + 1, sizeof *again);
  for (uint32_t i = again ? k->ncompute : 0; i-- > 0;) {
    const PipeInstr *c = &k->t->instr[k->compute[i].index];
    bool *of = pipe_is_side(c->op) || c->mb == PIPE_NONE
                   ? NULL
                   : &again[(size_t)p->stage[c->stage].chunk * p->nmb + c->mb];
    if (c->op == PIPE_F)
      k->compute[i].recomputed = *of;
    else if (c->op == PIPE_R)
      *of = true;
  }
  free(again);
  return again != NULL;
}

bool pr_take_streams_of(PrRun *run, RankRun *k) {
  const PipeProgram *p = run->p;
  const PipeRank *t = k->t;
  bool *graded = calloc(k->nstage + (size_t)1, sizeof *graded); /* by PipeStage.chunk */
  k->compute = malloc((t->ninstr + (size_t)1) * sizeof *k->compute);
  k->comm = malloc((t->ninstr + (size_t)1) * sizeof *k->comm);
  k->copy = malloc((t->ninstr + (size_t)1) * sizeof *k->copy);
  bool ok = graded && k->compute && k->comm && k->copy;
  for (uint32_t i = 0; ok && i < t->ninstr; i++) {
    const PipeInstr *c = &t->instr[i];
    bool *g = &graded[p->stage[c->stage].chunk];
    if (pipe_is_sum(c->op)) { /* TIE: pr_take_sums sets it */
      k->comm[k->ncomm++] = (CommAt){i, p->stage[c->stage].model};
    } else if (pipe_op_info[c->op].comm) {
      k->comm[k->ncomm++] = (CommAt){i, PIPE_NONE};
    } else if (pipe_stream_of(c->op) == PIPE_COPY) {
      k->copy[k->ncopy++] = (CopyAt){i};
    } else {
      bool grad = c->op == PIPE_B || c->op == PIPE_W;
      uint32_t *n = &run->stage[c->stage].nupdate;
      k->compute[k->ncompute++] = (ComputeAt){.index = i, .first_grad = grad && !*g, .updates = *n};
      *n += c->op == PIPE_U;
      if (c->op != PIPE_SIDE)
        *g = c->op != PIPE_U && (*g || grad);
    }
  }
  for (uint32_t i = 0; ok && i < k->nstage; i++)
    run->stage[k->stage[i]].left = graded[i];
  free(graded);
  return ok && take_recomputed(p, k) && take_comm(p, k);
}

void pr_give_streams(RankRun *k) {
  free(k->compute);
  free(k->comm);
  free(k->copy);
  free(k->place);
  free(k->need);
  free(k->stream);
  k->compute = NULL, k->comm = NULL, k->copy = NULL, k->place = NULL, k->stream = NULL;
  k->need = NULL;
  k->ncompute = k->ncomm = k->ncopy = k->nstream = 0;
}

static bool receives(const PipeInstr *c) { return c->op == PIPE_RECV_F || c->op == PIPE_RECV_B; }

/* Finds the Chans of all ranks and the streams at their ends. Each has a SEND, which bounds their
 * number. Linear in instructions and ranks. */
static bool take_chans(PrRun *run) {
  const PipeProgram *p = run->p;
  ChanFind f = {.room = p->nchannel ? p->nchannel : 2 * (size_t)p->nstage};
  for (uint32_t r = 0; p->edge && !p->nchannel && r < p->nrank; r++)
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++)
      f.room += pipe_is_send(p->rank[r].instr[i].op);
  f.at[0] = calloc(2 * (size_t)p->nrank, sizeof *f.at[0]);
  f.first = malloc(p->nrank * sizeof *f.first);
  f.next = malloc(f.room * sizeof *f.next);
  run->chan = aligned_alloc(PR_LINE, f.room * sizeof *run->chan);
  bool ok = f.at[0] && f.first && f.next && run->chan;
  for (uint32_t i = 0; ok && i < p->nchannel; i++)
    run->chan[i] = (Chan){.src = p->channel[i].from, .dst = p->channel[i].to};
  if (ok && !p->nchannel) {
    f.at[1] = f.at[0] + p->nrank;
    memset(f.first, 0xff, p->nrank * sizeof *f.first);
    memset((void *)run->chan, 0, f.room * sizeof *run->chan);
  }
  for (uint32_t r = 0; ok && r < p->nrank; r++) {
    RankRun *k = &run->rank[r];
    if (!p->nchannel)
      chan_enter(run, &f, r);
    for (uint32_t x = 0; x < k->nstream; x++)
      for (uint32_t i = 0; i < k->stream[x].n; i++) {
        const PipeInstr *c = pr_comm_instr(&k->stream[x], i);
        if (!pipe_is_move(c->op))
          continue;
        uint32_t chan = p->nchannel ? c->channel : chan_of(run, &f, r, c->peer, !receives(c));
        pr_comm_at(&k->stream[x], i)->chan = chan;
        run->chan[chan].end[receives(c)] = &k->stream[x];
      }
  }
  free(f.at[0]);
  free(f.first);
  free(f.next);
  return ok;
}

PrStatus pr_take_streams(PrRun *run) {
  bool ok = true;
  for (uint32_t r = 0; ok && r < run->p->nrank; r++)
    ok = !pr_is_here(run, r) || pr_take_streams_of(run, &run->rank[r]);
  run->sees_all = ok && run->here == PIPE_NONE;
  ok = ok && (!run->sees_all || take_chans(run));
  return ok ? PR_OK : pr_fail(run, PR_E_MEMORY, "no memory for the streams of the ranks");
}

/* With slices: finds the place of the stash of every unit. The ops that fill it use the same slot
 * in every step. */
PrStatus pr_take_stashes(PrRun *run) {
  const PipeProgram *p = run->p;
  if (pipe_slices(p) == 1)
    return PR_OK;
  size_t n = 0;
  for (uint32_t s = 0; s < p->nstage; s++)
    n += p->stage[s].nmb;
  void **act = run->act = calloc(2 * n, sizeof *act);
  bool *done = calloc(n, sizeof *done); /* its backward was seen: a later LOAD is for W alone */
  if (!act || !done) {
    free(done);
    return pr_fail(run, PR_E_MEMORY, "no memory for %u units", p->nmb);
  }
  for (uint32_t s = 0; s < p->nstage; act += p->stage[s++].nmb)
    run->stage[s].act = act, run->stage[s].back = act + n;
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; pr_is_here(run, r) && i < p->rank[r].ninstr; i++) {
      const PipeInstr *c = &run->rank[r].t->instr[i];
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
