/* SPDX-License-Identifier: MIT
 * See as_rows.h. */
#include "as_rows.h"

#include <string.h>

#include "pipe_rows.h"
#include "rows.h"

PipeProgram *as_rows(Arena *a, const PipeProgram *p) {
  PipeProgram *q = NEW_ARRAY(a, PipeProgram, 1);
  PipeRank *rank = NEW_ARRAY(a, PipeRank, p->nrank);
  RowMaker *maker = open_rows(a, p);
  for (uint32_t r = 0; r < p->nrank; r++) {
    RankRows rows = make_rows(maker, r);
    uint32_t *word = arena_alloc(a, rows.n * sizeof *word);
    rank[r] = p->rank[r];
    rank[r].instr = NULL, rank[r].weights = NULL, rank[r].list = NULL, rank[r].wait = NULL;
    rank[r].rows = memcpy(word, rows.word, rows.n * sizeof *word);
    rank[r].nrows = rows.n, rank[r].weighted = p->rank[r].weights != NULL;
    rank[r].hash = pipe_rank_hash(&p->rank[r]);
  }
  *q = *p;
  q->rank = rank;
  q->hash = pipe_program_hash(q);
  return q;
}
