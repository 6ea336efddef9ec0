/* SPDX-License-Identifier: MIT
 * The engine without threads: carries out one instruction after the other, picked at random among
 * the heads that can go on. For one seed the order is always the same, so a failure that depends on
 * the order replays; over many seeds a program shows the same results in all of them.
 *
 * Only the heads of each rank's streams need to be looked at, and after an instruction only the ranks it
 * touched: `ready` holds what can go on, each entry once. */
#include "run.h"

#include <stdlib.h>

/* An entry of `ready`: a rank's COMPUTE or COPY head, or a transfer, named by its sender, or a sum
 * (REDUCE, TIE), named by the rank of its first row. */
typedef struct Ready {
  uint32_t rank;
  PipeOn on;
  uint32_t at; /* of COMM: place in the stream */
} Ready;

typedef struct Seeded {
  PrRun *run;
  uint64_t step;
  uint32_t *compute, *comm, *copy; /* [nrank]: done in this step; of a group none until all are */
  bool
      *queued[PIPE_NSTREAMS]; /* [nrank] by Ready.on; of COMM no transfer: CommAt.state says that */
  uint32_t *turn;             /* [ngroup] the next one */
  Ready *ready; /* one for COMPUTE and COPY of each rank, and for each of its largest group */
  uint32_t nready;
} Seeded;

static uint64_t draw(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static void put(Seeded *s, uint32_t rank, PipeOn on) {
  if (!s->queued[on][rank])
    s->ready[s->nready++] = (Ready){rank, on, on == PIPE_COMM ? s->comm[rank] : 0};
  s->queued[on][rank] = true;
}

/* What the sum at r's COMM head adds up. */
static const Coll *coll_of(const Seeded *s, uint32_t r) {
  const RankRun *k = &s->run->rank[r];
  return &s->run->coll[k->comm[s->comm[r]].chan];
}

/* The head of r's COMM stream if it has its wait, else NULL. */
static const PipeInstr *comm_head(const Seeded *s, uint32_t r) {
  const RankRun *k = &s->run->rank[r];
  if (s->comm[r] == k->ncomm)
    return NULL;
  const PipeInstr *c = &k->t->instr[k->comm[s->comm[r]].index];
  return c->wait <= s->compute[r] && c->wait_copy <= s->copy[r] ? c : NULL;
}

static bool is_send(const PipeInstr *c) { return c->op == PIPE_SEND_F || c->op == PIPE_SEND_B; }

static uint32_t group_of(const Seeded *s, uint32_t r) {
  const RankRun *k = &s->run->rank[r];
  return k->t->instr[k->comm[s->comm[r]].index].group + 1u;
}

/* The first transfer at the head of r that is not done and sends to (or receives from) peer; NULL. */
static CommAt *member(Seeded *s, uint32_t r, uint32_t peer, bool send) {
  const RankRun *k = &s->run->rank[r];
  for (uint32_t i = s->comm[r], end = i + group_of(s, r); i < end; i++) {
    const PipeInstr *c = &k->t->instr[k->comm[i].index];
    if (k->comm[i].state != COMM_DONE && c->peer == peer && is_send(c) == send)
      return &k->comm[i];
  }
  return NULL;
}

/* Notes the transfers at the head of r, which has its waits, whose other ends are there. */
static void look_at_transfers(Seeded *s, uint32_t r) {
  RankRun *k = &s->run->rank[r];
  for (uint32_t i = s->comm[r], end = i + group_of(s, r); i < end; i++) {
    CommAt *mine = &k->comm[i];
    const PipeInstr *c = &k->t->instr[mine->index];
    bool send = is_send(c);
    const PipeInstr *d = mine->state == COMM_WAITS ? comm_head(s, c->peer) : NULL;
    if (!d || pipe_is_sum(d->op) || d->op == PIPE_SIDE_COMM || member(s, r, c->peer, send) != mine)
      continue;
    CommAt *theirs = member(s, c->peer, r, !send);
    if (!theirs)
      continue;
    uint32_t from = send ? r : c->peer;
    mine->state = theirs->state = COMM_POSTED;
    s->ready[s->nready++] = (Ready){from, PIPE_COMM,
                                    (uint32_t)((send ? mine : theirs) - s->run->rank[from].comm)};
  }
}

static void look_at(Seeded *s, uint32_t r) {
  const RankRun *k = &s->run->rank[r];
  uint32_t i = s->compute[r];
  if (i < k->ncompute && k->t->instr[k->compute[i].index].wait <= s->comm[r] &&
      k->t->instr[k->compute[i].index].wait_copy <= s->copy[r])
    put(s, r, PIPE_COMPUTE);
  if (s->copy[r] < k->ncopy) {
    const PipeInstr *copy = &k->t->instr[k->copy[s->copy[r]].index];
    if (copy->wait <= s->compute[r] && copy->wait_copy <= s->comm[r] &&
        (!k->turns || s->turn[k->t->group - 1] == copy->gout))
      put(s, r, PIPE_COPY);
  }
  const PipeInstr *c = comm_head(s, r);
  if (c && c->op == PIPE_SIDE_COMM) {
    put(s, r, PIPE_COMM);
    return;
  }
  if (c && pipe_is_sum(c->op)) {
    const PipeStage *stage = s->run->p->stage;
    const Coll *l = coll_of(s, r);
    for (uint32_t j = 0; j < l->n; j++) {
      const PipeInstr *d = comm_head(s, stage[l->row[j]].rank);
      if (!d || d->op != c->op || d->stage != l->row[j])
        return;
    }
    put(s, stage[l->row[0]].rank, PIPE_COMM);
    return;
  }
  if (c)
    look_at_transfers(s, r);
}

/* One side of a transfer is done, and with the last the group at the head of r. */
static void member_done(Seeded *s, uint32_t r, CommAt *at) {
  CommAt *first = &s->run->rank[r].comm[s->comm[r]];
  uint32_t n = group_of(s, r);
  at->state = COMM_DONE;
  for (uint32_t i = 0; i < n; i++)
    if (first[i].state != COMM_DONE)
      return;
  for (uint32_t i = 0; i < n; i++)
    first[i].state = COMM_WAITS;
  s->comm[r] += n;
}

/* Carries out the sum at the COMM head of rank r. Returns how many instructions that is. */
static uint32_t carry_out_sum(Seeded *s, uint32_t r, PrStatus *st) {
  const PipeStage *stage = s->run->p->stage;
  const Coll *l = coll_of(s, r);
  for (uint32_t j = 0; j < l->n; j++) {
    uint32_t q = stage[l->row[j]].rank;
    l->index[j] = s->run->rank[q].comm[s->comm[q]].index;
  }
  *st = pr_sum(s->run, l, s->step);
  for (uint32_t j = 0; j < l->n; j++)
    s->comm[stage[l->row[j]].rank]++;
  for (uint32_t j = 0; j < l->n; j++)
    look_at(s, stage[l->row[j]].rank);
  return l->n;
}

/* *n: how many instructions that was. */
static PrStatus carry_out(Seeded *s, Ready e, uint32_t *n) {
  PrRun *run = s->run;
  RankRun *k = &run->rank[e.rank];
  PrStatus st = PR_OK;
  if (e.on == PIPE_COPY) {
    st = pr_copy(run, k, &k->copy[s->copy[e.rank]], s->step);
    s->copy[e.rank]++;
    uint32_t *turn = k->turns ? &s->turn[k->t->group - 1] : NULL;
    if (turn && ++*turn < k->turns->n)
      look_at(s, k->turns->rank[*turn]);
    *n = 1;
  } else if (e.on == PIPE_COMPUTE) {
    st = pr_compute(run, k, &k->compute[s->compute[e.rank]], s->step, n);
    s->compute[e.rank] += *n;
  } else if (comm_head(s, e.rank)->op == PIPE_SIDE_COMM) {
    st = pr_side(run, k, k->comm[s->comm[e.rank]].index, s->step);
    s->comm[e.rank]++;
    *n = 1;
  } else {
    CommAt *send = &k->comm[e.at];
    const PipeInstr *c = &k->t->instr[send->index];
    uint32_t q = c->peer;
    CommAt *recv = member(s, q, e.rank, false);
    Chan *ch = &run->chan[send->chan];
    ch->post[0] = (Post){c, e.rank, false, s->step, e.at};
    ch->post[1] = (Post){&run->rank[q].t->instr[recv->index], q, false, s->step,
                         (uint32_t)(recv - run->rank[q].comm)};
    st = pr_transfer(run, ch);
    member_done(s, e.rank, send);
    member_done(s, q, recv);
    look_at(s, q);
    *n = 2;
  }
  look_at(s, e.rank);
  return st;
}

/* Nothing can go on, but not all is done: tells pr_report_stall where the COMM streams are. */
static PrStatus stalled(Seeded *s) {
  for (uint32_t r = 0; r < s->run->p->nrank; r++) {
    RankRun *k = &s->run->rank[r]; /* nothing is queued: a posted one would be ready */
    k->comm_next = s->comm[r];
    k->comm_active = s->comm[r] < k->ncomm;
  }
  for (uint32_t g = 0; g < s->run->p->ngroup; g++)
    atomic_store(&s->run->turns[g].done, s->turn[g]);
  return pr_report_stall(s->run);
}

static PrStatus run_step(Seeded *s) {
  PrRun *run = s->run;
  uint64_t left = 0;
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    s->compute[r] = s->comm[r] = s->copy[r] = 0;
    left += run->p->rank[r].ninstr;
  }
  for (uint32_t g = 0; g < run->p->ngroup; g++)
    s->turn[g] = 0;
  for (uint32_t r = 0; r < run->p->nrank; r++)
    look_at(s, r);
  while (s->nready > 0) {
    uint32_t pick = (uint32_t)(draw(&run->random) % s->nready);
    Ready e = s->ready[pick];
    s->ready[pick] = s->ready[--s->nready];
    PrStatus st;
    bool alone = s->queued[e.on][e.rank]; /* no transfer */
    s->queued[e.on][e.rank] = false;
    if (e.on == PIPE_COMM && alone && pipe_is_sum(comm_head(s, e.rank)->op)) {
      left -= carry_out_sum(s, e.rank, &st);
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
  s.compute = calloc(PIPE_NSTREAMS * nrank, sizeof *s.compute);
  s.queued[0] = calloc(PIPE_NSTREAMS * nrank, sizeof *s.queued[0]);
  size_t room = 2 * nrank;
  for (size_t r = 0; r < nrank; r++) {
    uint32_t most = 1;
    for (uint32_t i = 0; i < run->rank[r].ncomm; i++) {
      uint32_t group = run->p->rank[r].instr[run->rank[r].comm[i].index].group;
      most = group + 1u > most ? group + 1u : most;
    }
    room += most;
  }
  s.ready = calloc(room, sizeof *s.ready);
  s.turn = calloc(run->p->ngroup + (size_t)1, sizeof *s.turn);
  if (!s.turn || !s.compute || !s.queued[0] || !s.ready) {
    st = pr_fail(run, PR_E_MEMORY, "no memory for %zu ranks", nrank);
    goto done;
  }
  s.comm = s.compute + nrank;
  s.copy = s.comm + nrank;
  s.queued[1] = s.queued[0] + nrank;
  s.queued[2] = s.queued[1] + nrank;
  s.step = atomic_load(&run->rank[0].step);
  for (uint64_t i = 0; i < n && !st; i++, s.step++)
    st = run_step(&s);

done:
  free(s.compute);
  free(s.queued[0]);
  free(s.ready);
  free(s.turn);
  return st;
}

const PrEngine pr_seeded = {.name = "seeded", .open = seeded_open, .steps = seeded_steps};
