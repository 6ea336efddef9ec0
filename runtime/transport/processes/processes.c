/* SPDX-License-Identifier: MIT
 * The engine of processes: opening and closing a run, jobs, steps and their ends. See
 * processes.h.
 *
 * At the end of a step all ranks combine their losses by bitwise or: where one rank has a loss, the
 * others have zeros. Free-running ranks meet only at the end of pr_steps.
 *
 * After a failure the engine waits for nothing. It keeps memory in which a message could arrive. */
#include "processes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Jobs */

ProcJob *proc_add_job(Proc *e, bool (*next)(ProcJob *j), size_t most, uint64_t room) {
  ProcJob *j = &e->job[e->njob];
  j->e = e, j->next = next, j->most = (uint32_t)most;
  j->message = malloc((most + 1) * sizeof *j->message);
  j->room = room ? aligned_alloc(PR_LINE, pr_round(room)) : NULL;
  j->has_done = !sem_init(&j->done, 0, 0);
  e->njob++;
  if (j->message && (j->room || !room) && j->has_done)
    return j;
  pr_fail(e->run, PR_E_MEMORY, "no memory for %zu messages at once", most);
  return NULL;
}

bool proc_next(ProcJob *j, uint64_t round) {
  j->round = round;
  return !pr_failed(j->e->run) && j->next(j);
}

void proc_come(ProcJob *j, uint32_t i) {
  if (j->c)
    proc_of_stream_come(j, i);
}

void proc_put(ProcJob *j, ProcKind kind, uint64_t number, uint32_t peer, bool sends, void *data,
              uint64_t bytes) {
  j->message[j->n++] = (PrMessage){peer, (uint32_t)(number * PROC_KINDS + kind), sends, data,
                                   bytes};
}

void proc_start(ProcJob *j) {
  atomic_store(&j->over, false);
  j->e->wire->begin(j);
}

bool proc_over(ProcJob *j) {
  atomic_store(&j->over, true);
  sem_post(&j->done);
  return false;
}

bool proc_wait(ProcJob *j) {
  while (!atomic_load(&j->over) && !pr_failed(j->e->run))
    while (sem_wait(&j->done) && errno == EINTR)
      ;
  return !pr_failed(j->e->run);
}

bool proc_carries(ProcJob *j) {
  if (j->round == 0 && j->n > 0)
    return true;
  j->n = 0;
  return proc_over(j);
}

bool proc_carry(ProcJob *j) {
  j->next = proc_carries;
  proc_start(j);
  return proc_wait(j);
}

/* The end of a step */

/* In round i each rank knows the losses of 2^i ranks and sends them to the rank 2^i further on. */
static bool next_of_meeting(ProcJob *j) {
  PrRun *run = j->e->run;
  const uint32_t n = run->nprocess, here = run->here;
  const uint64_t count = (uint64_t)run->nsink * run->p->nmb, far = UINT64_C(1) << j->round;
  uint64_t *loss = (uint64_t *)(void *)run->loss[atomic_load(&j->e->k->step) & 1];
  for (uint64_t i = 0; j->round > 0 && i < count; i++)
    loss[i] |= ((const uint64_t *)(void *)j->room)[i];
  j->n = 0;
  if (far >= n)
    return proc_over(j);
  proc_put(j, PROC_OF_REST, PROC_ALL, (uint32_t)((here + far) % n), true, loss, count * 8);
  proc_put(j, PROC_OF_REST, PROC_ALL, (uint32_t)((here + n - far) % n), false, j->room, count * 8);
  return true;
}

/* From now on this rank only waits for others: with twice the deadline of a step, so that a rank
 * that holds them up in its own step reports first. */
static void begin_wait(const PrRun *run, RankRun *k) {
  atomic_store(&k->step_start, pr_now() + run->limit_ns);
}

static void meet(Proc *e) {
  e->caller->next = next_of_meeting;
  proc_start(e->caller);
  proc_wait(e->caller);
}

void proc_end_step(PrRun *run, RankRun *k, uint64_t step) {
  Proc *e = run->of_engine;
  if (!run->free_running)
    meet(e);
  atomic_store(&k->step_start, UINT64_MAX); /* on_step has no deadline */
  if (pr_failed(run))
    return;
  if (run->free_running && step + 1 == atomic_load(&run->target)) { /* others may be far behind */
    if (k->id == run->loss_rank)
      pr_step_done(run, step);
    begin_wait(run, k);
    meet(e);
  } else if (!run->free_running || k->id == run->loss_rank) {
    pr_step_done(run, step);
  }
  for (uint32_t r = 0; r < run->p->nrank; r++)
    atomic_store(&run->rank[r].step, step + 1);
}

/* From one rank to all, piece by piece, along a binomial tree: a rank forwards a piece while the
 * next one arrives. */
PrStatus proc_share(PrRun *run, uint32_t rank, void *data, uint64_t bytes) {
  enum { MOST = 2 << 20 };
  Proc *e = run->of_engine;
  ProcJob *j = e->caller;
  const uint32_t n = run->nprocess, v = (run->here + n - rank) % n, low = v ? v & -v : n;
  const uint64_t each = bytes < MOST ? bytes : MOST;
  if (pr_failed(run))
    return (PrStatus)atomic_load(&run->status);
  char *room = malloc(2 * each + 1); /* the caller may free `data` when the run fails */
  if (!room)
    return pr_fail(run, PR_E_MEMORY, "no memory for %llu bytes that others have",
                   (unsigned long long)bytes);
  bool more = n > 1 && bytes > 0;
  uint64_t last = 0; /* bytes of the previous piece */
  for (uint64_t at = 0, i = 0; more; i++) {
    char *in = room + (i & 1) * each, *out = room + (~i & 1) * each;
    const uint64_t now = bytes - at < each ? bytes - at : each;
    if (v == 0)
      memcpy(in, (char *)data + at, now);
    else if (now > 0)
      proc_put(j, PROC_OF_REST, PROC_ALL, (v - low + rank) % n, false, in, now);
    for (uint32_t d = 1; last > 0 && d < low && d < n - v; d *= 2)
      proc_put(j, PROC_OF_REST, PROC_ALL, (run->here + d) % n, true, out, last);
    if (!proc_carry(j)) {
      e->room = room;
      return (PrStatus)atomic_load(&run->status);
    }
    if (v > 0)
      memcpy((char *)data + at, in, now);
    at += now;
    last = now;
    more = now > 0;
  }
  free(room);
  return PR_OK;
}

/* Steps, on the caller's thread */

PrStatus proc_steps(PrRun *run, uint64_t n) {
  Proc *e = run->of_engine;
  RankRun *k = e->k;
  uint64_t step = e->first = atomic_load(&k->step);
  atomic_store(&run->target, step + n);
  if (k->copier.has_thread)
    pr_start_copier(k);
  for (uint32_t i = 0; i < e->nguest; i++)
    proc_start(&e->guest[i]);
  for (; step < run->target && !pr_failed(run); step++) {
    memset(run->loss[step & 1], 0, (size_t)run->nsink * run->p->nmb * sizeof(double));
    pr_run_step(run, k);
  }
  for (uint32_t i = 0; i < e->nguest; i++)
    proc_wait(&e->guest[i]);
  atomic_store(&k->step_start, UINT64_MAX);
  if (pr_failed(run))
    return (PrStatus)atomic_load(&run->status);
  run->loss_steps = step;
  e->shares = true;
  begin_wait(run, k);
  PrStatus st = pr_share_trace(run);
  atomic_store(&k->step_start, UINT64_MAX);
  e->shares = false;
  return st;
}

/* Opening and closing */

static PrStatus find_units(Proc *e) {
  e->units = proc_units(e->run->p, e->most_tag);
  return e->units ? PR_OK
                  : pr_fail(e->run, PR_E_ARG, "program: %u tags are too few for %u stages",
                            e->most_tag + 1, e->run->p->nstage);
}

/* Lies in the room of the caller's job. Times in ns. */
typedef struct Clock {
  uint64_t there, epoch, took; /* rank 0's clock; its epoch_ns; the shortest round trip so far */
  char ask;
} Clock;

static PrStatus open_here(Proc *e) {
  PrRun *run = e->run;
  RankRun *k = e->k;
  enum { CHILDREN = 33 }; /* most messages of proc_share: 32 children and one arrival */
  PrStatus st;
  if ((st = pr_init_rank(run, k)) || (st = find_units(e)) || (st = proc_take_sums(e)))
    return st;
  e->job = calloc(k->nstream + 2 + (size_t)run->p->nrank, sizeof *e->job);
  if (!e->job)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u streams", k->nstream);
  for (uint32_t x = 0; x < k->nstream; x++)
    if ((st = proc_open_stream(e, &k->stream[x])))
      return st;
  e->caller = proc_add_job(e, proc_carries, CHILDREN,
                           sizeof(Clock) + (uint64_t)run->nsink * run->p->nmb * sizeof(double));
  return e->caller ? proc_open_copies(e) : PR_E_MEMORY;
}

/* Each rank asks rank 0 for its clock ASKED times, and uses the answer with the shortest round
 * trip. */
static bool next_of_clock(ProcJob *j) {
  enum { ASKED = 16 };
  PrRun *run = j->e->run;
  Clock *k = (Clock *)(void *)j->room;
  const bool asks = run->here > 0;
  const uint64_t now = pr_now(), last = asks ? ASKED : 2 * ASKED * (run->nprocess - 1);
  if (asks && j->round > 0 && now - j->start < k->took) {
    k->took = now - j->start; /* the difference of the clocks may wrap */
    run->epoch_ns = k->epoch + (j->start + k->took / 2 - k->there);
  }
  j->start = now;
  j->n = 0;
  if (j->round == last)
    return proc_over(j);
  const uint32_t peer = asks ? 0 : 1 + (uint32_t)(j->round / 2 / ASKED);
  const bool answers = !asks && j->round % 2 == 1;
  if (answers)
    k->there = now;
  else
    proc_put(j, PROC_OF_REST, PROC_ALL, peer, asks, &k->ask, 1);
  if (asks || answers)
    proc_put(j, PROC_OF_REST, PROC_ALL, peer, answers, &k->there, sizeof k->there);
  return true;
}

/* Makes all ranks count spans from the same moment. */
static PrStatus align_clocks(Proc *e) {
  PrRun *run = e->run;
  Clock *k = (Clock *)(void *)e->caller->room;
  uint64_t epoch = run->epoch_ns;
  PrStatus st = proc_share(run, 0, &epoch, sizeof epoch);
  if (st || e->one_clock) {
    run->epoch_ns = epoch;
    return st;
  }
  *k = (Clock){.epoch = epoch, .took = UINT64_MAX};
  e->caller->next = next_of_clock;
  proc_start(e->caller);
  return proc_wait(e->caller) ? PR_OK : (PrStatus)atomic_load(&run->status);
}

PrStatus proc_open(PrRun *run) {
  Proc *e = run->of_engine;
  e->k = &run->rank[run->here];
  PrStatus st = proc_agree(run, open_here(e));
  if (st)
    return st;
  e->agreed = true;
  run->nthread = 2 + (e->k->ncopy > 0); /* the wire counts as one, which never lies down */
  atomic_store(&run->live, run->nthread);
  if ((st = pr_open_threads(run, e->k, e->spin, NULL)) || (st = e->wire->open(e)))
    return st;
  if (e->g->watch)
    e->g->watch(e->g->arg, proc_tell_place, e);
  int err = pthread_create(&e->watcher, NULL, proc_watch, e);
  e->has_watcher = !err;
  if (err)
    return pr_fail(run, PR_E_MEMORY, "no thread for rank %u: %s", run->here, strerror(err));
  return run->o.trace_steps ? align_clocks(e) : PR_OK;
}

bool proc_close(Proc *e) {
  PrRun *run = e->run;
  atomic_store(&e->closing, true);
  run->quit = true;
  if (e->has_watcher)
    pthread_join(e->watcher, NULL);
  if (e->k)
    pr_close_threads(e->k);
  if (e->agreed && e->g->watch) /* open may have failed before it called watch */
    e->g->watch(e->g->arg, NULL, NULL);
  if (!e->wire->close(e)) { /* messages may still arrive */
    e->k->block = e->k->host = NULL;
    run->loss[0] = run->loss[1] = NULL;
    for (uint32_t r = 0; r < run->p->nrank; r++)
      run->rank[r].span = NULL;
    return false;
  }
  for (uint32_t i = 0; i < e->njob; i++) {
    ProcJob *j = &e->job[i];
    if (j->has_done)
      sem_destroy(&j->done);
    free(j->message);
    free(j->room);
    free(j->part);
    free(j->sum);
    free(j->piece);
    free(j->copy);
  }
  free(e->job);
  free(e->sum);
  free(e->owner);
  free(e->room);
  return true;
}
