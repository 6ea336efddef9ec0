/* SPDX-License-Identifier: MIT
 * The deadline of a checkpoint: a thread that fails the run when one takes too long, and says which rank is where. A
 * rank that only waits for the others has twice the time, so that who keeps them tells first. */
#include "checkpoint.h"

#include <stdio.h>
#include <string.h>

/* What a checkpoint may take: the deadline of a step, 5 s at least, and what a disk of 50 MB/s needs. 0: no limit. */
static uint64_t limit_of(const PrRun *run) {
  const uint64_t least = UINT64_C(5000000000);
  uint64_t ns = run->limit_ns < least ? least : run->limit_ns;
  for (uint32_t s = 0; s < run->p->nmodel; s++)
    ns += 20 * (run->stage[s].size.weight + run->stage[s].size.opt);
  return run->limit_ns ? ns : 0;
}

static void tell(PrRun *run, uint64_t limit) {
  uint32_t at = atomic_load(&run->ck_at), rank = run->here == PIPE_NONE ? 0 : run->here;
  char what[64];
  if (at >= CK_AT_STAGE)
    snprintf(what, sizeof what, "rank %u is in SAVE, writing stage-%u",
             run->p->stage[at - CK_AT_STAGE].rank, at - CK_AT_STAGE);
  else
    snprintf(what, sizeof what,
             at == CK_AT_COMMIT ? "rank %u is in COMMIT" : "rank %u waits for others", rank);
  pr_fail(run, PR_E_DEADLINE,
          "deadline: the checkpoint after %llu steps takes longer than %g s; %s",
          (unsigned long long)pr_steps_done(run), (double)limit / 1e9, what);
}

static void *watch(void *arg) {
  CkWatch *w = arg;
  const uint64_t limit = limit_of(w->run), start = pr_now();
  pthread_mutex_lock(&w->lock);
  while (!w->quit && !pr_failed(w->run)) {
    uint64_t most = atomic_load(&w->run->ck_at) == CK_AT_MEETING ? 2 * limit : limit;
    uint64_t end = pr_now() + 20000000;
    struct timespec t = {(time_t)(end / 1000000000u), (long)(end % 1000000000u)};
    if (pr_now() - start > most)
      tell(w->run, most);
    else
      pthread_cond_timedwait(&w->changed, &w->lock, &t);
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

PrStatus ck_watch(PrRun *run, CkWatch *w) {
  pthread_condattr_t attr;
  *w = (CkWatch){.run = run};
  atomic_store(&run->ck_at, CK_AT_MEETING);
  if (!run->limit_ns)
    return PR_OK;
  pthread_mutex_init(&w->lock, NULL);
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&w->changed, &attr);
  pthread_condattr_destroy(&attr);
  int err = pthread_create(&w->thread, NULL, watch, w);
  w->on = !err;
  return err ? pr_fail(run, PR_E_MEMORY, "no thread for a checkpoint: %s", strerror(err)) : PR_OK;
}

void ck_watch_end(CkWatch *w) {
  if (!w->on)
    return;
  pthread_mutex_lock(&w->lock);
  w->quit = true;
  pthread_cond_signal(&w->changed);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
}
