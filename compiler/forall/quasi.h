/* SPDX-License-Identifier: MIT
 * Quasi-affine values: how an expression moves with one variable (all_m.c). */
#ifndef PIPEC_QUASI_H
#define PIPEC_QUASI_H

#include "pipec.h"

enum { MOST_PERIOD = 1 << 16 };
#define MOST_INDEX 0x1p36 /* of a loop variable */

/* How a value moves with a variable: v(x + T) = v(x) + s. `fixed`: it does not depend on it at all.
 * `other`: it depends on M where only the loop variable may count. `most`: it is
 * at most that, and at least -most, for every M that there can be, 2^31; 0: that is not known. */
typedef struct Quasi {
  int64_t T, s;
  bool fixed, other;
  double most;
} Quasi;

typedef struct Why { /* what stands in the way */
  const char *text;
  Span at;
} Why;

typedef struct AllM {
  Sched *s;
  Quasi *env; /* [nslot] as functions of the variable at hand */
  Why why;
  int64_t value_T; /* period of M over which the programs must be tried */
  Quasi mbs;       /* microbatches of a pipe as a function of M */
} AllM;

static const Quasi FIXED = {1, 0, true, false, 0};

int64_t quasi_gcd(int64_t a, int64_t b);
/* Notes what stands in the way, the first of it; false. */
bool quasi_no(AllM *x, Span at, const char *text);
/* The same with a common period; false: it is too long. */
bool quasi_join(Quasi *a, Quasi *b);
/* How e moves with the variable at hand; false: not in this way, x->why says why. */
bool quasi(AllM *x, const Expr *e, Quasi *q);
/* The same of an end of a range, which is within MOST_INDEX. */
bool quasi_index(AllM *x, const Expr *e, Quasi *q);
/* A fixed value that does not depend on M. */
bool quasi_number(AllM *x, const Expr *e, const Quasi *q, int64_t *v);

#endif
