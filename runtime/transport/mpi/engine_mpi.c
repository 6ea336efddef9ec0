/* SPDX-License-Identifier: MIT
 * The engine of MPI processes, one rank in each.
 *
 * The caller's thread runs the COMPUTE stream, in pr_steps. A second thread, the communicator, runs
 * the COMM stream: it starts the head when it has its waits, by MPI_Isend or MPI_Irecv of the slot
 * itself, and goes on when that has completed, so that transfers happen during callbacks. A third
 * one, the copier, runs the COPY stream, if the rank has one. They tell one another of completed
 * instructions by the counts of RankRun, under `lock`.
 *
 * MPI is called by one thread at a time, under `call`, and without blocking. Who waits for MPI
 * looks a few times, then sleeps between looks, up to 100 us, and once it has waited for long up to
 * 1 ms: no core is kept busy by waiting.
 *
 * A message is told apart by its tag: which tensor of which microbatch (number_of in mpi_open.c),
 * whatever else is under way between the two ranks.
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
#include <string.h>
#include <time.h>

#include "checksum.h"
#include "engine_mpi.h"

void mpi_tell(Mpi *m, _Atomic uint64_t *count, uint64_t value) {
  pthread_mutex_lock(&m->lock);
  atomic_store(count, value);
  pthread_cond_broadcast(&m->changed);
  pthread_mutex_unlock(&m->lock);
}

void mpi_doze(Mpi *m, uint64_t ns) {
  uint64_t end = pr_now() + ns;
  struct timespec t = {(time_t)(end / 1000000000u), (long)(end % 1000000000u)};
  pthread_cond_timedwait(&m->changed, &m->lock, &t);
}

/* The COMM stream */

bool mpi_start(Mpi *m, Moving *v, int number, PrFaultKind fault, MPI_Request r[2]) {
  const PipeInstr *c = v->c;
  PrRun *run = m->run;
  bool send = c->op == PIPE_SEND_F || c->op == PIPE_SEND_B, sums = run->o.checksums;
  v->bytes = pr_moved_bytes(run, c);
  v->slot = m->k->slot[send ? c->in : c->out];
  if (sums && send)
    v->sum = pr_checksum(v->slot, v->bytes);
  v->bit = fault == PR_CORRUPT && v->bytes ? v->slot : NULL;
  if (v->bit)
    *v->bit ^= 1;
  return send ? mpi_start_send(m, MPI_OF_STREAM, number, v->slot, v->bytes, c->peer, &r[0]) &&
                    (!sums || mpi_start_send(m, MPI_OF_CONTROL, number, &v->sum, sizeof v->sum,
                                             c->peer, &r[1]))
              : mpi_start_recv(m, MPI_OF_STREAM, number, v->slot, v->bytes, c->peer, &r[0]) &&
                    (!sums || mpi_start_recv(m, MPI_OF_CONTROL, number, &v->sum, sizeof v->sum,
                                             c->peer, &r[1]));
}

bool mpi_arrived(Mpi *m, const Moving *v, uint64_t step) {
  const PipeInstr *c = v->c;
  if (v->bit) /* what stays here is right */
    *v->bit ^= 1;
  return !v->slot || !m->run->o.checksums || (c->op != PIPE_RECV_F && c->op != PIPE_RECV_B) ||
         pr_checksum(v->slot, v->bytes) == v->sum ||
         pr_damaged(m->run, m->run->here, c, step) == PR_OK;
}

/* The transfer at place i of the stream, or the group of n there: all at once. */
static bool transfers(Mpi *m, uint32_t i, uint32_t n, const PrFaultKind *fault, uint64_t step) {
  RankRun *k = m->k;
  MPI_Request r[2 * PIPE_GROUP_MOST];
  Moving *v = m->moving;
  bool done = true;
  for (uint32_t j = 0; j < n && done; j++) {
    MPI_Request *both = &r[(size_t)2 * j];
    both[0] = both[1] = MPI_REQUEST_NULL;
    v[j] = (Moving){.c = &k->t->instr[k->comm[i + j].index]};
    if (fault[j] != PR_DROP)
      done = mpi_start(m, &v[j], m->number[i + j], fault[j], both);
  }
  done = done && mpi_finish_each(m, r, n, &k->stream->group_done);
  for (uint32_t j = 0; j < n && done; j++)
    done = mpi_arrived(m, &v[j], step);
  return done;
}

static bool sum(Mpi *m, Coll *l, uint32_t index, uint64_t step) {
  for (uint32_t i = 0; i < l->n; i++)
    l->index[i] = index; /* only that of this rank counts */
  for (uint64_t round = 0; round <= mpi_sum_rounds(m, l); round++) {
    uint32_t n = 0;
    if (!mpi_start_round(m, l, round, m->room[0], m->request, &n) ||
        !mpi_finish(m, m->request, n, true) || !mpi_add_round(m, l, round, m->room[0], step))
      return false;
  }
  return true;
}

/* Until so many instructions of COMPUTE and COPY are done. */
static bool wait_for_streams(Mpi *m, uint64_t compute, uint64_t copy) {
  RankRun *k = m->k;
  for (;;) {
    if (!mpi_look_around(m))
      return false;
    pthread_mutex_lock(&m->lock);
    bool ready = atomic_load(&k->compute_done) >= compute && atomic_load(&k->copy_done) >= copy;
    if (!ready)
      mpi_doze(m, m->nhosted ? 100000 : 5000000);
    pthread_mutex_unlock(&m->lock);
    if (ready)
      return true;
  }
}

/* The faults of the n instructions at place i. False: they never begin. */
static bool meet_faults(Mpi *m, uint32_t i, uint32_t n, uint64_t step, PrFaultKind *fault) {
  for (uint32_t j = 0; j < n; j++) {
    fault[j] = pr_fault_at(m->run, m->k->id, m->k->comm[i + j].index, step);
    while (fault[j] == PR_HANG && mpi_look_around(m))
      mpi_back_off(m, UINT32_MAX);
    if (fault[j] == PR_HANG)
      return false;
  }
  return true;
}

static bool comm_step(Mpi *m, uint64_t step) {
  RankRun *k = m->k;
  if (k->need)
    return mpi_channels_step(m, step);
  uint64_t done = step * k->ncomm;
  PrFaultKind fault[PIPE_GROUP_MOST];
  for (uint32_t i = 0, n; i < k->ncomm; i += n) {
    const CommAt *at = &k->comm[i];
    const PipeInstr *c = &k->t->instr[at->index];
    n = c->group + 1u;
    if (!wait_for_streams(m, step * k->ncompute + c->wait, step * k->ncopy + c->wait_copy) ||
        !meet_faults(m, i, n, step, fault))
      return false;
    atomic_store(&k->stream->posted, 1);
    uint64_t start = k->span ? pr_now() - m->run->epoch_ns : 0;
    if (c->op == PIPE_SIDE_COMM ? pr_side(m->run, k, at->index, step) != PR_OK
        : pipe_is_sum(c->op)    ? !sum(m, &m->run->coll[at->chan], at->index, step)
                                : !transfers(m, i, n, fault, step))
      return false;
    uint64_t end = k->span ? pr_now() - m->run->epoch_ns : 0;
    for (uint32_t j = 0; j < n && k->span && c->op != PIPE_SIDE_COMM; j++)
      *pr_span(m->run, k, step, at[j].index) = (PrSpan){start, end};
    atomic_store(&k->stream->posted, 0);
    atomic_store(&k->stream->group_done, 0);
    mpi_tell(m, &k->stream->done, done += n);
  }
  return true;
}

/* The losses of a step to all ranks; they have all finished it then. */
static bool meet(Mpi *m, uint64_t step) {
  PrRun *run = m->run;
  RankRun *k = m->k;
  MPI_Request r;
  int try_code;
  if (!wait_for_streams(m, (step + 1) * k->ncompute, (step + 1) * k->ncopy))
    return false;
  return TRY(m, MPI_Iallreduce,
             (MPI_IN_PLACE, run->loss[step & 1], (int)(run->nsink * run->p->nmb), MPI_UINT64_T,
              MPI_BOR, m->comm, &r)) &&
         mpi_finish(m, &r, 1, true);
}

void *mpi_communicator(void *arg) {
  Mpi *m = arg;
  PrRun *run = m->run;
  for (;;) {
    pthread_mutex_lock(&m->lock);
    uint64_t step = m->met;
    bool quit = run->quit, rest = !quit && m->begun <= step;
    if (rest)
      mpi_doze(m, 20000000);
    pthread_mutex_unlock(&m->lock);
    if (quit)
      return NULL;
    if (rest ? mpi_look_around(m)
             : comm_step(m, step) &&
                   ((run->free_running && step + 1 < run->target) || meet(m, step))) {
      if (rest)
        continue;
      pthread_mutex_lock(&m->lock);
      m->met = ++step;
      m->released = run->free_running && step < run->target ? m->released : step;
      pthread_cond_broadcast(&m->changed);
      pthread_mutex_unlock(&m->lock);
      continue;
    }
    mpi_tell_others(m);
    return NULL;
  }
}

/* The COPY stream */

static bool copy_one(Mpi *m, const PipeInstr *c) {
  MPI_Request r = MPI_REQUEST_NULL;
  uint64_t bytes = m->run->stage[c->stage].size.act;
  bool off = c->op == PIPE_OFF;
  if (!mpi_start_send(m, MPI_OF_COPY, 0, off ? m->k->slot[c->act] : NULL, off ? bytes : 0, c->peer,
                      &r) ||
      !mpi_finish(m, &r, 1, false))
    return false;
  return off || (mpi_start_recv(m, MPI_OF_COPY, 0, m->k->slot[c->act], bytes, c->peer, &r) &&
                 mpi_finish(m, &r, 1, false));
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
         (mpi_start_recv(m, MPI_OF_COPY, 1, NULL, 0, rank, &r) && mpi_finish(m, &r, 1, false));
}

static bool hand_on_turn(Mpi *m, const PipeInstr *c, uint64_t step) {
  const Turns *t = m->k->turns;
  uint32_t after = c->turn + 1 < t->n ? c->turn + 1 : 0, rank = t->rank[after];
  bool handed = after > 0 || (m->run->free_running && step + 1 < m->run->target);
  MPI_Request r;
  int try_code;
  return !handed || rank == m->run->here ||
         (TRY(m, MPI_Isend, (NULL, 0, MPI_BYTE, (int)rank, 4 + MPI_OF_COPY, m->comm, &r)) &&
          mpi_finish(m, &r, 1, false));
}

void *mpi_copier(void *arg) {
  Mpi *m = arg;
  PrRun *run = m->run;
  RankRun *k = m->k;
  for (;;) {
    uint64_t done, step;
    const CopyAt *at;
    const PipeInstr *c;
    pthread_mutex_lock(&m->lock);
    for (;;) { /* a run that resumes counts on from another step */
      done = atomic_load(&k->copy_done);
      step = done / k->ncopy;
      at = &k->copy[done % k->ncopy];
      c = &k->t->instr[at->index];
      if (run->quit || pr_failed(run) ||
          (m->begun > step && atomic_load(&k->compute_done) >= step * k->ncompute + c->wait &&
           pr_has_comm(k, 1, (uint32_t)(done % k->ncopy), c->wait_copy, step)))
        break;
      mpi_doze(m, 100000000);
    }
    pthread_mutex_unlock(&m->lock);
    if (run->quit || pr_failed(run) || (k->turns && !take_turn(m, c, step)))
      return NULL;
    if (pr_fault_at(run, k->id, at->index, step) == PR_HANG)
      return NULL;
    if (c->peer == PIPE_NONE) {
      if (pr_copy(run, k, at, step))
        return NULL;
    } else {
      uint64_t start = k->span ? pr_now() - run->epoch_ns : 0;
      if (!copy_one(m, c))
        return NULL;
      if (k->span)
        *pr_span(run, k, step, at->index) = (PrSpan){start, pr_now() - run->epoch_ns};
    }
    if (k->turns && !hand_on_turn(m, c, step))
      return NULL;
    mpi_tell(m, &k->copy_done, ++done);
  }
}

/* The COMPUTE stream, on the caller's thread */

/* Until it has what instruction i waits for, or after the last one all is done, so many copies are,
 * and steps. */
static bool wait_for_counts(Mpi *m, uint64_t step, uint32_t i, uint64_t copy, uint64_t released) {
  RankRun *k = m->k;
  uint32_t wait = i < k->ncompute ? k->t->instr[k->compute[i].index].wait : 0;
  pthread_mutex_lock(&m->lock);
  while (!pr_failed(m->run) && (!pr_has_comm(k, 0, i, wait, step) ||
                                atomic_load(&k->copy_done) < copy || m->released < released))
    mpi_doze(m, 100000000);
  pthread_mutex_unlock(&m->lock);
  return !pr_failed(m->run);
}

static bool run_step(Mpi *m, uint64_t step) {
  PrRun *run = m->run;
  RankRun *k = m->k;
  uint64_t copy = step * k->ncopy, done = step * k->ncompute;
  memset(run->loss[step & 1], 0, (size_t)run->nsink * run->p->nmb * sizeof(double));
  atomic_store(&k->step_start, pr_now());
  pthread_mutex_lock(&m->lock);
  m->begun = step + 1;
  pthread_cond_broadcast(&m->changed);
  pthread_mutex_unlock(&m->lock);
  for (uint32_t i = 0, n; i < k->ncompute; i += n) {
    const PipeInstr *c = &k->t->instr[k->compute[i].index];
    if (!wait_for_counts(m, step, i, copy + c->wait_copy, 0))
      return false;
    atomic_store(&k->running_since, pr_now());
    atomic_store(&k->running, k->compute[i].index + 1);
    PrStatus st = pr_compute(run, k, &k->compute[i], step, &n);
    atomic_store(&k->running, 0);
    if (st)
      return false;
    mpi_tell(m, &k->compute_done, done += n);
  }
  if (!wait_for_counts(m, step, k->ncompute, copy + k->ncopy, run->free_running ? 0 : step + 1))
    return false;
  atomic_store(&k->step_start, UINT64_MAX); /* not of on_step */
  if (!run->free_running || k->id == run->loss_rank)
    pr_step_done(run, step);
  for (uint32_t r = 0; r < run->p->nrank; r++)
    atomic_store(&run->rank[r].step, step + 1);
  return true;
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
          !mpi_finish(m, &q, 1, false))
        return false;
    }
  }
  return true;
}

PrStatus mpi_steps(PrRun *run, uint64_t n) {
  Mpi *m = run->of_engine;
  uint64_t step = atomic_load(&m->k->step);
  run->target = step + n;
  m->first = step;
  while (step < run->target && run_step(m, step))
    step++;
  if (step == run->target &&
      (n == 0 || wait_for_counts(m, step - 1, m->k->ncompute, 0, run->target))) {
    run->loss_steps = run->target;
    atomic_store(&m->k->step_start, UINT64_MAX);
    share_trace(m);
  }
  atomic_store(&m->k->step_start, UINT64_MAX);
  return (PrStatus)atomic_load(&run->status);
}
