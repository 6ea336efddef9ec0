/* SPDX-License-Identifier: MIT
 * pr_transport: the engine of processes whose messages the program carries (pipe_transport.h). Each
 * job has a carrier, a thread that calls PrTransport.carry for the messages of each round. So the
 * caller's thread returns when the run fails, even if a carrier is stuck. */
#include "processes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Carrier {
  struct Carriers *t;
  ProcJob *job;
  pthread_t thread;
  sem_t sem;
  bool has_sem, has_thread;
  bool busy; /* in PrTransport.carry; under Carriers.lock */
} Carrier;

typedef struct Carriers {
  Proc e;           /* first */
  PrTransport t;    /* a copy: a carrier that is left behind may still read it */
  Carrier *carrier; /* [e.njob] */
  pthread_mutex_t lock;
  bool left; /* a carrier stays busy: all that it could touch stays, except the run; under lock */
} Carriers;

/* Carries the messages of one round. False: the run has failed, or has been closed. */
static bool carry(Carrier *w) {
  Carriers *s = w->t;
  const ProcJob *j = w->job;
  char where[PR_WHERE] = "the end of a step", text[PR_TEXT];
  if (j->n == 0)
    return true;
  pthread_mutex_lock(&s->lock);
  bool goes = w->busy = !s->e.closing;
  pthread_mutex_unlock(&s->lock);
  if (!goes)
    return false;
  int code = s->t.carry(s->t.arg, j->message, j->n);
  pthread_mutex_lock(&s->lock);
  w->busy = false;
  bool left = s->left;
  pthread_mutex_unlock(&s->lock);
  if (left || !code)
    return !left && !pr_failed(s->e.run);
  const char *why = s->t.why ? s->t.why(s->t.arg) : NULL;
  if (j->c)
    pr_where(s->e.run, pr_comm_instr(j->c, j->c->next), where);
  snprintf(text, sizeof text, "%s: a message was not carried, code %d%s%.700s", where, code,
           why ? ": " : "", why ? why : "");
  proc_fail_in_vain(&s->e, text);
  return false;
}

static void *carrier_thread(void *arg) {
  Carrier *w = arg;
  for (;;) {
    while (sem_wait(&w->sem) && errno == EINTR)
      ;
    if (atomic_load(&w->t->e.closing))
      return NULL;
    for (uint64_t round = 0; proc_next(w->job, round); round++) {
      if (!carry(w))
        return NULL;
      for (uint32_t i = 0; i < w->job->n; i++)
        proc_come(w->job, i);
    }
  }
}

static void begin(ProcJob *j) { sem_post(&((Carrier *)j->of_wire)->sem); }

static PrStatus open_carriers(Proc *e) {
  Carriers *s = (Carriers *)e;
  int err = ENOMEM;
  s->carrier = calloc(e->njob, sizeof *s->carrier);
  for (uint32_t i = 0; s->carrier && i < e->njob; i++) {
    Carrier *w = e->job[i].of_wire = &s->carrier[i];
    w->t = s, w->job = &e->job[i];
    err = sem_init(&w->sem, 0, 0) ? errno : 0;
    w->has_sem = !err;
    err = err ? err : pthread_create(&w->thread, NULL, carrier_thread, w);
    if (err)
      break;
    w->has_thread = true;
  }
  return err ? pr_fail(e->run, PR_E_MEMORY, "no thread for rank %u: %s", e->run->here,
                       strerror(err))
             : PR_OK;
}

/* Ends the carriers. A carrier that stays busy for a second is left behind. */
static bool end_carriers(Proc *e) {
  Carriers *s = (Carriers *)e;
  bool left = false;
  for (uint32_t i = 0; s->carrier && i < e->njob; i++) {
    Carrier *w = &s->carrier[i];
    if (!w->has_thread)
      continue;
    sem_post(&w->sem);
    bool busy = true;
    for (uint64_t end = pr_now() + PROC_SECOND; busy;) {
      pthread_mutex_lock(&s->lock);
      busy = w->busy;
      left = s->left = s->left || (busy && pr_now() > end);
      pthread_mutex_unlock(&s->lock);
      if (busy && left)
        break;
      if (busy)
        pr_nap(PROC_SECOND / 100);
    }
    if (busy)
      pthread_detach(w->thread);
    else
      pthread_join(w->thread, NULL);
  }
  for (uint32_t i = 0; !left && s->carrier && i < e->njob; i++)
    if (s->carrier[i].has_sem)
      sem_destroy(&s->carrier[i].sem);
  return !left;
}

static PrStatus join(PrRun *run) {
  static const ProcWire wire = {.open = open_carriers, .begin = begin, .close = end_carriers};
  const PrTransport *t = run->o.engine_options;
  const PrGroup *g = t ? t->group : NULL;
  if (!t || !t->carry || !g || g->rank >= g->size)
    return pr_fail(run, PR_E_ARG,
                   "options: engine_options must be a PrTransport with `group` and `carry`");
  Carriers *s = run->of_engine = calloc(1, sizeof *s);
  if (!s)
    return pr_fail(run, PR_E_MEMORY, "no memory for the engine");
  s->e = (Proc){.run = run, .wire = &wire, .g = g, .most_tag = UINT32_MAX >> 1};
  s->t = *t;
  pthread_mutex_init(&s->lock, NULL);
  run->here = g->rank;
  run->nprocess = g->size;
  return PR_OK;
}

static void close(PrRun *run) {
  Carriers *s = run->of_engine;
  if (!s || !proc_close(&s->e))
    return;
  pthread_mutex_destroy(&s->lock);
  free(s->carrier);
  free(s);
}

const PrEngine pr_transport = {
    .name = "transport", .join = join, .open = proc_open, .close = close, PROC_ENGINE};
