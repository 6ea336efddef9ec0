/* SPDX-License-Identifier: MIT
 * The list of a rank as rows and loops of rows (runtime/include/pipe_rows.h). */
#ifndef PIPEC_ROWS_H
#define PIPEC_ROWS_H

#include <stdbool.h>

#include "arena.h"
#include "pipe_rows.h"

typedef struct RankRows {
  const uint32_t *word; /* [n] PipeRank.rows; until the next make_rows */
  uint32_t n;
} RankRows;

/* Updates of each stage: [nstage]. The last one of a stage writes where version 0 lay, and its row
 * names that slot by its number: how far above it was used last depends on how many there are. */
uint32_t *count_updates(Arena *a, const PipeProgram *p);

/* Makes the rows of one rank after the other, in the same room. */
typedef struct RowMaker RowMaker;
RowMaker *open_rows(Arena *a, const PipeProgram *p); /* p: with its lists written out */
/* The rows that pipe_expand makes the list of rank r from. */
RankRows make_rows(RowMaker *x, uint32_t r);

/* A word that is no part of the program: what somebody notes of a row, behind its own words. Its
 * tag is free: above PIPE_WORD_AHEAD, below PIPE_WORD_NEW. `same`: rows of which this number
 * differs are not turns of one loop. */
typedef struct Note {
  uint32_t tag;
  bool same;
  int64_t n; /* 0 .. 2^24 - 1 */
} Note;
/* The same with notes, in loops that are in no loop. Row i has note[first[i] .. first[i+1]). */
RankRows make_noted_rows(RowMaker *x, uint32_t r, const Note *note, const uint32_t *first);

#endif
