/* SPDX-License-Identifier: MIT
 * The list of a rank as rows and loops of rows (runtime/include/pipe_rows.h). */
#ifndef PIPEC_ROWS_H
#define PIPEC_ROWS_H

#include "arena.h"
#include "pipe_rows.h"

typedef struct RankRows {
  const uint32_t *word; /* [n] PipeRank.rows; until the next make_rows */
  uint32_t n;
} RankRows;

/* Makes the rows of one rank after the other, in the same room. */
typedef struct RowMaker RowMaker;
RowMaker *open_rows(Arena *a, const PipeProgram *p); /* p: with its lists written out */
/* The rows that pipe_expand makes the list of rank r from. */
RankRows make_rows(RowMaker *x, uint32_t r);

#endif
