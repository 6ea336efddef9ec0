/* SPDX-License-Identifier: MIT
 * One program for M = from, from + step, ...: found from the programs of three values. */
#ifndef PIPEC_FAMILY_H
#define PIPEC_FAMILY_H

#include "for_all_proof.h"
#include "for_all.h"
#include "notes.h"

/* The program of one value. */
typedef struct Member {
  int64_t value;
  bool kept;           /* a class needs it */
  bool made;           /* else only these are there: */
  bool ok;             /* it compiles, and why not: */
  DiagName why;
  Arena arena;         /* of all that follows */
  Diag diag;
  Options opt;
  Sched s;
  uint32_t **word, *nword; /* [nrank] rows with notes (for_all_proof.h); NULL: it has none */
  uint64_t *shape;     /* [nrank] a hash of these, numbers apart; member_free leaves it */
  uint64_t rows;       /* instructions */
} Member;

/* Compiles the text at a value of a parameter. stays: in the arena of s, never to be freed. */
void member_make(Sched *s, const char *name, int64_t value, bool stays, Member *m);
void member_free(Member *m);
/* Makes the rows with notes, unless they are there. False: there are none. */
bool member_note(Member *m, States *state);

/* The class of m[0], m[1] and m[2], whose values are `step` apart, as words with G: each number
 * that is not the same in all three moves on evenly. False: *why. Requires member_note. Its tables
 * are in arena a, but for what m[0] has, which has to stay. */
bool family_fit(Arena *a, Member *const m[3], int64_t step, ForAllProof *out, const char **why);
/* Moves the first value down by so many steps. False: a loop would have no turn. m: of that value.
 */
bool family_lower(Arena *a, ForAllProof *e, int64_t steps, const Member *m);
/* Sets the program of the class for n = 0: that of m, with the words of e as rows. */
void family_program(Arena *a, ForAllProof *e, PipeLoopClass *c, const Member *m);
/* What pipe_unroll makes of a class: is it what the text makes of the value of m? The parameters
 * are those of l. */
bool family_is(Arena *a, const PipeLooped *l, const ForAllProof *e, const Member *m);

#endif
