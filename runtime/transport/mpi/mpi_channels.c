/* SPDX-License-Identifier: MIT
 * The COMM streams of the MPI engine where a program has channels. One thread, the communicator,
 * looks at each channel in turn: it starts the head once that has its waits, and goes on once its
 * messages have arrived, whatever the others do. Messages are told apart by their tags, so a
 * channel needs no communicator of its own. */
#include <stdlib.h>

#include "engine_mpi.h"

/* The head of a channel. */
typedef struct MpiHead {
  CommRun *c;
  Moving v;
  MPI_Request *r;        /* room for the longest sum */
  uint32_t n;            /* requests */
  uint64_t start, round; /* round: of a sum */
  bool begun, hangs;     /* hangs: it never begins, by request; the other channels go on */
} Head;

static Coll *sum_of(const Mpi *m, const Head *h) {
  const CommAt *at = pr_comm_at(h->c, h->c->next);
  return pipe_is_sum(m->k->t->instr[at->index].op) ? &m->run->coll[at->chan] : NULL;
}

static bool has_waits(const Mpi *m, const Head *h, uint64_t step) {
  const RankRun *k = m->k;
  const PipeInstr *in = pr_comm_instr(h->c, h->c->next);
  return atomic_load(&k->compute_done) >= step * k->ncompute + in->wait &&
         atomic_load(&k->copy_done) >= step * k->ncopy + in->wait_copy;
}

/* The head has its waits. False: the run has failed. */
static bool begin(Mpi *m, Head *h, uint64_t step) {
  const CommAt *at = pr_comm_at(h->c, h->c->next);
  const PipeInstr *in = &m->k->t->instr[at->index];
  const PrFaultKind fault = pr_fault_at(m->run, m->k->id, at->index, step);
  uint32_t place = (uint32_t)(at - m->k->comm);
  h->hangs = fault == PR_HANG;
  if (h->hangs)
    return true;
  atomic_store(&h->c->posted, 1);
  h->begun = true, h->n = 0;
  h->start = m->k->span ? pr_now() - m->run->epoch_ns : 0;
  Coll *l = sum_of(m, h);
  if (in->op == PIPE_SIDE_COMM)
    return pr_side(m->run, m->k, at->index, step) == PR_OK;
  if (l) {
    for (uint32_t i = 0; i < l->n; i++)
      l->index[i] = at->index; /* only that of this rank counts */
    return mpi_start_round(m, l, h->round = 0, m->room[h - m->head], h->r, &h->n);
  }
  h->v = (Moving){.c = in};
  h->r[0] = h->r[1] = MPI_REQUEST_NULL;
  h->n = 2;
  return fault == PR_DROP || mpi_start(m, &h->v, m->number[place], fault, h->r);
}

/* Its messages have arrived. *over: and that was all of it. */
static bool go_on(Mpi *m, Head *h, uint64_t step, bool *over) {
  Coll *l = sum_of(m, h);
  *over = true;
  if (pr_comm_instr(h->c, h->c->next)->op == PIPE_SIDE_COMM)
    return true;
  if (!l)
    return mpi_arrived(m, &h->v, step);
  char *room = m->room[h - m->head];
  if (!mpi_add_round(m, l, h->round, room, step))
    return false;
  *over = h->round++ == mpi_sum_rounds(m, l);
  h->n = 0;
  return *over || mpi_start_round(m, l, h->round, room, h->r, &h->n);
}

static void complete(Mpi *m, Head *h, uint64_t step) {
  CommRun *c = h->c;
  uint32_t index = pr_comm_at(c, c->next)->index;
  if (m->k->span && m->k->t->instr[index].op != PIPE_SIDE_COMM)
    *pr_span(m->run, m->k, step, index) = (PrSpan){h->start, pr_now() - m->run->epoch_ns};
  h->begun = false;
  atomic_store(&c->posted, 0);
  c->next++;
  mpi_tell(m, &c->done, step * c->n + c->next);
}

/* One look at a channel. *moved: it has gone on. */
static bool look(Mpi *m, Head *h, uint64_t step, bool *moved) {
  int try_code;
  while (h->c->next < h->c->n) {
    int done = 1;
    if (h->hangs || (!h->begun && !has_waits(m, h, step)))
      return true;
    if (!h->begun && !begin(m, h, step))
      return false;
    if (h->hangs)
      return true;
    if (h->n > 0 && !TRY(m, MPI_Testall, ((int)h->n, h->r, &done, MPI_STATUSES_IGNORE)))
      return false;
    if (!done)
      return true;
    bool over;
    if (!go_on(m, h, step, &over))
      return false;
    if (over)
      complete(m, h, step);
    *moved = true;
  }
  return true;
}

/* Until a head may have what it waits for: none is under way. */
static void rest(Mpi *m, const Head *h, uint64_t step) {
  bool ready = false;
  pthread_mutex_lock(&m->lock);
  for (uint32_t x = 0; x < m->k->nstream; x++)
    ready = ready || (h[x].c->next < h[x].c->n && !h[x].hangs && has_waits(m, &h[x], step));
  if (!ready)
    mpi_doze(m, m->nhosted ? 100000 : 5000000);
  pthread_mutex_unlock(&m->lock);
}

bool mpi_channels_step(Mpi *m, uint64_t step) {
  for (uint32_t x = 0; x < m->k->nstream; x++)
    m->head[x].c->next = 0;
  for (uint32_t idle = 0;;) {
    bool moved = false, left = false, under_way = false;
    for (uint32_t x = 0; x < m->k->nstream; x++) {
      if (!look(m, &m->head[x], step, &moved))
        return false;
      left = left || m->head[x].c->next < m->head[x].c->n;
      under_way = under_way || m->head[x].begun;
    }
    if (!left)
      return true;
    if (!mpi_look_around(m))
      return false;
    if (!moved && !under_way)
      rest(m, m->head, step);
    else
      mpi_back_off(m, moved ? 0 : idle);
    idle = moved || !under_way ? 0 : idle + 1;
  }
}

PrStatus mpi_open_channels(Mpi *m) {
  RankRun *k = m->k;
  uint32_t most = m->most_requests > 2 ? m->most_requests : 2;
  if (!k->need)
    return PR_OK;
  m->head = calloc(k->nstream + (size_t)1, sizeof *m->head);
  m->head_request = malloc(((size_t)k->nstream * most + 1) * sizeof *m->head_request);
  if (!m->head || !m->head_request)
    return pr_fail(m->run, PR_E_MEMORY, "no memory for %u channels", k->nstream);
  for (uint32_t x = 0; x < k->nstream; x++)
    m->head[x] = (Head){.c = &k->stream[x], .r = m->head_request + (size_t)x * most};
  return PR_OK;
}
