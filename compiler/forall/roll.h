/* SPDX-License-Identifier: MIT
 * Tables of programs of growing length as segments that are repeated (runtime/include/pipe_loop.h). */
#ifndef PIPEC_ROLL_H
#define PIPEC_ROLL_H

#include "pipe_loop.h"
#include "pipec.h"

enum { ROLL_EVENTS = 1u << 31 }; /* a tag of words that are numbers of events */

/* A table: rows of words. */
typedef struct Rows {
  uint32_t words, n;
  uint32_t *w;   /* [n * words]; slots counted from the first of their pool */
  uint32_t *tag; /* the same: what a word is counted in, a pool of the rank or ROLL_EVENTS; NONE: a number */
  uint64_t *key; /* [n] what two rows of different turns have in common */
} Rows;

/* A table whose rows are found again for any n. */
typedef struct Segments {
  VEC(PipeSegment) segment;
  VEC(PipeVary) vary;
  VEC(uint32_t) row; /* words of the rows */
} Segments;

typedef struct CycleOf { uint32_t at, rank, tag; } CycleOf; /* where it begins, and whose slots it has */
typedef struct Cycles {
  VEC(uint32_t) at; /* PipeLoopClass.cycle */
  VEC(CycleOf) of;
} Cycles;

/* The table whose rows for n, n + 1 and n + 2 are those of t, with n counted from 0. False: they do not
 * repeat; nothing is reported. */
bool roll(Sched *s, Cycles *c, uint32_t rank, int64_t n, const Rows t[3], Segments *out);
/* The same with n counted from `by`. */
void roll_rebase(Segments *g, const Cycles *c, uint32_t words, int64_t by);

#endif
