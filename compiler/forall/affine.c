/* SPDX-License-Identifier: MIT
 * Values that are linear in n and j (affine.h): sums, multiples, floor quotients and remainders by numbers that
 * divide the slopes, choices that are the same for all n and j. A comparison is decided at the ends of the range
 * of j, since what is linear is least and greatest there. */
#include "affine.h"
#include "names.h"

#include "quasi.h"

enum { MOST_CALLS = 1 << 16 };
#define MOST_VALUE ((int64_t)1 << 40)
#define MOST_SLOPE \
  ((int64_t)1 << 30) /* times any M that there is, 2^31, sums of a few of them do not overflow */

Affine affine_sum(Affine u, Affine v, int64_t times) {
  return (Affine){u.a + times * v.a, u.n + times * v.n, u.j + times * v.j};
}

bool affine_no(AffineEnv *x, Span at, const char *why) {
  if (x->fail == AFFINE_OK)
    x->fail = AFFINE_NO, x->why = why, x->at = at;
  return false;
}

bool affine_fail(AffineEnv *x, AffineFail fail, int64_t need) {
  if (x->fail == AFFINE_OK)
    x->fail = fail, x->need = need;
  return false;
}

void affine_bind(AffineEnv *x, uint32_t slot, Affine v) {
  x->value[slot] = v;
  x->s->eval.env[slot] = v.a;
}

static bool in_bounds(AffineEnv *x, Span at, Affine v) {
  const int64_t part[] = {v.a, v.n, v.j};
  for (int i = 0; i < 3; i++)
    if (part[i] > (i ? MOST_SLOPE : MOST_VALUE) || part[i] < -(i ? MOST_SLOPE : MOST_VALUE))
      return affine_no(x, at, "a value is too large");
  return true;
}

/* -1: never >= 0, 1: always, for n >= 0; 0: it changes with n. */
static int sign(int64_t a, int64_t n) { return a >= 0 && n >= 0 ? 1 : a < 0 && n <= 0 ? -1 : 0; }

/* The first turn at which v, which moves with j, is on the other side of 0. */
static bool crossing(AffineEnv *x, Affine v) {
  int64_t by = v.j > 0 ? v.j : -v.j, up = v.j > 0 ? -1 : 1, rest;
  Affine at;
  if (v.n % by != 0)
    return affine_fail(x, AFFINE_STEP, by / quasi_gcd(v.n, by));
  /* v >= 0 from j = ceil(-(a + n n) / by) on, or up to j = floor((a + n n) / by) */
  if (!affine_divide(x, (Affine){up * v.a + (v.j > 0 ? by - 1 : by), up * v.n, 0}, by, &at, &rest))
    return false;
  x->cross = at;
  return affine_fail(x, AFFINE_CROSS, 0);
}

bool affine_at_least_0(AffineEnv *x, Span at, Affine v, bool *yes) {
  if (!in_bounds(x, at, v))
    return false;
  int first = sign(v.a, v.n),
      last = x->by_n ? sign(v.a + v.j * (x->turns - 1), v.n + v.j * x->by_n) : first;
  *yes = first > 0;
  if (first == last && first != 0)
    return true;
  int64_t end_n = v.n + v.j * x->by_n; /* in the long run, at the last turn */
  bool from = v.n > 0 || (v.n == 0 && v.a >= 0),
       to = end_n > 0 || (end_n == 0 && v.a + v.j * (x->turns - 1) >= 0);
  return x->by_n && from != to ? crossing(x, v) : affine_fail(x, AFFINE_BASE, 0);
}

bool affine_divide(AffineEnv *x, Affine v, int64_t d, Affine *quotient, int64_t *rest) {
  if (v.n % d != 0)
    return affine_fail(x, AFFINE_STEP, d / quasi_gcd(v.n, d));
  if (v.j % d != 0)
    return affine_fail(x, AFFINE_TURN, d / quasi_gcd(v.j, d));
  *rest = v.a % d + (v.a % d < 0 ? d : 0);
  *quotient = (Affine){(v.a - *rest) / d, v.n / d, v.j / d};
  return true;
}

bool affine_number(AffineEnv *x, const Expr *e, int64_t *v) {
  Affine a;
  if (!affine_eval(x, e, &a))
    return false;
  *v = a.a;
  return affine_fixed(a) || affine_no(x, e->at, "it is not the same in every turn and for every M");
}

bool affine_constant(AffineEnv *x, const Expr *e) {
  int64_t v;
  return !e || affine_number(x, e, &v);
}

static bool call(AffineEnv *x, const Expr *e, Affine *v) {
  Affine few[8];
  uint32_t n = 0;
  bool less;
  if (++x->calls > MOST_CALLS)
    return affine_no(x, e->at, "it takes too many calls of functions");
  if (e->builtin == BI_FN) {
    for (const Arg *a = e->args; a; a = a->next)
      if (n == 8 || !affine_eval(x, a->value, &few[n++]))
        return affine_no(x, e->at, "a function has too many arguments");
    n = 0;
    for (const Param *p = e->fn->params; p; p = p->next)
      affine_bind(x, p->slot, few[n++]);
    return affine_eval(x, e->fn->body, v);
  }
  if (e->builtin != BI_MIN && e->builtin != BI_MAX)
    return affine_no(x, e->at, "it depends on what the order does");
  for (const Arg *a = e->args; a; a = a->next) {
    if (!affine_eval(x, a->value, &few[1]))
      return false;
    if (a != e->args) {
      if (!affine_at_least_0(x, e->at, affine_sum(few[1], *v, -1), &less))
        return false;
      if (less == (e->builtin == BI_MIN))
        continue;
    }
    *v = few[1];
  }
  return true;
}

/* u < v, and so on. */
static bool compare_values(AffineEnv *x, const Expr *e, Affine u, Affine v, Affine *to) {
  Affine d = affine_sum(u, v, -1), one = affine(1), back = affine_sum(v, u, -1);
  bool yes = false, other = false;
  *to = affine(0);
  switch (e->kind) {
  case EX_GE: return affine_at_least_0(x, e->at, d, &yes) ? to->a = yes, true : false;
  case EX_LT: return affine_at_least_0(x, e->at, d, &yes) ? to->a = !yes, true : false;
  case EX_LE: return affine_at_least_0(x, e->at, back, &yes) ? to->a = yes, true : false;
  case EX_GT: return affine_at_least_0(x, e->at, back, &yes) ? to->a = !yes, true : false;
  default: break;
  }
  if (!affine_at_least_0(x, e->at, d, &yes) ||
      (yes && !affine_at_least_0(x, e->at, affine_sum(d, one, -1), &other)))
    return false;
  to->a = (yes && !other) == (e->kind == EX_EQ);
  return true;
}

bool affine_truth(AffineEnv *x, const Expr *e, bool *yes) {
  Affine v;
  bool low, high = false;
  if (!affine_eval(x, e, &v) || !affine_at_least_0(x, e->at, v, &low))
    return false;
  if (low && !affine_at_least_0(x, e->at, affine_sum(v, affine(1), -1), &high))
    return false;
  *yes = !low || high;
  return true;
}

static bool multiply(AffineEnv *x, const Expr *e, Affine u, Affine v, Affine *to) {
  if (!affine_fixed(u) && !affine_fixed(v))
    return affine_no(x, e->at, "it is not linear");
  Affine of = affine_fixed(u) ? v : u;
  int64_t by = affine_fixed(u) ? u.a : v.a;
  *to = (Affine){0, 0, 0};
  if (__builtin_mul_overflow(of.a, by, &to->a) || __builtin_mul_overflow(of.n, by, &to->n) ||
      __builtin_mul_overflow(of.j, by, &to->j))
    return affine_no(x, e->at, "a value is too large");
  return true;
}

bool affine_eval(AffineEnv *x, const Expr *e, Affine *v) {
  Affine a, b;
  bool yes;
  int64_t rest;
  if (!work_take(x->s->opt->work, WORK_EXPR, e->at))
    return affine_no(x, e->at, "it takes too many steps");
  switch (e->kind) {
  case EX_INT: *v = affine(e->value); return in_bounds(x, e->at, *v);
  case EX_NAME: *v = x->value[e->slot]; return true;
  case EX_CALL: return call(x, e, v);
  case EX_NEG:
    if (!affine_eval(x, e->a, &a))
      return false;
    *v = affine_sum(affine(0), a, -1);
    return true;
  case EX_NOT:
    if (!affine_truth(x, e->a, &yes))
      return false;
    *v = affine(!yes);
    return true;
  case EX_AND:
  case EX_OR:
    if (!affine_truth(x, e->a, &yes))
      return false;
    if (yes == (e->kind == EX_AND) && !affine_truth(x, e->b, &yes))
      return false;
    *v = affine(yes);
    return true;
  case EX_COND: return affine_truth(x, e->a, &yes) && affine_eval(x, yes ? e->b : e->c, v);
  case EX_REAL: return affine_no(x, e->at, "it is no integer");
  default: break;
  }
  if (!affine_eval(x, e->a, &a) || !affine_eval(x, e->b, &b))
    return false;
  switch (e->kind) {
  case EX_ADD: *v = affine_sum(a, b, 1); break;
  case EX_SUB: *v = affine_sum(a, b, -1); break;
  case EX_MUL:
    if (!multiply(x, e, a, b, v))
      return false;
    break;
  case EX_DIV:
  case EX_MOD:
    if (!affine_fixed(b) || b.a <= 0)
      return affine_no(x, e->b->at,
                       "a divisor must be a positive number that is the same throughout");
    if (!affine_divide(x, a, b.a, v, &rest))
      return false;
    if (e->kind == EX_MOD)
      *v = affine(rest);
    break;
  default: return compare_values(x, e, a, b, v);
  }
  return in_bounds(x, e->at, *v);
}
