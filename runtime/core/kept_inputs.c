/* SPDX-License-Identifier: MIT
 * The inputs that a recomputed forward keeps (run.h): all inputs, in its slot of class KEEP, in the
 * order of PrCall.xs, each at a multiple of PR_LINE bytes. Rows of one stage keep the same
 * inputs. */
#include <stdlib.h>
#include <string.h>

#include "run.h"

/* Index of the parts of a row: its stage of the model if there are edge tables, else the row. */
static uint32_t own(const PipeProgram *p, uint32_t row) {
  return p->edge ? p->stage[row].model : row;
}

PrStatus pr_size_keeps(PrRun *run) {
  const PipeProgram *p = run->p;
  uint32_t n = p->edge ? p->nmodel : p->nstage, *first = calloc(n + (size_t)1, sizeof *first);
  uint32_t *row = calloc(p->nmodel, sizeof *row); /* some row that runs the stage */
  for (uint32_t s = 0; first && row && s < p->nstage; s++) {
    first[own(p, s) + 1] = p->stage[s].nin;
    row[p->stage[s].model] = s;
  }
  for (uint32_t i = 0; first && i < n; i++)
    first[i + 1] += first[i];
  run->kept = first ? calloc(first[n] + (size_t)1, sizeof *run->kept) : NULL;
  bool ok = row && run->kept;
  for (uint32_t e = 0; ok && p->edge && e < p->nedge; e++) {
    const PrSizes *z = &run->stage[row[p->edge[e].from]].size;
    run->kept[first[p->edge[e].to] + p->edge[e].in].bytes = p->edge[e].skip ? z->edge : z->boundary;
  }
  for (uint32_t s = 0; ok && s < p->nstage; s++) {
    Kept *part = &run->kept[first[own(p, s)]];
    run->stage[s].kept = part;
    if (!p->edge && p->stage[s].nin)
      part->bytes = run->stage[p->stage[s].prev].size.boundary;
    uint64_t at = 0, end = 0;
    for (uint32_t i = 0; i < p->stage[s].nin; i++) {
      part[i].at = at;
      end = at + part[i].bytes;
      at += pr_round(part[i].bytes);
    }
    run->stage[s].keep = end;
  }
  free(first);
  free(row);
  return ok ? PR_OK : pr_fail(run, PR_E_MEMORY, "no memory to check the program");
}

uint32_t pr_count_kept(const PrRun *run, const RankRun *k) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < k->t->ninstr; i++) {
    const PipeInstr *c = &k->t->instr[i];
    n += c->op == PIPE_R && run->p->stage[c->stage].nin > 1 ? run->p->stage[c->stage].nin : 0;
  }
  return n;
}

void pr_point_kept(PrRun *run, RankRun *k) {
  uint32_t n = k->t->nlist;
  for (uint32_t i = 0; i < k->ncompute; i++) {
    const PipeInstr *c = &k->t->instr[k->compute[i].index];
    uint32_t nin = run->p->stage[c->stage].nin;
    if (c->op != PIPE_R || nin < 2)
      continue;
    k->compute[i].kept = n;
    for (uint32_t j = 0; j < nin; j++)
      k->listed[n++] = (char *)k->slot[c->keep] + run->stage[c->stage].kept[j].at;
  }
}

void pr_keep_inputs(const PrRun *run, const RankRun *k, const PipeInstr *c, const PrCall *a) {
  const Kept *part = run->stage[c->stage].kept;
  for (uint32_t i = 0; i < a->nx; i++)
    memcpy((char *)k->slot[c->keep] + part[i].at, a->xs[i], part[i].bytes);
}
