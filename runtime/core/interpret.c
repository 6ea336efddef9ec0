/* SPDX-License-Identifier: MIT
 * See interpret.h. */
#include "interpret.h"

#include <errno.h>
#include <string.h>

/* Keys for sleep_on. BARRIER | steps: sleeps for PrRun.released. */
#define BARRIER                  (UINT64_C(1) << 63)
#define COPIED                   (UINT64_C(1) << 62) /* COPIED | count: sleeps for copy_done */
/* COMPLETED: sleeps for CommRun.done of a stream */
#define STREAM_BITS              44
#define COMPLETED(stream, count) ((uint64_t)(stream) << STREAM_BITS | (count))
#define RESTS                    (UINT64_C(1) << 32) /* in live: a thread has finished its steps */

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

/* Wakes k if it sleeps for `key`. */
static void wake(PrRun *run, RankRun *k, uint64_t key) {
  if (!atomic_compare_exchange_strong(&k->sleep_on, &key, 0))
    return;
  atomic_fetch_add(&run->live, 1);
  sem_post(&k->sem);
}

/* Waits until *count is at least `value`, or the run has failed. Spins before it sleeps: longer if
 * spinning succeeded the last time, shorter if not, for example because others need the core. */
static void wait_for(PrRun *run, RankRun *k, const _Atomic uint64_t *count, uint64_t value,
                     uint64_t key) {
  for (uint32_t i = 0; i < k->spin; i++) {
    if (atomic_load_explicit(count, memory_order_acquire) >= value || pr_failed(run)) {
      k->spin = 2 * k->spin < SPIN_MOST ? 2 * k->spin : SPIN_MOST;
      return;
    }
    relax();
  }
  k->spin -= k->spin > SPIN_LEAST ? k->spin / 2 : 0;
  atomic_store(&k->sleep_on, key);
  if (atomic_load(count) >= value || pr_failed(run)) {
    uint64_t mine = key;
    if (atomic_compare_exchange_strong(&k->sleep_on, &mine, 0))
      return; /* nobody has noticed; otherwise a wake-up is on its way and must be consumed */
  }
  lie_down(run, (uint64_t)-1);
  sleep_once(&k->sem);
}

void pr_wait_released(PrRun *run, RankRun *k, uint64_t steps) {
  wait_for(run, k, &run->released, steps, BARRIER | steps);
}

void pr_tell_released(PrRun *run, RankRun *k, uint64_t steps) {
  if (atomic_load(&k->sleep_on) == (BARRIER | steps))
    wake(run, k, BARRIER | steps);
}

/* True if all counts that the copier waits for are reached, or the run has failed. */
static bool copier_can(const PrRun *run, RankRun *k) {
  return pr_failed(run) ||
         (atomic_load(&k->copy_begun) >= atomic_load(&k->copy_needs[0]) &&
          atomic_load(&k->compute_done) >= atomic_load(&k->copy_needs[1]) &&
          (k->side_stream == PIPE_NONE ||
           atomic_load(&k->stream[k->side_stream].done) >= atomic_load(&k->copy_needs[2])) &&
          (!k->turns || atomic_load(&k->turns->done) >= atomic_load(&k->copy_needs[3])));
}

/* Wakes the copier if it sleeps and need not. Call it after a change of any count that it waits
 * for. */
static void wake_copier(PrRun *run, RankRun *k) {
  uint32_t asleep = 1;
  if (!atomic_load(&k->copy_sleeps) || !copier_can(run, k) ||
      !atomic_compare_exchange_strong(&k->copy_sleeps, &asleep, 0))
    return;
  pr_start_copier(k);
}

void pr_start_copier(RankRun *k) {
  atomic_fetch_add(&k->run->live, 1);
  sem_post(&k->copy_sem);
}

void pr_wake_all(PrRun *run) {
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    uint64_t key = atomic_load(&run->rank[r].sleep_on);
    if (key)
      wake(run, &run->rank[r], key);
    wake_copier(run, &run->rank[r]);
  }
}

/* The COMM stream */

/* True if the wait of the head of c for COMPUTE is met; the caller owns c. False: the caller no
 * longer owns c and must not touch it. */
static bool head_ready(CommRun *c) {
  RankRun *k = c->k;
  uint64_t need = c->step * k->ncompute + pr_comm_instr(c, c->next)->wait;
  if (atomic_load_explicit(&k->compute_done, memory_order_acquire) >= need)
    return true;
  atomic_store(&c->wait, need);
  if (atomic_load(&k->compute_done) < need)
    return false;
  return atomic_compare_exchange_strong(&c->wait, &need, 0);
}

/* As head_ready, for the wait for COPY. */
static bool head_copied(CommRun *c) {
  RankRun *k = c->k;
  uint32_t wait = pr_comm_instr(c, c->next)->wait_copy;
  uint64_t need = c->step * k->ncopy + wait;
  if (wait == 0 || atomic_load_explicit(&k->copy_done, memory_order_acquire) >= need)
    return true;
  atomic_store(&c->wait_copy, need);
  if (atomic_load(&k->copy_done) < need)
    return false;
  return atomic_compare_exchange_strong(&c->wait_copy, &need, 0);
}

/* Completes the head, of n instructions. True: c has more in this step, and the caller still owns
 * it. False: it has not; the thread of its rank may already be in the next step. */
static bool complete(PrRun *run, CommRun *c, uint32_t n) {
  RankRun *k = c->k;
  uint64_t done = atomic_load_explicit(&c->done, memory_order_relaxed) + n;
  bool more = (c->next += n) < c->n;
  uint32_t number = c->number;
  atomic_store_explicit(&c->posted, 0, memory_order_relaxed);
  atomic_store(&c->done, done);
  uint64_t key = atomic_load(&k->sleep_on);
  if (key && key >> STREAM_BITS == number && key <= COMPLETED(number, done))
    wake(run, k, key); /* BARRIER and COPIED are greater than every stream */
  if (k->ncopy > 0)
    wake_copier(run, k);
  return more;
}

/* Decrements group_left of c; the last decrement completes the head. */
static void one_less(PrRun *run, CommRun *c, CommRun **todo) {
  if (atomic_fetch_sub_explicit(&c->group_left, 1, memory_order_acq_rel) > 1)
    return;
  uint32_t n = pr_comm_instr(c, c->next)->group + 1u;
  if (n > 1)
    atomic_store_explicit(&c->group_done, 0, memory_order_relaxed);
  if (complete(run, c, n)) {
    c->todo = *todo;
    *todo = c;
  }
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
    if (head_ready(c) && head_copied(c))
      begin_head(run, c, &todo);
  }
}

/* Advances stream c, which the caller owns. */
static void carry_on(PrRun *run, CommRun *c) {
  c->todo = NULL;
  pr_advance(run, c);
}

void pr_begin_step(PrRun *run, RankRun *k, uint64_t step) {
  for (uint32_t x = 0; x < k->nstream; x++) {
    CommRun *c = &k->stream[x];
    c->next = 0;
    c->step = step;
    if (c->n > 0)
      carry_on(run, c);
  }
}

/* The COPY stream */

void pr_did_copy(PrRun *run, RankRun *k) {
  uint64_t done = atomic_load_explicit(&k->copy_done, memory_order_relaxed) + 1;
  atomic_store(&k->copy_done, done);
  uint64_t key = atomic_load(&k->sleep_on);
  if ((key & COPIED) && !(key & BARRIER) && (key & ~COPIED) <= done)
    wake(run, k, key);
  for (uint32_t x = 0; x < k->nstream; x++) {
    uint64_t wanted = atomic_load(&k->stream[x].wait_copy);
    if (wanted && wanted <= done &&
        atomic_compare_exchange_strong(&k->stream[x].wait_copy, &wanted, 0))
      carry_on(run, &k->stream[x]);
  }
}

/* Waits until copier_can. */
static void copier_wait(PrRun *run, RankRun *k) {
  while (!copier_can(run, k)) {
    atomic_store(&k->copy_sleeps, 1);
    if (copier_can(run, k)) {
      uint32_t mine = 1;
      if (atomic_compare_exchange_strong(&k->copy_sleeps, &mine, 0))
        return; /* nobody has noticed; otherwise a wake-up is on its way and must be consumed */
    }
    lie_down(run, (uint64_t)-1);
    sleep_once(&k->copy_sem);
  }
}

/* The count of COMM that instruction i of COPY waits for. A copy waits only for the stream of side
 * ops. */
static uint64_t comm_needed(const RankRun *k, uint32_t i, uint32_t wait, uint64_t step) {
  CommNeed one;
  uint32_t n;
  const CommNeed *need = pr_needs(k, 1, i, wait, &one, &n);
  return step * k->stream[k->side_stream].n + (n > 0 ? need->count : 0);
}

static void copy_step(PrRun *run, RankRun *k, uint64_t step) {
  /* in processes of one rank the engine counts turns */
  Turns *turns = run->here == PIPE_NONE ? k->turns : NULL;
  for (uint32_t i = 0; i < k->ncopy; i++) {
    const CopyAt *at = &k->copy[i];
    const PipeInstr *c = &k->t->instr[at->index];
    atomic_store(&k->copy_needs[0], step + 1);
    atomic_store(&k->copy_needs[1], step * k->ncompute + c->wait);
    if (k->side_stream != PIPE_NONE)
      atomic_store(&k->copy_needs[2], comm_needed(k, i, c->wait_copy, step));
    if (turns)
      atomic_store(&k->copy_needs[3], step * turns->n + c->turn);
    copier_wait(run, k);
    if (pr_fault_at(run, k->id, at->index, step) == PR_HANG || pr_failed(run))
      return;
    if (run->engine->copy ? run->engine->copy(run, k, at, step) : pr_copy(run, k, at, step))
      return;
    if (turns) { /* only the thread whose turn it is advances the count */
      uint64_t next = atomic_load(&turns->done) + 1;
      atomic_store(&turns->done, next);
      wake_copier(run, &run->rank[turns->rank[next % turns->n]]);
    }
    pr_did_copy(run, k);
  }
}

static void *copier_thread(void *arg) {
  RankRun *k = arg;
  PrRun *run = k->run;
  for (;;) {
    pr_rest(run, &k->copy_sem);
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
  atomic_store(&k->compute_done, done);
  for (uint32_t x = 0; x < k->nstream; x++) {
    uint64_t wanted = atomic_load(&k->stream[x].wait);
    if (wanted && wanted <= done && atomic_compare_exchange_strong(&k->stream[x].wait, &wanted, 0))
      carry_on(run, &k->stream[x]);
  }
  if (k->ncopy > 0)
    wake_copier(run, k);
}

/* Waits until `need` COPY instructions are done, or the run has failed. */
static void wait_copied(PrRun *run, RankRun *k, uint64_t need) {
  if (atomic_load_explicit(&k->copy_done, memory_order_acquire) < need)
    wait_for(run, k, &k->copy_done, need, COPIED | need);
}

/* As wait_copied, for a COMM stream. */
static void wait_comm(PrRun *run, RankRun *k, CommRun *c, uint64_t need) {
  if (atomic_load_explicit(&c->done, memory_order_acquire) < need)
    wait_for(run, k, &c->done, need, COMPLETED(c->number, need));
}

void pr_run_step(PrRun *run, RankRun *k) {
  uint64_t step = atomic_load_explicit(&k->step, memory_order_relaxed);
  atomic_store_explicit(&k->step_start, pr_now(), memory_order_relaxed);
  pr_begin_step(run, k, step);
  if (k->ncopy > 0) {
    atomic_store(&k->copy_begun, step + 1);
    wake_copier(run, k);
  }
  for (uint32_t i = 0, n; i < k->ncompute; i += n) {
    const ComputeAt *at = &k->compute[i];
    const PipeInstr *c = &k->t->instr[at->index];
    CommNeed one;
    uint32_t nneed;
    const CommNeed *need = pr_needs(k, 0, i, c->wait, &one, &nneed);
    for (uint32_t x = 0; x < nneed; x++)
      wait_comm(run, k, &k->stream[need[x].stream],
                step * k->stream[need[x].stream].n + need[x].count);
    if (c->wait_copy > 0)
      wait_copied(run, k, step * k->ncopy + c->wait_copy);
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
  for (uint32_t x = 0; x < k->nstream; x++)
    wait_comm(run, k, &k->stream[x], (step + 1) * k->stream[x].n);
  wait_copied(run, k, (step + 1) * k->ncopy);
  if (!pr_failed(run))
    run->engine->end_step(run, k, step);
}

/* Threads */

PrStatus pr_open_threads(PrRun *run, RankRun *k, bool spin, void *(*main)(void *)) {
  k->spin = spin ? SPIN_MOST : 0;
  if (sem_init(&k->sem, 0, 0))
    return pr_fail(run, PR_E_MEMORY, "no semaphore for rank %u: %s", k->id, strerror(errno));
  k->has_sem = true;
  int err = main ? pthread_create(&k->thread, NULL, main, k) : 0;
  k->has_thread = main && !err;
  if (!err && k->ncopy > 0) {
    if (sem_init(&k->copy_sem, 0, 0))
      return pr_fail(run, PR_E_MEMORY, "no semaphore for rank %u: %s", k->id, strerror(errno));
    k->has_copy_sem = true;
    err = pthread_create(&k->copier, NULL, copier_thread, k);
    k->has_copier = !err;
  }
  return err ? pr_fail(run, PR_E_MEMORY, "no thread for rank %u: %s", k->id, strerror(err)) : PR_OK;
}

void pr_close_threads(RankRun *k) {
  if (k->has_copier) {
    sem_post(&k->copy_sem);
    pthread_join(k->copier, NULL);
  }
  if (k->has_thread) {
    sem_post(&k->sem);
    pthread_join(k->thread, NULL);
  }
  if (k->has_copy_sem)
    sem_destroy(&k->copy_sem);
  if (k->has_sem)
    sem_destroy(&k->sem);
}
