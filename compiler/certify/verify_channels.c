/* SPDX-License-Identifier: MIT
 * Plays a finished program with lowering CHANNELS by what engines with events carry out, and nothing else: streams in
 * order, of which each channel is one, events, and rendezvous in each channel. It completes, and every SEND meets its own
 * RECV. Part of verify.c; takes nothing from the simulation of pipe_sim.c. Each rank is looked at again whenever
 * one of its transfers or sums has taken place, or it may have the next turn. */
#include "verify.h"

typedef struct Player {
  VerifySync sync;        /* which stream a row is of */
  uint32_t *head;         /* [streams] row; ninstr: finished */
  uint32_t *next;         /* [ninstr] of the same stream */
  uint32_t *event0;       /* [ninstr + 1] rows of sync, by row */
  uint8_t *over, *posted; /* [ninstr] */
  bool queued;
} Player;

typedef struct Play {
  const PipeProgram *p;
  const VerifyEdges *edges;
  Player *rank;
  uint32_t *end[2]; /* [nchannel] row + 1 of the SEND, of the RECV that has been posted */
  uint32_t *sum[2]; /* [nstage] row + 1 of the REDUCE, of the TIE that has */
  uint32_t *turn;   /* [ngroup] */
  uint32_t *todo, ntodo;
} Play;

static void again(Play *y, uint32_t r) {
  if (!y->rank[r].queued)
    y->todo[y->ntodo++] = r;
  y->rank[r].queued = true;
}

static void take_rank(Play *y, uint32_t r, Arena *a) {
  const PipeRank *k = &y->p->rank[r];
  Player *me = &y->rank[r];
  me->sync = verify_sync_begin(y->p, k, a);
  me->head = NEW_ARRAY(a, uint32_t, me->sync.n);
  me->next = NEW_ARRAY(a, uint32_t, k->ninstr);
  me->event0 = NEW_ARRAY(a, uint32_t, (size_t)k->ninstr + 1);
  me->over = NEW_ARRAY(a, uint8_t, k->ninstr);
  me->posted = NEW_ARRAY(a, uint8_t, k->ninstr);
  for (uint32_t x = 0; x < me->sync.n; x++)
    me->head[x] = k->ninstr;
  for (uint32_t i = k->ninstr; i-- > 0;) {
    me->next[i] = me->head[me->sync.stream[i]];
    me->head[me->sync.stream[i]] = i;
  }
  for (uint32_t i = 0; i < k->nsync; i++)
    if (k->sync[i].before < k->ninstr)
      me->event0[k->sync[i].before + 1]++;
  for (uint32_t i = 0; i < k->ninstr; i++)
    me->event0[i + 1] += me->event0[i];
  again(y, r);
}

static bool has_events(const PipeRank *k, const Player *me, uint32_t row) {
  for (uint32_t i = me->event0[row]; i < me->event0[row + 1]; i++)
    if (k->sync[i].after != NONE && !me->over[k->sync[i].after])
      return false;
  return true;
}

static void complete(Play *y, uint32_t r, uint32_t row) {
  Player *me = &y->rank[r];
  me->over[row] = 1;
  me->head[me->sync.stream[row]] = me->next[row];
}

/* A SEND or RECV that has its events. */
static bool play_transfer(Play *y, uint32_t r, uint32_t row) {
  const PipeProgram *p = y->p;
  const PipeInstr *in = &p->rank[r].instr[row];
  bool send = is_send(in);
  uint32_t c = in->gout, q = in->peer, theirs = y->end[send][c];
  if (!theirs) {
    BUG_IF(y->end[!send][c] && y->end[!send][c] != row + 1);
    y->end[!send][c] = row + 1;
    return false;
  }
  const PipeInstr *other = &p->rank[q].instr[theirs - 1], *from = send ? in : other,
                  *to = send ? other : in;
  BUG_IF(is_send(other) == send || other->peer != r || is_forward(from) != is_forward(to) ||
         from->mb != to->mb || from->keep != to->keep);
  uint32_t at = !p->edge ? 0 : is_forward(from) ? p->edge[from->keep].out : p->edge[from->keep].in;
  BUG_IF(to->stage != verify_passage(y->edges, from->stage, from->mb, is_forward(from), at).other);
  y->end[0][c] = y->end[1][c] = 0;
  complete(y, r, row);
  complete(y, q, theirs - 1);
  again(y, q);
  return true;
}

static bool play_sum(Play *y, uint32_t r, uint32_t row) {
  const PipeProgram *p = y->p;
  const PipeInstr *in = &p->rank[r].instr[row];
  bool tie = in->op == PIPE_TIE;
  uint32_t st = in->stage;
  y->sum[tie][st] = row + 1;
  for (uint32_t q = st; (q = tie ? p->stage[q].tie : p->stage[q].replica) != st;)
    if (!y->sum[tie][q])
      return false;
  uint32_t q = st;
  do {
    BUG_IF(p->rank[p->stage[q].rank].instr[y->sum[tie][q] - 1].gout != in->gout);
    complete(y, p->stage[q].rank, y->sum[tie][q] - 1);
    again(y, p->stage[q].rank);
    y->sum[tie][q] = 0;
  } while ((q = tie ? p->stage[q].tie : p->stage[q].replica) != st);
  return true;
}

/* The head of stream x of rank r, if it can go on. */
static bool play_head(Play *y, uint32_t r, uint32_t x) {
  const PipeRank *k = &y->p->rank[r];
  Player *me = &y->rank[r];
  uint32_t row = me->head[x];
  if (row == k->ninstr || me->posted[row] || !has_events(k, me, row))
    return false;
  const PipeInstr *in = &k->instr[row];
  if (stream_of(in->op) == 1 && in->op != PIPE_SIDE_COMM) {
    me->posted[row] = 1;
    return in->op >= PIPE_REDUCE ? play_sum(y, r, row) : play_transfer(y, r, row);
  }
  if (stream_of(in->op) == 2 && k->group) {
    if (in->gout != y->turn[k->group - 1])
      return false;
    y->turn[k->group - 1]++;
    for (uint32_t q = 0; q < y->p->nrank; q++)
      if (y->p->rank[q].group == k->group)
        again(y, q);
  }
  complete(y, r, row);
  return true;
}

void verify_play_channels(const PipeProgram *p, const VerifyEdges *edges, Arena *a) {
  Play y = {.p = p, .edges = edges, .rank = NEW_ARRAY(a, Player, p->nrank)};
  y.todo = NEW_ARRAY(a, uint32_t, p->nrank);
  y.turn = NEW_ARRAY(a, uint32_t, p->ngroup);
  for (int x = 0; x < 2; x++) {
    y.end[x] = NEW_ARRAY(a, uint32_t, p->nchannel);
    y.sum[x] = NEW_ARRAY(a, uint32_t, p->nstage);
  }
  for (uint32_t r = 0; r < p->nrank; r++)
    take_rank(&y, r, a);
  while (y.ntodo > 0) {
    uint32_t r = y.todo[--y.ntodo];
    y.rank[r].queued = false;
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t x = 0; x < y.rank[r].sync.n; x++)
        while (play_head(&y, r, x))
          moved = true;
    }
  }
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t x = 0; x < y.rank[r].sync.n; x++)
      BUG_IF(y.rank[r].head[x] != p->rank[r].ninstr);
}
