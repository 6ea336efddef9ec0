/* SPDX-License-Identifier: MIT
 * Makes the notes of the rows of one program (for_all_proof.h): the certificate of a program for
 * every M before its numbers are known to grow. */
#ifndef PIPEC_NOTES_H
#define PIPEC_NOTES_H

#include "for_all_proof.h"
#include "rows.h"

/* The states that notes speak of, of programs for several M alike. */
typedef struct States {
  Arena *arena;
  VEC(State) all;
  uint32_t *at, size; /* hash table: 1 + State, 0: free; its size, a power of 2 */
} States;

typedef struct Notes {
  VEC(Note) note;  /* of one rank, */
  uint32_t *first; /* [ninstr + 1] by row */
} Notes;

/* NULL: the ranks, each doing one row after the other, do not meet in one order. */
typedef struct Noter Noter;
Noter *open_notes(Arena *a, const PipeProgram *p, States *state);
/* Of one rank after the other, each until the next. */
Notes make_notes(Noter *x, uint32_t rank);

#endif
