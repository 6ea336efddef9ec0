/* SPDX-License-Identifier: MIT
 * The number of microbatches that each update of a step applies, linear in instructions; and how
 * many updates there were before a step. */
#include "run.h"

#include <stdlib.h>

/* For each update in the list of rank t, adds the units that it applies to sum[first[m] + n], where
 * the update is number n of a row of stage m; skips stages without a row in this process. u, units:
 * [nstage] scratch, 0 for the rows of the rank. */
static void add_units(const PrRun *run, const PipeRank *t, const uint32_t *first, uint32_t *sum,
                      uint32_t *u, uint32_t *units) {
  for (uint32_t i = 0; i < t->ninstr; i++) {
    const PipeInstr *c = &t->instr[i];
    uint32_t m = run->p->stage[c->stage].model;
    units[c->stage] += c->op == PIPE_B || c->op == PIPE_W;
    if (c->op != PIPE_U)
      continue;
    uint32_t at = first[m] + u[c->stage]++; /* replicas have equally many updates */
    if (at < first[m + 1])
      sum[at] += units[c->stage];
    units[c->stage] = 0;
  }
}

/* True if the rank runs a stage that this process runs too. */
static bool runs_one(const RankRun *k, const uint32_t *first) {
  bool any = false;
  for (uint32_t i = 0; i < k->nstage; i++) {
    uint32_t m = k->run->p->stage[k->stage[i]].model;
    any = any || first[m] < first[m + 1];
  }
  return any;
}

PrStatus pr_count_updates(PrRun *run) {
  const PipeProgram *p = run->p;
  uint32_t *first = calloc((size_t)p->nmodel + 1, sizeof *first), *sum = NULL,
           *u = calloc(2 * (size_t)p->nstage, sizeof *u);
  PrStatus st = PR_OK;
  for (uint32_t s = 0; first && s < p->nstage; s++)
    if (pr_is_here(run, p->stage[s].rank))
      first[p->stage[s].model + 1] = run->stage[s].nupdate;
  for (uint32_t m = 0; first && m < p->nmodel; m++)
    first[m + 1] += first[m];
  if (!first || !u || !(sum = calloc((size_t)first[p->nmodel] + 1, sizeof *sum)))
    st = pr_fail(run, PR_E_MEMORY, "no memory for the updates of the stages");
  for (uint32_t r = 0; !st && r < p->nrank; r++) {
    PipeRank list;
    if (!runs_one(&run->rank[r], first) || (st = pr_borrow_list(run, r, &list)))
      continue;
    add_units(run, &list, first, sum, u, u + p->nstage);
    pr_return_list(run, r, &list);
  }
  for (uint32_t r = 0; !st && r < p->nrank; r++)
    for (uint32_t i = 0; i < run->rank[r].ncompute; i++) {
      ComputeAt *at = &run->rank[r].compute[i];
      const PipeInstr *c = &run->rank[r].t->instr[at->index];
      if (c->op == PIPE_U)
        at->applied = sum[first[p->stage[c->stage].model] + at->updates] / pipe_slices(p);
    }
  free(first);
  free(sum);
  free(u);
  return st;
}

uint64_t pr_updates_before(const PrRun *run, uint32_t row, uint64_t step) {
  const StageRun *stage = &run->stage[row];
  return stage->resumed + step * stage->nupdate;
}
