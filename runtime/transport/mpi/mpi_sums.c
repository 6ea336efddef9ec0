/* SPDX-License-Identifier: MIT
 * REDUCE and TIE of the MPI engine. The ranks that hold gradients of a sum own it together: each
 * owner gets its piece of all gradients, adds the pieces in the order of the threads engine, and
 * sends the sum to all rows. A sum takes as many rounds as keep the pieces of others within ROOM
 * bytes, so its memory does not grow with gradients, replicas or sums. The pieces of a round come
 * in while the sums of the round before go out.
 *
 * Pieces begin at multiples of PR_LINE bytes. A rank that holds only copies of a tied stage only
 * gets sums. */
#include <stdlib.h>
#include <string.h>

#include "engine_mpi.h"

enum { ROOM = 4 << 20 }; /* bytes for each COMM stream; pipe_mpi.h and lang/spec.md promise it */

/* Row i of a sum: gradients, then copies. */
static uint32_t row_of(const Coll *l, uint32_t i) {
  return i < l->ngrad ? l->grad_row[i] : l->copy_row[i - l->ngrad];
}

/* Its data; NULL: in another process. */
static char *data_of(const Coll *l, uint32_t i) {
  return i < l->ngrad ? l->grad[i] : l->copy[i - l->ngrad];
}

static uint32_t rank_of(const Mpi *m, const Coll *l, uint32_t i) {
  return m->run->p->stage[row_of(l, i)].rank;
}

static const MpiSum *sum_of(const Mpi *m, const Coll *l) { return &m->sum[l - m->run->coll]; }

/* The piece of owner j in a round: bytes at .. at + result - 1 of every row. */
static uint64_t piece_of(const MpiSum *s, uint64_t round, uint32_t j, uint64_t *at) {
  *at = (round * s->nowner + j) * s->each;
  uint64_t left = *at < s->bytes ? s->bytes - *at : 0;
  return left < s->each ? left : s->each;
}

uint64_t mpi_sum_rounds(const Mpi *m, const Coll *l) { return sum_of(m, l)->rounds; }

/* The messages of one round: pieces of gradients to their owners (`in`), or sums from them. A
 * message has the tag of the row elsewhere than at the owner. */
static bool exchange(Mpi *m, const Coll *l, uint64_t round, bool in, char *room, MPI_Request *r,
                     uint32_t *n) {
  const MpiSum *s = sum_of(m, l);
  uint64_t at, bytes, own_at = 0,
                      own = s->mine == PIPE_NONE ? 0 : piece_of(s, round, s->mine, &own_at);
  uint32_t elsewhere = 0;
  for (uint32_t i = 0; i < l->ngrad + (in ? 0 : l->ncopy); i++) {
    uint32_t rank = rank_of(m, l, i);
    int row = (int)row_of(l, i);
    char *data = data_of(l, i);
    if (!data && own &&
        !(in ? mpi_start_recv(m, MPI_OF_SUM, row, room + elsewhere++ * s->each, own, rank,
                              &r[(*n)++])
             : mpi_start_send(m, MPI_OF_SUM, row, s->first + own_at, own, rank, &r[(*n)++])))
      return false;
    for (uint32_t j = 0; data && j < s->nowner; j++)
      if (j != s->mine && (bytes = piece_of(s, round, j, &at)) > 0 &&
          !(in ? mpi_start_send(m, MPI_OF_SUM, row, data + at, bytes, s->owner[j], &r[(*n)++])
               : mpi_start_recv(m, MPI_OF_SUM, row, data + at, bytes, s->owner[j], &r[(*n)++])))
        return false;
  }
  return true;
}

bool mpi_start_round(Mpi *m, const Coll *l, uint64_t round, char *room, MPI_Request *r,
                     uint32_t *n) {
  return (round == 0 || exchange(m, l, round - 1, false, room, r, n)) &&
         (round == sum_of(m, l)->rounds || exchange(m, l, round, true, room, r, n));
}

bool mpi_add_round(Mpi *m, const Coll *l, uint64_t round, char *room, uint64_t step) {
  const MpiSum *s = sum_of(m, l);
  uint64_t at, bytes;
  if (round == s->rounds || s->mine == PIPE_NONE || !(bytes = piece_of(s, round, s->mine, &at)))
    return true;
  for (uint32_t i = 0; i < l->ngrad; i++) {
    if (l->grad[i])
      m->piece[i] = (char *)l->grad[i] + at;
    else
      m->piece[i] = room, room += s->each;
  }
  if (pr_add(m->run, l, m->piece, bytes, step))
    return false;
  for (uint32_t i = 0; i < l->ncopy; i++)
    if (l->copy[i])
      memcpy((char *)l->copy[i] + at, m->piece[0], bytes);
  return true;
}

/* Who owns which piece of a sum. owner: room for its ngrad; owned: [nrank], all false before and
 * after. */
static void share_out(Mpi *m, const Coll *l, MpiSum *s, uint32_t *owner, bool *owned) {
  const PrSizes *size = &m->run->stage[l->row[0]].size;
  uint32_t elsewhere = 0, here = 0, nrow = l->ngrad + l->ncopy;
  *s = (MpiSum){.owner = owner, .mine = PIPE_NONE, .bytes = l->tie ? size->tied : size->grad};
  for (uint32_t i = 0; i < l->ngrad; i++) {
    uint32_t rank = rank_of(m, l, i);
    if (l->grad[i] && !s->first)
      s->mine = s->nowner, s->first = l->grad[i];
    if (!owned[rank])
      owner[s->nowner++] = rank;
    owned[rank] = true;
  }
  for (uint32_t i = 0; i < nrow; i++) {
    here += data_of(l, i) != NULL;
    elsewhere += i < l->ngrad && !l->grad[i];
    owned[rank_of(m, l, i)] = false;
  }
  uint64_t most = (uint64_t)PR_LINE * (ROOM / PR_LINE / l->ngrad);
  s->each = pr_round((s->bytes + s->nowner - 1) / s->nowner);
  if (s->nowner > 1 && s->each > most)
    s->each = most ? most : PR_LINE;
  s->rounds = s->bytes ? (s->bytes - 1) / (s->each * s->nowner) + 1 : 0;
  s->room = s->mine == PIPE_NONE ? 0 : elsewhere * s->each;
  s->requests = l->ngrad + nrow + 2 * here * s->nowner; /* in and out */
}

PrStatus mpi_take_sums(Mpi *m) {
  PrRun *run = m->run;
  RankRun *k = m->k;
  uint32_t ngrad = 0;
  uint64_t used = 0;
  for (uint32_t i = 0; i < run->ncoll; i++)
    ngrad += run->coll[i].ngrad;
  bool *owned = calloc(run->p->nrank, sizeof *owned);
  m->sum = calloc(run->ncoll, sizeof *m->sum);
  m->owner = malloc(ngrad * sizeof *m->owner);
  m->piece = malloc(ngrad * sizeof *m->piece);
  m->room = calloc(k->nstream + (size_t)1, sizeof *m->room);
  bool ok = owned && m->sum && m->owner && m->piece && m->room;
  for (uint32_t i = 0, at = 0; ok && i < run->ncoll; at += run->coll[i++].ngrad)
    share_out(m, &run->coll[i], &m->sum[i], m->owner + at, owned);
  m->most_requests = 1;
  for (int pass = 0; ok && pass < 2; pass++) {
    if (pass && used > 0)
      ok = (m->staging = aligned_alloc(PR_LINE, used)) != NULL;
    used = 0;
    for (uint32_t x = 0; ok && x < k->nstream; x++) {
      uint64_t most = 0;
      for (uint32_t i = 0; i < k->stream[x].n; i++) {
        const CommAt *at = pr_comm_at(&k->stream[x], i);
        const MpiSum *s = pipe_is_sum(k->t->instr[at->index].op) ? &m->sum[at->chan] : NULL;
        most = s && s->room > most ? s->room : most;
        if (s && s->requests > m->most_requests)
          m->most_requests = s->requests;
      }
      m->room[x] = m->staging ? m->staging + used : NULL;
      used += most;
    }
  }
  free(owned);
  return ok ? PR_OK
            : pr_fail(run, PR_E_MEMORY, "no memory for sums: %llu bytes of other ranks",
                      (unsigned long long)used);
}

void mpi_give_sums(Mpi *m) {
  free(m->sum);
  free(m->owner);
  free(m->piece);
  free(m->room);
  free(m->staging);
}
