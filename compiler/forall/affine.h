/* SPDX-License-Identifier: MIT
 * Values as functions of the number of microbatches: what an order says where M = from + step * n for every
 * n >= 0, and, inside a loop that is longer the larger n is, in its turn j (lists_of_m.c). */
#ifndef PIPEC_AFFINE_H
#define PIPEC_AFFINE_H

#include "pipec.h"

typedef struct Affine { int64_t a, n, j; } Affine; /* a + n * n + j * j */

/* Why a value, or an order, cannot be said for all n in this way; all but AFFINE_NO can be cured. */
typedef enum AffineFail {
  AFFINE_OK,
  AFFINE_NO,    /* why says it */
  AFFINE_STEP,  /* M must move on by `need` times as much */
  AFFINE_TURN,  /* a turn must be `need` times as long */
  AFFINE_BASE,  /* n must count from a larger M */
  AFFINE_CROSS  /* it changes in turn `cross` (a function of n) of the loop */
} AffineFail;

typedef struct AffineEnv {
  Sched *s;      /* compiled at n = 0; its env has the values at n = 0, j = 0 */
  Affine *value; /* [nslot] */
  int64_t turns, by_n; /* j is 0 .. turns + by_n * n - 1; by_n 0: there is no such loop at hand */
  AffineFail fail;
  int64_t need;
  Affine cross;
  const char *why; Span at;
  uint32_t calls;
} AffineEnv;

static inline Affine affine(int64_t a) { return (Affine){a, 0, 0}; }
static inline bool affine_fixed(Affine v) { return v.n == 0 && v.j == 0; }
static inline bool affine_same(Affine u, Affine v) { return u.a == v.a && u.n == v.n && u.j == v.j; }
Affine affine_sum(Affine u, Affine v, int64_t times); /* u + times * v */

/* What stands in the way, the first of it; false. */
bool affine_no(AffineEnv *x, Span at, const char *why);
bool affine_fail(AffineEnv *x, AffineFail fail, int64_t need);
/* Binds a name, for n = 0 in Eval.env, too. */
void affine_bind(AffineEnv *x, uint32_t slot, Affine v);
/* Is v >= 0 for all n and j? It is, or it never is, or this fails. */
bool affine_at_least_0(AffineEnv *x, Span at, Affine v, bool *yes);
/* The value of an expression. */
bool affine_eval(AffineEnv *x, const Expr *e, Affine *v);
/* Is it other than 0? */
bool affine_truth(AffineEnv *x, const Expr *e, bool *yes);
/* One number for all n and j. */
bool affine_number(AffineEnv *x, const Expr *e, int64_t *v);
/* The same; NULL is one, too. */
bool affine_constant(AffineEnv *x, const Expr *e);
/* Floor quotient by d > 0, and remainder. */
bool affine_divide(AffineEnv *x, Affine v, int64_t d, Affine *quotient, int64_t *rest);

#endif
