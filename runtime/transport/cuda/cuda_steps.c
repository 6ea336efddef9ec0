/* SPDX-License-Identifier: MIT
 * Steps: issues them ahead, waits for them, captures them, and ends a run whose step does not end.
 *
 * The host never blocks in CUDA: it polls. Between two looks it asks whether a communicator has an
 * error, whether another rank has failed, and whether the step has taken too long. If so, it aborts
 * its communicators and lets all transfers by copies through, so that its own streams run out. It
 * tells the other ranks through the group, so that every rank aborts.
 *
 * note [watchdog]: the communicators of steps block, so NCCL starts no thread for a group. After
 * the prologue a call on them waits for nobody. In the prologue, and where NCCL waits after all, a
 * call holds the host. PrCuda.in_call brackets each call, and the watchdog, a thread, looks in
 * place of a host that a call holds (cuda_is_held).
 * Invariant: the watchdog looks only while the host is in a call, or waits in cuda_nccl for the
 * look to end. Reason: the host clears in_call and then loads `looks`; the watchdog sets `looks`
 * and then loads in_call; so one of the two sees the other.
 * Invariant: an abort gives back communicators only while the host is in no call. Until then it
 * only sets flags, in a group; NCCL sees them and leaves whatever it waits for. Reason: the host
 * stores in_call and then loads the status of the run; the abort stores the status and then loads
 * in_call.
 *
 * note [abort]: an abort sets the flag that ends the kernels of a communicator. Then it waits until
 * all that was issued to the communicator is over and no graph holds a captured launch of it, and
 * gives back memory. For that CUDA waits for everything on the device and may let no other thread
 * in. All of it happens on the thread that calls, whether the communicator blocks or not. What one
 * communicator waits for may be behind a transfer of another one, behind a turn, or in a graph. So:
 *   1. abort all communicators in one group, in which NCCL only sets the flags;
 *   2. set the flags of transfers by copy engines until all streams have run out;
 *   3. destroy the graphs;
 *   4. end the group: NCCL has nothing to wait for.
 * If the streams do not run out, a device hangs: the group is not ended, memory is not given back,
 * and the process can end. */
#define _GNU_SOURCE /* sem_clockwait */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_engine.h"

/* Time for all ranks to come and for NCCL to connect them; a step's deadline does not apply. */
#define OPEN_NS (PR_GROUP_PATIENCE_S * UINT64_C(1000000000))

PrStatus cuda_failed(PrRun *run, const char *call, cudaError_t e) {
  int len = (int)strcspn(call, "(");
  PrStatus st = (PrStatus)atomic_load(&run->status);
  return st ? st
            : pr_fail(run, PR_E_DEVICE, "rank %u: %.*s: %s",
                      cuda_of(run)->rank ? cuda_of(run)->rank[0].k->id : 0, len, call,
                      cudaGetErrorString(e));
}

void cuda_end_graphs(PrRun *run) {
  PrCuda *c = cuda_of(run);
  for (int i = 0; i < 2; i++) {
    if (c->graph[i])
      cudaGraphExecDestroy(c->graph[i]);
    c->graph[i] = NULL;
  }
}

/* How long a device may need for what was issued: two steps at most. */
static uint64_t patience_of(const PrCuda *c) {
  const uint64_t least = UINT64_C(1000000000), most = UINT64_C(10000000000);
  return c->limit_ns > most / 2 ? most : c->limit_ns < least / 2 ? least : 2 * c->limit_ns;
}

static bool is_busy(const PrCuda *c) {
  bool busy = cuda_edges_busy(c->run);
  for (uint32_t r = 0; r < c->nhere; r++)
    for (uint32_t x = 0; c->rank[r].stream && x < c->rank[r].nstream; x++)
      busy |= c->rank[r].stream[x] && cudaStreamQuery(c->rank[r].stream[x]) == cudaErrorNotReady;
  return busy;
}

bool cuda_run_out(PrRun *run) {
  const struct timespec pause = {0, 20000}; /* a flag lets only one transfer of its edge through */
  PrCuda *c = cuda_of(run);
  const uint64_t end = pr_now() + patience_of(c);
  while ((c->in_call || c->capturing) && !c->stuck) { /* no stream may be queried yet */
    nanosleep(&pause, NULL);
    c->stuck = pr_now() > end;
  }
  for (cuda_edges_release(run); !c->stuck && is_busy(c);) { /* before any call of CUDA */
    cuda_edges_release(run);
    nanosleep(&pause, NULL);
    c->stuck = pr_now() > end;
  }
  cuda_end_graphs(run);
  return !c->stuck;
}

/* note [abort] */
void cuda_abort(PrRun *run) {
  PrCuda *c = cuda_of(run);
  const bool apart = c && c->has_watchdog && pthread_equal(pthread_self(), c->watchdog);
  /* The host aborts once its capture or its group has ended; the watchdog waits for that. */
  if (!c || (!apart && (c->capturing || c->in_call)) || atomic_exchange(&c->aborted, true))
    return;
  cuda_edges_fail(run);       /* before any wait of a stream is released without its tensor */
  cudaSetDevice(c->o.device); /* the thread may be a watcher */
  if (c->o.group && !atomic_exchange(&c->told, true))
    c->o.group->tell(c->o.group->arg, (PrStatus)atomic_load(&run->status), run->text);
  if (c->o.group && c->rank)
    cuda_abort_nccl(run, cuda_run_out);
  else
    cuda_end_graphs(run);
}

/* The first instruction of a rank here that is not known to be over, for the report. */
static const PipeInstr *first_stalled(PrRun *run, uint32_t *rank) {
  PrCuda *c = cuda_of(run);
  for (uint32_t r = 0; r < c->nhere; r++) {
    CudaRank *d = &c->rank[r];
    uint32_t first = UINT32_MAX;
    for (uint32_t e = 0; e < d->nevent && c->held_step == c->done_steps; e++)
      if (d->held[e] != UINT32_MAX && d->held[e] > 0 && d->held[e] - 1 < first &&
          cudaEventQuery(d->event[e]) == cudaErrorNotReady)
        first = d->held[e] - 1;
    *rank = d->k->id;
    if (first != UINT32_MAX)
      return &d->k->t->instr[first];
  }
  return NULL;
}

static PrStatus too_late(PrRun *run) {
  PrCuda *c = cuda_of(run);
  char where[PR_WHERE] = "", peer[48] = "";
  uint32_t rank = c->rank[0].k->id;
  const PipeInstr *in = first_stalled(run, &rank);
  if (in && in->peer != PIPE_NONE)
    snprintf(peer, sizeof peer, ", whose peer is rank %u", in->peer);
  return pr_fail(run, PR_E_DEADLINE,
                 "deadline: step %llu takes longer than %g s; rank %u has not completed %s%s",
                 (unsigned long long)c->done_steps, (double)c->limit_ns * 1e-9, rank,
                 in ? pr_where(run, in, where) : "the step", peer);
}

/* Asks the group where all ranks are. With headers the ranks first have a second to find out which
 * transfer is wrong. */
static PrStatus late(PrRun *run) {
  PrCuda *c = cuda_of(run);
  const PrGroup *g = c->o.group;
  const uint64_t patience_ns = UINT64_C(1000000000), answer_ns = UINT64_C(5000000000);
  bool checks = c->rank[0].check != NULL, first = c->late_step != c->done_steps + 1;
  PrStatus st = PR_OK;
  if (!c->capturing) { /* else the device may not be queried */
    st = first && checks ? cuda_check_late(run) : PR_OK;
    c->late_step = c->done_steps + 1;
  }
  if (st || (checks && pr_now() - c->since < c->limit_ns + patience_ns))
    return st;
  if (!g || !g->place)
    return too_late(run);
  if (c->told_late != c->done_steps + 1) {
    cuda_note_place(run);
    c->told_late = c->done_steps + 1;
    c->told_ns = pr_now();
    g->late(g->arg);
  }
  return pr_now() - c->told_ns < answer_ns ? PR_OK : too_late(run);
}

PrStatus cuda_wait_a_little(PrRun *run, uint64_t looks) {
  PrCuda *c = cuda_of(run);
  PrStatus st = (PrStatus)atomic_load(&run->status);
  if (st)
    return st;
  if ((st = cuda_heard(run)))
    return st;
  if (looks % 512 == 511 && c->since)
    cuda_note_place(run);
  if ((st = cuda_check_verdict(run)))
    return st;
  for (uint32_t i = 0; i <= c->nsplit; i++) {
    ncclComm_t x = i < c->nsplit ? cuda_split(c, i) : c->root;
    ncclResult_t r = ncclSuccess;
    if (!x)
      continue;
    if (ncclCommGetAsyncError(x, &r) != ncclSuccess || (r != ncclSuccess && r != ncclInProgress))
      return pr_fail(run, PR_E_DEVICE, "rank %u: NCCL: %s: %s", c->rank[0].k->id,
                     ncclGetErrorString(r), ncclGetLastError(x));
  }
  if (c->since && pr_now() - c->since > c->limit_ns)
    return late(run);
  if (!c->since && pr_now() - c->opened > OPEN_NS)
    return pr_fail(run, PR_E_DEADLINE,
                   "deadline: rank %u has waited %u s for others to open, or close, the run",
                   c->rank[0].k->id, (unsigned)(OPEN_NS / 1000000000u));
  if (looks > 256) {
    struct timespec t = {0, looks > 4096 ? 200000 : 20000};
    nanosleep(&t, NULL);
  }
  return PR_OK;
}

PrStatus cuda_enter_nccl(PrRun *run) {
  PrCuda *c = cuda_of(run);
  atomic_store(&c->in_call, pr_now());
  if (pr_failed(run))
    atomic_store(&c->in_call, 0);
  return (PrStatus)atomic_load(&run->status);
}

PrStatus cuda_nccl(PrRun *run, ncclComm_t c, const char *call, ncclResult_t r) {
  const PrCuda *e = cuda_of(run);
  atomic_store(&cuda_of(run)->in_call, 0);
  while (atomic_load(&e->looks) && !pr_failed(run))
    pr_nap(20000);
  PrStatus st = (PrStatus)atomic_load(&run->status);
  if (r == ncclSuccess && c) /* ncclCommSplit says so before it is through */
    r = ncclInProgress;
  for (uint64_t looks = 0; r == ncclInProgress && !st; looks++) {
    if (ncclCommGetAsyncError(c, &r) != ncclSuccess)
      r = ncclSystemError;
    if (r == ncclInProgress)
      st = cuda_wait_a_little(run, looks);
  }
  int len = (int)strcspn(call, "(");
  if (!st && r != ncclSuccess)
    st = pr_fail(run, PR_E_DEVICE, "rank %u: %.*s: %s: %s", cuda_of(run)->rank[0].k->id, len, call,
                 ncclGetErrorString(r), ncclGetLastError(c));
  return st;
}

/* note [watchdog] */
static void *watch(void *arg) {
  enum { LOOK_NS = 20000000 };
  PrRun *run = arg;
  PrCuda *c = cuda_of(run);
  struct timespec next;
  do {
    atomic_store(&c->looks, true);
    if (cuda_is_held(c) && !cuda_use_device(run))
      cuda_wait_a_little(run, 0);
    atomic_store(&c->looks, false);
    clock_gettime(CLOCK_MONOTONIC, &next);
    next.tv_nsec += LOOK_NS;
    next.tv_sec += next.tv_nsec / 1000000000;
    next.tv_nsec %= 1000000000;
  } while (sem_clockwait(&c->closing, CLOCK_MONOTONIC, &next) && errno != EINVAL);
  return NULL;
}

PrStatus cuda_open_watchdog(PrRun *run) {
  PrCuda *c = cuda_of(run);
  sem_init(&c->closing, 0, 0);
  c->has_watchdog = !pthread_create(&c->watchdog, NULL, watch, run);
  return c->has_watchdog ? PR_OK : pr_fail(run, PR_E_MEMORY, "no thread for rank %u", run->here);
}

void cuda_close_watchdog(PrRun *run) {
  PrCuda *c = cuda_of(run);
  if (!c->has_watchdog)
    return;
  sem_post(&c->closing);
  pthread_join(c->watchdog, NULL);
  c->has_watchdog = false;
}

PrStatus cuda_wait_event(PrRun *run, cudaEvent_t e) {
  for (uint64_t looks = 0;; looks++) {
    cudaError_t r = cudaEventQuery(e);
    if (r == cudaSuccess)
      return PR_OK;
    if (r != cudaErrorNotReady)
      return cuda_failed(run, "cudaEventQuery", r);
    PrStatus st = cuda_wait_a_little(run, looks);
    if (st)
      return st;
  }
}

/* Captures the step. Even and odd steps have a graph each, because their losses lie apart. */
static PrStatus capture(PrRun *run, uint64_t step) {
  PrCuda *c = cuda_of(run);
  cudaStream_t s = c->rank[0].stream[PIPE_COMPUTE];
  cudaGraph_t g = NULL;
  CUDA_TRY(run, cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  c->capturing = true;
  PrStatus st = cuda_issue_step(run, step);
  cudaError_t e = cudaStreamEndCapture(s, &g);
  c->capturing = false;
  if (!st && e)
    st = cuda_failed(run, "cudaStreamEndCapture", e);
  if (!st)
    e = cudaGraphInstantiate(&c->graph[step & 1], g, 0);
  if (g)
    cudaGraphDestroy(g);
  if (st)
    return st;
  return e ? cuda_failed(run, "cudaGraphInstantiate", e) : PR_OK;
}

/* True if a graph runs the step. A step with a planted fault at an instruction is issued: a fault
 * in a graph would be in all its replays. */
static bool is_replayed(const PrRun *run, uint64_t step) {
  const PrFault *f = &run->fault;
  return cuda_of(run)->o.graph && !(f->kind && f->point == PR_AT_INSTRUCTION && f->step == step);
}

static PrStatus issue_step(PrRun *run) {
  PrCuda *c = cuda_of(run);
  uint64_t step = c->issued_steps;
  bool replayed = is_replayed(run, step);
  cudaStream_t s = c->rank[0].stream[PIPE_COMPUTE];
  PrStatus st = PR_OK;
  c->step_from[step & 1] = step;
  cuda_formulas_step(run, step);
  if (!replayed)
    st = cuda_issue_step(run, step);
  else if (!c->graph[step & 1])
    st = capture(run, step);
  if (st)
    return st;
  if (replayed && c->base)
    CUDA_TRY(run, cudaEventRecord(c->base[step % run->trace_slots], s));
  if (replayed) {
    CUDA_TRY(run, cudaGraphLaunch(c->graph[step & 1], s));
    CUDA_TRY(run, cudaEventRecord(c->over[step & 1], s));
  }
  c->issued_steps++;
  return PR_OK;
}

/* Waits for the oldest step that is not known to be over. */
static PrStatus finish_step(PrRun *run) {
  PrCuda *c = cuda_of(run);
  uint64_t step = c->done_steps;
  size_t n = (size_t)run->nsink * run->p->nmb;
  PrStatus st = cuda_wait_event(run, c->over[step & 1]);
  if (!st)
    st = cuda_check_verdict(run);
  if (!st && run->o.trace_steps)
    st = cuda_trace_step(run, step);
  if (!st && c->edges)
    st = cuda_edges_finish(run, step);
  if (st)
    return st;
  c->done_steps++;
  c->since = pr_now();
  memcpy(run->loss[step & 1], c->loss_to + (step & 1) * n, n * sizeof(double));
  for (uint32_t r = 0; r < run->p->nrank; r++)
    atomic_store(&run->rank[r].step, step + 1);
  uint32_t slices = pipe_slices(run->p);
  for (uint32_t m = 0; run->o.on_loss && m < run->p->nmb / slices; m++)
    for (uint32_t i = 0; i < run->nsink * slices && pr_is_here(run, run->loss_rank); i++)
      pr_tell_loss(run, step, m);
  bool told = !run->free_running || pr_is_here(run, run->loss_rank);
  if (told)
    pr_step_done(run, step);
  else
    run->loss_steps = step + 1;
  return PR_OK;
}

PrStatus cuda_steps(PrRun *run, uint64_t n) {
  PrCuda *c = cuda_of(run);
  PrStatus st = cuda_use_device(run);
  c->since = pr_now();
  for (uint64_t i = 0; i < n && !st; i++) {
    st = issue_step(run);
    if (!st && c->issued_steps - c->done_steps > 1) /* the device has the next one meanwhile */
      st = finish_step(run);
  }
  while (!st && c->done_steps < c->issued_steps)
    st = finish_step(run);
  for (uint32_t i = 0; i < 2 && !st && run->free_running && c->o.group; i++)
    st = cuda_share(run, run->loss_rank, run->loss[i],
                    (uint64_t)run->nsink * run->p->nmb * sizeof(double));
  if (!st)
    st = pr_share_trace(run);
  if (st)
    cuda_abort(run);
  return st;
}
