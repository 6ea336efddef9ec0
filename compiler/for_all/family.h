/* SPDX-License-Identifier: MIT
 * One program for M = from, from + step, ...: found from the programs of three values. */
#ifndef PIPEC_FAMILY_H
#define PIPEC_FAMILY_H

#include "for_all_proof.h"
#include "for_all.h"
#include "notes.h"

/* The program of one value of the parameter. */
typedef struct Member {
  int64_t value;
  bool kept;           /* a class uses it */
  bool made;           /* false: only value, ok, why and shape are valid */
  bool ok;             /* the value compiles; if not, why: the first error */
  DiagName why;
  Arena arena;         /* holds everything below */
  Diag diag;
  Options opt;
  Sched s;
  uint32_t **word, *nword; /* [nrank] rows with notes (for_all_proof.h); NULL: not made */
  uint64_t *shape;     /* [nrank] hashes of the rows without their numbers; survives member_free */
  uint64_t rows;       /* number of instructions */
} Member;

/* Compiles the text with `name` = value. stays: in the arena of s, so that it lasts. */
void member_make(Sched *s, const char *name, int64_t value, bool stays, Member *m);
void member_free(Member *m);
/* Makes the rows with notes, unless they exist. False: the lists have no common order. */
bool member_note(Member *m, States *state);

/* The class of m[0], m[1] and m[2], whose values are `step` apart, as words with G. Each number
 * must be equal in all three or grow evenly. False: *why. Requires member_note. Its tables are in
 * arena a, and refer to tables of m[0], which must stay. */
bool family_fit(Arena *a, Member *const m[3], int64_t step, ForAllProof *out, const char **why);
/* Moves the first value of the class down by so many steps, to that of m. False: a loop would have
 * no turn. */
bool family_lower(Arena *a, ForAllProof *e, int64_t steps, const Member *m);
/* Sets the program of the class for n = 0: that of m, with the words of e as rows. */
void family_program(Arena *a, ForAllProof *e, PipeLoopClass *c, const Member *m);
/* Does pipe_unroll of the class give the program that the text gives for the value of m? l: the
 * parameters. */
bool family_is(Arena *a, const PipeLooped *l, const ForAllProof *e, const Member *m);

#endif
