/* SPDX-License-Identifier: MIT
 * The list of a rank as rows and loops of rows (runtime/include/pipe_rows.h). */
#ifndef PIPEC_ROWS_H
#define PIPEC_ROWS_H

#include "arena.h"
#include "pipe_rows.h"

typedef struct RankRows {
  uint32_t *word; /* [n] PipeRank.rows */
  uint32_t n;
} RankRows;

/* The rows that pipe_expand makes the list of rank r from. p: written out. */
RankRows list_rows(Arena *a, const PipeProgram *p, uint32_t r);

#endif
