/* SPDX-License-Identifier: MIT
 * See interpret.h. */
#include "interpret.h"

#include <errno.h>
#include <string.h>

/* A key names a count, of a queue of the rank or of one of these, and the value to reach. 0: no
 * key. A rank has fewer than 2^20 queues. */
enum { RELEASED = 0xffffc, BEGUN }; /* PrRun.released; RankRun.copy_begun */
#define COUNT_BITS       44
#define KEY(what, count) (((uint64_t)(what) + 1) << COUNT_BITS | (count))
#define RESTS            (UINT64_C(1) << 32) /* in live: a thread has finished its steps */

enum { SPIN_LEAST = 8, SPIN_MOST = 256 }; /* looks at a count before sleeping; ~40 ns each */

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Sleeping and waking */

/* Counts this thread as asleep. `add` subtracts one from the low half of live; after the last step
 * it also adds one to the high half. */
static void lie_down(PrRun *run, uint64_t add) {
  uint64_t live = atomic_fetch_add(&run->live, add) + add;
  if ((uint32_t)live != 0)
    return;
  if (live / RESTS == run->nthread) {
    pthread_mutex_lock(&run->lock);
    run->idle = true;
    pthread_cond_signal(&run->cond);
    pthread_mutex_unlock(&run->lock);
  } else if (!pr_failed(run)) {
    pr_report_stall(run);
  }
}

static void sleep_once(sem_t *sem) {
  while (sem_wait(sem) && errno == EINTR)
    ;
}

void pr_rest(PrRun *run, sem_t *sem) {
  lie_down(run, RESTS - 1);
  sleep_once(sem);
}

/* Clears *key if it is from `first` to `last`. */
static bool clear(_Atomic uint64_t *key, uint64_t first, uint64_t last) {
  uint64_t was = atomic_load(key);
  return was >= first && was <= last && atomic_compare_exchange_strong(key, &was, 0);
}

/* Wakes a thread if it sleeps for a key from `first` to `last`. */
static void wake(PrRun *run, RankThread *thread, uint64_t first, uint64_t last) {
  if (!clear(&thread->sleep_on, first, last))
    return;
  atomic_fetch_add(&run->live, 1);
  sem_post(&thread->sem);
}

/* Waits until *count is at least `value`, or the run has failed. Spins before it sleeps: longer if
 * spinning succeeded the last time, shorter if not, for example because others need the core. */
static void wait_for(PrRun *run, RankThread *thread, const _Atomic uint64_t *count, uint64_t value,
                     uint32_t what) {
  for (uint32_t i = 0; i < thread->spin; i++) {
    if (atomic_load_explicit(count, memory_order_acquire) >= value || pr_failed(run)) {
      thread->spin = 2 * thread->spin < SPIN_MOST ? 2 * thread->spin : SPIN_MOST;
      return;
    }
    relax();
  }
  thread->spin -= thread->spin > SPIN_LEAST ? thread->spin / 2 : 0;
  uint64_t key = KEY(what, value);
  atomic_store(&thread->sleep_on, key);
  if ((atomic_load(count) >= value || pr_failed(run)) && clear(&thread->sleep_on, key, key))
    return; /* nobody has noticed; otherwise a wake-up is on its way and must be consumed */
  lie_down(run, (uint64_t)-1);
  sleep_once(&thread->sem);
}

void pr_wait_released(PrRun *run, RankRun *k, uint64_t steps) {
  wait_for(run, &k->main, &run->released, steps, RELEASED);
}

void pr_tell_released(PrRun *run, RankRun *k, uint64_t steps) {
  wake(run, &k->main, KEY(RELEASED, 0), KEY(RELEASED, steps));
}

void pr_start_copier(RankRun *k) {
  atomic_fetch_add(&k->run->live, 1);
  sem_post(&k->copier.sem);
}

void pr_wake_all(PrRun *run) {
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    wake(run, &run->rank[r].main, 1, UINT64_MAX);
    wake(run, &run->rank[r].copier, 1, UINT64_MAX);
  }
}

/* Waits for the waits of a row, or row ninstr: of the end of the step. */
static void meet_waits(PrRun *run, RankRun *k, RankThread *thread, uint32_t row, uint64_t step) {
  const Need *end = &k->need[pipe_wait_end(k->t, row)];
  for (const Need *need = &k->need[pipe_wait0(k->t, row)]; need < end; need++)
    if (!pr_is_met(need, step))
      wait_for(run, thread, need->done, pr_needed(need, step), need->queue);
}

/* `count` instructions of a queue of rank k are complete: wakes its threads that wait for them, and
 * adds its COMM streams that wait for them to `todo`. */
static void reached(PrRun *run, RankRun *k, uint32_t queue, uint64_t count, CommRun **todo) {
  const uint64_t first = KEY(queue, 0), last = KEY(queue, count);
  wake(run, &k->main, first, last);
  if (k->ncopy > 0)
    wake(run, &k->copier, first, last);
  if (queue != PIPE_COMPUTE && queue != PIPE_COPY && !k->comm_joins)
    return;
  for (uint32_t x = 0; x < k->nstream; x++) {
    CommRun *c = &k->stream[x];
    if (clear(&c->awaits, first, last)) {
      c->todo = *todo;
      *todo = c;
    }
  }
}

/* The COMM stream */

/* True if the waits of the head of c are met; the caller owns c. False: the caller no longer owns c
 * and must not touch it. */
static bool head_ready(CommRun *c) {
  const RankRun *k = c->k;
  const uint64_t step = c->step;
  const PipeInstr *in = pr_comm_instr(c, c->next);
  const Need *end = &k->need[in->waits + in->nwait];
  for (const Need *need = &k->need[in->waits]; need < end; need++) {
    if (pr_is_met(need, step))
      continue;
    const uint64_t needed = pr_needed(need, step), key = KEY(need->queue, needed);
    atomic_store(&c->awaits, key);
    if (atomic_load(need->done) < needed || !clear(&c->awaits, key, key))
      return false;
  }
  return true;
}

/* Completes the head, of n instructions, and adds the streams that may go on to `todo`: c if it has
 * more in this step. If not, the thread of its rank may already be in the next step. */
static void complete(PrRun *run, CommRun *c, uint32_t n, CommRun **todo) {
  RankRun *k = c->k;
  uint64_t done = atomic_load_explicit(&c->done, memory_order_relaxed) + n;
  bool more = (c->next += n) < c->n;
  uint32_t queue = pr_comm_queue(c->number);
  atomic_store_explicit(&c->posted, 0, memory_order_relaxed);
  atomic_store(&c->done, done);
  reached(run, k, queue, done, todo);
  if (more) {
    c->todo = *todo;
    *todo = c;
  }
}

/* Decrements group_left of c; the last decrement completes the head. */
static void one_less(PrRun *run, CommRun *c, CommRun **todo) {
  if (atomic_fetch_sub_explicit(&c->group_left, 1, memory_order_acq_rel) > 1)
    return;
  uint32_t n = pr_comm_instr(c, c->next)->group + 1u;
  if (n > 1)
    atomic_store_explicit(&c->group_done, 0, memory_order_relaxed);
  complete(run, c, n, todo);
}

void pr_note_over(CommRun *c, uint32_t i) {
  if (pr_comm_instr(c, c->next)->group > 0)
    atomic_fetch_or_explicit(&c->group_done, UINT64_C(1) << (i - c->next), memory_order_relaxed);
}

void pr_over(PrRun *run, CommRun *c, uint32_t i, CommRun **todo) {
  pr_note_over(c, i);
  one_less(run, c, todo);
}

/* Executes the faults planted at the n instructions of the head. False: they never begin. */
static bool meet_faults(PrRun *run, const CommRun *c, uint32_t n) {
  bool begins = true;
  for (uint32_t i = 0; i < n; i++)
    begins = pr_fault_at(run, c->k->id, pr_comm_at(c, c->next + i)->index, c->step) != PR_HANG &&
             begins;
  return begins;
}

static void begin_head(PrRun *run, CommRun *c, CommRun **todo) {
  uint32_t first = c->next, n = pr_comm_instr(c, first)->group + 1u;
  if (run->fault.kind && !meet_faults(run, c, n))
    return;
  atomic_store_explicit(&c->posted, 1, memory_order_relaxed);
  if (n == 1) {
    atomic_store_explicit(&c->group_left, 1, memory_order_relaxed);
    run->engine->begin(run, c, first, todo);
    return;
  }
  atomic_store_explicit(&c->group_left, n + 1, memory_order_relaxed);
  for (uint32_t i = 0; i < n; i++)
    run->engine->begin(run, c, first + i, todo);
  one_less(run, c, todo);
}

void pr_advance(PrRun *run, CommRun *todo) {
  while (todo && !pr_failed(run)) {
    CommRun *c = todo;
    todo = c->todo;
    if (head_ready(c))
      begin_head(run, c, &todo);
  }
}

void pr_begin_step(PrRun *run, RankRun *k, uint64_t step) {
  for (uint32_t x = 0; x < k->nstream; x++) {
    CommRun *c = &k->stream[x];
    c->next = 0;
    c->step = step;
    c->todo = NULL;
    if (c->n > 0)
      pr_advance(run, c);
  }
}

/* The COPY stream */

void pr_did_copy(PrRun *run, RankRun *k) {
  uint64_t done = atomic_load_explicit(&k->copy_done, memory_order_relaxed) + 1;
  CommRun *todo = NULL;
  atomic_store(&k->copy_done, done);
  reached(run, k, PIPE_COPY, done, &todo);
  pr_advance(run, todo);
}

static void copy_step(PrRun *run, RankRun *k, uint64_t step) {
  wait_for(run, &k->copier, &k->copy_begun, step + 1, BEGUN);
  for (uint32_t i = 0; i < k->ncopy; i++) {
    const CopyAt *at = &k->copy[i];
    meet_waits(run, k, &k->copier, at->index, step);
    if (pr_fault_at(run, k->id, at->index, step) == PR_HANG || pr_failed(run))
      return;
    if (run->engine->copy ? run->engine->copy(run, k, at, step) : pr_copy(run, k, at, step))
      return;
    pr_did_copy(run, k);
  }
}

static void *copier_thread(void *arg) {
  RankRun *k = arg;
  PrRun *run = k->run;
  for (;;) {
    pr_rest(run, &k->copier.sem);
    if (atomic_load(&run->quit))
      return NULL;
    uint64_t step = atomic_load(&k->copy_done) / k->ncopy;
    for (; !pr_failed(run) && step < atomic_load(&run->target); step++)
      copy_step(run, k, step);
  }
}

/* The COMPUTE stream */

void pr_did_compute(PrRun *run, RankRun *k, uint32_t n) {
  uint64_t done = atomic_load_explicit(&k->compute_done, memory_order_relaxed) + n;
  CommRun *todo = NULL;
  atomic_store(&k->compute_done, done);
  reached(run, k, PIPE_COMPUTE, done, &todo);
  pr_advance(run, todo);
}

void pr_run_step(PrRun *run, RankRun *k) {
  uint64_t step = atomic_load_explicit(&k->step, memory_order_relaxed);
  atomic_store_explicit(&k->step_start, pr_now(), memory_order_relaxed);
  pr_begin_step(run, k, step);
  if (k->ncopy > 0) {
    atomic_store(&k->copy_begun, step + 1);
    wake(run, &k->copier, KEY(BEGUN, 0), KEY(BEGUN, step + 1));
  }
  for (uint32_t i = 0, n; i < k->ncompute; i += n) {
    const ComputeAt *at = &k->compute[i];
    meet_waits(run, k, &k->main, at->index, step);
    if (pr_failed(run))
      return;
    atomic_store_explicit(&k->running_since, pr_now(), memory_order_relaxed);
    atomic_store_explicit(&k->running, at->index + 1, memory_order_relaxed);
    PrStatus st = pr_compute(run, k, at, step, &n);
    atomic_store_explicit(&k->running, 0, memory_order_relaxed);
    if (st)
      return;
    pr_did_compute(run, k, n);
  }
  meet_waits(run, k, &k->main, k->t->ninstr, step);
  if (!pr_failed(run))
    run->engine->end_step(run, k, step);
}

/* Threads */

static PrStatus open_thread(PrRun *run, RankRun *k, RankThread *thread, void *(*main)(void *)) {
  if (sem_init(&thread->sem, 0, 0))
    return pr_fail(run, PR_E_MEMORY, "no semaphore for rank %u: %s", k->id, strerror(errno));
  thread->has_sem = true;
  int err = main ? pthread_create(&thread->thread, NULL, main, k) : 0;
  thread->has_thread = main && !err;
  return err ? pr_fail(run, PR_E_MEMORY, "no thread for rank %u: %s", k->id, strerror(err)) : PR_OK;
}

PrStatus pr_open_threads(PrRun *run, RankRun *k, bool spin, void *(*main)(void *)) {
  k->main.spin = spin ? SPIN_MOST : 0;
  PrStatus st = open_thread(run, k, &k->main, main);
  return st || k->ncopy == 0 ? st : open_thread(run, k, &k->copier, copier_thread);
}

static void close_thread(RankThread *thread) {
  if (thread->has_thread) {
    sem_post(&thread->sem);
    pthread_join(thread->thread, NULL);
  }
  if (thread->has_sem)
    sem_destroy(&thread->sem);
}

void pr_close_threads(RankRun *k) {
  close_thread(&k->copier);
  close_thread(&k->main);
}
