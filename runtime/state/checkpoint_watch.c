/* SPDX-License-Identifier: MIT
 * The deadline of a checkpoint: a thread that detects a late one. If processes can exchange their
 * places, all are asked and all report the same; else the process that noticed reports its own
 * state. A rank that only waits for others has twice the time, so that the rank that delays them
 * reports first. */
#include "checkpoint.h"

#include <stdio.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)

/* Time limit of a checkpoint: the deadline of a step, at least 5 s, plus the time for a disk of 50
 * MB/s. */
static uint64_t limit_of(const PrRun *run) {
  uint64_t ns = run->limit_ns < 5 * SECOND ? 5 * SECOND : run->limit_ns;
  for (uint32_t s = 0; s < run->p->nmodel; s++)
    ns += 20 * (run->stage[s].size.weight + run->stage[s].size.opt);
  return ns;
}

/* Describes what rank r does, by its PrRun.ck_at. */
static void describe(const PrRun *run, uint32_t r, uint32_t at, char text[64]) {
  static const char *const what[] = {[CK_AT_NONE] = "has not reached the checkpoint",
                                     [CK_AT_MEETING] = "waits for other ranks",
                                     [CK_AT_BEGIN] = "opens its folder",
                                     [CK_AT_COMMIT] = "is in COMMIT",
                                     [CK_AT_READ] = "is reading",
                                     [CK_AT_READ_MEETING] = "waits for other ranks"};
  if (at >= CK_AT_STAGE && at - CK_AT_STAGE >= run->p->nstage) /* a peer may send any number */
    at = CK_AT_NONE;
  if (at >= CK_AT_STAGE)
    snprintf(text, 64, "rank %u is in SAVE, writing stage-%u", run->p->stage[at - CK_AT_STAGE].rank,
             at - CK_AT_STAGE);
  else
    snprintf(text, 64, "rank %u %s", r, what[at]);
}

/* Gravity of the state of a rank; the gravest is reported. */
static int blame_of(const PrPlace *at) {
  return at->condition == PR_IS_GONE                                               ? 4
         : at->condition == PR_IS_SILENT                                           ? 3
         : at->checkpoint == CK_AT_NONE                                            ? 1
         : at->checkpoint == CK_AT_MEETING || at->checkpoint == CK_AT_READ_MEETING ? 0
                                                                                   : 2;
}

PrStatus pr_fail_checkpoint(PrRun *run, const PrPlace *at) {
  const uint32_t here = run->here == PIPE_NONE ? 0 : run->here, own = atomic_load(&run->ck_at);
  bool reads = own == CK_AT_READ || own == CK_AT_READ_MEETING;
  uint32_t who = 0;
  char text[64], what[64] = "reading a checkpoint";
  for (uint32_t r = 0; at && r < run->p->nrank; r++) {
    who = blame_of(&at[r]) > blame_of(&at[who]) ? r : who;
    reads = reads || (at[r].condition == PR_ANSWERS &&
                      (at[r].checkpoint == CK_AT_READ || at[r].checkpoint == CK_AT_READ_MEETING));
  }
  if (at && blame_of(&at[who]) >= 3)
    pr_tell_absent(at[who].condition, who, text, sizeof text);
  else
    describe(run, at ? who : here, at ? at[who].checkpoint : own, text);
  if (at && at[who].condition == PR_IS_GONE)
    return pr_fail(run, PR_E_LOST, "lost: %s", text);
  if (!reads)
    snprintf(what, sizeof what, "the checkpoint after %llu steps",
             (unsigned long long)pr_steps_done(run));
  return pr_fail(run, PR_E_DEADLINE, "deadline: %s takes longer than %g s; %s", what,
                 (double)limit_of(run) / 1e9, text);
}

static uint64_t time_at(uint32_t at, uint64_t limit) {
  return at == CK_AT_MEETING || at == CK_AT_READ_MEETING ? 2 * limit
         : at == CK_AT_BEGIN                             ? limit + CK_LOCK_S * SECOND
                                                         : limit;
}

static void *watch(void *arg) {
  CkWatch *w = arg;
  PrRun *run = w->run;
  const uint64_t limit = limit_of(run);
  uint64_t asked = 0;
  pthread_mutex_lock(&w->lock);
  while (!w->quit && !pr_failed(run)) {
    const uint64_t now = pr_now(), end = now + SECOND / 50;
    struct timespec t = {(time_t)(end / SECOND), (long)(end % SECOND)};
    const bool late = now - w->start > time_at(atomic_load(&run->ck_at), limit);
    if (run->engine->look)
      run->engine->look(run);
    if (pr_failed(run))
      break;
    if (late && !asked && run->engine->late && run->engine->late(run))
      asked = now;
    else if (late && (!asked || now - asked > 5 * SECOND))
      pr_fail_checkpoint(run, NULL);
    else
      pthread_cond_timedwait(&w->changed, &w->lock, &t);
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

PrStatus ck_watch(PrRun *run, CkWatch *w, uint32_t at) {
  pthread_condattr_t attr;
  *w = (CkWatch){.run = run, .start = pr_now()};
  atomic_store(&run->ck_at, at);
  pthread_mutex_init(&w->lock, NULL);
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&w->changed, &attr);
  pthread_condattr_destroy(&attr);
  int err = pthread_create(&w->thread, NULL, watch, w);
  w->on = !err;
  if (!err)
    return PR_OK;
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
  return pr_fail(run, PR_E_MEMORY, "no thread for a checkpoint: %s", strerror(err));
}

void ck_watch_again(CkWatch *w) {
  if (!w->on)
    return;
  pthread_mutex_lock(&w->lock);
  w->start = pr_now();
  pthread_mutex_unlock(&w->lock);
}

void ck_watch_end(CkWatch *w) {
  if (w->on) {
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
  }
  atomic_store(&w->run->ck_at, CK_AT_NONE);
}
