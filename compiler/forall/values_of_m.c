/* SPDX-License-Identifier: MIT
 * Has an expression of integers a value for every M? What M or a microbatch moves divides by what is positive whatever they
 * are, and has at most MOST_BITS with each part of it. What does not move has been computed at the M at hand, but for what
 * stands behind a condition that moves: of that the same is asked. Linear in the text, once for each call of a
 * function, times its depth. (Formulas: formula_ranges.c) */
#include "names.h"
#include "rest_of_m.h"

enum {
  MOST_BITS = 62, /* of an integer: at most 2^62 */
  MOST_ARGS = 8,
  MOST_STEPS = 1 << 20
};

static bool moves(const Line *l, const Expr *e) { return expr_is_moved((Moved *)&l->moved, e); }
static bool is_m(const Line *l, const Expr *e) { return e->kind == EX_NAME && e->slot == l->m; }
static bool is_known(const Line *l, const Expr *e) {
  return e->kind == EX_NAME && l->known[e->slot] && !l->moved.slot[e->slot];
}

/* Of min all, of max one is at least that. */
static bool extreme_is(const Line *l, const Expr *e, bool (*is)(const Line *, const Expr *)) {
  bool all = true, any = false;
  for (const Arg *a = e->fn ? NULL : e->args; a; a = a->next) {
    bool yes = is(l, a->value);
    all &= yes, any |= yes;
  }
  return e->builtin == BI_MIN ? all : e->builtin == BI_MAX && any;
}

static bool all_known(const Line *l, const Expr *e) {
  bool all = !e || (e->kind != EX_NAME && !e->fn) || (e->kind == EX_NAME && is_known(l, e));
  for (const Arg *a = e ? e->args : NULL; a && all; a = a->next)
    all = all_known(l, a->value);
  return all && (!e || (all_known(l, e->a) && all_known(l, e->b) && all_known(l, e->c)));
}

bool known_value(const Line *l, const Expr *e, int64_t *v) {
  Diag none;
  Sched own = *l->s;
  if (!all_known(l, e))
    return false;
  diag_init(&none, own.arena, NULL);
  none.source = own.diag->source, none.nsource = own.diag->nsource; /* to quote */
  own.diag = &none;
  return eval(&own, e, v);
}

bool always_positive(const Line *l, const Expr *e) {
  int64_t v;
  if (e->kind == EX_SUB && known_value(l, e, &v))
    return v > 0;
  switch (e->kind) {
  case EX_INT: return e->value > 0;
  case EX_NAME: return is_m(l, e) || (is_known(l, e) && l->s->eval.env[e->slot] > 0);
  case EX_ADD:
    return (always_positive(l, e->a) && never_negative(l, e->b)) ||
           (never_negative(l, e->a) && always_positive(l, e->b));
  case EX_MUL: return always_positive(l, e->a) && always_positive(l, e->b);
  case EX_COND: return always_positive(l, e->b) && always_positive(l, e->c);
  case EX_CALL: return extreme_is(l, e, always_positive);
  default: return false;
  }
}

bool never_negative(const Line *l, const Expr *e) {
  int64_t v;
  if (e->kind == EX_SUB && known_value(l, e, &v))
    return v >= 0;
  switch (e->kind) {
  case EX_INT: return e->value >= 0;
  case EX_NAME:
    return is_m(l, e) || (is_known(l, e) && l->s->eval.env[e->slot] >= 0) || l->natural[e->slot];
  case EX_ADD:
  case EX_MUL:
  case EX_DIV: return never_negative(l, e->a) && never_negative(l, e->b);
  case EX_MOD: return always_positive(l, e->b);
  case EX_COND: return never_negative(l, e->b) && never_negative(l, e->c);
  case EX_CALL: return extreme_is(l, e, never_negative);
  case EX_NEG:
  case EX_SUB: return false;
  default: return true; /* 0 or 1 */
  }
}

static uint8_t bits_kept(uint32_t n) { return n > MOST_BITS ? MOST_BITS + 1 : (uint8_t)n; }

/* Binds the parameters of a function of the schedule: they move as the arguments do, each of which is read before the first is
 * bound, since it may call the same function. */
static bool bind_params(Line *l, const Expr *call) {
  struct {
    bool moved, natural;
    uint32_t bits;
  } few[MOST_ARGS];
  uint32_t n = 0;
  for (const Arg *a = call->args; a; a = a->next, n++) {
    if (n == MOST_ARGS)
      return false;
    few[n].moved = moves(l, a->value), few[n].natural = never_negative(l, a->value);
    few[n].bits = bits_of(l, a->value);
  }
  n = 0;
  for (const Param *p = call->fn->params; p; p = p->next, n++) {
    l->moved.slot[p->slot] = few[n].moved, l->natural[p->slot] = few[n].natural;
    l->known[p->slot] = false;
    l->bits[p->slot] = bits_kept(few[n].bits);
  }
  return true;
}

uint32_t bits_of(Line *l, const Expr *e) {
  uint32_t a, b, n = 0;
  if (l->steps++ > MOST_STEPS)
    return MOST_BITS + 1;
  switch (e->kind) {
  case EX_INT:
    while (n < 63 && e->value >> n)
      n++;
    return n;
  case EX_NAME:
    if (!is_known(l, e))
      return l->bits[e->slot];
    while (n < 63 &&
           (l->s->eval.env[e->slot] < 0 ? ~l->s->eval.env[e->slot] : l->s->eval.env[e->slot]) >> n)
      n++;
    return n;
  case EX_CALL:
    if (e->fn)
      return bind_params(l, e) ? bits_of(l, e->fn->body) : MOST_BITS + 1;
    for (const Arg *x = e->args; x; x = x->next)
      n = (a = bits_of(l, x->value)) > n ? a : n;
    return n;
  case EX_NEG: return bits_of(l, e->a);
  case EX_COND: a = bits_of(l, e->b), b = bits_of(l, e->c); return a > b ? a : b;
  case EX_ADD:
  case EX_SUB: a = bits_of(l, e->a), b = bits_of(l, e->b); return (a > b ? a : b) + 1;
  case EX_MUL: return bits_of(l, e->a) + bits_of(l, e->b);
  case EX_DIV: return bits_of(l, e->a) + 1;
  case EX_MOD: return bits_of(l, e->b);
  default: return 1;
  }
}

static const Expr *call_value(Line *l, const Expr *e, bool late);

static const Expr *part_value(Line *l, const Expr *e, bool late) {
  const Expr *no;
  if (!e)
    return NULL;
  if (l->steps++ > MOST_STEPS)
    return e;
  bool a_moves = e->a && moves(l, e->a), b_moves = e->b && moves(l, e->b);
  switch (e->kind) {
  case EX_CALL: return call_value(l, e, late);
  case EX_AND:
  case EX_OR: no = part_value(l, e->a, late); return no ? no : part_value(l, e->b, late || a_moves);
  case EX_COND:
    no = part_value(l, e->a, late);
    no = no ? no : part_value(l, e->b, late || a_moves);
    return no ? no : part_value(l, e->c, late || a_moves);
  case EX_DIV:
  case EX_MOD:
    if ((late || b_moves) && !always_positive(l, e->b))
      return e->b;
    break;
  case EX_MUL:
    if (a_moves && b_moves)
      return e;
    break;
  default: break;
  }
  if ((late || a_moves || b_moves) &&
      (e->kind == EX_MUL || e->kind == EX_ADD || e->kind == EX_SUB) && bits_of(l, e) > MOST_BITS)
    return e;
  no = part_value(l, e->a, late);
  return no ? no : part_value(l, e->b, late);
}

static const Expr *call_value(Line *l, const Expr *e, bool late) {
  const Expr *no = NULL;
  for (const Arg *a = e->args; a && !no; a = a->next)
    no = part_value(l, a->value, late);
  if (!no && e->fn)
    no = bind_params(l, e) && !part_value(l, e->fn->body, late) ? NULL : e;
  return no;
}

const Expr *no_value(Line *l, const Expr *e, bool late) {
  if (!e || (!late && !moves(l, e)))
    return NULL;
  l->steps = 0;
  return part_value(l, e, late);
}
