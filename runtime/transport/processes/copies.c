/* SPDX-License-Identifier: MIT
 * Copies of the engine of processes to and from stashes that lie on another rank. The rank that
 * owns the stash has the copies in its COPY stream. The rank that keeps the stash in a GUEST slot
 * knows their order from the table, and has a job for each rank that it serves. */
#include "processes.h"

#include <stdlib.h>

/* The COPY stream, on the thread of the copier */

/* Carries one message to or from rank `peer`. False: the run has failed. */
static bool carry_one(Proc *e, ProcRest what, uint32_t peer, bool sends, void *data,
                      uint64_t bytes) {
  if (pr_failed(e->run))
    return false;
  proc_put(e->copier, PROC_OF_REST, what, peer, sends, data, bytes);
  return proc_carry(e->copier);
}

PrStatus proc_copy(PrRun *run, RankRun *k, const CopyAt *at, uint64_t step) {
  Proc *e = run->of_engine;
  const PipeInstr *c = &k->t->instr[at->index];
  if (c->peer == PIPE_NONE)
    return pr_copy(run, k, at, step);
  uint64_t began = k->span ? pr_now() - run->epoch_ns : 0;
  const bool off = c->op == PIPE_OFF;
  if (!carry_one(e, off ? PROC_OFF : PROC_LOAD, c->peer, off, k->slot[c->act],
                 run->stage[c->stage].size.act))
    return (PrStatus)atomic_load(&run->status);
  if (k->span)
    *pr_span(run, k, step, at->index) = (PrSpan){began, pr_now() - run->epoch_ns};
  return PR_OK;
}

/* Guest slots */

/* The copies of one rank, for all steps of a call of pr_steps. */
static bool next_of_guest(ProcJob *j) {
  const Proc *e = j->e;
  j->n = 0;
  if (j->round == (atomic_load(&e->run->target) - e->first) * j->ncopy)
    return proc_over(j);
  const PipeInstr *c = &j->copy[j->round % j->ncopy];
  const bool off = c->op == PIPE_OFF;
  proc_put(j, PROC_OF_REST, off ? PROC_OFF : PROC_LOAD, j->rank, !off, e->k->slot[c->away],
           e->run->stage[c->stage].size.act);
  return true;
}

/* Adds the job for the copies of rank r to and from slots of this rank, if there are any. */
static PrStatus take_guest(Proc *e, uint32_t r) {
  PrRun *run = e->run;
  PipeRank list;
  PrStatus st = pr_borrow_list(run, r, &list);
  if (st)
    return st;
  uint32_t n = 0;
  PipeInstr *copy = malloc(list.ninstr * sizeof *copy);
  for (uint32_t i = 0; copy && i < list.ninstr; i++)
    if (pipe_stream_of(list.instr[i].op) == PIPE_COPY && list.instr[i].peer == run->here)
      copy[n++] = list.instr[i];
  pr_return_list(run, r, &list);
  ProcJob *j = copy && n > 0 ? proc_add_job(e, next_of_guest, 1, 0) : NULL;
  if (j) {
    j->copy = copy, j->ncopy = n, j->rank = r;
    e->nguest++;
    return PR_OK;
  }
  free(copy);
  return copy && n == 0 ? PR_OK
                        : pr_fail(run, PR_E_MEMORY, "no memory for the copies of rank %u", r);
}

PrStatus proc_open_copies(Proc *e) {
  PrRun *run = e->run;
  PrStatus st = PR_OK;
  bool lends = false;
  if (!(e->copier = proc_add_job(e, proc_carries, 1, 0)))
    return PR_E_MEMORY;
  e->guest = e->job + e->njob;
  for (uint32_t i = 0; i < e->k->t->npool; i++)
    lends = lends || e->k->t->pool[i].cls == PIPE_GUEST;
  for (uint32_t r = 0; lends && r < run->p->nrank && !st; r++)
    if (r != run->here)
      st = take_guest(e, r);
  return st;
}
