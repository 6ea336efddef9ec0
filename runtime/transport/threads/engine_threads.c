/* SPDX-License-Identifier: MIT
 * The engine of CPU threads: one thread per rank. The second side to arrive at a transfer copies
 * the tensor and advances both streams; likewise the last member to arrive at a sum. */
#include "local.h"

#include <time.h>
#include <unistd.h>

static void transfer(PrRun *run, Chan *ch, CommRun **todo) {
  local_transfer(run, ch, transfer, todo);
}

static void begin(PrRun *run, CommRun *c, uint32_t i, CommRun **todo) {
  const CommAt *at = pr_comm_at(c, i);
  uint32_t op = c->k->t->instr[at->index].op;
  Chan *ch;
  if (op == PIPE_SIDE_COMM) {
    if (!pr_side(run, c->k, at->index, c->step))
      pr_over(run, c, i, todo);
  } else if (pipe_is_sum(op)) {
    if (local_arrive(&run->coll[at->chan]))
      local_sum(run, &run->coll[at->chan], todo);
  } else if (pr_fault_is(run, PR_DROP, c->k->id, at->index, c->step)) {
    pr_over(run, c, i, todo);
  } else if ((ch = local_post(run, c, i))) {
    transfer(run, ch, todo);
  }
}

static void end_step(PrRun *run, RankRun *k, uint64_t step) {
  uint64_t finished = step + 1;
  /* on_step does not count */
  atomic_store_explicit(&k->step_start, UINT64_MAX, memory_order_relaxed);
  if (run->free_running) {
    if (k->id == run->loss_rank)
      pr_step_done(run, step);
  } else if (atomic_fetch_add(&run->arrived, 1) + 1 < finished * run->p->nrank) {
    pr_wait_released(run, k, finished);
  } else {
    pr_step_done(run, step);
    atomic_store(&run->released, finished);
    for (uint32_t r = 0; r < run->p->nrank; r++)
      pr_tell_released(run, &run->rank[r], finished);
  }
  if (run->free_running || atomic_load(&run->released) > step)
    atomic_store_explicit(&k->step, finished, memory_order_relaxed);
}

static void *rank_thread(void *arg) {
  RankRun *k = arg;
  PrRun *run = k->run;
  if (run->m.thread)
    run->m.thread(run->m.self, 1);
  pr_init_rank(run, k);
  for (pr_rest(run, &k->main.sem); !atomic_load(&run->quit); pr_rest(run, &k->main.sem)) {
    while (!pr_failed(run) &&
           atomic_load_explicit(&k->step, memory_order_relaxed) < atomic_load(&run->target))
      pr_run_step(run, k);
    atomic_store_explicit(&k->step_start, UINT64_MAX, memory_order_relaxed);
  }
  if (run->m.thread)
    run->m.thread(run->m.self, 0);
  return NULL;
}

/* The caller's side */

static PrStatus stop_for_deadline(PrRun *run, uint64_t step) {
  char text[PR_TEXT];
  bool told = pr_blame_threads(run, text, sizeof text);
  return pr_fail(run, PR_E_DEADLINE, "deadline: step %llu takes longer than %g s; %.900s",
                 (unsigned long long)step, (double)run->limit_ns / 1e9,
                 told ? text : "no callback runs");
}

/* Waits until every thread is idle, or a step exceeds its deadline. */
static void wait_idle(PrRun *run) {
  const uint64_t limit = run->limit_ns;
  bool late = false;
  uint64_t late_step = 0;
  pthread_mutex_lock(&run->lock);
  while (!run->idle && !late) {
    uint64_t oldest = UINT64_MAX;
    for (uint32_t r = 0; r < run->p->nrank; r++) {
      uint64_t start = atomic_load_explicit(&run->rank[r].step_start, memory_order_relaxed);
      if (start < oldest) {
        oldest = start;
        late_step = atomic_load_explicit(&run->rank[r].step, memory_order_relaxed);
      }
    }
    uint64_t now = pr_now(), end = (oldest == UINT64_MAX ? now : oldest) + limit;
    late = now >= end;
    struct timespec t = {(time_t)(end / 1000000000u), (long)(end % 1000000000u)};
    if (!late)
      pthread_cond_timedwait(&run->cond, &run->lock, &t);
  }
  pthread_mutex_unlock(&run->lock);
  if (late)
    stop_for_deadline(run, late_step);
}

static PrStatus threads_steps(PrRun *run, uint64_t n) {
  uint64_t now = pr_now();
  atomic_fetch_add(&run->target, n);
  run->idle = false;
  atomic_store(&run->live, run->nthread);
  for (uint32_t r = 0; r < run->p->nrank; r++)
    atomic_store_explicit(&run->rank[r].step_start, now, memory_order_relaxed);
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    sem_post(&run->rank[r].main.sem);
    if (run->rank[r].copier.has_thread)
      sem_post(&run->rank[r].copier.sem);
  }
  wait_idle(run);
  return (PrStatus)atomic_load(&run->status);
}

static PrStatus threads_open(PrRun *run) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  bool spin = cores > 0 && (unsigned long)cores >= run->p->nrank;
  run->nthread = run->p->nrank;
  for (uint32_t r = 0; r < run->p->nrank; r++)
    run->nthread += run->rank[r].ncopy > 0;
  atomic_store(&run->live, run->nthread);
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    PrStatus st = pr_open_threads(run, &run->rank[r], spin, rank_thread);
    if (st)
      return st;
  }
  pthread_mutex_lock(&run->lock);
  while (!run->idle)
    pthread_cond_wait(&run->cond, &run->lock);
  pthread_mutex_unlock(&run->lock);
  return (PrStatus)atomic_load(&run->status);
}

static void threads_close(PrRun *run) {
  if (!run->opened)
    return;
  atomic_store(&run->quit, true);
  for (uint32_t r = 0; r < run->p->nrank; r++)
    pr_close_threads(&run->rank[r]);
}

const PrEngine pr_threads = {.name = "threads",
                             .open = threads_open,
                             .steps = threads_steps,
                             .wake = pr_wake_all,
                             .close = threads_close,
                             .begin = begin,
                             .end_step = end_step};
