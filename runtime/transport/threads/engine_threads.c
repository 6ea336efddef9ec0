/* SPDX-License-Identifier: MIT
 * The engine of CPU threads: one thread per rank, which runs the COMPUTE stream of its rank.
 *
 * The COMM stream, or each of its channels, has no thread. It is a cursor that somebody owns:
 * whoever makes its head possible carries it on (advance). The owner of such a stream is, in turn,
 *   - the rank's thread, from the start of a step;
 *   - nobody, while the head waits for the rank's compute: CommRun.wait holds the count it waits
 *   for,
 *     and the thread that reaches the count takes the stream by clearing it;
 *   - nobody, while the head is posted on its channel and the other side is not: the second side to
 *     post owns both streams, copies, completes both and carries both on; in the same way the last
 *     to come to a REDUCE or TIE owns the streams of all that take part. Of a group each transfer
 *     is of the side that posts it second, and the stream of whoever does the last one
 *     (group_left);
 *   - the rank's thread again, which sees the last completion of the step in CommRun.done.
 * So a transfer happens as soon as both sides are ready, even while both ranks are in callbacks,
 * and no lock is held anywhere. The fields "owned" in CommRun follow the stream; each hand-over is
 * an atomic read-modify-write or a store of CommRun.done.
 *
 * The COPY stream of a rank that has one has a thread, the copier, so that copies run beside
 * compute. It waits for the rank's thread to begin the step, then for what each instruction needs;
 * the rank's thread waits for it at the end of the step. A program without COPY has no copier and
 * looks for none. Where COPY streams of several ranks take turns, a copier also waits for its turn,
 * and wakes the next one.
 *
 * A thread that must wait tells so in sleep_on, looks again, and sleeps on its own semaphore; who
 * makes the awaited count clears sleep_on and wakes that thread alone. (Store, then load, on both
 * sides, sequentially consistent: one of the two sees the other.)
 *
 * `live` counts the threads that are awake. It is raised by the waker, before the wake-up, so it is
 * 0 exactly when nothing can ever happen again: a stall is known at once, without a timeout, to the
 * last thread to lie down, which then may look at everything. */
#include "run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* In sleep_on: waits for `released`, not for CommRun.done. */
#define BARRIER                  (UINT64_C(1) << 63)
#define COPIED                   (UINT64_C(1) << 62) /* in sleep_on: waits for copy_done */
/* in sleep_on else: the number of the stream whose CommRun.done it waits for, and that */
#define STREAM_BITS              44
#define COMPLETED(stream, count) ((uint64_t)(stream) << STREAM_BITS | (count))
#define DONE                     (UINT64_C(1) << 32) /* in live: a thread has finished its steps */

enum { SPIN_LEAST = 8, SPIN_MOST = 256 }; /* looks at a count before sleeping; ~40 ns each */

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Sleeping and waking */

/* The thread is about to rest, or is done with its steps (rest is `DONE - 1`, which takes one from
 * the low half and adds one to the high half). */
static void lie_down(PrRun *run, uint64_t add) {
  uint64_t live = atomic_fetch_add(&run->live, add) + add;
  if ((uint32_t)live != 0)
    return;
  if (live / DONE == run->nthread) {
    pthread_mutex_lock(&run->lock);
    run->idle = true;
    pthread_cond_signal(&run->cond);
    pthread_mutex_unlock(&run->lock);
  } else if (!pr_failed(run)) {
    pr_report_stall(run);
  }
}

/* Wakes k if it sleeps for `key`. */
static void wake(PrRun *run, RankRun *k, uint64_t key) {
  if (!atomic_compare_exchange_strong(&k->sleep_on, &key, 0))
    return;
  atomic_fetch_add(&run->live, 1);
  sem_post(&k->sem);
}

static void sleep_once(sem_t *sem) {
  while (sem_wait(sem) && errno == EINTR)
    ;
}

/* Until *count is at least `value`, or the run has failed. Looks a while before it sleeps: longer
 * if that was worth it the last time, shorter if not, as when others need the core. */
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
      return; /* nobody has noticed; else a wake-up is under way and must be taken */
  }
  lie_down(run, (uint64_t)-1);
  sleep_once(&k->sem);
}

/* Whether the copier has what it needs. */
static bool copier_can(const PrRun *run, RankRun *k) {
  return pr_failed(run) ||
         (atomic_load(&k->copy_begun) >= atomic_load(&k->copy_needs[0]) &&
          atomic_load(&k->compute_done) >= atomic_load(&k->copy_needs[1]) &&
          (k->side_stream == PIPE_NONE ||
           atomic_load(&k->stream[k->side_stream].done) >= atomic_load(&k->copy_needs[2])) &&
          (!k->turns || atomic_load(&k->turns->done) >= atomic_load(&k->copy_needs[3])));
}

/* Wakes the copier if it sleeps and need not: after any of what it may need has changed. */
static void wake_copier(PrRun *run, RankRun *k) {
  uint32_t asleep = 1;
  if (!atomic_load(&k->copy_sleeps) || !copier_can(run, k) ||
      !atomic_compare_exchange_strong(&k->copy_sleeps, &asleep, 0))
    return;
  atomic_fetch_add(&run->live, 1);
  sem_post(&k->copy_sem);
}

static void threads_wake(PrRun *run) {
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    uint64_t key = atomic_load(&run->rank[r].sleep_on);
    if (key)
      wake(run, &run->rank[r], key);
    wake_copier(run, &run->rank[r]);
  }
}

/* The COMM stream */

/* Whether the head of c, which the caller owns, has its wait. If not, c is at rest and may not be
 * touched. */
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

/* The same for what it waits for of COPY. */
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

/* Meets the faults of the head: of which of its instructions the send is lost, of which the payload
 * (bit by place in the group). False: it never begins. */
static bool meet_faults(PrRun *run, CommRun *c, uint64_t *lost, uint64_t *corrupt) {
  const CommAt *at = pr_comm_at(c, c->next);
  uint32_t n = c->k->t->instr[at->index].group + 1u;
  for (uint32_t i = 0; i < n; i++)
    switch (pr_fault_at(run, c->k->id, at[i].index, c->step)) {
    case PR_HANG: return false;
    case PR_DROP: *lost |= UINT64_C(1) << i; break;
    case PR_CORRUPT: *corrupt |= UINT64_C(1) << i; break;
    default: break;
    }
  return true;
}

/* Posts number i of the stream, a SEND or RECV. Puts the channel on the list if the other side is
 * there, too: then the transfer is the caller's. If not, and it was all that was left of the head,
 * c is at rest and may not be touched. */
static void post(PrRun *run, CommRun *c, uint32_t i, bool corrupt, Chan **met) {
  CommAt *at = pr_comm_at(c, i);
  Chan *ch = &run->chan[at->chan];
  unsigned side = ch->src == c->k->id ? 0 : 1;
  at->state = COMM_POSTED;
  ch->post[side] = (Post){&c->k->t->instr[at->index], c->k->id, corrupt, c->step, i, c};
  if (!atomic_fetch_or_explicit(&ch->state, 1u << side, memory_order_acq_rel))
    return;
  ch->met = *met;
  *met = ch;
}

/* Completes the head, of n instructions. True: c has more in this step, and is still the caller's.
 * False: it has not, and the thread of its rank may be in the next step already. */
static bool complete(PrRun *run, CommRun *c, uint32_t n) {
  RankRun *k = c->k;
  uint64_t done = atomic_load_explicit(&c->done, memory_order_relaxed) + n;
  bool more = (c->next += n) < c->n;
  uint32_t number = c->number;
  c->active = more;
  atomic_store(&c->done, done);
  uint64_t key = atomic_load(&k->sleep_on);
  if (key && key >> STREAM_BITS == number && key <= COMPLETED(number, done))
    wake(run, k, key); /* BARRIER and COPIED are above every stream */
  if (k->ncopy > 0)
    wake_copier(run, k);
  return more;
}

static void push(CommRun **todo, CommRun *c) {
  c->todo = *todo;
  *todo = c;
}

/* A stream has come to its REDUCE or TIE. The last to come owns the streams of all members, carries
 * it out and completes it for them. False: it failed. */
static bool meet(PrRun *run, Coll *l, uint64_t step, CommRun **todo) {
  if (atomic_fetch_add_explicit(&l->arrived, 1, memory_order_acq_rel) + 1 < l->n)
    return true;
  for (uint32_t i = 0; i < l->n; i++)
    l->index[i] = pr_comm_at(l->at[i], l->at[i]->next)->index;
  if (pr_sum(run, l, step))
    return false;
  atomic_store_explicit(&l->arrived, 0, memory_order_relaxed);
  for (uint32_t i = 0; i < l->n; i++)
    if (complete(run, l->at[i], 1))
      push(todo, l->at[i]);
  return true;
}

/* One less is left of the head of c. With the last it is completed. */
static void one_less(PrRun *run, CommRun *c, CommRun **todo) {
  if (atomic_fetch_sub_explicit(&c->group_left, 1, memory_order_acq_rel) > 1)
    return;
  CommAt *at = pr_comm_at(c, c->next);
  uint32_t n = c->k->t->instr[at->index].group + 1u;
  for (uint32_t i = 0; i < n; i++)
    at[i].state = COMM_WAITS;
  if (n > 1)
    atomic_store_explicit(&c->group_done, 0, memory_order_relaxed);
  if (complete(run, c, n))
    push(todo, c);
}

/* One side of a transfer is done. The next of its group on the same channel takes its place; nobody
 * else posts there until the group is completed. */
static void member_done(PrRun *run, const Post *p, CommRun **todo, Chan **met) {
  CommRun *c = p->stream;
  CommAt *at = pr_comm_at(c, p->at);
  uint32_t left = p->c->group;
  at->state = COMM_DONE;
  if (left > 0 || p->at > c->next)
    atomic_fetch_or_explicit(&c->group_done, UINT64_C(1) << (p->at - c->next),
                             memory_order_relaxed);
  for (uint32_t i = 1; i <= left; i++)
    if (at[i].chan == at->chan && at[i].state == COMM_WAITS) {
      post(run, c, p->at + i, false, met);
      break;
    }
  one_less(run, c, todo);
}

/* Posts the transfers at the head of c, of each channel the first. lost, corrupt: of
 * meet_faults. */
static void post_head(PrRun *run, CommRun *c, uint64_t lost, uint64_t corrupt, CommRun **todo,
                      Chan **met) {
  uint32_t first = c->next, n = pr_comm_instr(c, first)->group + 1u, left = n;
  if (n == 1 && !lost) {
    atomic_store_explicit(&c->group_left, 1, memory_order_relaxed);
    post(run, c, first, corrupt != 0, met);
    return;
  }
  CommAt *at = pr_comm_at(c, first);
  for (uint32_t i = 0; i < n; i++)
    if (lost >> i & 1)
      at[i].state = COMM_DONE, left--;
  atomic_store_explicit(&c->group_done, lost, memory_order_relaxed);
  atomic_store_explicit(&c->group_left, left + 1, memory_order_relaxed);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t j = 0;
    if (lost >> i & 1)
      continue;
    while (at[j].chan != at[i].chan || (lost >> j & 1))
      j++;
    if (j == i)
      post(run, c, first + i, corrupt >> i & 1, met);
  }
  one_less(run, c, todo);
}

/* Carries on the stream c, which the caller owns, and those that become free to go on. */
static void advance(PrRun *run, CommRun *c) {
  CommRun *todo = NULL;
  push(&todo, c);
  while (todo) {
    c = todo;
    todo = c->todo;
    if (!head_ready(c) || !head_copied(c))
      continue;
    const CommAt *at = pr_comm_at(c, c->next);
    uint32_t op = c->k->t->instr[at->index].op;
    uint64_t lost = 0, corrupt = 0;
    if (run->fault.kind && !meet_faults(run, c, &lost, &corrupt))
      continue;
    if (pipe_is_sum(op)) {
      if (!meet(run, &run->coll[at->chan], c->step, &todo))
        return;
      continue;
    }
    if (op == PIPE_SIDE_COMM) {
      if (pr_side(run, c->k, at->index, c->step))
        return;
      if (complete(run, c, 1))
        push(&todo, c);
      continue;
    }
    Chan *met = NULL;
    post_head(run, c, lost, corrupt, &todo, &met);
    while (met) {
      Chan *ch = met;
      const Post side[2] = {ch->post[0], ch->post[1]};
      met = ch->met;
      if (pr_transfer(run, ch))
        return;
      atomic_store_explicit(&ch->state, 0, memory_order_relaxed);
      member_done(run, &side[0], &todo, &met);
      member_done(run, &side[1], &todo, &met);
    }
  }
}

/* The copier of a rank */

/* Until the copier has what it needs, or the run has failed. */
static void copier_wait(PrRun *run, RankRun *k) {
  while (!copier_can(run, k)) {
    atomic_store(&k->copy_sleeps, 1);
    if (copier_can(run, k)) {
      uint32_t mine = 1;
      if (atomic_compare_exchange_strong(&k->copy_sleeps, &mine, 0))
        return; /* nobody has noticed; else a wake-up is under way and must be taken */
    }
    lie_down(run, (uint64_t)-1);
    sleep_once(&k->copy_sem);
  }
}

/* What instruction i of COPY needs to be completed in the stream of side ops, which are all of COMM
 * that a copy waits for. */
static uint64_t comm_needed(const RankRun *k, uint32_t i, uint32_t wait, uint64_t step) {
  CommNeed one;
  uint32_t n;
  const CommNeed *need = pr_needs(k, 1, i, wait, &one, &n);
  return step * k->stream[k->side_stream].n + (n > 0 ? need->count : 0);
}

static void copy_step(PrRun *run, RankRun *k, uint64_t step) {
  uint64_t done = step * k->ncopy;
  for (uint32_t i = 0; i < k->ncopy; i++) {
    const CopyAt *at = &k->copy[i];
    const PipeInstr *c = &k->t->instr[at->index];
    atomic_store(&k->copy_needs[0], step + 1);
    atomic_store(&k->copy_needs[1], step * k->ncompute + c->wait);
    if (k->side_stream != PIPE_NONE)
      atomic_store(&k->copy_needs[2], comm_needed(k, i, c->wait_copy, step));
    if (k->turns)
      atomic_store(&k->copy_needs[3], step * k->turns->n + c->turn);
    copier_wait(run, k);
    if (pr_fault_at(run, k->id, at->index, step) == PR_HANG || pr_failed(run))
      return;
    if (pr_copy(run, k, at, step))
      return;
    if (k->turns) { /* its turn: only this thread counts on */
      uint64_t next = atomic_load(&k->turns->done) + 1;
      atomic_store(&k->turns->done, next);
      wake_copier(run, &run->rank[k->turns->rank[next % k->turns->n]]);
    }
    atomic_store(&k->copy_done, ++done);
    uint64_t key = atomic_load(&k->sleep_on);
    if ((key & COPIED) && !(key & BARRIER) && (key & ~COPIED) <= done)
      wake(run, k, key);
    for (uint32_t x = 0; x < k->nstream; x++) {
      uint64_t wanted = atomic_load(&k->stream[x].wait_copy);
      if (wanted && wanted <= done &&
          atomic_compare_exchange_strong(&k->stream[x].wait_copy, &wanted, 0))
        advance(run, &k->stream[x]);
    }
  }
}

static void *copier_thread(void *arg) {
  RankRun *k = arg;
  PrRun *run = k->run;
  for (;;) {
    lie_down(run, DONE - 1);
    sleep_once(&k->copy_sem);
    if (run->quit)
      return NULL;
    uint64_t step = atomic_load(&k->copy_done) / k->ncopy;
    for (; !pr_failed(run) && step < run->target; step++)
      copy_step(run, k, step);
  }
}

/* The thread of a rank */

/* Until so many COPY instructions are done, or the run has failed. */
static void wait_copied(PrRun *run, RankRun *k, uint64_t need) {
  if (atomic_load_explicit(&k->copy_done, memory_order_acquire) < need)
    wait_for(run, k, &k->copy_done, need, COPIED | need);
}

/* The same of a stream of COMM. */
static void wait_comm(PrRun *run, RankRun *k, CommRun *c, uint64_t need) {
  if (atomic_load_explicit(&c->done, memory_order_acquire) < need)
    wait_for(run, k, &c->done, need, COMPLETED(c->number, need));
}

static void end_step(PrRun *run, RankRun *k, uint64_t step) {
  uint64_t finished = step + 1, key = BARRIER | finished;
  atomic_store_explicit(&k->step_start, UINT64_MAX, memory_order_relaxed); /* not of on_step */
  if (run->free_running) {
    if (k->id == run->loss_rank)
      pr_step_done(run, step);
  } else if (atomic_fetch_add(&run->arrived, 1) + 1 < finished * run->p->nrank) {
    wait_for(run, k, &run->released, finished, key);
  } else {
    pr_step_done(run, step);
    atomic_store(&run->released, finished);
    for (uint32_t r = 0; r < run->p->nrank; r++)
      if (atomic_load(&run->rank[r].sleep_on) == key)
        wake(run, &run->rank[r], key);
  }
}

/* One step of rank k; stops where it is once the run has failed. */
static void run_step(PrRun *run, RankRun *k) {
  uint64_t step = atomic_load_explicit(&k->step, memory_order_relaxed);
  uint64_t done = step * k->ncompute;
  atomic_store_explicit(&k->step_start, pr_now(), memory_order_relaxed);
  for (uint32_t x = 0; x < k->nstream; x++) {
    CommRun *c = &k->stream[x];
    c->next = 0;
    c->step = step;
    c->active = c->n > 0;
    if (c->n > 0)
      advance(run, c);
  }
  if (k->ncopy > 0) {
    atomic_store(&k->copy_begun, step + 1);
    wake_copier(run, k);
  }
  for (uint32_t i = 0, n; i < k->ncompute; i += n) {
    const ComputeAt *at = &k->compute[i];
    CommNeed one;
    uint32_t nneed;
    const CommNeed *need = pr_needs(k, 0, i, k->t->instr[at->index].wait, &one, &nneed);
    for (uint32_t x = 0; x < nneed; x++)
      wait_comm(run, k, &k->stream[need[x].stream],
                step * k->stream[need[x].stream].n + need[x].count);
    if (k->t->instr[at->index].wait_copy > 0)
      wait_copied(run, k, step * k->ncopy + k->t->instr[at->index].wait_copy);
    if (pr_failed(run))
      return;
    atomic_store_explicit(&k->running_since, pr_now(), memory_order_relaxed);
    atomic_store_explicit(&k->running, at->index + 1, memory_order_relaxed);
    PrStatus st = pr_compute(run, k, at, step, &n);
    atomic_store_explicit(&k->running, 0, memory_order_relaxed);
    if (st)
      return;
    atomic_store(&k->compute_done, done += n);
    for (uint32_t x = 0; x < k->nstream; x++) {
      uint64_t wanted = atomic_load(&k->stream[x].wait);
      if (wanted && wanted <= done &&
          atomic_compare_exchange_strong(&k->stream[x].wait, &wanted, 0))
        advance(run, &k->stream[x]);
    }
    if (k->ncopy > 0)
      wake_copier(run, k);
  }
  for (uint32_t x = 0; x < k->nstream; x++)
    wait_comm(run, k, &k->stream[x], (step + 1) * k->stream[x].n);
  wait_copied(run, k, (step + 1) * k->ncopy);
  if (pr_failed(run))
    return;
  end_step(run, k, step);
  if (run->free_running || atomic_load(&run->released) > step)
    atomic_store_explicit(&k->step, step + 1, memory_order_relaxed);
}

static void *rank_thread(void *arg) {
  RankRun *k = arg;
  PrRun *run = k->run;
  pr_init_rank(run, k);
  for (;;) {
    lie_down(run, DONE - 1);
    sleep_once(&k->sem);
    if (run->quit)
      return NULL;
    while (!pr_failed(run) && atomic_load_explicit(&k->step, memory_order_relaxed) < run->target)
      run_step(run, k);
    atomic_store_explicit(&k->step_start, UINT64_MAX, memory_order_relaxed);
  }
}

/* The caller's side */

static PrStatus stop_for_deadline(PrRun *run, uint64_t step) {
  char text[PR_TEXT];
  bool told = pr_blame_threads(run, text, sizeof text);
  return pr_fail(run, PR_E_DEADLINE, "deadline: step %llu takes longer than %g s; %.900s",
                 (unsigned long long)step, (double)run->limit_ns / 1e9,
                 told ? text : "no callback runs");
}

/* Until every thread is done, or the deadline of a step is over. */
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
  run->target += n;
  run->idle = false;
  atomic_store(&run->live, run->nthread);
  for (uint32_t r = 0; r < run->p->nrank; r++)
    atomic_store_explicit(&run->rank[r].step_start, now, memory_order_relaxed);
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    sem_post(&run->rank[r].sem);
    if (run->rank[r].has_copier)
      sem_post(&run->rank[r].copy_sem);
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
    RankRun *k = &run->rank[r];
    k->spin = spin ? SPIN_MOST : 0;
    if (sem_init(&k->sem, 0, 0))
      return pr_fail(run, PR_E_MEMORY, "no semaphore for rank %u: %s", r, strerror(errno));
    k->has_sem = true;
    int err = pthread_create(&k->thread, NULL, rank_thread, k);
    if (err)
      return pr_fail(run, PR_E_MEMORY, "no thread for rank %u: %s", r, strerror(err));
    k->has_thread = true;
    if (k->ncopy == 0)
      continue;
    if (sem_init(&k->copy_sem, 0, 0))
      return pr_fail(run, PR_E_MEMORY, "no semaphore for rank %u: %s", r, strerror(errno));
    k->has_copy_sem = true;
    err = pthread_create(&k->copier, NULL, copier_thread, k);
    if (err)
      return pr_fail(run, PR_E_MEMORY, "no thread for rank %u: %s", r, strerror(err));
    k->has_copier = true;
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
  run->quit = true;
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    if (run->rank[r].has_thread)
      sem_post(&run->rank[r].sem);
    if (run->rank[r].has_copier)
      sem_post(&run->rank[r].copy_sem);
  }
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    RankRun *k = &run->rank[r];
    if (k->has_thread)
      pthread_join(k->thread, NULL);
    if (k->has_copier)
      pthread_join(k->copier, NULL);
    if (k->has_copy_sem)
      sem_destroy(&k->copy_sem);
    if (k->has_sem)
      sem_destroy(&k->sem);
  }
}

const PrEngine pr_threads = {.name = "threads",
                             .open = threads_open,
                             .steps = threads_steps,
                             .wake = threads_wake,
                             .close = threads_close};
