/* SPDX-License-Identifier: MIT
 * What moves on by S when a variable moves on by T: sums, multiples, floor quotients and remainders,
 * choices and functions of these (quasi.h). Linear in the expression, its functions written out. */
#include <math.h>

#include "quasi.h"
#include "names.h"

#define MOST_M     0x1p31             /* of M */
#define MOST_VALUE ((int64_t)1 << 40) /* sums of some of them and of what moves do not overflow */

bool quasi_no(AllM *x, Span at, const char *text) {
  if (!x->why.text)
    x->why = (Why){text, at};
  return false;
}

int64_t quasi_gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t t = a % b;
    a = b, b = t;
  }
  return a < 0 ? -a : a;
}

bool quasi_join(Quasi *a, Quasi *b) {
  int64_t T = a->T / quasi_gcd(a->T, b->T) * b->T;
  if (T > MOST_PERIOD)
    return false;
  a->s *= T / a->T, b->s *= T / b->T;
  a->T = b->T = T;
  a->other = b->other = a->other || b->other;
  a->fixed = b->fixed = a->fixed && b->fixed;
  return true;
}

static bool same_step(AllM *x, const Expr *e, Quasi *a, Quasi *b) {
  return quasi_join(a, b) && a->s == b->s ? true : quasi_no(x, e->at, "its two sides move apart");
}

/* All arguments are values outside: evaluate before binding. */
static bool quasi_fn(AllM *x, const Expr *e, Quasi *q) {
  enum { MOST_ARGS = 8 };
  Quasi a[MOST_ARGS];
  int64_t value[MOST_ARGS];
  uint32_t n = 0;
  for (const Arg *arg = e->args; arg; arg = arg->next, n++)
    if (n == MOST_ARGS)
      return quasi_no(x, e->at, "a function has too many arguments");
    else if (!quasi(x, arg->value, &a[n]) ||
             (a[n].fixed && !a[n].other && !eval(x->s, arg->value, &value[n])))
      return false;
  n = 0;
  for (const Param *p = e->fn->params; p; p = p->next, n++) {
    x->env[p->slot] = a[n];
    if (a[n].fixed && !a[n].other)
      x->s->eval.env[p->slot] = value[n];
  }
  return quasi(x, e->fn->body, q);
}

static bool quasi_call(AllM *x, const Expr *e, Quasi *q) {
  Quasi a;
  if (e->builtin == BI_FN)
    return quasi_fn(x, e, q);
  if (e->builtin != BI_MIN && e->builtin != BI_MAX)
    return quasi_no(x, e->at, "it depends on what the order does");
  for (const Arg *arg = e->args; arg; arg = arg->next) {
    if (!quasi(x, arg->value, &a))
      return false;
    if (arg == e->args)
      *q = a;
    else if (!same_step(x, e, q, &a))
      return false;
    q->most = fmax(q->most, a.most);
  }
  return true;
}

bool quasi_number(AllM *x, const Expr *e, const Quasi *q, int64_t *v) {
  return q->fixed && !q->other && eval(x->s, e, v);
}

static bool in_bounds(AllM *x, const Expr *e, int64_t v) {
  return (v <= MOST_VALUE && v >= -MOST_VALUE) || quasi_no(x, e->at, "a value is too large");
}

static bool quasi_of(AllM *x, const Expr *e, Quasi *q) {
  Quasi a, b;
  int64_t n;
  switch (e->kind) {
  case EX_INT: *q = FIXED, q->most = (double)e->value; return in_bounds(x, e, e->value);
  case EX_NAME:
    *q = x->env[e->slot];
    if (q->fixed && !q->other)
      q->most = fabs((double)x->s->eval.env[e->slot]);
    else if (q->most == 0)
      q->most = MOST_M;
    return !q->fixed || q->other || in_bounds(x, e, x->s->eval.env[e->slot]);
  case EX_CALL: return quasi_call(x, e, q);
  case EX_NEG:
  case EX_NOT:
    if (!quasi(x, e->a, q))
      return false;
    if (e->kind == EX_NOT && q->s != 0)
      return quasi_no(x, e->at, "it does not repeat");
    q->s = -q->s;
    q->most = e->kind == EX_NOT ? 1 : q->most;
    return true;
  case EX_COND:
    if (!quasi(x, e->a, &a))
      return false;
    if (quasi_number(x, e->a, &a, &n))
      return quasi(x, n ? e->b : e->c, q);
    if (a.s != 0)
      return quasi_no(x, e->a->at, "it does not repeat");
    if (!quasi(x, e->b, q) || !quasi(x, e->c, &b) || !same_step(x, e, q, &b))
      return false;
    b.s = 0, b.T = 1;
    q->most = fmax(q->most, b.most);
    return quasi_join(&a, q) ? true : quasi_no(x, e->at, "its period is too long");
  default: break;
  }
  if (!quasi(x, e->a, &a) || !quasi(x, e->b, &b))
    return false;
  if (e->kind == EX_DIV || e->kind == EX_MOD) {
    if (!quasi_number(x, e->b, &b, &n) || n <= 0)
      return quasi_no(x, e->b->at,
                      "a divisor must be a positive number that is the same throughout");
    int64_t by = n / quasi_gcd(a.s, n);
    if (by > MOST_PERIOD || a.T * by > MOST_PERIOD)
      return quasi_no(x, e->at, "its period is too long");
    *q = a;
    q->T = a.T * by;
    q->s = e->kind == EX_DIV ? a.s * by / n : 0;
    q->most = e->kind == EX_DIV ? a.most : (double)n;
    return true;
  }
  if (e->kind == EX_MUL) {
    double most = a.most * b.most;
    const Expr *factor = a.fixed && !a.other ? e->a : e->b;
    Quasi *of = factor == e->a ? &a : &b, *other = factor == e->a ? &b : &a;
    if (quasi_number(x, factor, of, &n)) {
      if (__builtin_mul_overflow(other->s, n, &other->s))
        return quasi_no(x, e->at, "it moves too fast");
      *q = *other, q->most = most;
      return !quasi_number(x, e, q, &n) || in_bounds(x, e, n);
    }
    if (!quasi_join(&a, &b) || a.s != 0 || b.s != 0)
      return quasi_no(x, e->at, "it is not linear");
    *q = a, q->most = most;
    return true;
  }
  if (!quasi_join(&a, &b))
    return quasi_no(x, e->at, "its period is too long");
  *q = a;
  q->most = e->kind == EX_ADD || e->kind == EX_SUB ? a.most + b.most : 1;
  switch (e->kind) {
  case EX_ADD: q->s = a.s + b.s; return true;
  case EX_SUB: q->s = a.s - b.s; return true;
  case EX_AND:
  case EX_OR: return a.s == 0 && b.s == 0 ? true : quasi_no(x, e->at, "it does not repeat");
  default: q->s = 0; return a.s == b.s ? true : quasi_no(x, e->at, "its two sides move apart");
  }
}

bool quasi(AllM *x, const Expr *e, Quasi *q) {
  if (!work_take(x->s->work, WORK_EXPR, e->at))
    return false;
  if (!quasi_of(x, e, q))
    return false;
  if (q->s > INT32_MAX || q->s < -INT32_MAX)
    return quasi_no(x, e->at, "it moves too fast");
  return q->most <= 0x1p62 || quasi_no(x, e->at, "a value is too large");
}

bool quasi_index(AllM *x, const Expr *e, Quasi *q) {
  return quasi(x, e, q) &&
         (q->most <= MOST_INDEX || quasi_no(x, e->at, "the range ends too far away"));
}
