/* SPDX-License-Identifier: MIT
 * Makes the notes of one program (for_all_proof.h): the certificate of a program for every M,
 * before its numbers grow. */
#ifndef PIPEC_NOTES_H
#define PIPEC_NOTES_H

#include "for_all_proof.h"
#include "rows.h"

/* The states that notes name; one table for the programs of several M. */
typedef struct States {
  Arena *arena;
  VEC(State) all;
  uint32_t *at, size; /* hash table: 1 + row of `all`, 0: free; its size, a power of 2 */
} States;

typedef struct Notes {
  VEC(Note) note;  /* notes of one rank */
  uint32_t *first; /* [ninstr + 1] first note of each row */
} Notes;

/* NULL: the ranks, each running its rows one after the other, do not complete. */
typedef struct Noter Noter;
Noter *open_notes(Arena *a, const PipeProgram *p, States *state);
/* The notes of a rank; valid until the next call. Call it once for each rank. */
Notes make_notes(Noter *x, uint32_t rank);

#endif
