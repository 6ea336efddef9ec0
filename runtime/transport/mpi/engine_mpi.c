/* SPDX-License-Identifier: MIT
 * The engine of MPI processes, one rank in each.
 *
 * The caller's thread runs the COMPUTE stream, in pr_steps. What the interpreter begins of COMM
 * goes to a second thread, the communicator: it starts MPI_Isend or MPI_Irecv of the slot itself,
 * and looks at all that is under way in turn, so that transfers happen during callbacks. The
 * copier, if the rank has one, is a third.
 *
 * MPI is called by one thread at a time, under `call`, and without blocking. Who waits for MPI
 * looks a few times, then sleeps between looks, up to 100 us, and once it has waited for long up to
 * 1 ms: no core is kept busy by waiting.
 *
 * A message is told apart by its tag: which tensor of which microbatch (pipe_transfer_number),
 * whatever else is under way between the two ranks. So channels need no communicators of their own.
 *
 * A copy to or from a GUEST slot is asked for by the rank whose stash it is, in an order that the
 * table tells; the communicator of the host answers it whenever it looks, whatever its own streams
 * do.
 *
 * The end of a step is one MPI_Iallreduce of the losses: by bits, each with zeros where another
 * rank has the loss. Free-running ranks meet only at the end of pr_steps.
 *
 * A rank that fails, is late or whose process ends fails all others through the store
 * (mpi_fault.c). After a failure nothing is waited for, MPI is not finalized, and memory in which a
 * message could arrive is kept. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checksum.h"
#include "engine_mpi.h"

/* The COMM streams */

static MpiHead *head_of(const Mpi *m, const CommRun *c, uint32_t i) {
  return m->head + m->head0[c->number] + (i - c->next);
}

static Coll *sum_of(const Mpi *m, const CommAt *at) {
  return pipe_is_sum(m->k->t->instr[at->index].op) ? &m->run->coll[at->chan] : NULL;
}

void mpi_begin(PrRun *run, CommRun *c, uint32_t i, CommRun **todo) {
  Mpi *m = run->of_engine;
  MpiHead *h = head_of(m, c, i);
  (void)todo;
  h->c = c, h->i = i, h->next = NULL;
  pthread_mutex_lock(&m->lock);
  *m->begun_end = h;
  m->begun_end = &h->next;
  pthread_cond_signal(&m->changed);
  pthread_mutex_unlock(&m->lock);
}

/* Starts a SEND or RECV; with checksums also that of a message of 8 bytes. */
static bool start_transfer(Mpi *m, MpiHead *h, const CommAt *at) {
  PrRun *run = m->run;
  const PipeInstr *c = &m->k->t->instr[at->index];
  int number = m->number[at - m->k->comm];
  bool send = pipe_is_send(c->op), sums = run->o.checksums;
  h->r[0] = h->r[1] = MPI_REQUEST_NULL;
  h->n = 2, h->bit = NULL, h->slot = NULL;
  if (pr_fault_is(run, PR_DROP, run->here, at->index, h->c->step))
    return true;
  h->bytes = pr_moved_bytes(run, c);
  h->slot = m->k->slot[send ? c->in : c->out];
  if (sums && send)
    h->sum = pr_checksum(h->slot, h->bytes);
  if (pr_fault_is(run, PR_CORRUPT, run->here, at->index, h->c->step) && h->bytes)
    *(h->bit = h->slot) ^= 1;
  return send ? mpi_start_send(m, MPI_OF_STREAM, number, h->slot, h->bytes, c->peer, &h->r[0]) &&
                    (!sums || mpi_start_send(m, MPI_OF_CONTROL, number, &h->sum, sizeof h->sum,
                                             c->peer, &h->r[1]))
              : mpi_start_recv(m, MPI_OF_STREAM, number, h->slot, h->bytes, c->peer, &h->r[0]) &&
                    (!sums || mpi_start_recv(m, MPI_OF_CONTROL, number, &h->sum, sizeof h->sum,
                                             c->peer, &h->r[1]));
}

/* Its messages have arrived. */
static bool end_transfer(Mpi *m, const MpiHead *h, const CommAt *at) {
  const PipeInstr *c = &m->k->t->instr[at->index];
  if (h->bit) /* what stays here is right */
    *h->bit ^= 1;
  return !h->slot || !m->run->o.checksums || (c->op != PIPE_RECV_F && c->op != PIPE_RECV_B) ||
         pr_checksum(h->slot, h->bytes) == h->sum ||
         pr_damaged(m->run, m->run->here, c, h->c->step) == PR_OK;
}

/* False, here and below: the run has failed. */
static bool start(Mpi *m, MpiHead *h) {
  const CommAt *at = pr_comm_at(h->c, h->i);
  Coll *l = sum_of(m, at);
  h->start = m->k->span ? pr_now() - m->run->epoch_ns : 0;
  h->n = 0;
  if (m->k->t->instr[at->index].op == PIPE_SIDE_COMM)
    return pr_side(m->run, m->k, at->index, h->c->step) == PR_OK;
  if (!l)
    return start_transfer(m, h, at);
  for (uint32_t i = 0; i < l->n; i++)
    l->index[i] = at->index; /* only that of this rank counts */
  return mpi_start_round(m, l, h->round = 0, m->room[h->c->number], h->r, &h->n);
}

/* Its messages have arrived. *over: and that was all of it. */
static bool go_on(Mpi *m, MpiHead *h, bool *over) {
  const CommAt *at = pr_comm_at(h->c, h->i);
  Coll *l = sum_of(m, at);
  char *room = m->room[h->c->number];
  *over = true;
  if (m->k->t->instr[at->index].op == PIPE_SIDE_COMM)
    return true;
  if (!l)
    return end_transfer(m, h, at);
  if (!mpi_add_round(m, l, h->round, room, h->c->step))
    return false;
  *over = h->round++ == mpi_sum_rounds(m, l);
  h->n = 0;
  return *over || mpi_start_round(m, l, h->round, room, h->r, &h->n);
}

static void leave_span(Mpi *m, const MpiHead *h) {
  uint32_t index = pr_comm_at(h->c, h->i)->index;
  if (m->k->span && m->k->t->instr[index].op != PIPE_SIDE_COMM)
    *pr_span(m->run, m->k, h->c->step, index) = (PrSpan){h->start, pr_now() - m->run->epoch_ns};
}

/* Looks at all that is under way. *moved: some has gone on. */
static bool look(Mpi *m, bool *moved) {
  CommRun *todo = NULL;
  int try_code;
  for (MpiHead **at = &m->under_way; *at;) {
    MpiHead *h = *at;
    int done = 1;
    bool over = false;
    if (h->n > 0 && !TRY(m, MPI_Testall, ((int)h->n, h->r, &done, MPI_STATUSES_IGNORE)))
      return false;
    if (done && !go_on(m, h, &over))
      return false;
    *moved = *moved || done;
    if (!over) {
      at = &h->next;
      continue;
    }
    leave_span(m, h);
    *at = h->next;
    pr_over(m->run, h->c, h->i, &todo);
  }
  pr_advance(m->run, todo);
  return true;
}

/* Starts what has been begun, behind what is under way. */
static bool start_begun(Mpi *m, MpiHead *begun) {
  MpiHead **end = &m->under_way;
  while (*end)
    end = &(*end)->next;
  for (*end = begun; begun; begun = begun->next)
    if (!start(m, begun))
      return false;
  return true;
}

/* The losses of a step, which is due, to all ranks: they have all finished it then. */
static bool look_at_meeting(Mpi *m, uint64_t wanted, bool *moved) {
  PrRun *run = m->run;
  int try_code, done = 0;
  uint64_t step = wanted - 1;
  if (!m->meets && !TRY(m, MPI_Iallreduce,
                        (MPI_IN_PLACE, run->loss[step & 1], (int)(run->nsink * run->p->nmb),
                         MPI_UINT64_T, MPI_BOR, m->comm, &m->meeting)))
    return false;
  m->meets = true;
  if (!TRY(m, MPI_Test, (&m->meeting, &done, MPI_STATUS_IGNORE)))
    return false;
  if (done) {
    m->meets = false;
    m->met = wanted;
    *moved = true;
    atomic_store(&run->released, wanted);
    pr_tell_released(run, m->k, wanted);
  }
  return true;
}

static void doze(Mpi *m, uint64_t ns) {
  uint64_t end = pr_now() + ns;
  struct timespec t = {(time_t)(end / 1000000000u), (long)(end % 1000000000u)};
  pthread_cond_timedwait(&m->changed, &m->lock, &t);
}

void *mpi_communicator(void *arg) {
  Mpi *m = arg;
  PrRun *run = m->run;
  for (uint32_t idle = 0;;) {
    bool moved = false;
    pthread_mutex_lock(&m->lock);
    if (!m->begun && !m->under_way && m->wanted == m->met && !run->quit) {
      bool rests = atomic_load(&m->k->step_start) == UINT64_MAX;
      doze(m, rests ? 20000000 : m->nhosted ? 100000 : 5000000);
      idle = 0;
    }
    MpiHead *begun = m->begun;
    uint64_t wanted = m->wanted;
    bool due = wanted != m->met; /* told here: mpi_rewind sets both */
    bool quit = run->quit;
    m->begun = NULL;
    m->begun_end = &m->begun;
    pthread_mutex_unlock(&m->lock);
    if (quit)
      return NULL;
    if (!start_begun(m, begun) || !look(m, &moved) ||
        (due && !look_at_meeting(m, wanted, &moved)) || !mpi_look_around(m)) {
      mpi_tell_others(m);
      return NULL;
    }
    idle = moved || begun ? 0 : idle + 1;
    if (m->under_way || m->meets)
      mpi_back_off(m, idle);
  }
}

PrStatus mpi_take_heads(Mpi *m) {
  RankRun *k = m->k;
  uint32_t n = 0;
  m->begun_end = &m->begun;
  m->head0 = calloc(k->nstream + (size_t)1, sizeof *m->head0);
  for (uint32_t x = 0; m->head0 && x < k->nstream; x++) {
    uint32_t longest = 1;
    for (uint32_t i = 0; i < k->stream[x].n; i++) {
      uint32_t group = pr_comm_instr(&k->stream[x], i)->group + 1u;
      longest = group > longest ? group : longest;
    }
    m->head0[x] = n;
    n += longest;
  }
  uint32_t most = m->most_requests > 2 ? m->most_requests : 2;
  m->head = calloc(n + (size_t)1, sizeof *m->head);
  m->request = malloc((2 * (size_t)n + (size_t)k->nstream * most + 1) * sizeof *m->request);
  if (!m->head0 || !m->head || !m->request)
    return pr_fail(m->run, PR_E_MEMORY, "no memory for %u transfers at once", n);
  MPI_Request *r = m->request; /* a sum is alone at its head, in the first of the stream's */
  for (uint32_t x = 0; x < k->nstream; x++)
    for (uint32_t i = m->head0[x]; i < (x + 1 < k->nstream ? m->head0[x + 1] : n); i++) {
      m->head[i].r = r;
      r += i == m->head0[x] ? most : 2;
    }
  return PR_OK;
}

/* The COPY stream */

static bool copy_to_guest(Mpi *m, const PipeInstr *c) {
  MPI_Request r = MPI_REQUEST_NULL;
  uint64_t bytes = m->run->stage[c->stage].size.act;
  bool off = c->op == PIPE_OFF;
  if (!mpi_start_send(m, MPI_OF_COPY, 0, off ? m->k->slot[c->act] : NULL, off ? bytes : 0, c->peer,
                      &r) ||
      !mpi_finish(m, &r, 1))
    return false;
  return off || (mpi_start_recv(m, MPI_OF_COPY, 0, m->k->slot[c->act], bytes, c->peer, &r) &&
                 mpi_finish(m, &r, 1));
}

/* The copies of ranks that have one link take turns, in the order of the table: who has had its
 * turn sends an empty message to who is next. No turn is handed on where all ranks meet anyway, at
 * the end of a step. */
static bool take_turn(Mpi *m, const PipeInstr *c, uint64_t step) {
  const Turns *t = m->k->turns;
  uint32_t before = c->turn > 0 ? c->turn - 1 : t->n - 1, rank = t->rank[before];
  bool handed = c->turn > 0 || (m->run->free_running && step > m->first);
  MPI_Request r;
  return !handed || rank == m->run->here ||
         (mpi_start_recv(m, MPI_OF_COPY, 1, NULL, 0, rank, &r) && mpi_finish(m, &r, 1));
}

static bool hand_on_turn(Mpi *m, const PipeInstr *c, uint64_t step) {
  const Turns *t = m->k->turns;
  uint32_t after = c->turn + 1 < t->n ? c->turn + 1 : 0, rank = t->rank[after];
  bool handed = after > 0 || (m->run->free_running && step + 1 < atomic_load(&m->run->target));
  MPI_Request r;
  int try_code;
  return !handed || rank == m->run->here ||
         (TRY(m, MPI_Isend, (NULL, 0, MPI_BYTE, (int)rank, 4 + MPI_OF_COPY, m->comm, &r)) &&
          mpi_finish(m, &r, 1));
}

PrStatus mpi_copy(PrRun *run, RankRun *k, const CopyAt *at, uint64_t step) {
  Mpi *m = run->of_engine;
  const PipeInstr *c = &k->t->instr[at->index];
  if (k->turns && !take_turn(m, c, step))
    return (PrStatus)atomic_load(&run->status);
  if (c->peer == PIPE_NONE) {
    if (pr_copy(run, k, at, step))
      return (PrStatus)atomic_load(&run->status);
  } else {
    uint64_t began = k->span ? pr_now() - run->epoch_ns : 0;
    if (!copy_to_guest(m, c))
      return (PrStatus)atomic_load(&run->status);
    if (k->span)
      *pr_span(run, k, step, at->index) = (PrSpan){began, pr_now() - run->epoch_ns};
  }
  return k->turns && !hand_on_turn(m, c, step) ? (PrStatus)atomic_load(&run->status) : PR_OK;
}

/* Steps, on the caller's thread */

/* Until all ranks have come to the end of the step. */
static void meet(Mpi *m, uint64_t step) {
  pthread_mutex_lock(&m->lock);
  m->wanted = step + 1;
  pthread_cond_signal(&m->changed);
  pthread_mutex_unlock(&m->lock);
  pr_wait_released(m->run, m->k, step + 1);
}

void mpi_end_step(PrRun *run, RankRun *k, uint64_t step) {
  Mpi *m = run->of_engine;
  if (!run->free_running)
    meet(m, step);
  atomic_store(&k->step_start, UINT64_MAX); /* not of on_step */
  if (pr_failed(run))
    return;
  if (!run->free_running || k->id == run->loss_rank)
    pr_step_done(run, step);
  for (uint32_t r = 0; r < run->p->nrank; r++)
    atomic_store(&run->rank[r].step, step + 1);
  if (run->free_running && step + 1 == atomic_load(&run->target)) /* others may be far behind */
    meet(m, step);
}

/* The times of all ranks to all of them. */
static bool share_trace(Mpi *m) {
  PrRun *run = m->run;
  int try_code;
  for (uint32_t r = 0; run->o.trace_steps && r < run->p->nrank; r++) {
    uint64_t bytes = run->trace_slots * run->p->rank[r].ninstr * sizeof(PrSpan), at = 0;
    for (uint64_t n; at < bytes; at += n) {
      MPI_Request q;
      n = bytes - at < INT_MAX ? bytes - at : INT_MAX;
      if (!TRY(m, MPI_Ibcast,
               ((char *)run->rank[r].span + at, (int)n, MPI_BYTE, (int)r, m->comm, &q)) ||
          !mpi_finish(m, &q, 1))
        return false;
    }
  }
  return true;
}

PrStatus mpi_steps(PrRun *run, uint64_t n) {
  Mpi *m = run->of_engine;
  RankRun *k = m->k;
  uint64_t step = m->first = atomic_load(&k->step);
  atomic_store(&run->target, step + n);
  if (k->has_copier)
    pr_start_copier(k);
  for (; step < run->target && !pr_failed(run); step++) {
    memset(run->loss[step & 1], 0, (size_t)run->nsink * run->p->nmb * sizeof(double));
    pr_run_step(run, k);
  }
  if (!pr_failed(run)) {
    run->loss_steps = step;
    share_trace(m);
  }
  atomic_store(&k->step_start, UINT64_MAX);
  return (PrStatus)atomic_load(&run->status);
}
