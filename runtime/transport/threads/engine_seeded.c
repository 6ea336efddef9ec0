/* SPDX-License-Identifier: MIT
 * The engine without threads: carries out one instruction after the other, picked at random among
 * the heads that can go on. For one seed the order is always the same, so a failure that depends on
 * the order replays; over many seeds a program shows the same results in all of them.
 *
 * Only the heads of each rank's streams need to be looked at, and after an instruction only the
 * ranks it touched: `ready` holds what can go on, each entry once. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

/* An entry of `ready`: a rank's COMPUTE or COPY head, or a transfer, named by the stream that
 * sends, or a sum (REDUCE, TIE), named by that of its first row. */
typedef struct Ready {
  uint32_t at; /* rank; of COMM: row of Seeded.stream */
  PipeOn on;
  uint32_t place; /* of COMM: place in the stream */
} Ready;

typedef struct Seeded {
  PrRun *run;
  uint64_t step;
  uint32_t *compute, *copy; /* [nrank]: done in this step */
  CommRun **stream;
  uint32_t nstream;  /* of COMM, of all ranks, rank after rank */
  uint32_t *stream0; /* [nrank] the first of each */
  uint32_t *comm;    /* [nstream]: done in this step; of a group none until all are */
  bool *queued
      [PIPE_NSTREAMS]; /* by Ready.on, Ready.at; of COMM no transfer: CommAt.state says that */
  uint32_t *turn;      /* [ngroup] the next one */
  Ready *ready; /* one for COMPUTE and COPY of each rank, and for each of its largest group */
  uint32_t nready;
} Seeded;

static uint64_t draw(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static void put(Seeded *s, uint32_t at, PipeOn on) {
  if (!s->queued[on][at])
    s->ready[s->nready++] = (Ready){at, on, on == PIPE_COMM ? s->comm[at] : 0};
  s->queued[on][at] = true;
}

static uint32_t row_of(const Seeded *s, const CommRun *c) {
  return s->stream0[c->k->id] + c->number;
}
static uint32_t done_of(const Seeded *s, const CommRun *c) { return s->comm[row_of(s, c)]; }

/* What the sum at the head of c adds up. */
static const Coll *coll_of(const Seeded *s, const CommRun *c) {
  return &s->run->coll[pr_comm_at(c, done_of(s, c))->chan];
}

/* The head of c if it has its wait, else NULL. */
static const PipeInstr *comm_head(const Seeded *s, const CommRun *c) {
  if (done_of(s, c) == c->n)
    return NULL;
  const PipeInstr *in = pr_comm_instr(c, done_of(s, c));
  return in->wait <= s->compute[c->k->id] && in->wait_copy <= s->copy[c->k->id] ? in : NULL;
}

static bool is_send(const PipeInstr *c) { return c->op == PIPE_SEND_F || c->op == PIPE_SEND_B; }

static uint32_t group_of(const Seeded *s, const CommRun *c) {
  return pr_comm_instr(c, done_of(s, c))->group + 1u;
}

/* The first transfer at the head of c that is not done and sends to (or receives from) peer: its
 * place; PIPE_NONE. */
static uint32_t member(Seeded *s, const CommRun *c, uint32_t peer, bool send) {
  for (uint32_t i = done_of(s, c), end = i + group_of(s, c); i < end; i++) {
    const PipeInstr *in = pr_comm_instr(c, i);
    if (pr_comm_at(c, i)->state != COMM_DONE && in->peer == peer && is_send(in) == send)
      return i;
  }
  return PIPE_NONE;
}

/* The stream that has the other end of transfer number i of c. */
static const CommRun *mate_of(const Seeded *s, const CommRun *c, uint32_t i) {
  return s->run->chan[pr_comm_at(c, i)->chan].end[is_send(pr_comm_instr(c, i))];
}

/* Notes the transfers at the head of c, which has its waits, whose other ends are there. */
static void look_at_transfers(Seeded *s, CommRun *c) {
  for (uint32_t i = done_of(s, c), end = i + group_of(s, c); i < end; i++) {
    CommAt *mine = pr_comm_at(c, i);
    const PipeInstr *in = pr_comm_instr(c, i);
    bool send = is_send(in);
    const CommRun *o = mate_of(s, c, i);
    const PipeInstr *d = mine->state == COMM_WAITS && o ? comm_head(s, o) : NULL;
    if (!d || pipe_is_sum(d->op) || d->op == PIPE_SIDE_COMM || member(s, c, in->peer, send) != i)
      continue;
    uint32_t theirs = member(s, o, c->k->id, !send);
    if (theirs == PIPE_NONE)
      continue;
    mine->state = pr_comm_at(o, theirs)->state = COMM_POSTED;
    s->ready[s->nready++] = (Ready){row_of(s, send ? c : o), PIPE_COMM, send ? i : theirs};
  }
}

static void look_at_comm(Seeded *s, CommRun *c) {
  const PipeInstr *in = comm_head(s, c);
  if (in && in->op == PIPE_SIDE_COMM) {
    put(s, row_of(s, c), PIPE_COMM);
  } else if (in && pipe_is_sum(in->op)) {
    const Coll *l = coll_of(s, c);
    for (uint32_t j = 0; j < l->n; j++) {
      const PipeInstr *d = comm_head(s, l->at[j]);
      if (!d || d->op != in->op || d->stage != l->row[j])
        return;
    }
    put(s, row_of(s, l->at[0]), PIPE_COMM);
  } else if (in) {
    look_at_transfers(s, c);
  }
}

/* Has instruction i of COMPUTE (copy 0) or COPY (1) what it needs of COMM? */
static bool has_comm(const Seeded *s, const RankRun *k, int copy, uint32_t i, uint32_t wait) {
  CommNeed one;
  uint32_t n;
  const CommNeed *need = pr_needs(k, copy, i, wait, &one, &n);
  for (uint32_t j = 0; j < n; j++)
    if (done_of(s, &k->stream[need[j].stream]) < need[j].count)
      return false;
  return true;
}

static void look_at(Seeded *s, uint32_t r) {
  const RankRun *k = &s->run->rank[r];
  uint32_t i = s->compute[r], j = s->copy[r];
  if (i < k->ncompute && k->t->instr[k->compute[i].index].wait_copy <= j &&
      has_comm(s, k, 0, i, k->t->instr[k->compute[i].index].wait))
    put(s, r, PIPE_COMPUTE);
  if (j < k->ncopy) {
    const PipeInstr *copy = &k->t->instr[k->copy[j].index];
    if (copy->wait <= i && has_comm(s, k, 1, j, copy->wait_copy) &&
        (!k->turns || s->turn[k->t->group - 1] == copy->turn))
      put(s, r, PIPE_COPY);
  }
  for (uint32_t x = 0; x < k->nstream; x++)
    look_at_comm(s, &k->stream[x]);
}

/* One side of a transfer is done, and with the last the group at the head of c. */
static void member_done(Seeded *s, const CommRun *c, uint32_t place) {
  CommAt *first = pr_comm_at(c, done_of(s, c));
  uint32_t n = group_of(s, c);
  pr_comm_at(c, place)->state = COMM_DONE;
  for (uint32_t i = 0; i < n; i++)
    if (first[i].state != COMM_DONE)
      return;
  for (uint32_t i = 0; i < n; i++)
    first[i].state = COMM_WAITS;
  s->comm[row_of(s, c)] += n;
}

/* Carries out the sum at the head of c. Returns how many instructions that is. */
static uint32_t carry_out_sum(Seeded *s, const CommRun *c, PrStatus *st) {
  const Coll *l = coll_of(s, c);
  for (uint32_t j = 0; j < l->n; j++) {
    l->index[j] = pr_comm_at(l->at[j], done_of(s, l->at[j]))->index;
    pr_fault_at(s->run, l->at[j]->k->id, l->index[j], s->step);
  }
  *st = pr_sum(s->run, l, s->step);
  for (uint32_t j = 0; j < l->n; j++)
    s->comm[row_of(s, l->at[j])]++;
  for (uint32_t j = 0; j < l->n; j++)
    look_at(s, l->at[j]->k->id);
  return l->n;
}

/* *n: how many instructions that was. */
static PrStatus carry_out(Seeded *s, Ready e, uint32_t *n) {
  PrRun *run = s->run;
  CommRun *c = e.on == PIPE_COMM ? s->stream[e.at] : NULL;
  RankRun *k = c ? c->k : &run->rank[e.at];
  PrStatus st = PR_OK;
  *n = 1;
  if (e.on == PIPE_COPY) {
    pr_fault_at(run, k->id, k->copy[s->copy[e.at]].index, s->step);
    st = pr_copy(run, k, &k->copy[s->copy[e.at]], s->step);
    s->copy[e.at]++;
    uint32_t *turn = k->turns ? &s->turn[k->t->group - 1] : NULL;
    if (turn && ++*turn < k->turns->n)
      look_at(s, k->turns->rank[*turn]);
  } else if (e.on == PIPE_COMPUTE) {
    st = pr_compute(run, k, &k->compute[s->compute[e.at]], s->step, n);
    s->compute[e.at] += *n;
  } else if (comm_head(s, c)->op == PIPE_SIDE_COMM) {
    pr_fault_at(run, k->id, pr_comm_at(c, s->comm[e.at])->index, s->step);
    st = pr_side(run, k, pr_comm_at(c, s->comm[e.at])->index, s->step);
    s->comm[e.at]++;
  } else {
    Chan *ch = &run->chan[pr_comm_at(c, e.place)->chan];
    CommRun *o = ch->end[1];
    uint32_t recv = member(s, o, k->id, false);
    const bool corrupt = pr_fault_at(run, k->id, pr_comm_at(c, e.place)->index, s->step) ==
                         PR_CORRUPT;
    pr_fault_at(run, o->k->id, pr_comm_at(o, recv)->index, s->step);
    ch->post[0] = (Post){pr_comm_instr(c, e.place), k->id, corrupt, s->step, e.place, c};
    ch->post[1] = (Post){pr_comm_instr(o, recv), o->k->id, false, s->step, recv, o};
    st = pr_transfer(run, ch);
    member_done(s, c, e.place);
    member_done(s, o, recv);
    look_at(s, o->k->id);
    *n = 2;
  }
  look_at(s, k->id);
  return st;
}

/* Nothing can go on, but not all is done: tells pr_report_stall where the streams are. */
static PrStatus stalled(Seeded *s) {
  for (uint32_t x = 0; x < s->nstream; x++) {
    CommRun *c = s->stream[x]; /* nothing is queued: a posted one would be ready */
    c->next = s->comm[x];
    c->active = s->comm[x] < c->n;
    atomic_store(&c->done, s->step * c->n + s->comm[x]);
  }
  for (uint32_t r = 0; r < s->run->p->nrank; r++)
    atomic_store(&s->run->rank[r].compute_done, s->step * s->run->rank[r].ncompute + s->compute[r]);
  for (uint32_t g = 0; g < s->run->p->ngroup; g++)
    atomic_store(&s->run->turns[g].done, s->turn[g]);
  return pr_report_stall(s->run);
}

static PrStatus run_step(Seeded *s) {
  PrRun *run = s->run;
  uint64_t left = 0;
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    s->compute[r] = s->copy[r] = 0;
    left += run->p->rank[r].ninstr;
  }
  memset(s->comm, 0, s->nstream * sizeof *s->comm);
  for (uint32_t g = 0; g < run->p->ngroup; g++)
    s->turn[g] = 0;
  for (uint32_t r = 0; r < run->p->nrank; r++)
    look_at(s, r);
  while (s->nready > 0) {
    uint32_t pick = (uint32_t)(draw(&run->random) % s->nready);
    Ready e = s->ready[pick];
    s->ready[pick] = s->ready[--s->nready];
    PrStatus st;
    bool alone = s->queued[e.on][e.at]; /* no transfer */
    s->queued[e.on][e.at] = false;
    if (e.on == PIPE_COMM && alone && pipe_is_sum(comm_head(s, s->stream[e.at])->op)) {
      left -= carry_out_sum(s, s->stream[e.at], &st);
    } else {
      uint32_t n;
      st = carry_out(s, e, &n);
      left -= n;
    }
    if (st)
      return st;
  }
  if (left > 0)
    return stalled(s);
  for (uint32_t r = 0; r < run->p->nrank; r++)
    atomic_store(&run->rank[r].step, s->step + 1);
  pr_step_done(run, s->step);
  return PR_OK;
}

static PrStatus seeded_open(PrRun *run) {
  PrStatus st = PR_OK;
  run->random = run->o.seed;
  for (uint32_t r = 0; !st && r < run->p->nrank; r++)
    st = pr_init_rank(run, &run->rank[r]);
  return st;
}

static PrStatus seeded_steps(PrRun *run, uint64_t n) {
  size_t nrank = run->p->nrank;
  PrStatus st = PR_OK;
  Seeded s = {.run = run};
  size_t room = 2 * nrank;
  for (uint32_t r = 0; r < nrank; r++)
    s.nstream += run->rank[r].nstream;
  size_t most = s.nstream > nrank ? s.nstream : nrank;
  s.compute = calloc(2 * nrank + s.nstream, sizeof *s.compute);
  s.queued[0] = calloc(PIPE_NSTREAMS * most, sizeof *s.queued[0]);
  s.stream = calloc(s.nstream, sizeof *s.stream);
  s.stream0 = calloc(nrank, sizeof *s.stream0);
  for (uint32_t r = 0, x = 0; s.stream && s.stream0 && r < nrank; r++) {
    s.stream0[r] = x;
    for (uint32_t i = 0; i < run->rank[r].nstream; i++)
      s.stream[x++] = &run->rank[r].stream[i];
  }
  for (uint32_t x = 0; s.stream && s.stream0 && x < s.nstream; x++) {
    uint32_t longest = 1;
    for (uint32_t i = 0; i < s.stream[x]->n; i++) {
      uint32_t group = pr_comm_instr(s.stream[x], i)->group;
      longest = group + 1u > longest ? group + 1u : longest;
    }
    room += longest;
  }
  s.ready = calloc(room, sizeof *s.ready);
  s.turn = calloc(run->p->ngroup + (size_t)1, sizeof *s.turn);
  if (!s.turn || !s.compute || !s.queued[0] || !s.ready || !s.stream || !s.stream0) {
    st = pr_fail(run, PR_E_MEMORY, "no memory for %zu ranks", nrank);
    goto done;
  }
  s.copy = s.compute + nrank;
  s.comm = s.copy + nrank;
  s.queued[1] = s.queued[0] + most;
  s.queued[2] = s.queued[1] + most;
  s.step = atomic_load(&run->rank[0].step);
  for (uint64_t i = 0; i < n && !st; i++, s.step++)
    st = run_step(&s);

done:
  free(s.compute);
  free(s.stream);
  free(s.stream0);
  free(s.queued[0]);
  free(s.ready);
  free(s.turn);
  return st;
}

const PrEngine pr_seeded = {.name = "seeded", .open = seeded_open, .steps = seeded_steps};
