/* SPDX-License-Identifier: MIT
 * What the updates of a step apply. Linear in instructions. */
#include "run.h"

#include <stdlib.h>

PrStatus pr_count_updates(PrRun *run) {
  const PipeProgram *p = run->p;
  uint32_t *first = calloc((size_t)p->nmodel + 1, sizeof *first), *sum = NULL,
           *u = calloc(2 * (size_t)p->nstage, sizeof *u), *units = u ? u + p->nstage : NULL;
  bool ok = first && u;
  for (int pass = 0; ok && pass < 3;
       pass++) { /* updates of each stage; their units; what that comes to */
    for (uint32_t s = 0; s < p->nstage; s++)
      u[s] = units[s] = 0;
    for (uint32_t r = 0; r < p->nrank; r++)
      for (uint32_t i = 0; i < run->rank[r].ncompute; i++) {
        ComputeAt *at = &run->rank[r].compute[i];
        const PipeInstr *c = &p->rank[r].instr[at->index];
        uint32_t m = p->stage[c->stage].model;
        units[c->stage] += c->op == PIPE_B || c->op == PIPE_W;
        if (c->op != PIPE_U)
          continue;
        uint32_t k = u[c->stage]++;
        if (pass == 0)
          first[m + 1] += c->stage == m; /* replicas update equally often */
        else if (pass == 1)
          sum[first[m] + k] += units[c->stage];
        else
          at->applied = sum[first[m] + k] / pipe_slices(p);
        units[c->stage] = 0;
      }
    for (uint32_t m = 0; pass == 0 && m < p->nmodel; m++)
      first[m + 1] += first[m];
    ok = pass > 0 || (sum = calloc((size_t)first[p->nmodel] + 1, sizeof *sum));
  }
  free(first);
  free(sum);
  free(u);
  return ok ? PR_OK : pr_fail(run, PR_E_MEMORY, "no memory for the updates of the stages");
}
