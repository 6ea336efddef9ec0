/* SPDX-License-Identifier: MIT
 * COPY streams of several ranks that take turns, because they have one link (PipeRank.group): whose
 * each turn is. The engines count them. */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

PrStatus pr_take_turns(PrRun *run) {
  const PipeProgram *p = run->p;
  size_t total = 0;
  if (p->ngroup == 0)
    return PR_OK;
  for (uint32_t r = 0; r < p->nrank; r++)
    total += run->rank[r].ncopy;
  run->turns = aligned_alloc(PR_LINE, p->ngroup * sizeof *run->turns);
  run->turn_rank = calloc(total + 1, sizeof *run->turn_rank);
  if (!run->turns || !run->turn_rank)
    return pr_fail(run, PR_E_MEMORY, "no memory for the turns of %u groups", p->ngroup);
  memset(run->turns, 0, p->ngroup * sizeof *run->turns);
  for (uint32_t r = 0; r < p->nrank; r++) {
    RankRun *k = &run->rank[r];
    k->turns = k->t->group ? &run->turns[k->t->group - 1] : NULL;
    if (k->turns)
      k->turns->n += k->ncopy;
  }
  uint32_t *at = run->turn_rank;
  for (uint32_t g = 0; g < p->ngroup; at += run->turns[g++].n)
    run->turns[g].rank = at;
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; run->rank[r].turns && i < run->rank[r].ncopy; i++)
      run->rank[r].turns->rank[p->rank[r].instr[run->rank[r].copy[i].index].turn] = r;
  return PR_OK;
}

void pr_tell_turn(PrRun *run, char *text, size_t room) {
  for (uint32_t g = 0; g < run->p->ngroup; g++) {
    const Turns *t = &run->turns[g];
    uint32_t next = t->n ? (uint32_t)(atomic_load(&t->done) % t->n) : 0;
    if (next == 0)
      continue;
    const RankRun *k = &run->rank[t->rank[next]];
    for (uint32_t i = 0; i < k->ncopy; i++) {
      const PipeInstr *c = &k->t->instr[k->copy[i].index];
      char where[PR_WHERE];
      if (c->turn == next)
        snprintf(text, room, "; rank %u has the next turn of its link, %s", k->id,
                 pr_where(run, c, where));
    }
    return;
  }
}
