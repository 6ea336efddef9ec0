/* SPDX-License-Identifier: MIT
 * What the parts of a question about every M share: which names move with M (rest_of_m.c), and which expressions have a
 * value whatever these are (values_of_m.c). */
#ifndef PIPEC_REST_OF_M_H
#define PIPEC_REST_OF_M_H

#include "lists_of_m.h"

/* What moves: with M, and in the clause at hand with its microbatch. */
typedef struct Moved {
  bool *slot; /* [nslot] names of the schedule */
  uint32_t nslot, steps;
  bool late, applied; /* names of formulas: delay, behind and ahead; n */
} Moved;

bool expr_is_moved(Moved *x, const Expr *e);
/* What moves with the parameter of that name. */
Moved moved_by(const Sched *s, const char *name);
/* The parameters of what sc extends, and the lets of both. */
void move_names(Moved *x, const Schedule *sc);

/* An expression and what is known where it stands. */
typedef struct Line {
  Moved moved;
  const Sched *s;
  uint32_t m;      /* slot of M, at least 1 */
  bool *known;     /* [nslot] it has one value for all M, that of Eval.env */
  bool *natural;   /* [nslot] it is never negative */
  uint8_t *bits;   /* [nslot] of what else moves, or is bound: bits_of it */
  uint32_t steps;
} Line;

enum {
  M_BITS = 32,  /* of M, a microbatch */
  LET_BITS = 62 /* of another name that moves: the orders have been proved with it, within its bounds */
};
/* Of an integer that is at most 2^bits, and at least -2^bits, for every M. */
uint32_t bits_of(Line *l, const Expr *e);
/* e does not move, and all its names are known: its value. */
bool known_value(const Line *l, const Expr *e, int64_t *v);
/* At least 1; at least 0: for every M, if it has a value. */
bool always_positive(const Line *l, const Expr *e);
bool never_negative(const Line *l, const Expr *e);
/* The first part of e that may have no value for some M; NULL. late: e is not computed at every M, so that what does not move
 * in it may be computed for the first time at some. */
const Expr *no_value(Line *l, const Expr *e, bool late);
/* The same of a formula, at the stage that is bound; *why, what it may be. (formula_ranges.c) */
const Expr *no_formula(Line *l, const Expr *e, bool late, const char **why);

#endif
