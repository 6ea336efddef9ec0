/* SPDX-License-Identifier: MIT
 * The list of a rank as rows and loops of rows (runtime/include/pipe_rows.h). */
#ifndef PIPEC_ROWS_H
#define PIPEC_ROWS_H

#include <stdbool.h>

#include "arena.h"
#include "pipe_rows.h"

typedef struct RankRows {
  const uint32_t *word; /* [n] PipeRank.rows; valid until the next call of make_rows */
  uint32_t n;
} RankRows;

/* [nstage] the number of updates of each stage. The last update of a stage writes the slot that
 * version 0 had. Its row names this slot by number: the distance to its last use depends on the
 * number of updates. */
uint32_t *count_updates(Arena *a, const PipeProgram *p);

/* Makes the rows of one rank after the other in the same memory. */
typedef struct RowMaker RowMaker;
RowMaker *open_rows(Arena *a, const PipeProgram *p); /* p: with its lists written out */
/* The rows from which pipe_expand makes the list of rank r. */
RankRows make_rows(RowMaker *x, uint32_t r);

#endif
