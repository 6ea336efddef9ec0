/* SPDX-License-Identifier: MIT
 * REDUCE and TIE of the engine of processes. The ranks that hold gradients of a sum own it
 * together. Each owner receives its piece of all gradients, adds the pieces in the order of the
 * threads engine, and sends the result to all rows. A sum runs in rounds, so that the received
 * pieces fit into ROOM bytes: memory does not grow with gradients, replicas or sums. The pieces of
 * a round arrive while the results of the previous round leave.
 *
 * Pieces begin at multiples of PR_LINE bytes. A rank that holds only copies of a tied stage only
 * receives results. */
#include <stdlib.h>
#include <string.h>

#include "processes.h"

enum { ROOM = 4 << 20 }; /* bytes for each COMM stream, as pipe_mpi.h and lang/spec.md promise */

/* Row i of a sum: first gradients, then copies. */
static uint32_t row_of(const Coll *l, uint32_t i) {
  return i < l->ngrad ? l->grad_row[i] : l->copy_row[i - l->ngrad];
}

/* The data of row i; NULL: in another process. */
static char *data_of(const Coll *l, uint32_t i) {
  return i < l->ngrad ? l->grad[i] : l->copy[i - l->ngrad];
}

static uint32_t rank_of(const PrRun *run, const Coll *l, uint32_t i) {
  return run->p->stage[row_of(l, i)].rank;
}

/* Returns the bytes of owner j's piece in a round; *at: where it begins in every row. */
static uint64_t piece_of(const ProcSum *s, uint64_t round, uint32_t j, uint64_t *at) {
  *at = (round * s->nowner + j) * s->each;
  uint64_t left = *at < s->bytes ? s->bytes - *at : 0;
  return left < s->each ? left : s->each;
}

/* Puts the messages of one round: pieces of gradients to their owners (`in`), or results from the
 * owners. A message has the tag of the row that is not the owner's. */
static void exchange(ProcJob *j, const Coll *l, const ProcSum *s, uint64_t round, bool in) {
  uint64_t at, bytes, own_at = 0,
                      own = s->mine == PIPE_NONE ? 0 : piece_of(s, round, s->mine, &own_at);
  char *room = j->room;
  for (uint32_t i = 0; i < l->ngrad + (in ? 0 : l->ncopy); i++) {
    const uint32_t row = row_of(l, i);
    char *data = data_of(l, i);
    if (!data && own) {
      proc_put(j, PROC_OF_SUM, row, rank_of(j->e->run, l, i), !in, in ? room : s->first + own_at,
               own);
      room += in ? s->each : 0;
    }
    for (uint32_t k = 0; data && k < s->nowner; k++)
      if (k != s->mine && (bytes = piece_of(s, round, k, &at)) > 0)
        proc_put(j, PROC_OF_SUM, row, s->owner[k], in, data + at, bytes);
  }
}

/* Adds up the pieces of a round, which have come. False: the run has failed. */
static bool add(ProcJob *j, const Coll *l, const ProcSum *s, uint64_t round) {
  uint64_t at, bytes;
  char *room = j->room;
  if (s->mine == PIPE_NONE || !(bytes = piece_of(s, round, s->mine, &at)))
    return true;
  for (uint32_t i = 0; i < l->ngrad; i++) {
    if (l->grad[i])
      j->piece[i] = (char *)l->grad[i] + at;
    else
      j->piece[i] = room, room += s->each;
  }
  if (pr_add(j->e->run, l, j->piece, bytes, j->c->step))
    return false;
  for (uint32_t i = 0; i < l->ncopy; i++)
    if (l->copy[i])
      memcpy((char *)l->copy[i] + at, j->piece[0], bytes);
  return true;
}

/* In round i the pieces of round i arrive, and the results of round i - 1 leave. */
bool proc_next_of_sum(ProcJob *j, const Coll *l, bool *more) {
  const ProcSum *s = &j->e->sum[l - j->e->run->coll];
  const uint64_t round = j->round;
  j->n = 0;
  *more = round <= s->rounds;
  if (round > 0 && round <= s->rounds && !add(j, l, s, round - 1))
    return false;
  if (round > 0 && round <= s->rounds)
    exchange(j, l, s, round - 1, false);
  if (round < s->rounds)
    exchange(j, l, s, round, true);
  return true;
}

/* Decides which rank owns which piece of a sum. owner: room for its ngrad; owned: [nrank], all
 * false before and after. */
static void share_out(const PrRun *run, const Coll *l, ProcSum *s, uint32_t *owner, bool *owned) {
  const PrSizes *size = &run->stage[l->row[0]].size;
  uint32_t elsewhere = 0, here = 0, nrow = l->ngrad + l->ncopy;
  *s = (ProcSum){.owner = owner, .mine = PIPE_NONE, .bytes = l->tie ? size->tied : size->grad};
  for (uint32_t i = 0; i < l->ngrad; i++) {
    uint32_t rank = rank_of(run, l, i);
    if (l->grad[i] && !s->first)
      s->mine = s->nowner, s->first = l->grad[i];
    if (!owned[rank])
      owner[s->nowner++] = rank;
    owned[rank] = true;
  }
  for (uint32_t i = 0; i < nrow; i++) {
    here += data_of(l, i) != NULL;
    elsewhere += i < l->ngrad && !l->grad[i];
    owned[rank_of(run, l, i)] = false;
  }
  uint64_t most = (uint64_t)PR_LINE * (ROOM / PR_LINE / l->ngrad);
  s->each = pr_round((s->bytes + s->nowner - 1) / s->nowner);
  if (s->nowner > 1 && s->each > most)
    s->each = most ? most : PR_LINE;
  s->rounds = s->bytes ? (s->bytes - 1) / (s->each * s->nowner) + 1 : 0;
  s->room = s->mine == PIPE_NONE ? 0 : elsewhere * s->each;
  if (s->room && run->rank[run->here].contract)
    s->room += PR_LINE;                                 /* pr_sum_behind */
  s->messages = l->ngrad + nrow + 2 * here * s->nowner; /* pieces and results */
}

PrStatus proc_take_sums(Proc *e) {
  PrRun *run = e->run;
  uint32_t ngrad = 0;
  for (uint32_t i = 0; i < run->ncoll; i++)
    ngrad += run->coll[i].ngrad;
  bool *owned = calloc(run->p->nrank, sizeof *owned);
  e->sum = calloc(run->ncoll, sizeof *e->sum);
  e->owner = malloc((ngrad + (size_t)1) * sizeof *e->owner);
  bool ok = owned && e->sum && e->owner;
  for (uint32_t i = 0, at = 0; ok && i < run->ncoll; at += run->coll[i++].ngrad)
    share_out(run, &run->coll[i], &e->sum[i], e->owner + at, owned);
  free(owned);
  return ok ? PR_OK : pr_fail(run, PR_E_MEMORY, "no memory for %u sums", run->ncoll);
}
