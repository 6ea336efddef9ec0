/* SPDX-License-Identifier: MIT
 * Faults of the engine of processes. A wire cannot tell that another process has gone, so all ranks
 * also have a group (pipe_group.h). All ranks hear the verdict of the group. Then each knows where
 * every rank is, finds the first cause (blame.c), and fails with the same text. */
#include "processes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* for the verdict of the group, which waits for the answers of other ranks and for its server */
#define PATIENCE (8 * PROC_SECOND)

/* Agreement */

/* Asks the group. True: it reports a failure; *asked: without a text, but with all places. */
static bool hear(Proc *e, bool *asked) {
  char text[PR_TEXT];
  PrStatus st = PR_E_LOST;
  const int heard = e->g->heard(e->g->arg, &st, text, sizeof text);
  *asked = heard == 2;
  if (!heard)
    return false;
  e->told = true;
  if (heard == 1)
    pr_fail(e->run, st, "%.1000s", text);
  return true;
}

PrStatus proc_fail_in_vain(Proc *e, const char *text) {
  bool asked = false;
  for (uint64_t end = pr_now() + PATIENCE; pr_now() < end && !pr_failed(e->run) && !asked;
       pr_nap(PROC_SECOND / 50))
    if (!e->has_watcher)
      hear(e, &asked);
  pr_fail(e->run, PR_E_LOST, "lost: %.1000s", text);
  return (PrStatus)atomic_load(&e->run->status); /* of the first failure */
}

/* The state of a process, for all others. */
typedef struct Card {
  int32_t status; /* PrStatus */
  char text[PR_TEXT];
} Card;

PrStatus proc_agree(PrRun *run, PrStatus st) {
  Proc *e = run->of_engine;
  Card mine = {.status = (int32_t)st}, *all = NULL;
  snprintf(mine.text, sizeof mine.text, "%s", pr_error(run));
  if (run->here == 0 && !(all = calloc(run->nprocess, sizeof *all)))
    return pr_fail(run, PR_E_MEMORY, "no memory for %u processes", run->nprocess);
  uint32_t missing = e->g->gather(e->g->arg, &mine, sizeof mine, all);
  for (uint32_t r = 0; all && !missing && r < run->nprocess && !mine.status; r++) {
    mine.status = all[r].status;
    if (mine.status)
      snprintf(mine.text, sizeof mine.text, "rank %u: %.900s", r, all[r].text);
  }
  free(all);
  bool lost = missing || e->g->share(e->g->arg, 0, &mine, sizeof mine);
  if (lost && !pr_failed(run)) { /* the first failure goes before the one of this rank */
    char text[64];
    snprintf(text, sizeof text, "rank %u did not answer", missing ? missing - 1 : 0);
    return proc_fail_in_vain(e, text);
  }
  if (st || pr_failed(run))
    return st ? st : (PrStatus)atomic_load(&run->status);
  if (mine.status && mine.status != PR_E_IO) /* after PR_E_IO the run continues */
    e->told = true;
  return mine.status ? pr_fail(run, (PrStatus)mine.status, "%s", mine.text) : PR_OK;
}

/* Places */

typedef struct Place {
  PrPlace is;
  uint32_t accuses; /* PrRun.ck_at of the checkpoint that this rank reports as late; 0: none */
  uint32_t shares;  /* 1: this rank shares the trace */
} Place;
_Static_assert(sizeof(Place) <= PR_GROUP_PLACE, "a place fits");

uint32_t proc_tell_place(void *of, char to[PR_GROUP_PLACE]) {
  const Proc *e = of;
  Place here = {.accuses = e->late_at, .shares = e->shares};
  pr_place(e->run, e->run->here, &here.is);
  if (here.accuses) /* even if the checkpoint has ended since */
    here.is.checkpoint = here.accuses;
  if (here.shares) /* the step before, in which all ops are done */
    here.is.step--;
  memcpy(to, &here, sizeof here);
  return sizeof here;
}

static void fail_late(Proc *e, bool shares, uint64_t step, const char *then, const char *text) {
  char what[40] = "sharing the trace";
  if (!shares)
    snprintf(what, sizeof what, "step %llu", (unsigned long long)step);
  pr_fail(e->run, PR_E_DEADLINE, "deadline: %s takes longer than %g s%s%.900s", what,
          (double)e->run->limit_ns / 1e9, then, text);
}

/* All ranks have reported their places: fails with the first cause. */
static void blame(Proc *e) {
  PrRun *run = e->run;
  char text[PR_TEXT] = "all ops are done, but the ranks have not met";
  char place[PR_GROUP_PLACE];
  bool lost = false, accused = false, shares = false, answers = false;
  uint64_t step = atomic_load(&e->k->step); /* the lowest step that a rank is in */
  PrPlace *at = calloc(run->p->nrank, sizeof *at);
  for (uint32_t r = 0; at && r < run->p->nrank; r++) {
    int there = e->g->place(e->g->arg, r, place);
    Place is = {.accuses = 0};
    if (there > 0)
      memcpy(&is, place, sizeof is);
    at[r] = is.is;
    at[r].condition = there < 0 ? PR_IS_GONE : there > 0 ? PR_ANSWERS : PR_IS_SILENT;
    lost = lost || there < 0;
    answers = answers || there > 0;
    accused = accused || is.accuses;
    shares = shares || is.shares;
    step = there > 0 && is.is.step < step ? is.is.step : step;
  }
  if (!answers) {                       /* nobody has answered: this rank knows only itself */
    accused = e->late_at || run->ck_at; /* this rank is in a checkpoint */
    shares = e->shares;
    if (at && !accused)
      pr_place(run, run->here, &at[run->here]);
  }
  if (accused)
    pr_fail_checkpoint(run, at);
  else if (at)
    pr_blame(run, at, text, sizeof text);
  free(at);
  if (lost)
    pr_fail(run, PR_E_LOST, "lost: %.1000s", text);
  else
    fail_late(e, shares, step, "; ", text);
}

void *proc_watch(void *arg) {
  Proc *e = arg;
  PrRun *run = e->run;
  uint64_t late_step = 0, late_ns = 0; /* 1 + the step that was reported late; when */
  while (!atomic_load(&e->closing) && !pr_failed(run)) {
    bool asked = false;
    pr_nap(PROC_SECOND / 50);
    if (hear(e, &asked) && asked)
      blame(e);
    uint64_t start = atomic_load(&e->k->step_start), step = atomic_load(&e->k->step);
    uint64_t now = pr_now();
    if (start > now || now - start <= run->limit_ns)
      continue;
    if (late_step != step + 1 && e->g->late) {
      late_step = step + 1, late_ns = now;
      e->g->late(e->g->arg);
    } else if (now - late_ns > PATIENCE) {
      fail_late(e, e->shares, step, "", "");
    }
  }
  return NULL;
}

void proc_look(PrRun *run) {
  const Proc *e = run->of_engine;
  if (e->g->extend)
    e->g->extend(e->g->arg);
}

bool proc_late(PrRun *run) {
  Proc *e = run->of_engine;
  if (!e->g->late)
    return false;
  e->late_at = atomic_load(&run->ck_at);
  e->g->late(e->g->arg);
  return true;
}

void proc_wake(PrRun *run) {
  Proc *e = run->of_engine;
  char text[PR_TEXT + 32];
  if (e->agreed && !atomic_exchange(&e->told, true)) {
    snprintf(text, sizeof text, "rank %u: %s", run->here, run->text);
    e->g->tell(e->g->arg, (PrStatus)atomic_load(&run->status), text);
  }
  for (uint32_t i = 0; i < e->njob; i++)
    if (e->job[i].has_done)
      sem_post(&e->job[i].done);
  if (e->wire->wake)
    e->wire->wake(e);
  pr_wake_all(run);
}
