/* SPDX-License-Identifier: MIT
 * COPY streams of several ranks that take turns because they share a link (PipeRank.group): finds
 * the rank of each turn. The engines count turns. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

/* True if this process needs the group of rank r. A process of one rank needs only its own
 * group. */
static bool is_wanted(const PrRun *run, uint32_t r) {
  uint32_t g = run->p->rank[r].group;
  return g && (run->here == PIPE_NONE || run->p->rank[run->here].group == g);
}

PrStatus pr_take_turns(PrRun *run) {
  const PipeProgram *p = run->p;
  if (p->ngroup == 0)
    return PR_OK;
  run->turns = aligned_alloc(PR_LINE, p->ngroup * sizeof *run->turns);
  if (!run->turns)
    return pr_fail(run, PR_E_MEMORY, "no memory for the turns of %u groups", p->ngroup);
  memset(run->turns, 0, p->ngroup * sizeof *run->turns);
  for (int pass = 0; pass < 2; pass++) { /* count, then fill in */
    for (uint32_t r = 0; r < p->nrank; r++) {
      RankRun *k = &run->rank[r];
      PipeRank list;
      PrStatus st;
      if (!is_wanted(run, r))
        continue;
      k->turns = &run->turns[k->t->group - 1];
      if ((st = pr_borrow_list(run, r, &list)))
        return st;
      for (uint32_t i = 0; i < list.ninstr; i++)
        if (pipe_op_info[list.instr[i].op].stream != PIPE_COPY)
          continue;
        else if (pass)
          k->turns->rank[list.instr[i].turn] = r;
        else
          k->turns->n++;
      pr_return_list(run, r, &list);
    }
    for (uint32_t g = 0; pass == 0 && g < p->ngroup; g++) {
      run->turns[g].rank = calloc(run->turns[g].n + (size_t)1, sizeof *run->turns[g].rank);
      if (!run->turns[g].rank)
        return pr_fail(run, PR_E_MEMORY, "no memory for the turns of %u groups", p->ngroup);
    }
  }
  return PR_OK;
}

void pr_give_turns(PrRun *run) {
  for (uint32_t g = 0; run->turns && g < run->p->ngroup; g++)
    free(run->turns[g].rank);
  free(run->turns);
}
